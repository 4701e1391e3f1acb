"""The characters a report draws with: blocks and lines, or plain ASCII."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from wavescope.wave_report import STATES

# One style a state.  Loss is warm, work is cool; each also has a character of its own, so
# that nothing is said by colour alone.
STATE_STYLES = {
    "mac": "color(39)",
    "fixup": "color(141)",
    "epilogue": "color(43)",
    "wait": "color(214)",
    "resident": "color(228)",
    "turnaround": "color(180)",
    "ramp": "color(174)",
    "tail": "color(203)",
    "unfilled": "color(243)",
}


@dataclass(frozen=True)
class Glyphs:
    """One set of characters.

    `eighths` are the partly filled ends of a bar in rising order (none: whole cells only);
    `levels` show a share, from none to all; `states` has one character for each name in
    STATES, all different.
    """

    full: str
    eighths: str
    levels: str
    lost: str
    rule: str
    axis: str
    axis_start: str
    axis_end: str
    plus_minus: str
    ellipsis: str
    states: dict[str, str] = field(default_factory=dict)

    def bar(self, length: float) -> str:
        """A bar `length` cells long; anything above 0 leaves a mark."""
        whole = int(length) if self.eighths else round(length)
        steps = len(self.eighths) + 1
        part = max(0, round((length - whole) * steps)) if self.eighths else 0
        if part == steps:
            whole, part = whole + 1, 0
        if whole == 0 and part == 0 and length > 0:
            return self.eighths[0] if self.eighths else self.full
        return self.full * whole + (self.eighths[part - 1] if part else "")

    def level(self, share: float) -> str:
        """The character for a share between 0 and 1."""
        return self.levels[max(0, min(len(self.levels) - 1, int(share * len(self.levels))))]

    @property
    def characters(self) -> str:
        """All of them, to try whether an encoding has them."""
        texts = [getattr(self, entry.name) for entry in fields(self) if entry.name != "states"]
        return "".join([*texts, *self.states.values()])


def _by_state(characters: str) -> dict[str, str]:
    return dict(zip(STATES, characters, strict=True))


UNICODE = Glyphs(
    full="█",
    eighths="▏▎▍▌▋▊▉",
    levels="▁▂▃▄▅▆▇█",
    lost="░",
    rule="─",
    axis="─",
    axis_start="└",
    axis_end="┘",
    plus_minus="±",
    ellipsis="…",
    states=_by_state("█▚▒w░:/· "),
)
ASCII = Glyphs(
    full="#",
    eighths="",
    levels="0123456789",
    lost="-",
    rule="-",
    axis="-",
    axis_start="+",
    axis_end="+",
    plus_minus="+-",
    ellipsis="..",
    states=_by_state("#xewr:/. "),
)


def for_encoding(encoding: str | None) -> Glyphs:
    """The block characters where `encoding` has all of them, else ASCII."""
    try:
        UNICODE.characters.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
