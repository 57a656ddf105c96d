"""Between which values a statistic lies, if the log rounds the costs to six digits."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.computation import Computation
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.statistics import lhs_statistics
from hlo_passes.scheduler.tpu.costs import TpuCosts
from hlo_passes.scheduler.tpu.settings import tpu_settings
from tests.tpu.bounds import figure_bounds
from tests.tpu.digits import half_unit, printed, reprinted

TRACKER = make_tracker(tpu_settings("v5e"))
PERMUTE = (
    "  %b{k} = (f32[8], f32[8]) collective-permute-start(%p), "
    "source_target_pairs={{{{0,1}}}}\n"
)
GATHER = (
    "  %b{k} = (f32[8], f32[16]) all-gather-start(%p), replica_groups={{{{0,1}}}}, "
    "dimensions={{0}}\n"
)
DONES = (
    "  %d{k} = f32[8] collective-permute-done(%b{k})\n",
    "  %d{k} = f32[16] all-gather-done(%b{k})\n",
)
CYCLES = st.floats(1.5, 1e5).map(lambda x: float(printed(x)))
TRIES = 20


def pairs_in(places: Sequence[int]) -> Computation:
    """Pairs in flight beside work: place 2k is pair k's start, 2k + 1 its done."""
    order = sorted(range(len(places)), key=lambda k: (places[k], k))
    body, begun, used = "", set(), []
    for k in order:
        pair = k // 2
        lines = DONES if pair in begun else (PERMUTE, GATHER)
        body += lines[pair % 2].format(k=pair) + f"  %w{k} = f32[8] negate(%p)\n"
        used += [f"%d{pair}"] if pair in begun else []
        begun.add(pair)
        used.append(f"%w{k}")
    return hlo_passes.parse(
        f"HloModule m, is_scheduled=true\n\nENTRY %e {{\n  %p = f32[8] parameter(0)\n"
        f"{body}  ROOT %t = ({', '.join('f32[16]' if u[1] == 'd' and int(u[2:]) % 2 else 'f32[8]' for u in used)}) "
        f"tuple({', '.join(used)})\n}}\n"
    ).entry


@st.composite
def programs(draw: st.DrawFn) -> tuple[Computation, TpuCosts]:
    count = draw(st.integers(1, 4))
    places = draw(st.lists(st.integers(0, 9), min_size=2 * count, max_size=2 * count))
    nodes = {f"w{k}": draw(CYCLES) for k in range(2 * count)}
    latencies = {f"b{k}": draw(CYCLES) for k in range(count)}
    return pairs_in(places), TpuCosts("v5e", 1500.0, nodes, latencies)


def figures(computation: Computation, costs: TpuCosts) -> dict[str, float]:
    estimator = EstimatorStack((costs.in_cycles(),))
    return lhs_statistics(computation, estimator, TRACKER).to_json()


@given(programs())
def test_costs_that_print_the_same_give_figures_within(
    case: tuple[Computation, TpuCosts],
) -> None:
    computation, costs = case
    bounds = figure_bounds(computation.instructions, costs, TRACKER)
    for each in (costs, *reprinted(costs, TRIES)):
        found = figures(computation, each)
        assert found.keys() == bounds.keys()
        for key, value in found.items():
            low, high = bounds[key]
            assert low - 1e-6 <= value <= high + 1e-6, key


@given(programs())
def test_a_total_is_as_narrow_as_the_sum_of_the_rounding(
    case: tuple[Computation, TpuCosts],
) -> None:
    computation, costs = case
    low, high = figure_bounds(computation.instructions, costs, TRACKER)["total cycles"]
    parts = [*costs.node_cycles.values(), *costs.latency_cycles.values()]
    # A start keeps its time as a whole number: a cycle more for each.
    widest = 2 * sum(map(half_unit, parts)) + len(costs.latency_cycles)
    assert high - low <= widest + 1e-6


def test_figures_of_whole_costs_are_known() -> None:
    """Costs of 1 have no digits behind them: what is printed is what was."""
    computation = pairs_in([0, 3, 1, 2])
    costs = TpuCosts("v5e", 1500.0, {}, {"b0": 1.0, "b1": 1.0})
    bounds = figure_bounds(computation.instructions, costs, TRACKER)
    assert {key: pair[0] for key, pair in bounds.items()} == figures(computation, costs)
    assert all(low == high for low, high in bounds.values())


def test_a_wait_is_open_by_what_is_between_its_halves() -> None:
    """100,000 cycles before a start are +-0.5, and no part of its wait but a fraction."""
    computation = pairs_in([0, 1])
    names = [i.name for i in computation.instructions]
    assert names == ["p", "b0", "w0", "d0", "w1", "t"]
    costs = TpuCosts("v5e", 1500.0, {"p": 123456.0, "w0": 20.5}, {"b0": 1000.25})
    low, high = figure_bounds(computation.instructions, costs, TRACKER)[
        "wasted cycles for collective-permute"
    ]
    # The start and done cost 1 each; up to one cycle goes with the whole number.
    assert 1000.25 - 20.5 - 1.0 - 1.0 - 0.1 <= low < high <= 1000.25 - 20.5 - 1.0 + 0.1
