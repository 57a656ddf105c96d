"""The pipeline from a partitioned module on, beside what XLA's GPU compiler makes of it."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.cli.main import main
from hlo_passes.errors import PipelineSpecError
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
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import pipeline_text
from hlo_passes.passes.framework.registry import pass_targets
from tests.modules import REPOSITORY

MODULES = REPOSITORY / "corpus" / "modules"
RELEASES = ["0.10.2", "0.12.0.1"]
PROGRAMS = sorted(
    {f.name.split(".")[0] for f in (MODULES / "0.10.2").glob("*.partitioned.hlo*")}
)
#: XLA has other collectives there.
OTHER_COUNTS = {
    "ring_attention": "after its fusion permutes depend on one another",
    "ring_attention_grad": "after its fusion permutes depend on one another",
}
#: As many of each kind, and other sizes.
OTHER_SIZES = {
    "pipeline_unrolled": "after its fusion other permutes are independent",
    "scan_layers_train": "all-reduces move out of a loop after its simplification",
}
#: The passes of XLA's dumps from the partitioner to the scheduler, by its names.
XLAS_ORDER = {
    "partitioner": "collective-permute-motion",
    "optimization": "windowed-einsum-handler cse dce tuple-simplifier",
    "collective-optimizations": """ragged-all-to-all-canonicalizer
        ragged-all-to-all-multi-host-decomposer all-reduce-simplifier all-reduce-folder
        all-reduce-splitter all-gather-optimizer all-gather-dynamic-slice-simplifier
        all-gather-pad-ds-simplifier all-gather-to-collective-permute-simplifier
        all-reduce-reassociate reduce-scatter-reassociate
        while-loop-all-reduce-code-motion collective-quantizer dce
        collective-pipelining-analyzer collective-pipeliner-forward algsimp
        reduce-scatter-creator all-gather-bcast-reorder
        all-gather-remove-degenerate-dims all-reduce-promotion dce
        while-loop-trip-count-annotator""",
    "layout": "all-gather-major-dimension-rewriter sub-byte-collective-normalization",
    # XLA also runs dus-accumulator-zero-init-elimination, which does nothing by default.
    "post-fusion": """rename_fusions dce tuple-simplifier gpu-all-gather-combiner gpu-all-reduce-combiner
        gpu-reduce-scatter-combiner collective-permute-combiner
        collective-backend-assigner collective-kernel-strategy-annotator
        collective-fusion collective-domain-assigner group-collectives-by-key
        all-reduce-contiguous collective-domain-assigner""",
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


def test_it_runs_what_xla_runs() -> None:
    """In XLA's order, but for what this project does not have."""
    names = [p.name for p in hlo_passes.Pipeline.parse("xla-gpu").passes]
    rest = [p.name for p in hlo_passes.Pipeline.parse("gpu-schedule").passes]
    known = {
        f"hlo-{name}" if name in ("cse", "dce") else name for name in pass_targets()
    }
    expected = [
        ours
        for stage in XLAS_ORDER.values()
        for name in stage.split()
        if (ours := f"hlo-{name}" if name in ("cse", "dce") else name) in known
    ]
    assert names == [*expected, *rest]


def test_a_pipeline_is_shorter_with_less_to_do() -> None:
    full = [p.name for p in hlo_passes.Pipeline.parse("xla-gpu").passes]
    text = "xla-gpu{enable-latency-hiding-scheduler=false,assign-streams=false}"
    fewer = [p.name for p in hlo_passes.Pipeline.parse(text).passes]
    assert "latency-hiding-scheduler" not in fewer
    assert set(fewer) < set(full)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (
            "optimization-level=O1",
            "forward backward forward{op=move-to-host} "
            "backward{op=move-to-device} unroll{strategy=auto}",
        ),
        (
            "exec-time-optimization-effort=0.2,enable-while-loop-unrolling=NO_UNROLL",
            "forward backward forward{op=move-to-host} "
            "backward{op=move-to-device}",
        ),
        ("pipeline-all-gather=on", "backward"),
        ("pipeline-all-gather=explicit", "backward{only-marked=true}"),
        ("pipeline-all-reduce=on", "forward"),
        ("optimization-level=O1,pipeline-all-reduce=off,pipeline-all-gather=off,"
         "enable-while-loop-unrolling=MANUAL_UNROLL",
         "forward{op=move-to-host} backward{op=move-to-device} unroll{strategy=manual}"),
        ("enable-while-loop-double-buffering=true", "unroll"),
        ("enable-while-loop-double-buffering=true,"
         "enable-while-loop-unrolling=FULL_UNROLL", "unroll{strategy=full-unroll}"),
        ("enable-while-loop-unrolling=DOUBLE_BUFFER", "unroll"),
        ("enable-pipelined-host-offloading=true",
         "forward{op=move-to-host} backward{op=move-to-device}"),
    ],
)  # fmt: skip
def test_switches(options: str, more: str) -> None:
    """Loops are pipelined and unrolled where XLA's flags and its level say so."""
    short = {
        "collective-pipeliner-forward": "forward",
        "collective-pipeliner-backward": "backward",
        "loop-double-buffer-transformer": "unroll",
    }
    found = [
        text.replace(name, short[name])
        for each in hlo_passes.Pipeline.parse(f"xla-gpu{{{options}}}").passes
        for name in [each.name]
        if name in short
        for text in [pipeline_text((each,))]
    ]
    if "pipeline-reduce-scatter=off" not in options:
        found.remove("forward{op=reduce-scatter}")
    assert found == more.split()


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("collective-cse-distance-threshold=8", "schedule-aware-collective-cse"),
        ("all-reduce-blueconnect-num-devices-per-host=4", "all-reduce-blueconnect"),
        ("unsupported-enable-all-reduce-decomposer=true", "all-reduce-decomposer"),
        ("unsupported-enable-ragged-all-to-all-decomposer=true",
         "ragged-all-to-all-decomposer"),
        ("enable-dus-accumulator-zero-init-elimination=true",
         "dus-accumulator-zero-init-elimination"),
        ("enable-pipelined-p2p=true", "collective-permute-cycle-decomposer"),
        ("enable-pipelined-p2p=true", "collective-permute-decomposer"),
        ("pipeline-parallelism-opt-level=ENABLE", "collective-permute-decomposer"),
    ],
)  # fmt: skip
def test_passes_that_are_off(option: str, name: str) -> None:
    """A flag adds its pass, with the flag's number."""
    assert name not in {p.name for p in hlo_passes.Pipeline.parse("xla-gpu").passes}
    passes = hlo_passes.Pipeline.parse(f"xla-gpu{{{option}}}").passes
    text = pipeline_text(tuple(p for p in passes if p.name == name))
    number = option.partition("=")[2]
    assert text.startswith(name)
    assert not number.isdecimal() or number in text


def test_a_pass_that_is_on() -> None:
    name = "ragged-all-to-all-multi-host-decomposer"
    off = f"xla-gpu{{unsupported-enable-{name}=false}}"
    assert name in {p.name for p in hlo_passes.Pipeline.parse("xla-gpu").passes}
    assert name not in {p.name for p in hlo_passes.Pipeline.parse(off).passes}


#: Three rows for each device, or none; two hosts of two GPUs exchange them.
RAGGED = """HloModule m, num_partitions=4

ENTRY %main (x: f32[8], y: f32[8], o: s64[4], s: s64[4], p: s64[4], q: s64[4]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %o = s64[4]{0} parameter(2)
  %s = s64[4]{0} parameter(3)
  %p = s64[4]{0} parameter(4)
  %q = s64[4]{0} parameter(5)
  ROOT %r = f32[8]{0} ragged-all-to-all(%x, %y, %o, %s, %p, %q), channel_id=1, replica_groups={{0,1,2,3}}
}
"""


@pytest.mark.parametrize(
    ("options", "machine", "splits"),
    [
        ("xla=0.12", "2x1x2", True),
        ("xla=0.11", "2x1x2", True),
        ("xla=0.10", "2x1x2", False),
        ("xla=0.10,unsupported-enable-ragged-all-to-all-multi-host-decomposer=true",
         "2x1x2", True),
        ("xla=0.12,unsupported-enable-ragged-all-to-all-multi-host-decomposer=false",
         "2x1x2", False),
        ("xla=0.12", "1x2x2", False),
        ("xla=0.12,slice-size=2", "1x1x4", True),
    ],
)  # fmt: skip
def test_rows_between_hosts(options: str, machine: str, splits: bool) -> None:
    """As XLA's releases do by default, for what NVLink joins in the machine."""
    module = hlo_passes.parse(RAGGED)
    context = PassContext(topology=machine)
    hlo_passes.Pipeline.parse(f"xla-gpu{{{options}}}", context).run(module)
    assert ("all-gather" in combined(module)) == splits


@pytest.mark.parametrize(("release", "pairs"), [("0.10", 2), ("0.12", 1)])
def test_groups_by_key(release: str, pairs: int) -> None:
    """XLA 0.10.2 does not know them."""
    text = """HloModule m, num_partitions=2

ENTRY %main (x: f32[8], y: f32[8,1]) -> (f32[16], f32[8,2]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8,1]{1,0} parameter(1)
  %a = f32[16]{0} all-gather(%x), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true, frontend_attributes={collective_group_key="k"}
  %b = f32[8,2]{1,0} all-gather(%y), channel_id=2, replica_groups={{0,1}}, dimensions={1}, use_global_device_ids=true, frontend_attributes={collective_group_key="k"}
  ROOT %t = (f32[16]{0}, f32[8,2]{1,0}) tuple(%a, %b)
}
"""
    module = hlo_passes.parse(text)
    context = PassContext(xla=release)
    steps = "xla-gpu{all-gather-combine-threshold-bytes=0,enable-latency-hiding-scheduler=false}"
    passes = hlo_passes.Pipeline.parse(steps, context).passes
    (step,) = (p for p in passes if p.name == "group-collectives-by-key")
    hlo_passes.Pipeline((step,), context).run(module)
    gathers = [i for i in module.entry.instructions if "gather" in i.opcode]
    starts = [i for i in module.entry.instructions if i.opcode == "async-start"]
    assert len(gathers or starts) == pairs


def test_a_level_that_xla_does_not_have() -> None:
    with pytest.raises(PipelineSpecError, match="O4"):
        hlo_passes.Pipeline.parse("xla-gpu{optimization-level=O4}")


def test_what_is_left_out_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    (path,) = (MODULES / "0.12.0.1").glob("matmul_2d.partitioned.hlo*")
    assert main(["opt", str(path), "--passes=xla-gpu", "-o", "-"]) == 0
    told = capfd.readouterr().err
    assert "xla-gpu leaves out fusion" in told
    assert main(["opt", str(path), "--passes=gpu-schedule", "-o", "-"]) == 0
    assert "leaves out" not in capfd.readouterr().err


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
