"""Calls on SparseCores in the simulation: modules and costs written by hand."""

from __future__ import annotations

import json
import pathlib

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.tpu.comparison import figures_of
from hlo_passes.scheduler.tpu.costs import require_tpu_costs
from hlo_passes.scheduler.tpu.sparse_core import (
    is_on_sparse_core,
    offloaded_collective,
)

#: An all-gather and a change of layout, each called through another computation.
TEXT = """\
HloModule called, is_scheduled=true, entry_computation_layout={(f32[64,256]{1,0:T(8,128)})->f32[128,256]{1,0:T(8,128)}}, num_partitions=2

%gathering (q: f32[64,256]) -> f32[128,256] {
  %q = f32[64,256]{1,0:T(8,128)} parameter(0)
  ROOT %g = f32[128,256]{1,0:T(8,128)} all-gather(%q), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
}, execution_thread="sparsecore"

%wrapped (w: f32[64,256]) -> f32[128,256] {
  %w = f32[64,256]{1,0:T(8,128)} parameter(0)
  ROOT %c = f32[128,256]{1,0:T(8,128)} call(%w), to_apply=%gathering
}, execution_thread="sparsecore"

%negating (y: f32[64,256]) -> f32[64,256] {
  %y = f32[64,256]{1,0:T(8,128)} parameter(0)
  ROOT %m = f32[64,256]{1,0:T(8,128)} negate(%y)
}, execution_thread="sparsecore"

%wrapped.1 (v: f32[64,256]) -> f32[64,256] {
  %v = f32[64,256]{1,0:T(8,128)} parameter(0)
  ROOT %k = f32[64,256]{1,0:T(8,128)} call(%v), to_apply=%negating
}, execution_thread="sparsecore"

ENTRY %main (p: f32[64,256]) -> f32[128,256] {
  %p = f32[64,256]{1,0:T(8,128)} parameter(0)
  %s = ((f32[64,256]{1,0:T(8,128)}), f32[128,256]{1,0:T(8,128)}) async-start(%p), async_execution_thread="sparsecore", calls=%wrapped
  %t = ((f32[64,256]{1,0:T(8,128)}), f32[64,256]{1,0:T(8,128)}) async-start(%p), async_execution_thread="sparsecore", calls=%wrapped.1
  %n = f32[64,256]{1,0:T(8,128)} negate(%p)
  %d = f32[128,256]{1,0:T(8,128)} async-done(%s)
  %e = f32[64,256]{1,0:T(8,128)} async-done(%t)
  %b = f32[64,256]{1,0:T(8,128)} add(%n, %e)
  ROOT %r = f32[128,256]{1,0:T(8,128)} concatenate(%b, %b), dimensions={0}, control-predecessors={%d}
}
"""
#: Of 1500 MHz: the gather takes 4 us, the other call 1, and 2 are computed beside them.
COSTS = {
    "unit": "cycles",
    "chip": "v6e",
    "tensorcore_mhz": 1500,
    "topology": "1x2",
    "node_cost_cycles": dict.fromkeys("pstde", 0.0)
    | {"n": 3000.0, "b": 1500.0, "r": 1.0},
    "latency_cycles": {"s": 6000.0, "t": 1500.0},
}


def simulated(folder: pathlib.Path, text: str = TEXT, **changes: object) -> Timeline:
    file = folder / "costs.json"
    file.write_text(json.dumps(COSTS | changes))
    module = hlo_passes.parse(text)
    hlo_passes.verify(module)
    return scheduler.simulate(module, costs=str(file))


def test_which_starts_call_a_sparse_core() -> None:
    module = hlo_passes.parse(TEXT)
    starts = [i for i in module.entry.instructions if is_on_sparse_core(i)]
    assert [i.name for i in starts] == ["s", "t"]
    gather, none = map(offloaded_collective, starts)
    assert gather is not None
    assert (gather.name, none) == ("g", None)
    # A done is no start, and another thread no SparseCore.
    assert offloaded_collective(starts[0].users[0]) is None
    other = hlo_passes.parse(TEXT.replace('"sparsecore"', '"host"'))
    assert [offloaded_collective(i) for i in other.entry.instructions] == [None] * 8


def test_a_done_waits_for_the_latency_that_the_compiler_estimates(
    tmp_path: pathlib.Path,
) -> None:
    found = simulated(tmp_path)
    # The gather runs until 4 us, the other call after it until 5.
    entry = found.computations["main"]
    assert entry.step_time_us == pytest.approx(6.0, abs=0.01)
    assert entry.exposed_us == pytest.approx(3.0, abs=0.01)
    assert entry.other_exposed_us == pytest.approx(1.0, abs=0.01)
    (row,) = found.collectives
    assert (row.name, row.done, row.opcode) == ("s", "d", "all-gather")
    assert (row.lane, row.bytes) == ("sparsecore 0", 128 * 256 * 4)
    assert row.latency_us == pytest.approx(4.0)
    assert row.exposed_us == pytest.approx(2.0, abs=0.01)
    assert not any("the costs lack" in note for note in found.notes)


def test_it_agrees_with_the_statistic_where_no_call_waits_for_another(
    tmp_path: pathlib.Path,
) -> None:
    found = simulated(tmp_path, latency_cycles={"s": 6000.0, "t": 0.0})
    module = hlo_passes.parse(TEXT)
    costs = require_tpu_costs(str(tmp_path / "costs.json"))
    (total, wasted) = figures_of(module, costs)["main"]
    assert found.step_time_us == pytest.approx(total / costs.mhz, abs=0.01)
    assert found.computations["main"].exposed_us == pytest.approx(
        wasted / costs.mhz, abs=0.01
    )


def test_without_a_latency_what_is_called_is_simulated(tmp_path: pathlib.Path) -> None:
    found = simulated(tmp_path, latency_cycles={"g": 9000.0, "t": 0.0})
    assert found.step_time_us == pytest.approx(7.0, abs=0.01)
    assert [row.name for row in found.collectives] == ["g", "s"]


def test_calls_on_other_threads_take_as_long_as_what_they_call(
    tmp_path: pathlib.Path,
) -> None:
    text = TEXT.replace('"sparsecore"', '"host"')
    found = simulated(tmp_path, text)
    assert found.step_time_us == pytest.approx(3.0, abs=0.01)
    assert {row.name for row in found.collectives} == {"g"}
