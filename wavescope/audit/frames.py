"""Frames: the audit as pandas tables, for notebooks.

from wavescope.audit.frames import audit, groups, launches
groups(audit(["trace.json.gz"]))
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wavescope.audit.assessed import Assessed, estimated_activity, lost_ns
from wavescope.audit.examine import Audit, audit
from wavescope.audit.groups import Group
from wavescope.audit.launches import NULL, ObjectColumn

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["audit", "group_row", "groups", "launch_columns", "launches"]

_TRIPLES = ("grid", "block", "cluster")
_NULLABLE = ("stream", "start_ns", "duration_ns", "registers", "shared_static", "shared_dynamic", "graph")


def launches(audited: Audit) -> pd.DataFrame:
    """One row a launch: what the profile says, and what was worked out.

    Columns: file, name, device, stream, start_ns, duration_ns, grid, block, cluster (as
    'x,y,z'), registers, shared_static, shared_dynamic, graph, operator, shapes, verdict,
    reason, problem, tile, tiles, split_k, occupancy, waves, sm_rounds, fill, active_estimated,
    active_measured, lost_low_ns, lost_high_ns, padding, neighbour, neighbour_sms.  What is
    not known is missing (NaN, None or <NA>).
    """
    import pandas as pd

    parts = [pd.DataFrame(launch_columns(profile)) for profile in audited.profiles]
    frame = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    for name in (*_NULLABLE, "tiles", "split_k"):
        frame[name] = frame[name].astype("Int64").mask(frame[name] == NULL)
    return frame


def groups(audited: Audit) -> pd.DataFrame:
    """One row a group, ranked as the report ranks them; columns as in --json, times in ns."""
    import pandas as pd

    return pd.DataFrame([group_row(group) for group in audited.groups])


def launch_columns(profile: Assessed) -> dict[str, Any]:
    """The columns of `launches` for one profile; NULL in integer columns."""
    table = profile.launches
    low, high = lost_ns(profile)
    neighbours = profile.overlaps.neighbour
    shares = profile.has_neighbour
    entries = profile.assessments
    of = profile.key_of

    def text(values: list[Any]) -> np.ndarray:
        column = np.empty(len(values), object)
        column[:] = values
        return column[of]

    def whole(values: list[int]) -> np.ndarray:
        return np.array(values, np.int64)[of]

    return {
        "file": np.full(len(table), Path(table.path).name, object),
        "name": table.name,
        "device": table.device,
        **{name: getattr(table, name) for name in _NULLABLE[:3]},
        **{name: text([_extent(getattr(key, name)) for key in profile.keys]) for name in _TRIPLES},
        **{name: getattr(table, name) for name in _NULLABLE[3:]},
        "operator": table.operator,
        "shapes": table.shapes,
        "verdict": text([entry.verdict for entry in entries]),
        "reason": text([entry.reason or None for entry in entries]),
        "problem": text([str(entry.gemm) if entry.gemm else None for entry in entries]),
        "tile": text([_tile(entry.decoded) for entry in entries]),
        "tiles": whole([entry.tiling.tiles if entry.tiling else NULL for entry in entries]),
        "split_k": whole([entry.tiling.split_k if entry.tiling else NULL for entry in entries]),
        "occupancy": profile.of_launches(lambda entry: entry.occupancy),
        "waves": profile.of_launches(lambda entry: entry.waves),
        "sm_rounds": profile.of_launches(lambda entry: entry.sm_rounds),
        "fill": profile.of_launches(lambda entry: entry.fill),
        "active_estimated": estimated_activity(profile),
        "active_measured": np.asarray(table.sm_active_avg_over_max),
        "lost_low_ns": low,
        "lost_high_ns": high,
        "padding": profile.of_launches(lambda entry: entry.padding),
        "neighbour": _where(shares, table.name[np.maximum(neighbours, 0)]),
        "neighbour_sms": np.where(shares, profile.overlaps.sms, 0.0),
    }


def _where(chosen: np.ndarray, values: ObjectColumn) -> ObjectColumn:
    """The values where chosen, None elsewhere."""
    column = values.copy()
    column[~chosen] = None
    return column


def group_row(group: Group) -> dict[str, Any]:
    """One group as plain values; None where unknown."""
    entry = group.assessment
    cut, room, name = entry.tiling, entry.capacity, entry.decoded
    return {
        "name": group.name,
        "operator": group.operator,
        "shapes": _lists(group.shapes),
        "problem": str(entry.gemm) if entry.gemm else None,
        "grid": _lists(group.grid) if NULL not in group.grid else None,
        "block": _lists(group.block) if NULL not in group.block else None,
        "kernels": group.kernels,
        "launches": group.count,
        "total_ns": group.total_ns,
        "median_ns": group.median_ns,
        "verdict": entry.verdict,
        "reason": entry.reason or None,
        "tile": _tile(name),
        "tiles": cut.tiles if cut else None,
        "split_k": cut.split_k if cut else None,
        "split_k_is_known": cut.split_is_known if cut else None,
        "cluster": cut.group if cut else (name.cluster if name else None),
        "sms": room.sms if room else None,
        "ctas_per_sm": room.ctas_per_sm if room else None,
        "places": room.ctas if room else None,
        "reachable_sms": room.reachable_sms if room else None,
        "capacity_source": room.source if room else None,
        "occupancy": _number(entry.occupancy),
        "waves": _number(entry.waves),
        "sm_rounds": _number(entry.sm_rounds),
        "fill": _number(group.fill),
        "active_estimated": _number(group.activity),
        "active_measured": _number(group.measured),
        "lost_low_ns": group.lost_low_ns if entry.is_assessed else None,
        "lost_high_ns": group.lost_high_ns if entry.is_assessed else None,
        "quantization_ns": group.quantization_ns if entry.is_assessed else None,
        "few_blocks_ns": group.few_blocks_ns if entry.is_assessed else None,
        "clusters_ns": group.clusters_ns if entry.is_assessed else None,
        "padding_ns": group.padding_ns if not math.isnan(entry.padding) else None,
        "beside": group.beside.name if group.beside else None,
        "beside_launches": group.beside.count if group.beside else 0,
        "beside_sms": group.beside.sms if group.beside else None,
        "beside_waves": _number(group.beside.waves) if group.beside else None,
        "plateaus": [
            {"begin_ns": step.begin_ns, "end_ns": step.end_ns, "share": step.share, "busy_sms": step.busy}
            for step in group.plateaus
        ],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _lists(value: Any) -> Any:
    return [_lists(entry) for entry in value] if isinstance(value, tuple) else value


def _extent(triple: tuple[int, int, int]) -> str | None:
    return None if NULL in triple else ",".join(str(extent) for extent in triple)


def _tile(name: Any) -> str | None:
    if name is None or name.tile_m is None:
        return None
    depth = f"x{name.tile_k}" if name.tile_k else ""
    return f"{name.tile_m}x{name.tile_n}{depth}"
