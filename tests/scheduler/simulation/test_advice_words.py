"""How a change is told: what it saves, what sets it, what else it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo_passes.scheduler.simulation.advice import Advice
from tests.scheduler.simulation.steps import Compute, Sync
from tests.scheduler.simulation.test_laws import timeline_of


@pytest.mark.parametrize(
    ("advice", "text", "is_change"),
    [
        (Advice("leave it"), "leave it", False),
        (Advice("go on", saved_us=2.0), "go on: -2.0 us, verified", True),
        (
            Advice("go on", "--flag"),
            "go on: not verified here, `hlo-passes tune` compiles it",
            True,
        ),
        (
            Advice("go on", "--flag", most_us=3.0),
            "go on: at most -3.0 us, not verified here, `hlo-passes tune` compiles it",
            True,
        ),
    ],
)
def test_one_line(advice: Advice, text: str, is_change: bool) -> None:
    assert advice.to_text() == text
    assert advice.is_change is is_change


@pytest.mark.parametrize(
    ("more_bytes", "told"),
    [
        (0, []),
        (1, []),
        (500, ["500 bytes more memory"]),
        (-500, ["500 bytes less memory"]),
    ],
)
def test_memory_is_told_where_it_changes_much(more_bytes: int, told: list[str]) -> None:
    advice = Advice("go on", peak_bytes=1000, more_bytes=more_bytes)
    assert advice.besides() == told


def test_three_pieces_are_told_of_what_is_exposed() -> None:
    timeline = timeline_of((Sync("a", 2.0), Compute("c", 1.0)))
    (row,) = timeline.collectives
    concerns = ((row.computation, row.name),)
    advice = tuple(Advice(word, concerns=concerns) for word in "wxyz")
    others = (Advice("other", concerns=((row.computation, "c"),)),)
    timeline = replace(timeline, advice=(*others, *advice))
    assert timeline.advice_lines(row) == ["w", "x", "y"]
    assert timeline.advice_lines(replace(row, total_exposed_us=0.0)) == []


def test_what_sets_it() -> None:
    assert Advice("go on", "--flag").how() == "--flag"
    assert '--passes="a,b"' in Advice("go on", pipeline="a,b").how()
    told = Advice("go on", "--flag", step_time_us=8.0, saved_us=2.0).to_lines(10.0)
    assert told == ["step 8.0 us (-20.0%): go on", 'XLA_FLAGS="--flag"']
