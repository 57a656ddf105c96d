"""The schedule checker holds schedules for TPUs to the limits of the chip."""

from __future__ import annotations

import json
import pathlib

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.tpu.settings import tpu_settings
from tests.tpu.test_sparse_core import TEXT as CALLED

ARRAY = "f32[64,256]{1,0:T(8,128)}"
ROUND = "source_target_pairs={{0,1},{1,0}}"
#: Two permutes with the work of neither beside them.
PERMUTES = f"""\
HloModule permutes, is_scheduled=true, entry_computation_layout={{({ARRAY}, {ARRAY})->{ARRAY}}}, num_partitions=2

ENTRY %main (p: f32[64,256], q: f32[64,256]) -> f32[64,256] {{
  %p = {ARRAY} parameter(0)
  %q = {ARRAY} parameter(1)
  %s = ({ARRAY}, {ARRAY}, u32[]{{:S(2)}}, u32[]{{:S(2)}}) collective-permute-start(%p), channel_id=1, {ROUND}
  %d = {ARRAY} collective-permute-done(%s)
  %t = ({ARRAY}, {ARRAY}, u32[]{{:S(2)}}, u32[]{{:S(2)}}) collective-permute-start(%q), channel_id=2, {ROUND}
  %e = {ARRAY} collective-permute-done(%t)
  %n = {ARRAY} negate(%p)
  %m = {ARRAY} add(%d, %e)
  ROOT %r = {ARRAY} add(%n, %m)
}}
"""
COPIES = f"""\
HloModule copies, is_scheduled=true

ENTRY %main {{
  %p = {ARRAY} parameter(0)
  %s = ({ARRAY}, {ARRAY}, u32[]) copy-start(%p)
  %t = ({ARRAY}, {ARRAY}, u32[]) copy-start(%p)
  %d = {ARRAY} copy-done(%s)
  %e = {ARRAY} copy-done(%t)
  ROOT %r = {ARRAY} add(%d, %e)
}}
"""


def context(folder: pathlib.Path, flags: str = "") -> PassContext:
    costs = {
        "unit": "cycles",
        "chip": "v6e",
        "tensorcore_mhz": 1500,
        "node_cost_cycles": dict.fromkeys("pqstde", 1.0)
        | {"n": 9000.0, "m": 1500.0, "r": 1500.0},
        "latency_cycles": {"s": 6000.0, "t": 6000.0},
        "memory_limit_bytes": 100_000_000,
        "flags": flags,
    }
    file = folder / "costs.json"
    file.write_text(json.dumps(costs))
    return PassContext(Pricing(costs=str(file)))


def most_in_flight(module: hlo_passes.Module) -> int:
    flying = most = 0
    for each in module.entry.instructions:
        flying += each.opcode.endswith("-start")
        most = max(most, flying)
        flying -= each.opcode.endswith("-done")
    return most


@pytest.mark.parametrize("name", ["schedule-improver", "latency-hiding-scheduler"])
def test_permutes_fly_together_as_the_chip_lets_them(
    name: str, tmp_path: pathlib.Path
) -> None:
    module = hlo_passes.parse(PERMUTES)
    pipeline = Pipeline.parse(name, context(tmp_path))
    assert pipeline.run(module, verify_each=True).changed
    assert most_in_flight(module) == 2


def test_what_the_checks_are_told_is_of_the_chip(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(PERMUTES)
    flags = "xla_max_concurrent_async_collective_permutes=3"
    on = context(tmp_path, flags)
    for name in ("schedule-improver", "latency-hiding-scheduler"):
        options = find_pass(name)().options_of_checks(module, on)
        assert options["flavour"] == "tpu"
        assert options["collective_permute_overlap_limit"] == 3
    own = LatencyHidingScheduler().options_of_checks(module, PassContext())
    assert own["flavour"] == "gpu"


def test_a_limit_of_one_permute_is_kept(tmp_path: pathlib.Path) -> None:
    flags = "xla_max_concurrent_async_collective_permutes=1"
    module = hlo_passes.parse(PERMUTES)
    pipeline = Pipeline.parse("schedule-improver", context(tmp_path, flags))
    assert pipeline.run(module, verify_each=True).changed
    assert most_in_flight(module) == 1


def messages(text: str, **options: object) -> list[str]:
    module = hlo_passes.parse(text)
    found = check_schedule(module, None, flavour="tpu", **options)
    return [f.message for f in found]


def test_copies_have_a_limit() -> None:
    assert not messages(COPIES, copy_overlap_limit=2)
    (message,) = messages(COPIES, copy_overlap_limit=1)
    assert message == "2 in flight on the lane of copy, the limit is 1: %s, %t"


def test_calls_on_one_core_have_a_limit() -> None:
    """Both calls of the module are on the first core, as they name none."""
    assert not messages(CALLED, sparse_core_overlap_limit=2)
    (message,) = messages(CALLED, sparse_core_overlap_limit=1)
    assert "2 in flight on the lane of SparseCore 0, the limit is 1" in message
    named = 'async_execution_thread="sparsecore", calls=%wrapped.1'
    config = ', backend_config={"sparse_core_config":{"core_ids":["1"]}}'
    assert not messages(
        CALLED.replace(named, named + config), sparse_core_overlap_limit=1
    )


def test_calls_count_against_the_limit_of_their_kind() -> None:
    """Without a queue; in one they wait for each other."""
    twice = CALLED.replace(
        "negate(%y)\n",
        "all-reduce(%y), replica_groups={{0,1}}, to_apply=%adding\n",
    ).replace(
        "%negating (y",
        "%adding (a: f32[], b: f32[]) -> f32[] {\n"
        "  %a = f32[] parameter(0)\n  %b.0 = f32[] parameter(1)\n"
        "  ROOT %sum = f32[] add(%a, %b.0)\n}\n\n%negating (y",
    )
    assert not messages(twice, all_gather_overlap_limit=1)
    gathers = CALLED.replace("calls=%wrapped.1", "calls=%wrapped").replace(
        "%t = ((f32[64,256]{1,0:T(8,128)}), f32[64,256]{1,0:T(8,128)})",
        "%t = ((f32[64,256]{1,0:T(8,128)}), f32[128,256]{1,0:T(8,128)})",
    )
    gathers = gathers.replace(
        "%e = f32[64,256]{1,0:T(8,128)} async-done", "%e = f32[128,256] async-done"
    ).replace("add(%n, %e)", "negate(%n)")
    (message,) = messages(gathers, all_gather_overlap_limit=1)
    assert "2 in flight on the lane of all-gather, the limit is 1: %s, %t" in message
    assert not messages(gathers, all_gather_overlap_limit=1, sparse_core_queue=True)


@pytest.mark.parametrize("name", ["v5e", "v5p", "v6e", "tpu7x"])
def test_the_checker_takes_the_settings_of_a_chip(name: str) -> None:
    settings = tpu_settings(name).by_name
    own = find_pass("schedule-checker").__dataclass_fields__
    options = {n: value for n, value in settings.items() if n in own}
    assert not check_schedule(hlo_passes.parse(PERMUTES), None, **options)
