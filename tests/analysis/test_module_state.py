"""What a module is: recorded modules of every stage, and small ones for each answer."""

from __future__ import annotations

import pathlib

import pytest

import hlo_passes
from hlo_passes.analysis.dump_names import DumpName, dump_name
from hlo_passes.analysis.module_state import (
    ModuleState,
    WrongStateError,
    module_state,
    require_priceable,
)
from hlo_passes.files import read_module
from tests.modules import REPOSITORY

MODULES = REPOSITORY / "corpus" / "modules"
GOLDEN = REPOSITORY / "corpus" / "golden"
RELEASES = ["0.10.2", "0.12.0.1"]


def state_of(text: str, filename: str = "m.hlo") -> ModuleState:
    return module_state(hlo_passes.parse(text, filename=filename))


def named(header: str, *lines: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m{header}\n\nENTRY %main {{\n{body}\n}}\n"


# -- recorded modules ----------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("recorded", "stages", "summaries"),
    [
        ("before-optimizations", {"before-optimizations"}, {"not partitioned yet"}),
        ("partitioned", {"partitioned"}, {"partitioned, not scheduled"}),
        (
            "scheduled",
            {"cpu", "scheduled"},
            {"compiled for a CPU", "scheduled, for which machine is unknown"},
        ),
        (
            "gpu-scheduled",
            {"gpu-scheduled"},
            {"scheduled by XLA:GPU 0.10.2", "scheduled by XLA:GPU 0.11 or 0.12"},
        ),
    ],
)
def test_recorded_modules(
    release: str, recorded: str, stages: set[str], summaries: set[str]
) -> None:
    files = sorted((MODULES / release).glob(f"*.{recorded}.hlo*"))
    assert len(files) > 20
    found = [module_state(read_module(str(file))) for file in files]
    assert {state.stage for state in found} == stages
    assert {state.summary for state in found} <= summaries
    assert all(state.evidence for state in found)
    if recorded == "gpu-scheduled":
        said = "0.10.2" if release == "0.10.2" else "0.11 or 0.12"
        assert {s.origin for s in found} == {f"backend configs of XLA {said}"}


def test_most_modules_of_the_cpu_compiler_are_recognized() -> None:
    files = sorted(MODULES.glob("*/*.scheduled.hlo*"))
    stages = [module_state(read_module(str(file))).stage for file in files]
    assert stages.count("cpu") == 32
    assert stages.count("scheduled") == 14


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_gpu_compiler_has_between_fusion_and_schedule(release: str) -> None:
    files = sorted(GOLDEN.glob(f"{release}/*_mlp/gpu-*-combiner.before.hlo*"))
    assert files
    for file in files:
        state = module_state(read_module(str(file)))
        assert state.stage == "optimized", file
        assert state.cure


# -- one answer each -----------------------------------------------------------

GPU_CONFIG = '{"operation_queue_id":"0","force_earliest_schedule":false}'
FUSION = """
%f {
  %q = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%q)
}
"""


def fused(header: str, config: str = "", rest: str = "") -> str:
    written = f", backend_config={config}" if config else ""
    return (
        f"HloModule m{header}\n{FUSION}\nENTRY %main {{\n  %p = f32[8] parameter(0)\n"
        f"  ROOT %r = f32[8] fusion(%p), kind=kLoop, calls=%f{written}{rest}\n}}\n"
    )


SCHEDULED = ", is_scheduled=true"
FINGERPRINT = ', is_scheduled=true, frontend_attributes={fingerprint_before_lhs="a1"}'


@pytest.mark.parametrize(
    ("text", "stage", "summary", "evidence"),
    [
        (
            fused(FINGERPRINT), "gpu-scheduled", "scheduled by XLA:GPU",
            "the header has fingerprint_before_lhs",
        ),
        (
            fused(SCHEDULED, GPU_CONFIG), "gpu-scheduled", "scheduled for a GPU",
            "the backend config of %r has operation_queue_id",
        ),
        (
            fused(SCHEDULED), "scheduled", "scheduled, for which machine is unknown",
            "the header has is_scheduled=true",
        ),
        (
            fused("", GPU_CONFIG), "optimized", "optimized for a GPU, not scheduled",
            "the backend config of %r has operation_queue_id",
        ),
        (fused(""), "optimized", "optimized, not scheduled", "%r is a fusion"),
        (
            fused(SCHEDULED, '{"outer_dimension_partitions":["2"]}'), "cpu",
            "compiled for a CPU",
            "the backend config of %r has outer_dimension_partitions",
        ),
        (  # not JSON, as people write it
            fused("", '{fusion_config: {kind: "__ynn_fusion"}}'), "cpu",
            "compiled for a CPU, not scheduled",
            "the backend config of %r has fusion_config",
        ),
        (
            fused(SCHEDULED, '"{\\"operation_queue_id\\":\\"0\\"}"'), "gpu-scheduled",
            "scheduled for a GPU", "the backend config of %r has operation_queue_id",
        ),
        (  # a word of a longer name is no mark
            fused("", '{"block_level_fusion_config":{}}'), "optimized",
            "optimized, not scheduled", "%r is a fusion",
        ),
        (
            named(
                SCHEDULED,
                "%p = f32[8,128]{1,0:T(8,128)} parameter(0)",
                "ROOT %n = f32[8,128]{1,0:T(8,128)} negate(%p)",
            ),
            "tpu", "for a TPU, scheduled", "the layout of %p has tiles",
        ),
        (
            named(
                ", entry_computation_layout={(f32[8,128]{1,0:T(8,128)})->f32[8,128]}",
                "%p = f32[8,128] parameter(0)",
                "ROOT %n = f32[8,128] negate(%p)",
            ),
            "tpu", "for a TPU", "the entry's layout has tiles",
        ),
        (
            named(
                "",
                "%p = f32[8] parameter(0)",
                'ROOT %c = f32[8] custom-call(%p), custom_call_target="tpu_custom_call"',
            ),
            "tpu", "for a TPU", "%c calls tpu_custom_call",
        ),
        (
            named(
                ", num_partitions=2",
                "%p = f32[8] parameter(0)",
                "ROOT %r = f32[16] all-gather(%p), dimensions={0}, "
                "replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true",
            ),
            "partitioned", "partitioned, not scheduled", "%r is a collective",
        ),
        (
            named(", num_partitions=2", "ROOT %i = u32[] partition-id()"),
            "partitioned", "partitioned, not scheduled", "%i tells partitions apart",
        ),
        (
            named("", "%p = f32[8] parameter(0)", "ROOT %n = f32[8] negate(%p)"),
            "partitioned", "for one partition, not scheduled", "it has one partition",
        ),
        (
            named(
                ", num_partitions=4",
                "%p = f32[8] parameter(0), sharding={devices=[4]<=[4]}",
                "ROOT %n = f32[8] negate(%p), sharding={devices=[4]<=[4]}",
            ),
            "unknown",
            "not scheduled, and whether it is divided over its devices is unknown",
            "it has neither a collective nor a sharding that decides",
        ),
        (  # as JAX prints a lowered function without Shardy
            named(
                "",
                "%p = f32[8] parameter(0), sharding={devices=[4]<=[4]}",
                "ROOT %n = f32[8] negate(%p)",
            ),
            "unknown",
            "not scheduled, and whether it is divided over its devices is unknown",
            "the header names one partition, but %p has a sharding",
        ),
        (  # and with Shardy
            named(
                ', frontend_attributes={xla.sdy.meshes={m = #sdy.mesh<["x"=8]>}}',
                "%p = f32[8] parameter(0), "
                'frontend_attributes={xla.sdy.sharding="#sdy.sharding<@m, [{\\"x\\"}]>"}',
                "ROOT %n = f32[8] negate(%p)",
            ),
            "before-optimizations", "not partitioned yet",
            "%p has the attribute xla.sdy.sharding",
        ),
        (  # XLA takes these away from parameters too
            named(
                ", num_partitions=4",
                "%p = f32[8] parameter(0), sharding={mesh['x'=4], [{'x'}]}",
                "ROOT %n = f32[8] negate(%p)",
            ),
            "before-optimizations", "not partitioned yet", "%p has a sharding",
        ),
        (
            named(
                ", num_partitions=4",
                "%p = f32[8] parameter(0)",
                "%q = f32[8] negate(%p), sharding={devices=[4]<=[4]}",
                "ROOT %n = f32[8] negate(%q)",
            ),
            "before-optimizations", "not partitioned yet", "%q has a sharding",
        ),
    ],
)  # fmt: skip
def test_each_answer_has_its_evidence(
    text: str, stage: str, summary: str, evidence: str
) -> None:
    state = state_of(text)
    assert (state.stage, state.summary) == (stage, summary)
    assert state.evidence[0] == evidence
    assert bool(state.cure) == (stage not in ("gpu-scheduled", "scheduled", "tpu"))
    assert state.headline.startswith(f"module   {summary}")


def test_the_file_name_decides_where_the_text_is_silent() -> None:
    text = fused(SCHEDULED)
    cpu = state_of(text, "dump/module_0002.jit_f.cpu_after_optimizations.txt")
    assert (cpu.stage, cpu.evidence[0]) == (
        "cpu",
        "the file is named cpu_after_optimizations",
    )
    gpu = state_of(text, "module_0001.jit_f.sm_9.0a_gpu_after_optimizations.txt")
    assert gpu.stage == "gpu-scheduled"
    assert gpu.origin == "XLA's dump 1, sm_9.0a_gpu_after_optimizations"
    assert gpu.headline == f"module   scheduled for a GPU ({gpu.origin})"
    # What the text says wins.
    name = "module_0002.jit_f.cpu_after_optimizations.txt"
    assert state_of(fused(FINGERPRINT), name).stage == "gpu-scheduled"
    # A parameter's sharding is left to the partitioner, or left by it.
    text = named(
        ", num_partitions=4",
        "%p = f32[8] parameter(0), sharding={devices=[4]<=[4]}",
        "ROOT %n = f32[8] negate(%p), sharding={devices=[4]<=[4]}",
    )
    before = state_of(text, "module_0001.jit_f.before_optimizations.txt")
    assert before.stage == "before-optimizations"
    after = state_of(text, "module_0001.jit_f.after_spmd_partitioner.txt")
    assert after.stage == "partitioned"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "module_0001.jit_step.0003.layout_assignment.after_a-b.before_c-d.hlo.pb",
            DumpName(1, "jit_step", after="a-b", before="c-d"),
        ),
        (
            "module_0012.jit_f.g.before_optimizations.txt",
            DumpName(12, "jit_f.g", stage="before_optimizations"),
        ),
        (
            "1700000000123456.module_0001.m.gfx942_gpu_after_optimizations.txt.gz",
            DumpName(1, "m", stage="gfx942_gpu_after_optimizations"),
        ),
        (
            "module_0001.m.sm_9.0_gpu_after_optimizations.hlo",
            DumpName(1, "m", stage="sm_9.0_gpu_after_optimizations"),
        ),
        ("module_0001.m.sm_9.0_gpu_after_optimizations-buffer-assignment.txt", None),
        ("module_0001.m.thunk_sequence.txt", None),
        ("m.hlo", None),
        ("<stdin>", None),
    ],
)
def test_names_of_dump_files(name: str, found: DumpName | None) -> None:
    assert dump_name(f"some/folder/{name}") == found


# -- what is refused -----------------------------------------------------------


def test_a_program_for_one_device_is_not_refused_for_its_annotations() -> None:
    text = named(
        "",
        "%p = f32[8] parameter(0), sharding={replicated}",
        '%s = f32[8] custom-call(%p), custom_call_target="Sharding", '
        "sharding={replicated}",
        '%t = f32[8] custom-call(%s), custom_call_target="xla.sdy.FuncResultSharding", '
        'frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@m, [{}]>]>"}',
        "ROOT %n = f32[8] negate(%t), sharding={mesh['x'=1], [{'x'}]}",
    )
    module = hlo_passes.parse(text)
    assert module_state(module).summary == "for one partition, not scheduled"
    require_priceable(module)


@pytest.mark.parametrize(
    ("header", "line"),
    [
        (  # a partition count that JAX's text leaves out
            "",
            '%s = f32[8] custom-call(%p), custom_call_target="Sharding", '
            "sharding={devices=[8]<=[8]}",
        ),
        (
            ', frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=8]>}}',
            '%s = f32[8] custom-call(%p), custom_call_target="xla.sdy.FuncResultSharding"',
        ),
        (
            "",
            '%s = f32[1] custom-call(%p), custom_call_target="SPMDFullToShardShape"',
        ),
        (
            ", num_partitions=8",
            '%s = f32[8] custom-call(%p), custom_call_target="CustomSPMDPartitioning"',
        ),
    ],
)
def test_what_the_partitioner_has_to_do_is_refused(header: str, line: str) -> None:
    text = named(header, "%p = f32[8] parameter(0)", line, "ROOT %t = () tuple()")
    with pytest.raises(WrongStateError) as refused:
        require_priceable(hlo_passes.parse(text, filename="m.hlo"))
    assert refused.value.code == "S017"
    assert refused.value.render().startswith("m.hlo:5:4: error[S017]: %s has ")
    assert "hlo-passes lower" in refused.value.hint


def test_a_module_for_a_tpu_is_not_priced_as_a_gpus() -> None:
    text = named(
        SCHEDULED,
        "%p = f32[8,128]{1,0:T(8,128)} parameter(0)",
        "ROOT %n = f32[8,128]{1,0:T(8,128)} negate(%p)",
    )
    module = hlo_passes.parse(text)
    with pytest.raises(WrongStateError) as refused:
        require_priceable(module)
    assert refused.value.code == "S018"
    require_priceable(module, has_costs=True)


# -- other forms ---------------------------------------------------------------


def test_spelling_changes_no_answer() -> None:
    path = MODULES / "0.12.0.1" / "fsdp_mlp.gpu-scheduled.hlo.gz"
    module = read_module(str(path))
    canonical = hlo_passes.parse(module.to_canonical_text())
    assert module_state(canonical) == module_state(module)
    bare = hlo_passes.parse(module.to_text().replace("%", ""))
    assert module_state(bare) == module_state(module)


@pytest.mark.parametrize(
    "stage", ["before-optimizations", "partitioned", "scheduled", "gpu-scheduled"]
)
def test_a_proto_says_the_same_as_its_text(stage: str, tmp_path: pathlib.Path) -> None:
    (path,) = (MODULES / "0.10.2").glob(f"matmul_2d.{stage}.hlo*")
    module = read_module(str(path))
    written = tmp_path / "m.pb"
    written.write_bytes(module.to_proto())
    assert module_state(read_module(str(written))).stage == module_state(module).stage


def test_a_note_of_the_partitioner_in_a_proto_decides() -> None:
    text = named(
        ", num_partitions=4",
        "%p = f32[8] parameter(0), sharding={devices=[4]<=[4]}",
        "ROOT %n = f32[8] negate(%p), sharding={devices=[4]<=[4]}",
    )
    proto = hlo_passes.parse(text).to_proto()
    assert module_state(hlo_passes.Module.from_proto(proto)).stage == "unknown"
    noted = proto + b"\x62\x00"  # field 12, spmd_output_sharding, an empty message
    state = module_state(hlo_passes.Module.from_proto(noted))
    assert (state.stage, state.evidence[0]) == (
        "partitioned",
        "the proto has spmd_output_sharding",
    )


def test_it_is_asked_again_after_a_change() -> None:
    module = read_module(str(MODULES / "0.12.0.1" / "matmul_2d.partitioned.hlo"))
    assert module_state(module).stage == "partitioned"
    assert module_state(module) is module_state(module)
    hlo_passes.Pipeline.parse("gpu-schedule").run(module)
    state = module_state(module)
    assert state.summary == "scheduled for a GPU, nothing is fused"
