"""Sparse experts end to end: a handful of the routings of `moe_campaign`."""

from __future__ import annotations

import pathlib

import hlo_passes
from hlo_passes import runtime
from tests.runtime.moe_campaign import KINDS, check, layers, routings


def test_experts_equal_a_dense_reference_and_their_chunks(host_devices) -> None:
    """Three experts on each of four devices, in two chunks."""
    loaded = layers(host_devices(4), [2])
    found = [(kind, check(loaded, inputs)) for kind, inputs in routings(3 * len(KINDS))]
    for kind, each in found:
        assert kind not in ("one expert", "two experts") or each.dropped
        assert kind != "two experts" or each.empty == 10
    assert {bool(each.dropped) for _, each in found} == {False, True}


_CASES = pathlib.Path(__file__).parents[1] / "scheduler" / "passes" / "cases"


def test_rows_of_one_expert_are_cut_between_replicas(host_devices) -> None:
    host_devices(2)
    case = _CASES / "ragged-all-to-all-chunker" / "rows_of_one_expert.hlo"
    before, after = map(hlo_passes.parse, case.read_text().split("// output"))
    assert before.to_text() != after.to_text()
    # The CPU adds up the products of fewer rows in another order.
    tolerance = runtime.Tolerance(relative=1e-5, absolute=1e-6)
    assert runtime.compare(before, after, tolerance=tolerance).matches
