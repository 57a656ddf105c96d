"""Why a synchronous collective is one, and how large its message is."""

from __future__ import annotations

import json
import pathlib

import pytest

import hlo_passes
from hlo_passes import scheduler

SYNC = '"collective_backend_config":{"is_sync":true}'


def _module(gathered: str, other: str) -> str:
    return f"""HloModule m, num_partitions=2, is_scheduled=true

ENTRY %main (x: f32[1024], y: f32[1024,1024]) -> (f32[2048], f32[1024,1024]) {{
  %x = f32[1024]{{0}} parameter(0)
  %y = f32[1024,1024]{{1,0}} parameter(1)
{gathered}
  %double = f32[2048]{{0}} add(%done, %done)
{other}
  ROOT %t = (f32[2048]{{0}}, f32[1024,1024]{{1,0}}) tuple(%double, %beside)
}}
"""


MARKED = (
    "  %start = (f32[1024]{0}, f32[2048]{0}) all-gather-start(%x), channel_id=1, "
    "replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true, "
    f"backend_config={{{SYNC}}}\n"
    "  %done = f32[2048]{0} all-gather-done(%start)"
)
PLAIN = (
    "  %done = f32[2048]{0} all-gather(%x), channel_id=1, "
    "replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true"
)
INDEPENDENT = "  %beside = f32[1024,1024]{1,0} sine(%y)"
NEEDS = "  %b = f32[1024]{0} slice(%double), slice={[0:1024]}\n" + (
    "  %beside = f32[1024,1024]{1,0} broadcast(%b), dimensions={0}"
)


@pytest.mark.parametrize(
    ("gathered", "how"),
    [
        (MARKED, "the compiler left no work between its start and done (is_sync)"),
        (PLAIN, "it has no start and done"),
    ],
)
@pytest.mark.parametrize(
    ("other", "answer"),
    [
        (INDEPENDENT, "; 40.0 us of compute do not depend on it"),
        (NEEDS, "; all compute here feeds it or needs it"),
    ],
)
def test_a_label_is_no_answer(
    tmp_path: pathlib.Path, gathered: str, how: str, other: str, answer: str
) -> None:
    costs = tmp_path / "costs.json"
    nodes = {"done": 100.0, "beside": 40.0, "double": 1.0}
    costs.write_text(
        json.dumps({"node_cost_us": nodes, "latency_us": {"start": 100.0}})
    )
    module = hlo_passes.parse(_module(gathered, other))
    (row,) = scheduler.simulate(module, costs=str(costs)).worst(1)
    assert row.cause_kind == "synchronous"
    assert row.cause.startswith(f"synchronous: {how}, so the compute stream runs it")
    assert row.cause.endswith(answer)


@pytest.mark.parametrize("gathered", [MARKED, PLAIN])
def test_the_size_of_a_gather_is_what_it_gathers(gathered: str) -> None:
    module = hlo_passes.parse(_module(gathered, INDEPENDENT))
    (row,) = scheduler.simulate(module).worst(1)
    assert row.bytes == 4 * 2048


SIZES = """HloModule m, num_partitions=2, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[1024]) -> (f32[512], f32[1024], f32[1024], f32[1024]) {
  %x = f32[1024]{0} parameter(0)
  %scatter = f32[512]{0} reduce-scatter(%x), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true, to_apply=%add
  %reduce-start = f32[1024]{0} all-reduce-start(%x), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  %reduce = f32[1024]{0} all-reduce-done(%reduce-start)
  %permute-start = (f32[1024]{0}, f32[1024]{0}) collective-permute-start(%x), channel_id=3, source_target_pairs={{0,1},{1,0}}
  %permute = f32[1024]{0} collective-permute-done(%permute-start)
  %all = f32[1024]{0} all-to-all(%x), channel_id=4, replica_groups={{0,1}}, dimensions={0}
  ROOT %t = (f32[512]{0}, f32[1024]{0}, f32[1024]{0}, f32[1024]{0}) tuple(%scatter, %reduce, %permute, %all)
}
"""


def test_the_size_is_that_of_the_whole_message() -> None:
    rows = scheduler.simulate(hlo_passes.parse(SIZES)).collectives
    assert {row.opcode: row.bytes for row in rows} == {
        "reduce-scatter": 4096,
        "all-reduce": 4096,
        "collective-permute": 4096,
        "all-to-all": 4096,
    }
