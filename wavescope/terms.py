"""The glossary: every word that a report prints, defined once, with a formula and an example."""

from __future__ import annotations

import difflib
import functools
import tomllib
from dataclasses import dataclass
from importlib.resources import files

from wavescope.errors import UsageError


@dataclass(frozen=True)
class Term:
    """One word: what it means, how it is computed, an example, and where the word is from."""

    name: str
    definition: str
    source: str
    formula: str = ""
    example: str = ""
    aliases: tuple[str, ...] = ()


@functools.cache
def terms() -> tuple[Term, ...]:
    """The entries of data/terms.toml, related ones together."""
    entries = tomllib.loads(files("wavescope").joinpath("data/terms.toml").read_text(encoding="utf-8"))["term"]
    return tuple(_term(entry) for entry in entries)


def _term(entry: dict[str, str | list[str]]) -> Term:
    aliases = tuple(entry.pop("aliases", ()))
    return Term(**{key: " ".join(str(text).split()) for key, text in entry.items()}, aliases=aliases)


def find(word: str) -> Term:
    """The term with this name or alias, in any case; spaces, hyphens and underscores are alike.

    Raises: UsageError with the closest names.
    """
    by_key = {_key(name): term for term in reversed(terms()) for name in (*term.aliases, term.name)}
    found = by_key.get(_key(word)) or by_key.get(_key(word).removesuffix("s"))
    if found:
        return found
    close = difflib.get_close_matches(_key(word), by_key, 3)
    names = list(dict.fromkeys(by_key[key].name for key in close))
    hint = f"did you mean {', '.join(names)}?" if names else "'wavescope explain' lists all"
    raise UsageError(f'no term "{word}"; {hint}')


def _key(word: str) -> str:
    return " ".join(word.lower().replace("_", " ").replace("-", " ").split())
