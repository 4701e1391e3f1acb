"""`wavescope explain`: what the words of the reports mean."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wavescope.terms import Term

WIDTH = 78
WIDE = 110  # paths of JSON keys take half of it


def explain(
    term: Annotated[list[str] | None, typer.Argument(metavar="[TERM]", help="A word from a report.")] = None,
) -> None:
    """Explain a word of the reports: definition, formula, example, source.

    Without a word, list all; 'json', 'compare json', 'ladder json' and 'audit json' list the keys of --json.
    """
    from wavescope.terms import find, terms

    if not term:
        print(_list([(entry.name, entry.definition.split(". ")[0].rstrip(".") + ".") for entry in terms()]))
    elif [word.lower().lstrip("-") for word in term] == ["json"]:
        from wavescope.report.json import KEYS

        print(_list(list(KEYS.items()), width=WIDE))
    elif [word.lower().lstrip("-") for word in term] == ["compare", "json"]:
        from wavescope.report.compare_json import KEYS as COMPARE_KEYS

        print(_list(list(COMPARE_KEYS.items()), width=WIDE))
    elif [word.lower().lstrip("-") for word in term] == ["ladder", "json"]:
        from wavescope.report.ladder_json import KEYS as LADDER_KEYS

        print(_list(list(LADDER_KEYS.items()), width=WIDE))
    elif [word.lower().lstrip("-") for word in term] == ["audit", "json"]:
        from wavescope.report.audit_json import KEYS as AUDIT_KEYS

        print(_list(list(AUDIT_KEYS.items()), width=WIDE))
    else:
        print(_entry(find(" ".join(term))))


def _list(rows: list[tuple[str, str]], width: int = WIDTH) -> str:
    """Names, and beside them what they mean."""
    wide = max(len(name) for name, _ in rows)
    lines = []
    for name, text in rows:
        indent = " " * (wide + 2)
        lines += textwrap.wrap(text, width, initial_indent=f"{name:<{wide}}  ", subsequent_indent=indent)
    return "\n".join(lines)


def _entry(term: Term) -> str:
    also = f"  (also: {', '.join(term.aliases)})" if term.aliases else ""
    parts = [f"{term.name}{also}", *_wrapped("", term.definition)]
    for label, text in (("formula", term.formula), ("example", term.example), ("source", term.source)):
        parts += _wrapped(f"{label:<9}", text) if text else []
    return "\n".join(parts)


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label}", subsequent_indent="  " + " " * len(label), break_on_hyphens=False
    )
