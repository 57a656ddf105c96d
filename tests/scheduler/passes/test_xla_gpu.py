"""The pipeline from a partitioned module on, beside what XLA's GPU compiler makes of it."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.files import read_module
from hlo_passes.ir.async_form import is_collective
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.passes.combining.collective_permute_combiner import (
    CollectivePermuteCombiner,
)
from hlo_passes.passes.combining.gpu_all_gather_combiner import GpuAllGatherCombiner
from hlo_passes.passes.combining.gpu_all_reduce_combiner import GpuAllReduceCombiner
from hlo_passes.passes.combining.gpu_reduce_scatter_combiner import (
    GpuReduceScatterCombiner,
)
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from tests.modules import REPOSITORY

MODULES = REPOSITORY / "corpus" / "modules"
RELEASES = ["0.10.2", "0.12.0.1"]
PROGRAMS = sorted(
    {f.name.split(".")[0] for f in (MODULES / "0.10.2").glob("*.partitioned.hlo*")}
)
#: XLA has other collectives there.
OTHER_COUNTS = {
    "fsdp_mlp_partitioner": "reduce-scatters from all-reduces",
    "matmul_2d": "reduce-scatters from all-reduces",
    "ring_attention": "after its fusion permutes depend on one another",
    "ring_attention_grad": "after its fusion permutes depend on one another",
}
#: As many of each kind, and other sizes.
OTHER_SIZES = {
    "grouped_reductions": "one of two equal all-reduces",
    "pipeline_unrolled": "after its fusion other permutes are independent",
    "scan_layers_train": "all-reduces that move out of a loop",
}


def combined(module: Module) -> dict[str, list[int]]:
    """Bytes of each collective that runs, by kind, sorted."""
    found: dict[str, list[int]] = {}
    waiting, seen = [module.entry], {module.entry}
    while waiting:
        for each in waiting.pop().instructions:
            for callee in each.called_computations:
                if callee not in seen:
                    seen.add(callee)
                    waiting.append(callee)
            row = facts(each.opcode)
            if not is_collective(each) or row.half in ("update", "done"):
                continue
            if row.half and not row.work:  # its body has the collective
                continue
            size = sum(operand.shape.byte_size for operand in each.operands)
            found.setdefault(row.work or each.opcode, []).append(size)
    return {kind: sorted(sizes) for kind, sizes in sorted(found.items())}


def counts(found: dict[str, list[int]]) -> dict[str, int]:
    return {kind: len(sizes) for kind, sizes in found.items()}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_collectives_are_as_many_and_as_large_as_xlas(name: str, release: str) -> None:
    (ours,) = (MODULES / release).glob(f"{name}.partitioned.hlo*")
    (xlas,) = (MODULES / release).glob(f"{name}.gpu-scheduled.hlo*")
    module = read_module(str(ours))
    version = ".".join(release.split(".")[:2])
    hlo_passes.Pipeline.parse(f"xla-gpu{{xla={version}}}").run(module)
    assert module.is_scheduled
    made, recorded = combined(module), combined(read_module(str(xlas)))
    assert (counts(made) == counts(recorded)) == (name not in OTHER_COUNTS)
    assert (made == recorded) == (name not in {**OTHER_COUNTS, **OTHER_SIZES})


def test_it_stands_for_its_passes() -> None:
    names = [p.name for p in hlo_passes.Pipeline.parse("xla-gpu").passes]
    rest = [p.name for p in hlo_passes.Pipeline.parse("gpu-schedule").passes]
    assert names == [
        "hlo-cse",
        "hlo-dce",
        "tuple-simplifier",
        "while-loop-trip-count-annotator",
        "gpu-all-gather-combiner",
        "gpu-all-reduce-combiner",
        "gpu-reduce-scatter-combiner",
        "collective-permute-combiner",
        *rest,
    ]
    text = "xla-gpu{enable-latency-hiding-scheduler=false,assign-streams=false}"
    fewer = [p.name for p in hlo_passes.Pipeline.parse(text).passes]
    assert "latency-hiding-scheduler" not in fewer
    assert len(GpuSchedule.members) + 8 > len(fewer)


def test_each_combiner_has_its_threshold() -> None:
    text = (
        "xla-gpu{threshold-count=9,threshold-bytes=5,"
        "all-reduce-combine-threshold-bytes=1}"
    )
    kinds = (
        GpuAllGatherCombiner,
        GpuAllReduceCombiner,
        GpuReduceScatterCombiner,
        CollectivePermuteCombiner,
    )
    passes = [p for p in hlo_passes.Pipeline.parse(text).passes if isinstance(p, kinds)]
    assert [p.threshold_bytes for p in passes] == [5, 1, 5, 5]
    assert [p.threshold_count for p in passes] == [9] * 4
