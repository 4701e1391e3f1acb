"""Where the hardware puts the first CTAs of a launch."""

from __future__ import annotations

import csv
import functools
from importlib.resources import files

import numpy as np

from wavescope.device import Device
from wavescope.trace import IntColumn


@functools.cache
def _recorded_orders() -> dict[str, tuple[int, ...]]:
    table = files("wavescope").joinpath("data/dispatch.csv").read_text(encoding="utf-8")
    return {row["device"]: tuple(map(int, row["sms"].split())) for row in csv.DictReader(table.splitlines())}


def first_wave_order(device: Device, ctas_per_sm: int = 1) -> IntColumn:
    """The SM id of each place, in the order in which a grid that fills them all gets its first CTAs.

    As recorded once (data/dispatch.csv), an SM's first `ctas_per_sm` CTAs.  It does not
    go round the SMs evenly: eight of the H200's have all their CTAs before the others do,
    and so get most units of a persistent launch.  SMs go 0, 1, 2, ... for a device that
    is not there, or of which only a part is visible.  The order is not guaranteed, and
    where it begins changes between launches.
    """
    order = np.array(_recorded_orders().get(device.name, ()), np.int64)
    if len(np.unique(order)) != device.sms:
        return np.tile(np.arange(device.sms), ctas_per_sm)
    nth = _nth_time(order)
    further_rounds = max(0, ctas_per_sm - 1 - int(nth.max()))
    return np.concatenate([order[nth < ctas_per_sm], np.tile(order[nth == 0], further_rounds)])


def _nth_time(values: IntColumn) -> IntColumn:
    """How many times each value stood there before."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    nth = np.empty_like(values)
    nth[order] = np.arange(len(values)) - np.searchsorted(ranked, ranked)
    return nth
