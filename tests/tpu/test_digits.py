"""Costs that a log of six digits would print the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlo_passes.scheduler.tpu.costs import TpuCosts
from tests.tpu.digits import printed, reprinted

CYCLES = st.floats(1e-3, 1e9).map(lambda x: float(printed(x)))


@given(st.lists(CYCLES, min_size=1, max_size=5))
def test_they_print_the_same_and_keep_what_is_equal_equal(cycles: list[float]) -> None:
    nodes = {f"n{k}": each for k, each in enumerate(cycles)}
    costs = TpuCosts("v5e", 1500.0, nodes, {"s": cycles[0]}, flags="xla_a=1")
    found = list(reprinted(costs, 3))
    assert len(found) == 3
    for each in found:
        for name, there in each.node_cycles.items():
            assert printed(there) == printed(nodes[name])
        assert each.latency_cycles["s"] == each.node_cycles["n0"]
        assert (each.chip, each.mhz, each.flags) == ("v5e", 1500.0, "xla_a=1")


def test_they_differ_behind_the_sixth_digit_alone() -> None:
    nodes = {"none": 0.0, "least": 1.0, "a": 11464.5, "b": 1234560.0}
    costs = TpuCosts("v5e", 1500.0, nodes)
    one, other = (each.node_cycles for each in reprinted(costs, 2))
    assert (one["none"], one["least"]) == (0.0, 1.0)
    assert len({nodes["a"], one["a"], other["a"]}) == 3
    assert abs(one["a"] - nodes["a"]) <= 0.05
    assert abs(one["b"] - nodes["b"]) <= 5.0
    again = next(reprinted(costs, 1))
    assert again.node_cycles == one
