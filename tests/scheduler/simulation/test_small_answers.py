"""Parts of the simulation with answers that were worked out by hand."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.errors import UsageError
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.ring import RingEstimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.collectives import Collective, describe
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.passes.stream_values import Stream
from hlo_passes.scheduler.simulation.accounts import executions
from hlo_passes.scheduler.simulation.any_structure import _floor_of, _model_of
from hlo_passes.scheduler.simulation.lanes import FifoLanes
from hlo_passes.scheduler.simulation.overlap_bound import _Flow
from hlo_passes.scheduler.simulation.placement import Placement
from hlo_passes.scheduler.simulation.prices import Prices
from hlo_passes.scheduler.simulation.ranges import Outcome
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.shared_links import SharedLinkLanes
from hlo_passes.scheduler.simulation.simulate import simulate, simulate_with
from hlo_passes.scheduler.simulation.step import run_step
from hlo_passes.scheduler.simulation.surroundings import Surroundings
from hlo_passes.scheduler.simulation.units import bytes_text, time_text
from tests.scheduler.simulation.steps import (
    Branches,
    Compute,
    Done,
    Start,
    Step,
    Steps,
    Sync,
    module_of,
    text_of,
)
from tests.scheduler.simulation.test_laws import timeline_of
from tests.tpu.test_sparse_core import TEXT as SPARSE_CORE_CALLS


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.0, "0.0 us"), (0.04, "0.0 us"), (999.0, "999.0 us"), (-999.0, "-999.0 us"),
        (1e3, "1.00 ms"), (-1e3, "-1.00 ms"), (1234.0, "1.23 ms"),
        (999_000.0, "999.00 ms"), (1e6, "1.000 s"), (-1e6, "-1.000 s"),
        (2_345_678.0, "2.346 s"),
    ],
)  # fmt: skip
def test_times_have_the_largest_unit_that_they_fill(us: float, text: str) -> None:
    assert time_text(us) == text


def test_bytes_have_the_largest_unit_that_they_fill() -> None:
    for power, unit in ((10, "KiB"), (20, "MiB"), (30, "GiB")):
        assert bytes_text(1 << power).endswith(unit)
        assert not bytes_text((1 << power) - 1).endswith(unit)


@pytest.mark.parametrize(
    ("step_us", "exposed_us", "share"),
    [(10.0, 2.5, 0.25), (4.0, 4.0, 1.0), (0.5, 0.25, 0.5), (0.0, 0.0, 0.0)],
)
def test_the_exposed_share(step_us: float, exposed_us: float, share: float) -> None:
    assert Outcome(None, step_us, exposed_us).exposed_share == share  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shares",
    [(0.5, 0.6), (1.0, 1.0), (0.0, 0.0), (0.5, 1.5), (-0.5, 1.5), (float("nan"), 1.0)],
)
def test_shares_of_branches_that_are_none(shares: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="probabilities"):
        Rules(branch_probabilities={"c": shares})


@pytest.mark.parametrize("shares", [(1.0,), (0.0, 1.0), (0.1, 0.2, 0.7), (0.25, 0.75)])
def test_shares_of_branches(shares: tuple[float, ...]) -> None:
    assert Rules(branch_probabilities={"c": shares}).branch_probabilities["c"] == shares


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_what_is_busy_between_two_instructions(
    costs: list[int], data: st.DataObject
) -> None:
    placement = Placement.__new__(Placement)
    placement._busy_before = [*itertools.accumulate(costs, initial=0.0)]
    first = data.draw(st.integers(0, len(costs) - 1))
    last = data.draw(st.integers(first, len(costs) - 1))
    assert placement.busy_between(first, last) == sum(costs[first + 1 : last])


# -- the flow of the overlap bound ------------------------------------------------


def _most(
    groups: dict[int, int], room: dict[int, int], others: int = 0, steps: int = 10**6
) -> int:
    return _Flow(groups, dict(room), others, steps).most()


@given(
    st.dictionaries(st.integers(1, 15), st.integers(1, 9), max_size=6),
    st.lists(st.integers(1, 9), min_size=4, max_size=4),
    st.integers(0, 5),
)
def test_the_flow_is_the_least_cut_and_steps_only_raise_it(
    groups: dict[int, int], room: list[int], others: int
) -> None:
    """Max-flow, min-cut: of any set of pairs, what must go there or stays outside."""
    left = dict(enumerate(room))
    cut = min(
        sum(room[k] for k in chosen)
        + others
        + sum(
            amount
            for mask, amount in groups.items()
            if any(mask >> k & 1 for k in range(4) if k not in chosen)
        )
        for size in range(5)
        for chosen in itertools.combinations(range(4), size)
    )
    exact = _most(groups, left, others)
    assert exact == min(cut, sum(groups.values()))
    # A search that gives up says more, never less, and less with every step.
    given_up = [_most(groups, left, others, steps) for steps in range(1, 40)]
    assert given_up == sorted(given_up, reverse=True)
    assert given_up[-1] >= exact


def test_a_group_gives_up_no_more_than_it_holds() -> None:
    """The first group makes room for 3 of the other 8, whose own pair takes 4 more."""
    assert _most({0b011: 6, 0b101: 8}, {0: 3, 1: 7, 2: 4}) == 6 + 3 + 4


def test_how_many_steps_a_search_takes() -> None:
    """Group 1 is sent (1), finds no path (2: the pair, and who holds it): 3 in all."""
    groups, room = {0b01: 10, 0b10: 5}, {0: 5, 1: 50}
    assert _most(groups, room) == 10
    assert _most(groups, room, steps=4) == 10
    assert _most(groups, room, steps=3) == 15


# -- links ------------------------------------------------------------------------

_ENTRY = """HloModule m, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %r = f32[8]{0} OPERATION
}
"""


@pytest.mark.parametrize(
    ("groups", "on_a_host", "link"),
    [
        ("replica_groups={{0,1,2,3,4,5,6,7}}", 8, "nvlink"),
        ("replica_groups={{0,1,2,3,4,5,6,7}}", 4, "network"),
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", 4, "nvlink"),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", 4, "network"),
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", 1, "network"),
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", 2, "nvlink"),
        ("replica_groups={{0,1},{2,3},{4,5},{3,7}}", 4, "network"),
    ],
)
def test_which_link_a_collective_uses(groups: str, on_a_host: int, link: str) -> None:
    operation = (
        f"all-reduce(%x), channel_id=1, {groups}, use_global_device_ids=true, "
        "to_apply=%add"
    )
    module = hlo_passes.parse(_ENTRY.replace("OPERATION", operation))
    around = Surroundings(module, Topology(8 // on_a_host, 1, on_a_host), Rules())
    assert around.channel(module.entry.root) == link


@pytest.mark.parametrize(("on_a_host", "link"), [(8, "nvlink"), (4, "network")])
def test_a_transfer_to_nobody_named_may_go_anywhere(on_a_host: int, link: str) -> None:
    module = hlo_passes.parse(
        _ENTRY.replace(
            "  ROOT %r = f32[8]{0} OPERATION",
            "  %t = token[] after-all()\n"
            "  %s = (f32[8]{0}, u32[], token[]) send(%x, %t), channel_id=1\n"
            "  %d = token[] send-done(%s), channel_id=1\n"
            "  ROOT %r = f32[8]{0} negate(%x)",
        )
    )
    around = Surroundings(module, Topology(8 // on_a_host, 1, on_a_host), Rules())
    (send,) = (i for i in module.entry.instructions if i.opcode == "send")
    assert around.channel(send) == link


@pytest.mark.parametrize(("opcode", "devices"), [("send", (0, 2)), ("recv", (1, 3))])
def test_a_transfer_has_a_side_on_each_of_its_devices(
    opcode: str, devices: tuple[int, ...]
) -> None:
    pairs = '{_xla_send_recv_source_target_pairs="{{0,1},{2,3}}"}'
    operands = "%x, %t" if opcode == "send" else "%t"
    module = hlo_passes.parse(
        _ENTRY.replace(
            "  ROOT %r = f32[8]{0} OPERATION",
            "  %t = token[] after-all()\n"
            f"  %s = (f32[8]{{0}}, u32[], token[]) {opcode}({operands}), channel_id=1, "
            f"frontend_attributes={pairs}\n"
            "  ROOT %r = f32[8]{0} negate(%x)",
        )
    )
    around = Surroundings(module, Topology(1, 1, 8), Rules())
    (half,) = (i for i in module.entry.instructions if i.opcode == opcode)
    assert around.groups(half) == tuple((device,) for device in devices)


class _SeveralTimes(Estimator):
    """Counts the flops of all products 64 times."""

    @property
    def name(self) -> str:
        return "several"

    def node_cost(self, instruction: Instruction) -> Estimate:
        del instruction
        return Estimate(1.0, "several", times_its_share=64)

    def latency(self, start: Instruction, user: Instruction) -> None:
        del start, user


def test_products_that_count_several_times_are_counted_one_by_one() -> None:
    module = module_of((Compute("a", 1.0), Compute("b", 1.0)))
    prices = Prices(_SeveralTimes())
    for name in "ab":
        product = module.entry.find(name)
        assert product is not None
        assert prices.node(product) == 1.0
    assert prices.inflated == {64: 2}


@pytest.mark.parametrize(
    ("thread", "whole"), [("sparsecore", [True, False]), ("host", [False, False])]
)
def test_a_call_is_whole_on_a_sparse_core_that_has_its_time(
    thread: str, whole: list[bool]
) -> None:
    module = hlo_passes.parse(SPARSE_CORE_CALLS.replace('"sparsecore"', f'"{thread}"'))
    prices = Prices(TableEstimator({}, {"s": 1.0}))
    starts = [i for i in module.entry.instructions if i.name in "st"]
    assert [prices.has_whole_call(i) for i in starts] == whole


@pytest.mark.parametrize("annotated", [0, 1])
def test_streams_are_those_of_xla_whoever_waits_for_whom(annotated: int) -> None:
    """XLA leaves collectives in flight together on the streams of their annotations."""
    steps = (Start("go0", 5.0), Start("go1", 5.0), Done("go0"), Done("go1"))
    lines = text_of(steps).splitlines()
    (at,) = [k for k, line in enumerate(lines) if f"%go{annotated} =" in line]
    lines[at] += ', frontend_attributes={_xla_stream_annotation="1"}'
    module = hlo_passes.parse("\n".join(lines))
    streams = {row.name: row.stream for row in simulate(module).collectives}
    assert streams == {f"go{annotated}": 1, f"go{1 - annotated}": 0}


# -- the bound of any structure ---------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "bound"),
    [
        # Communication alone: one link carries 10 and 20.
        ((Sync("a", 10.0), Compute("c", 1.0), Sync("b", 10.0)), 20.0),
        # More compute than communication.
        ((Sync("a", 10.0), Compute("c", 50.0)), 50.0),
        # The best rate of a kind holds for all of it: 10 us for each.
        ((Sync("a", 10.0), Sync("b", 30.0)), 20.0),
        # A start is of the kind of what is synchronous: 8 us for each.
        ((Start("a", 10.0), Compute("c", 4.0), Done("a"), Sync("b", 8.0)), 16.0),
    ],
)
def test_the_bound_of_any_structure(steps: Steps, bound: float) -> None:
    assert timeline_of(steps).lower_bound_any_structure_us == pytest.approx(bound)


@pytest.mark.parametrize(
    ("shares", "bound"),
    [
        # Latencies of a branch count where it runs, however small the share of another.
        ((1.0, 0.0), "alone"),
        # What runs in part adds no latency: only its compute is left.
        ((0.5, 0.5), "computes"),
        ((0.0, 1.0), "computes"),
    ],
)
def test_a_branch_that_runs_in_part_adds_no_latency(
    shares: tuple[float, float], bound: str
) -> None:
    steps = (Branches("cond", ((Sync("a", 1.0),), (Compute("c", 1.0),))),)
    constant = {"estimator": "gpu-approximate"}

    def bound_of(*steps: Step, **rules) -> float:
        timeline = simulate(module_of(steps), **constant, **rules)
        return timeline.lower_bound_any_structure_us

    found = bound_of(*steps, branch_probabilities={"cond": shares})
    if bound == "alone":
        assert found == bound_of(Sync("a", 1.0)) > 0.0
    else:
        assert found == shares[1] * bound_of(Compute("c", 1.0)) > 0.0


@pytest.mark.parametrize("best", [1, 1 << 10, 1 << 20, 1 << 30, 1 << 50])
def test_a_floor_has_the_best_rate_of_all_sizes(best: int) -> None:
    """Twice the rate at one size, wherever a table has it."""
    module = module_of((Sync("a", 1.0),))
    (reduce,) = (i for i in module.entry.instructions if i.opcode == "all-reduce")
    described = describe(reduce)
    assert described is not None

    def model(asked: Collective) -> float:
        size = asked.transferred_bytes
        return size * (0.5 if size == best else 1.0)

    floor = _floor_of(described, model)
    assert floor is not None
    assert floor.us_per_byte == pytest.approx(0.5, rel=1e-5)


def test_a_formula_of_a_stack_is_asked_of_its_own_part() -> None:
    ring = RingEstimator(target("h100_sxm"))
    stack = EstimatorStack((TableEstimator({}, {}), ring))
    assert _model_of(stack, "ring/formula") is not None
    assert _model_of(stack.estimators[0], "ring/formula") is None
    assert _model_of(stack, "ring/constant") is None


def test_what_is_synchronous_overlaps_a_stream_that_needs_none_of_it() -> None:
    """One after the other they take 20 us, but an order without waits takes 10."""
    module = hlo_passes.parse("""HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %s = f32[8] all-reduce-start(%p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  %d = f32[8] all-reduce-done(%s)
  %sync = f32[8] all-reduce(%q), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  ROOT %r = (f32[8], f32[8]) tuple(%d, %sync)
}
""")
    costs = TableEstimator({"sync": 10.0}, {"s": 10.0})
    times = simulate_with(module, "h100_sxm", Topology(1, 1, 2), costs, Rules()).times
    assert (times.step_time_us, times.lower_bound_us) == (20.0, 10.0)


def test_what_is_synchronous_and_waits_for_a_stream_is_in_its_tail() -> None:
    """Lane and longest chain take 20 us each, but nothing of the lane fits beside %s."""
    module = hlo_passes.parse("""HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main {
  %p = f32[8] parameter(0)
  %s = f32[8] all-reduce-start(%p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  %d = f32[8] all-reduce-done(%s)
  %one = f32[8] all-reduce(%d), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  %two = f32[8] all-reduce(%d), channel_id=3, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  ROOT %r = (f32[8], f32[8]) tuple(%one, %two)
}
""")
    costs = TableEstimator({"one": 10.0, "two": 10.0}, {"s": 10.0})
    times = simulate_with(module, "h100_sxm", Topology(1, 1, 2), costs, Rules()).times
    assert (times.step_time_us, times.lower_bound_us) == (30.0, 30.0)


def test_what_is_in_flight_alone_ends_later_when_all_is_moved() -> None:
    """At 6 us device 0 is idle, device 1 ends just then, and device 2 runs until 9."""
    lanes = FifoLanes()
    stream = Stream("communication", 0)
    work: Any = SimpleNamespace(stream=stream, groups=((0,), (1,), (2,)))
    lanes.issue(work, 4.0, [1.0, 2.0, 5.0])
    assert lanes.drained_at([0.0] * 3) == [5.0, 6.0, 9.0]
    lanes.shift([6.0] * 3, 10.0)
    assert lanes.drained_at([0.0] * 3) == [5.0, 6.0, 19.0]
    assert lanes.drained_at([6.0] * 3) == [6.0, 6.0, 19.0]
    assert lanes.free[stream] == [5.0, 6.0, 19.0]


def test_a_work_that_ends_now_has_ended_whatever_times_round_to() -> None:
    """0.1 us after a second is a little less than 0.1 us, where times are subtracted."""
    lanes = SharedLinkLanes()
    work: Any = SimpleNamespace(stream=Stream("communication", 0), link="network")
    end = 1e6 + 0.1
    assert end - 1e6 < 0.1
    first = lanes.issue(work, 0.1, [1e6])
    assert lanes.issue(work, 1.0, [end]).behind is None
    assert first.end == [end]


def test_a_timeline_is_told_without_its_long_lists() -> None:
    told = repr(timeline_of((Compute("c", 1.0), Sync("a", 1.0))))
    assert "step_time_us=2.0" in told
    for name in ("spans", "memory", "footprint", "sensitivity", "overlay", "advice"):
        assert f"{name}=" not in told


# -- how often things run ---------------------------------------------------------


class _Ran:
    """A run: what it calls, with how often, and what runs beside it."""

    def __init__(self, *called: tuple[_Ran, float], beside: tuple[_Ran, ...] = ()):
        self.called = {0: called}
        self.bodies = dict(enumerate(beside))


def test_what_runs_beside_the_lane_is_not_on_it() -> None:
    """Also where it is called on the lane, too, before and after that."""
    inner = _Ran()
    two, three = _Ran((inner, 2.0)), _Ran((inner, 3.0))
    lane = _Ran((inner, 5.0))
    entry = _Ran((lane, 1.0), (inner, 7.0), beside=(two, three))
    counts = executions(entry)  # type: ignore[arg-type]
    assert counts[two] == counts[three] == (1.0, 0.0)
    assert counts[lane] == (1.0, 1.0)
    assert counts[inner] == (2.0 + 3.0 + 5.0 + 7.0, 5.0 + 7.0)


def test_programs_are_those_of_all_that_runs() -> None:
    """In text order, also where one computation is reached several times."""
    module = hlo_passes.parse(
        """HloModule m, is_scheduled=true

%once { ROOT %a = f32[8]{0} parameter(0) }
%twice { ROOT %b = f32[8]{0} parameter(0) }
%condition {
  %c = f32[8]{0} parameter(0)
  ROOT %no = pred[] constant(false)
}
%body { ROOT %d = f32[8]{0} parameter(0) }
%fused { ROOT %e = f32[8]{0} parameter(0) }

ENTRY %main {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} call(%p), to_apply=%once
  %r = f32[8]{0} while(%q), condition=%condition, body=%body
  %s = f32[8]{0} fusion(%r), kind=kLoop, calls=%fused
  %t = f32[8]{0} call(%s), to_apply=%twice
  ROOT %u = f32[8]{0} call(%t), to_apply=%twice
}
"""
    )
    step = run_step(module, Topology(1, 1, 1), TableEstimator({}, {}), Rules())
    assert [c.name for c in step.programs] == ["once", "twice", "body", "main"]
