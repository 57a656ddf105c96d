"""What holds for every schedule, tried on random ones.

The theorems and their proofs are in docs/simulator.md.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.timeline import Timeline
from tests.scheduler.simulation.steps import (
    Branches,
    CallOf,
    Compute,
    Done,
    Loop,
    Start,
    Step,
    Steps,
    Sync,
    costs_of,
    every,
    module_of,
    plain_model,
    step_lists,
    text_of,
)

NEAR = 1e-6
EXAMPLES = 30


def timeline_of(steps: Steps, **rules) -> Timeline:
    return simulate_with(
        module_of(steps), "h100_sxm", Topology(1, 1, 2), costs_of(steps), Rules(**rules)
    )


def streams_in(timeline: Timeline) -> dict[str, int]:
    return {r.name: r.stream for r in timeline.collectives if r.stream is not None}


#: A loop of many short runs beside what it starts itself, which waits in a queue.
QUEUED_IN_A_LOOP: Steps = (
    Start("a", 100.0),
    Loop("w", 3, (
        Start("b", 5.0),
        Loop("x", 64, (Loop("y", 64, (Compute("c", 0.0078125),)),)),
        Done("b"),
    )),
    Done("a"),
)  # fmt: skip


_MANY = Loop("x", 64, (Loop("y", 64, (Compute("c", 0.0078125),)),))
#: The same with the communication before the many runs, and in a loop of its own.
QUEUED_BEFORE: Steps = (
    Start("a", 100.0),
    Loop("w", 3, (Start("b", 5.0), Done("b"), _MANY)),
    Done("a"),
)
QUEUED_IN_ANOTHER: Steps = (
    Start("a", 100.0),
    Loop("w", 3, (Loop("z", 2, (Start("b", 5.0), Done("b"))), _MANY)),
    Done("a"),
)


@given(step_lists(), st.sampled_from([1, 2, 3]))
@example(QUEUED_IN_A_LOOP, 1)
@example(QUEUED_BEFORE, 1)
@example(QUEUED_IN_ANOTHER, 1)
@settings(max_examples=EXAMPLES, deadline=None)
def test_it_is_the_plain_queue_model(steps: Steps, streams: int) -> None:
    timeline = timeline_of(steps, streams=streams)
    plain = plain_model(steps, streams_in(timeline))
    assert timeline.step_time_us == pytest.approx(plain.now, abs=NEAR)
    assert timeline.compute_us == pytest.approx(plain.compute, abs=NEAR)
    assert timeline.communication_us == pytest.approx(plain.communication, abs=NEAR)
    for row in timeline.collectives:
        want = plain.exposed.get(row.name, 0.0)
        assert row.total_exposed_us == pytest.approx(want, abs=NEAR), row.name


@given(step_lists(), st.sampled_from([None, 0, 1, 2]), st.booleans())
@settings(max_examples=EXAMPLES, deadline=None)
def test_bound_step_and_serial_sum_are_in_order(
    steps: Steps, streams: int | None, share: bool
) -> None:
    timeline = timeline_of(steps, streams=streams, share_links=share and streams != 0)
    for times in timeline.computations.values():
        assert times.lower_bound_us <= times.step_time_us + NEAR
        parts = times.compute_us + times.exposed_us
        assert times.step_time_us == pytest.approx(parts, abs=NEAR)
    assert timeline.step_time_us <= timeline.times.serial_us + NEAR
    exposed = sum(row.total_exposed_us for row in timeline.collectives)
    assert timeline.exposed_us == pytest.approx(exposed, abs=NEAR)


@given(step_lists(), st.sampled_from([0, 1, 2]), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_lower_cost_never_lengthens_the_step(
    steps: Steps, streams: int, data: st.DataObject
) -> None:
    priced = [s for s in every(steps) if isinstance(s, Compute | Start | Sync)]
    if not priced:
        return
    cheaper = data.draw(st.sampled_from(priced)).name
    share = data.draw(st.sampled_from([0.0, 0.5]))
    before = timeline_of(steps, streams=streams)
    after = timeline_of(_repriced(steps, cheaper, share), streams=streams)
    assert after.step_time_us <= before.step_time_us + NEAR


def _repriced(steps: Steps, name: str, share: float) -> Steps:
    def one(step: Step) -> Step:
        if isinstance(step, Loop | CallOf):
            return replace(step, body=_repriced(step.body, name, share))
        if isinstance(step, Branches):
            bodies = tuple(_repriced(body, name, share) for body in step.bodies)
            return replace(step, bodies=bodies)
        if not isinstance(step, Done) and step.name == name:
            return replace(step, us=step.us * share)
        return step

    return tuple(one(step) for step in steps)


@given(step_lists(), st.sampled_from([(1, 2), (1, 3), (2, 4), (1, 0), (2, 0), (3, 0)]))
@settings(max_examples=EXAMPLES, deadline=None)
def test_streams_that_are_split_never_lengthen_the_step(
    steps: Steps, counts: tuple[int, int]
) -> None:
    few, many = (timeline_of(steps, streams=n) for n in counts)
    assert many.step_time_us <= few.step_time_us + NEAR


def test_one_stream_more_may_lengthen_the_step() -> None:
    # By turns over 2: a and c queue, b and d. Over 3: a and d, which is worse.
    steps = (
        Start("a", 10.0), Start("b", 1.0), Start("c", 1.0), Start("d", 1.0),
        Done("d"), Compute("x", 9.0), Done("b"), Done("c"), Done("a"),
    )  # fmt: skip
    two, three = (timeline_of(steps, streams=n) for n in (2, 3))
    assert (two.step_time_us, three.step_time_us) == (11.0, 20.0)


@given(step_lists(), st.sampled_from([0, 1, 2]), st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_an_earlier_start_or_later_done_never_lengthens_the_step(
    steps: Steps, streams: int, data: st.DataObject
) -> None:
    places = [k for k in range(1, len(steps)) if _may_swap(steps[k - 1], steps[k])]
    if not places:
        return
    k = data.draw(st.sampled_from(places))
    moved = (*steps[: k - 1], steps[k], steps[k - 1], *steps[k + 1 :])
    numbers = streams_in(timeline_of(steps, streams=streams)) if streams else {}
    before = timeline_of(steps, streams=streams)
    after = timeline_of(moved, streams=streams)
    if streams and streams_in(after) != numbers:
        return  # turns are taken in another order: another assignment
    assert after.step_time_us <= before.step_time_us + NEAR


def _may_swap(first: Step, then: Step) -> bool:
    """Whether `then` may go first: a start over what is none, or the reverse of a done.

    Past a loop or call, which may start something themselves, only a done moves.
    """
    if isinstance(then, Start):
        return isinstance(first, Compute | Sync | Done)
    if isinstance(first, Done):
        return not isinstance(then, Start | Done)
    return False


@given(step_lists(), st.sampled_from([1, 2, 3]))
@settings(max_examples=EXAMPLES, deadline=None)
def test_shared_links_never_shorten_the_step(steps: Steps, streams: int) -> None:
    alone = timeline_of(steps, streams=streams)
    shared = timeline_of(steps, streams=streams, share_links=True)
    assert alone.step_time_us <= shared.step_time_us + NEAR


def test_a_lower_cost_may_lengthen_the_step_where_links_are_shared() -> None:
    # Without `before`, `late` begins sooner and takes its share while `first` still
    # runs, for which the compute lane waits.
    def steps(us: float) -> Steps:
        return (
            Start("first", 5.0), Start("second", 4.0), Compute("before", us),
            Start("late", 9.0), Compute("between", 4.0), Done("first"),
            Compute("after", 10.0), Done("second"), Done("late"),
        )  # fmt: skip

    dear, cheap = (
        timeline_of(steps(us), streams=3, share_links=True) for us in (9.0, 0.0)
    )
    assert (dear.step_time_us, cheap.step_time_us) == (23.0, 24.0)


@given(step_lists())
@settings(max_examples=EXAMPLES, deadline=None)
def test_one_stream_never_shares_a_link(steps: Steps) -> None:
    alone = timeline_of(steps, streams=1)
    shared = timeline_of(steps, streams=1, share_links=True)
    assert shared.step_time_us == pytest.approx(alone.step_time_us, abs=NEAR)
    for one, other in zip(alone.collectives, shared.collectives, strict=True):
        assert one.exposed_us == pytest.approx(other.exposed_us, abs=NEAR)


@given(step_lists())
@settings(max_examples=20, deadline=None)
def test_random_steps_are_valid_hlo(steps: Steps) -> None:
    hlo_passes.verify(hlo_passes.parse(text_of(steps)))
