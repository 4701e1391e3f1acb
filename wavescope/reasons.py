"""A difference of two times in words: what was saved, what was paid, and what may be behind it."""

from __future__ import annotations

from collections.abc import Sequence

from wavescope.accounts import Account, Part
from wavescope.device import Device
from wavescope.standings import Standing
from wavescope.trace import Source

# How a part is called where it saves time, and where it costs some.
WORDS = {
    "units": ("units faster", "units slower"),
    "clock": ("higher clock", "lower clock"),
    "fixup": ("less fix-up", "fix-up paid"),
    "epilogue": ("less storing of tiles", "more storing of tiles"),
    "wait": ("less waiting for other CTAs", "waiting for other CTAs"),
    "resident": ("less prologue and exit", "more prologue and exit"),
    "turnaround": ("shorter gaps between CTAs", "longer gaps between CTAs"),
    "ramp": ("earlier first CTAs", "later first CTAs"),
    "tail": ("tail removed", "tail added"),
    "unfilled": ("SMs without a CTA put to work", "more SMs without a CTA"),
    "launch": ("less around the launch", "more around the launch"),
    "left over": ("less left over", "more left over"),
}
POWER_CAP = "software power cap"  # one of NVML's reasons, as Timing.clock_limits has it
# Parts that cancel are worth a sentence from this share of the time on.
WORTH_IN_A_DRAW = 0.02


def account_words(between: Account, named: Sequence[Part], first_ns: float, k_iters_per_sm: float) -> list[str]:
    """What makes the difference, largest first, in us an SM; what is not `named` is the rest, so that it adds up."""
    if not named:
        return []
    said = [_part_words(part, first_ns, k_iters_per_sm) for part in named]
    rest = between.total_ns - sum(part.amount.value for part in named)
    if abs(rest) >= 0.05 * 10 ** (3 - decimals(first_ns)):
        said.append(f"the rest {microseconds(rest, first_ns, signed=True)}")
    total = microseconds(between.total_ns, first_ns, signed=True)
    return [f"What makes the {total} us, SM time over SMs: {', '.join(said)}."]


def draw_words(named: Sequence[Part], first_ns: float, k_iters_per_sm: float) -> list[str]:
    """Of a difference that does not show: large parts that cancel."""
    large = [part for part in named if abs(part.amount.value) >= WORTH_IN_A_DRAW * first_ns]
    saved, paid = (any(part.amount.value * sign > 0 for part in large) for sign in (-1, 1))
    if not (saved and paid):
        return []
    said = ", ".join(_part_words(part, first_ns, k_iters_per_sm) for part in large)
    return [f"What is saved is paid elsewhere, us of SM time over SMs: {said}."]


def imbalance_words(first: Standing, own: Standing) -> list[str]:
    """With irregular work: what each loses to it, in us of SM time over SMs."""
    lost, told = [], False
    for one in (first, own):
        tail = one.report.tail if one.report else None
        if one.report is None or tail is None or not tail.of_equal_units:
            return []
        value, error = tail.imbalance.value / one.report.budget.sms, tail.imbalance.error / one.report.budget.sms
        if tail.imbalance.refused:  # near 0, that is: with more than this it would not be
            least = abs(value) + error
            lost.append(f"less than {microseconds(least, first.time_ns.median)}")
        else:
            lost.append(microseconds(value, first.time_ns.median, signed=True))
            told = True
    if not told:
        return []
    return [
        f"Of its tail {first.name} loses {lost[0]} us to imbalance, {own.name} {lost[1]} us: what unequal tiles add to "
        "the loss of as many equal ones, SM time over SMs (estimated)."
    ]


def doubts(first: Standing, own: Standing, device: Device) -> list[str]:
    """What a simulated difference leaves out: CTAs at different k that read past the L2 (Schedule.reads_past)."""
    names = [
        one.name for one in (first, own) if one.is_split and one.planned and one.planned.reads_past(device.l2_bytes)
    ]
    if not names:
        return []
    return [
        f"CTAs of {' and '.join(names)} are at different k and read past the L2 here, which a simulation leaves out: "
        "the real time may be up to twice as long."
    ]


def causes(first: Standing, own: Standing, named: Sequence[Part], source: Source) -> list[str]:
    """What may be behind slower units and a lower clock; what was not measured is said to be inferred."""
    paid = {part.name for part in named if part.amount.value > 0}
    if not (first.report and own.report):
        return []
    before, after = first.report, own.report
    said = []
    if "units" in paid and before.launch.raster != after.launch.raster:
        said.append(f"The raster is another one: {after.launch.raster} here, {before.launch.raster} in {first.name}.")
    if "units" in paid and after.launch.order != before.launch.order and source == "measured":
        said.append(
            "Neighbours in C do not run side by side where the longest tiles come first, so SMs may share fewer of "
            "their reads (inferred: reads were not counted)."
        )
    if "units" in paid and own.is_split and after.waves.num_units > before.waves.num_units:
        said.append(
            f"There are {after.waves.num_units} units in place of {before.waves.num_units}, and each fills its "
            "pipeline anew."
        )
    if "units" in paid and own.is_split and source == "measured" and own.planned and own.planned.is_staggered.any():
        said.append(
            "CTAs side by side are at different places of k, so SMs share fewer of their reads "
            "(inferred: reads were not counted)."
        )
    if "clock" in paid and after.budget.share("tail") < before.budget.share("tail"):
        limits = after.launch.timing.clock_limits if after.launch.timing else None
        known = "NVML names the power cap" if limits and POWER_CAP in limits else "inferred"
        known = "as calibrated" if source == "simulated" else known
        said.append(f"SMs that idle in {first.name} come back as clock there ({known}).")
    return said


def _part_words(part: Part, first_ns: float, k_iters_per_sm: float) -> str:
    """A part with its amount, and in brackets what it was and what it is."""
    word = WORDS[part.name][part.amount.value > 0]
    before, after = part.before, part.after
    if part.name == "clock":
        about = f"{before:.0f} to {after:.0f} MHz in mac"
    elif part.name == "units":
        about = f"mac cycles a k_iter {before / k_iters_per_sm:.0f} to {after / k_iters_per_sm:.0f}"
    else:
        about = f"{microseconds(before, first_ns)} to {microseconds(after, first_ns)}"
    return f"{word} {microseconds(part.amount.value, first_ns, signed=True)} ({about})"


def microseconds(ns: float, like_ns: float, signed: bool = False) -> str:
    """A time in us without its unit, with the decimals that suit times like `like_ns`."""
    return f"{ns / 1e3:{'+' if signed else ''}.{decimals(like_ns)}f}"


def decimals(like_ns: float) -> int:
    """Decimals of times in us: four digits of a time like this one."""
    return 1 if like_ns >= 1e5 else 2 if like_ns >= 1e4 else 3
