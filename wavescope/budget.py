"""The budget: where S x T went, every term measured on its own, none by subtraction."""

from __future__ import annotations

import math

import numpy as np

from wavescope.errors import IntegrityError
from wavescope.states import IDLE, SmStates
from wavescope.trace import Kind
from wavescope.wave_report import STATES, Budget, Quantity

# Where each column of SmStates.state_ns goes in STATES.
_MEASURED = {
    "mac": Kind.MAC,
    "fixup": Kind.FIXUP,
    "epilogue": Kind.EPILOGUE,
    "wait": Kind.WAIT,
    "resident": Kind.CTA,
    "turnaround": IDLE,
}


def budget(states: SmStates, sms: int, timer_step_ns: float, useful_share: float | None) -> Budget:
    """Share out S x T: active states and turnaround from the sweep, the rest from first and last CTAs.

    `sms` = S; `useful_share` = useful over issued operations (None: unknown, padding 0).
    A term's error is the timer step times the root of the sum of squares of how often
    each endpoint enters it: once for an SM's own, `used` times for T0 in ramp.

    Raises: IntegrityError where more SMs ran something than there are.
    """
    used, duration = len(states.sm_ids), states.duration_ns
    if used > sms:
        raise IntegrityError(f"spans name {used} SMs, but the device has {sms}; use the trace with its own device")
    unused = sms - used
    per_sm = np.zeros((sms, len(STATES)), np.int64)
    endpoints = {"ramp": used + used**2, "tail": used + used**2, "unfilled": 2 * unused**2}
    segment_counts = np.bincount(states.segments.state, minlength=max(Kind) + 1)
    for name, state in _MEASURED.items():
        per_sm[:used, STATES.index(name)] = states.state_ns[:, state]
        endpoints[name] = 2 * int(segment_counts[state])
    per_sm[:used, STATES.index("ramp")] = states.first_begin_ns
    per_sm[:used, STATES.index("tail")] = duration - states.last_end_ns
    per_sm[used:, STATES.index("unfilled")] = duration
    sums = per_sm.sum(axis=0)
    terms = {
        name: Quantity(float(total), timer_step_ns * math.sqrt(endpoints[name]))
        for name, total in zip(STATES, sums, strict=True)
    }
    padded = 0.0 if useful_share is None else 1.0 - useful_share
    return Budget(
        sms=sms,
        used_sms=used,
        duration_ns=duration,
        total_ns=sms * duration,
        terms=terms,
        residual_ns=sms * duration - int(sums.sum()),
        padding=Quantity(terms["mac"].value * padded, terms["mac"].error * padded),
        sm_ids=np.append(states.sm_ids, np.full(unused, -1)),
        per_sm=per_sm,
    )
