"""What passes made, brought to what XLA's back ends take."""

from __future__ import annotations

import pytest

from hlo_passes import Pipeline, parse, verify
from hlo_passes.runtime.installation.for_cpu import NotForCpuError, bring_to_cpu
from hlo_passes.runtime.installation.for_gpu import NotForGpuError, require_for_gpu
from tests.modules import CORPUS, REPOSITORY, read_text

HEAD = """HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}

%wrapped (q: f32[8]) -> f32[4] {
  %q = f32[8]{0} parameter(0)
  ROOT %rs = f32[4]{0} reduce-scatter(%q), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}, to_apply=%add
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
"""
PERMUTE = "source_target_pairs={{0,1},{1,0}}"


def lines_of(body: str) -> list[str]:
    module = parse(HEAD + body + "}\n")
    verify(module)
    bring_to_cpu(module)
    verify(module)
    text = module.to_text()
    assert ("%wrapped (" in text) == ("async-start" not in body)
    return [line.strip() for line in text.split("ENTRY")[1].split("\n")[2:-2]]


def test_the_collective_runs_where_its_done_stood() -> None:
    assert lines_of(
        f"  %s = (f32[8]{{0}}, f32[8]{{0}}) collective-permute-start(%p), channel_id=1, {PERMUTE}\n"
        "  %n = f32[8]{0} negate(%p)\n"
        "  %d = f32[8]{0} collective-permute-done(%s)\n"
        "  ROOT %r = f32[8]{0} add(%d, %n)\n"
    ) == [
        "%n = f32[8]{0} negate(%p)",
        f"%collective-permute = f32[8]{{0}} collective-permute(%p), channel_id=1, {PERMUTE}",
        "ROOT %r = f32[8]{0} add(%collective-permute, %n)",
    ]


def test_wrapped_collectives() -> None:
    lines = lines_of(
        "  %s = ((f32[8]{0}), f32[4]{0}) async-start(%p), calls=%wrapped\n"
        "  %n = f32[8]{0} negate(%p)\n"
        "  %d = f32[4]{0} async-done(%s)\n"
        "  ROOT %r = f32[8]{0} concatenate(%d, %d), dimensions={0}\n"
    )
    assert lines[1].startswith("%reduce-scatter = f32[4]{0} reduce-scatter(%p)")


def test_control_edges_stay() -> None:
    lines = lines_of(
        "  %f = f32[8]{0} abs(%p)\n"
        f"  %s = (f32[8]{{0}}, f32[8]{{0}}) collective-permute-start(%p), channel_id=1, {PERMUTE}, control-predecessors={{%f}}\n"
        "  %n = f32[8]{0} negate(%p)\n"
        "  %d = f32[8]{0} collective-permute-done(%s), control-predecessors={%n}\n"
        "  %l = f32[8]{0} cosine(%p), control-predecessors={%d}\n"
        "  %m = f32[8]{0} sine(%p), control-predecessors={%s}\n"
        "  ROOT %r = f32[8]{0} add(%d, %l)\n"
    )
    assert "control-predecessors={%f, %n}" in lines[2]
    assert "control-predecessors={%collective-permute}" in lines[3]
    assert "control-predecessors={%collective-permute}" in lines[4]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            f"  %s = (f32[8]{{0}}, f32[8]{{0}}) collective-permute-start(%p), channel_id=1, {PERMUTE}\n"
            "  %n = f32[8]{0} negate(%p), control-predecessors={%s}\n"
            "  %d = f32[8]{0} collective-permute-done(%s)\n"
            "  ROOT %r = f32[8]{0} add(%d, %n)\n",
            "%s = collective-permute-start.* must run before %n",
            id="a control edge between",
        ),
        pytest.param(
            "  %s = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%p)\n"
            "  ROOT %d = f32[8]{0} copy-done(%s)\n",
            "%s = copy-start.* has no asynchronous operations",
            id="a copy",
        ),
        pytest.param(
            "  ROOT %d = f32[8]{0} collective-broadcast(%p), channel_id=1, replica_groups={{0,1}}\n",
            "%d = collective-broadcast.* does not know it",
            id="a broadcast",
        ),
    ],
)
def test_what_cannot_be_synchronous_is_refused(body: str, message: str) -> None:
    with pytest.raises(NotForCpuError, match=message):
        lines_of(body)


def test_combined_reductions_in_loops_are_refused_for_gpus() -> None:
    file = CORPUS / "modules" / "0.10.2" / "scan_layers_train.partitioned.hlo.gz"
    if not file.exists():
        file = file.with_suffix("")
    module = parse(read_text(file))
    require_for_gpu(module)
    assert Pipeline.parse("gpu-all-reduce-combiner").run(module).changed
    with pytest.raises(NotForGpuError, match=r"in the loop body .* several operands"):
        require_for_gpu(module)


def test_bitcasts_are_refused_in_front_of_layouts() -> None:
    file = CORPUS / "modules" / "0.10.2" / "matmul_2d.partitioned.hlo"
    module = parse(read_text(file))
    assert Pipeline.parse("gpu-all-gather-combiner").run(module).changed
    with pytest.raises(NotForGpuError, match="combine-by-dim=true"):
        require_for_gpu(module)


BOTH = """HloModule m
%f (p: f32[8]) -> (f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} negate(%p)
  %b = f32[8]{0} tanh(%p)
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%a, %b)
}

ENTRY %main (x: f32[8]) -> (f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  ROOT %both = (f32[8]{0}, f32[8]{0}) fusion(%x), kind=kLoop, calls=%f
}
"""


def test_fusions_of_several_results_are_refused_in_front_of_layouts() -> None:
    module = parse(BOTH)
    # One that was there is XLA's own.
    require_for_gpu(module)
    module.entry.root.line = 0
    with pytest.raises(NotForGpuError, match=r"%both .* has several results"):
        require_for_gpu(module)


EDGES = """HloModule m
ENTRY %main (x: f32[8]) -> (f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %a = f32[8]{0} negate(%x)
  %b = f32[8]{0} tanh(%x), control-predecessors={%a}
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%a, %b)
}
"""


def test_control_edges_by_passes_are_refused_in_front_of_fusions() -> None:
    module = parse(EDGES)
    require_for_gpu(module)
    # Those that were there are XLA's own.
    entry = module.entry
    one, other = entry.instructions[1:3]
    entry.remove_control_edge(one, other)
    require_for_gpu(module)
    entry.add_control_edge(other, one)
    with pytest.raises(NotForGpuError, match=r"%a = negate\(.* must wait for %b"):
        require_for_gpu(module)


def test_several_buffers_need_no_control_edges() -> None:
    case = REPOSITORY / "tests/scheduler/passes/cases/loop-multi-buffer/pays.hlo"
    text = case.read_text("utf-8").partition("// output")[0]
    for options, is_refused in (("", True), (",control-edges=false", False)):
        module = parse(text)
        Pipeline.parse(f"loop-multi-buffer{{always=true{options}}}").run(module)
        if is_refused:
            with pytest.raises(NotForGpuError, match="control-edges=false"):
                require_for_gpu(module)
        else:
            require_for_gpu(module)
