"""Kernel names: the tile, cluster, stages and split that a library writes into them.

The grammar is a table, data/kernel_names.toml: one rule a family, in the order they are
tried, each with real names as its examples.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal, get_args

Kind = Literal["gemm", "convolution", "attention", "reduction", "communication"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_LARGEST = 1 << 16  # of a tile, cluster or number of stages; real ones have four digits at most
# Names are searched up to here: beyond it a demangled template repeats its arguments.
_SEARCHED = 4000
_NUMBERS = ("tile_m", "tile_n", "tile_k", "stages", "cluster_m", "cluster_n")


@dataclass(frozen=True)
class DecodedName:
    """What a name says; None where it is silent.

    `tile_m`, `tile_n` and `cluster_m`, `cluster_n` are in the order the name has them:
    where `column_major` is True, the first of each covers the columns of a row-major C.
    `split_k` says that k is shared among CTAs, not among how many.  `dtype` is that of
    the operands.  `persistent` kernels loop over tiles inside a CTA; None: a name does
    not tell.
    """

    family: str
    kind: Kind
    tile_m: int | None = None
    tile_n: int | None = None
    tile_k: int | None = None
    stages: int | None = None
    cluster_m: int | None = None
    cluster_n: int | None = None
    split_k: bool = False
    layout: str | None = None
    cooperation: str | None = None
    raster: str | None = None
    dtype: str | None = None
    column_major: bool = False
    persistent: bool | None = None

    @property
    def cluster(self) -> int | None:
        """CTAs a cluster, where the name has a cluster."""
        if self.cluster_m is None or self.cluster_n is None:
            return None
        return self.cluster_m * self.cluster_n

    @property
    def row_tile(self) -> int | None:
        """Rows of a row-major C that a tile covers."""
        return self.tile_n if self.column_major else self.tile_m

    @property
    def column_tile(self) -> int | None:
        """Columns of a row-major C that a tile covers."""
        return self.tile_m if self.column_major else self.tile_n


@dataclass(frozen=True)
class Rule:
    """One family: `pattern` recognises it, its named groups and those of `also` are what it says.

    `dtypes` maps the beginning of the group `types` to the operands' type.
    """

    family: str
    kind: Kind
    pattern: re.Pattern[str]
    also: tuple[re.Pattern[str], ...]
    split_k: re.Pattern[str] | None
    persistent: bool | None
    persistent_if: re.Pattern[str] | None
    column_major: bool
    dtypes: dict[str, str]
    examples: tuple[dict[str, Any], ...] = field(default=())


@functools.cache
def rules() -> tuple[Rule, ...]:
    """The rules of data/kernel_names.toml, in the order they are tried."""
    table = tomllib.loads(files("wavescope").joinpath("data/kernel_names.toml").read_text(encoding="utf-8"))
    return tuple(_rule(entry) for entry in table["rule"])


def _rule(entry: dict[str, Any]) -> Rule:
    def pattern(key: str) -> re.Pattern[str] | None:
        return re.compile(entry[key]) if key in entry else None

    return Rule(
        family=entry["family"],
        kind=entry["kind"],
        pattern=re.compile(entry["pattern"]),
        also=tuple(re.compile(text) for text in entry.get("also", ())),
        split_k=pattern("split_k"),
        persistent=entry.get("persistent"),
        persistent_if=pattern("persistent_if"),
        column_major=entry.get("column_major", False),
        dtypes=entry.get("dtypes", {}),
        examples=tuple(entry.get("examples", ())),
    )


@functools.lru_cache(maxsize=65536)
def decode(name: str) -> DecodedName | None:
    """What the first rule that recognises the name reads in it; None for names that no rule knows."""
    text = name[:_SEARCHED]
    for rule in rules():
        found = rule.pattern.search(text)
        if found:
            return _read(rule, text, found)
    return None


def _read(rule: Rule, text: str, found: re.Match[str]) -> DecodedName | None:
    said = {key: value for key, value in found.groupdict().items() if value is not None}
    for pattern in rule.also:
        more = pattern.search(text)
        said.update({key: value for key, value in more.groupdict().items() if value is not None} if more else {})
    numbers = {key: int(said[key]) for key in _NUMBERS if key in said}
    if not all(0 < number <= _LARGEST for number in numbers.values()):
        return None  # no tile has a side of 0 or of a million: a name that only looks like one of the family
    persistent = rule.persistent
    if rule.persistent_if:
        persistent = rule.persistent_if.search(text) is not None
    return DecodedName(
        family=rule.family,
        kind=rule.kind,
        tile_m=numbers.get("tile_m"),
        tile_n=numbers.get("tile_n"),
        tile_k=numbers.get("tile_k"),
        stages=numbers.get("stages"),
        cluster_m=numbers.get("cluster_m"),
        cluster_n=numbers.get("cluster_n"),
        split_k=rule.split_k is not None and rule.split_k.search(text) is not None,
        layout=said.get("layout"),
        cooperation=said.get("cooperation"),
        raster=said.get("raster"),
        dtype=_dtype(rule.dtypes, said.get("types", "")),
        column_major=rule.column_major,
        persistent=persistent,
    )


def _dtype(dtypes: dict[str, str], written: str) -> str | None:
    """The type whose key the written types begin with, the longest such key first."""
    for beginning in sorted(dtypes, key=len, reverse=True):
        if written.startswith(beginning):
            return dtypes[beginning]
    return None
