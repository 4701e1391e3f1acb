"""The glossary covers every word that reports print, and `explain` finds it."""

from __future__ import annotations

import pytest
import report_fixture as fixture

from wavescope.analyze import analyze
from wavescope.device import virtual_device
from wavescope.errors import UsageError
from wavescope.problem import Problem, Tile
from wavescope.schedule import SCHEDULES
from wavescope.terms import find, terms
from wavescope.variant import Variant
from wavescope.virtual import run
from wavescope.wave_report import STATES

# Words of DESIGN and of the report's headings that have to be explained.
PRINTED = """
problem, tile, k_iter, unit, cta, cluster, place, places, wave, rank wave, nominal waves, wave efficiency, fill, not idle,
utilization, tail effect, quantization, imbalance, padding, bound, budget, waterfall, peak, achieved, perturbation, regime,
cool, measured, simulated, estimated, refused, timer, verified, registers, shared memory, SM-ns, active cycles, raster,
clock domain, placed, error bar, dispatch, block scheduler, co-residency, older neighbours, reuse distance, first touch,
spread, by chance, p, irregular work, work, ragged, skip, lpt, longest first, contender, speed, x cublas, x before, fix-up, account, left over, units slower, lower clock, read sharing,
issue rate, operands, pipe fill, rest of mac, pipe, rest, drain, room,
gain, g, same work, predicted,
calibration, leave-one-out error, what-if, staggered, sharing, seniority
"""


def test_every_state_and_schedule_is_explained() -> None:
    for name in (*STATES, *SCHEDULES):
        assert find(name)


def test_every_factor_of_a_real_waterfall_is_explained_by_an_entry_of_its_name() -> None:
    trace = run(Problem(512, 512, 512), Tile(128, 128, 64), Variant("fixed"), virtual_device("h200"), reason="a test")
    waterfall = analyze(trace).waterfall
    assert waterfall is not None
    split = fixture.inside_report().waterfall
    assert split is not None
    for factor in (*waterfall.factors, *fixture.FACTORS, *split.factors):
        assert find(factor.name).name == factor.name


@pytest.mark.parametrize("word", [word.strip() for word in PRINTED.replace("\n", " ").split(",")])
def test_every_printed_word_is_explained(word: str) -> None:
    assert find(word)


def test_entries_are_complete_and_distinct() -> None:
    names = [name.lower() for term in terms() for name in (term.name, *term.aliases)]
    assert sorted(names) == sorted(set(names))
    for term in terms():
        assert term.definition.endswith(".")
        assert term.source
        assert "  " not in term.definition
        assert all(text.isascii() for text in (term.definition, term.formula, term.example, term.source))


@pytest.mark.parametrize(
    ("word", "name"),
    [("Wave-Efficiency", "wave efficiency"), ("k iteration", "k_iter"), ("K_ITERS", "k_iter"), ("tails", "tail")],
)
def test_words_are_found_in_any_spelling(word: str, name: str) -> None:
    assert find(word).name == name


def test_an_unknown_word_gives_the_closest() -> None:
    with pytest.raises(UsageError, match='no term "quantisation"; did you mean quantization'):
        find("quantisation")
    with pytest.raises(UsageError, match="'wavescope explain' lists all"):
        find("zzzzzz")
