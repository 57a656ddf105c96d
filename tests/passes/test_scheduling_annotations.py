"""What the legaliser of scheduling groups refuses, and that it says where."""

from __future__ import annotations

import pytest

import hlo_passes

PAIR = """HloModule m, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[8], y: f32[8,8]) -> (f32[8], f32[8], f32[8,8]) {{
  %x = f32[8]{{0}} parameter(0)
  %y = f32[8,8]{{1,0}} parameter(1)
  %go1 = f32[8]{{0}} all-reduce-start(%x), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=%add{0}
  %d1 = f32[8]{{0}} all-reduce-done(%go1){1}
  %n = f32[8]{{0}} add(%d1, %d1)
  %go2 = f32[8]{{0}} all-reduce-start(%n), channel_id=2, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=%add{2}
  %d2 = f32[8]{{0}} all-reduce-done(%go2){3}
  %go3 = f32[8]{{0}} all-reduce-start(%x), channel_id=3, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=%add{4}
  %d3 = f32[8]{{0}} all-reduce-done(%go3){5}
  %f = f32[8,8]{{1,0}} custom-call(%y), custom_call_target="__cublas$gemm"{6}
  ROOT %t = (f32[8]{{0}}, f32[8]{{0}}, f32[8,8]{{1,0}}) tuple(%d2, %d3, %f)
}}
"""


def annotated(*groups: str) -> hlo_passes.Module:
    """The pairs s1 s2 s3 and the GEMM f, in groups; '' for none."""
    texts = [
        f', frontend_attributes={{_scheduling_group_id="{g}"}}' if g else ""
        for g in groups
    ]
    return hlo_passes.parse(PAIR.format(*texts))


def run(module: hlo_passes.Module, options: str = "") -> hlo_passes.PipelineResult:
    text = f"legalize-scheduling-annotations{options}"
    return hlo_passes.Pipeline.parse(text).run(module)


@pytest.mark.parametrize(
    ("groups", "options", "code", "what"),
    [
        (("1", "2", "", "", "", "", ""), "", "E022", "its start %go1 is not"),
        (("", "2", "", "", "", "", ""), "", "E022", "its start %go1 is not"),
        (("1", "1", "1", "1", "", "", ""), "", "E022", "enters it again at %go2"),
        (("1", "1", "1", "1", "", "", ""), "{check-gap-only=true}", "E022", "%go2"),
        (
            ("-1", "-1", "", "", "", "", ""),
            "",
            "E021",
            "is not a scheduling annotation",
        ),
        (
            ("1:2:3", "", "", "", "", "", ""),
            "",
            "E021",
            "is not a scheduling annotation",
        ),
        (("a", "", "", "", "", "", ""), "", "E021", "is not a scheduling annotation"),
    ],
)
def test_what_is_refused_says_where(
    groups: tuple[str, ...], options: str, code: str, what: str
) -> None:
    with pytest.raises(hlo_passes.PassError) as refused:
        run(annotated(*groups), options)
    assert refused.value.code == code
    assert what in refused.value.message
    assert refused.value.location is not None


def test_groups_that_wait_for_each_other_are_refused_on_demand() -> None:
    crossed = ("1", "2", "2", "1", "", "", "")
    options = "{{run-verification={},check-start-done-annotation-consistency=false,deannotate-unsupported-groups=true}}"
    with pytest.raises(hlo_passes.PassError, match="1 and 2 wait for each other"):
        run(annotated(*crossed), options.format("true"))
    run(annotated(*crossed), options.format("false"))
    apart = ("1", "1", "2", "2", "", "", "")
    run(annotated(*apart), options.format("true"))


def test_two_annotations_in_a_fusion_are_refused() -> None:
    module = hlo_passes.parse("""HloModule m

%gemm (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  %n = f32[8,8]{1,0} negate(%p), frontend_attributes={_scheduling_group_id="4"}
  ROOT %d = f32[8,8]{1,0} dot(%n, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}, frontend_attributes={_scheduling_group_id="3"}
}

ENTRY %main (x: f32[8,8]) -> f32[8,8] {
  %x = f32[8,8]{1,0} parameter(0)
  ROOT %f = f32[8,8]{1,0} fusion(%x), kind=kCustom, calls=%gemm, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
}
""")
    with pytest.raises(hlo_passes.PassError, match="holds scheduling groups 4 and 3"):
        run(module)


def test_what_cannot_be_propagated_is_refused() -> None:
    module = annotated("1", "1", "1", "1", "", "", "")
    (between,) = (i for i in module.entry.instructions if i.name == "n")
    between.set_attribute("frontend_attributes", '{_scheduling_group_id=":1"}')
    kept = "{keep-sync-annotation=all,propagate-annotation=true}"
    with pytest.raises(hlo_passes.PassError, match="%n is between members"):
        run(module, kept)


def test_barriers_are_looked_through_element_by_element() -> None:
    """%e comes from %y alone: with the tuple in the way it seems to come from %d."""
    text = """HloModule m, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[8], y: f32[8]) -> (f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %go1 = f32[8]{0} all-reduce-start(%x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add, frontend_attributes={_scheduling_group_id="1"}
  %d1 = f32[8]{0} all-reduce-done(%go1), frontend_attributes={_scheduling_group_id="1"}
  %n = f32[8]{0} negate(%d1)
  %t = (f32[8]{0}, f32[8]{0}) tuple(%n, %y)
  %o = (f32[8]{0}, f32[8]{0}) opt-barrier(%t)
  %c = f32[8]{0} get-tuple-element(%o), index=0
  %e = f32[8]{0} get-tuple-element(%o), index=1
  %go2 = f32[8]{0} all-reduce-start(%e), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add, frontend_attributes={_scheduling_group_id="1"}
  %d2 = f32[8]{0} all-reduce-done(%go2), frontend_attributes={_scheduling_group_id="1"}
  ROOT %r = (f32[8]{0}, f32[8]{0}) tuple(%c, %d2)
}
"""
    with pytest.raises(hlo_passes.PassError, match="enters it again at %go2"):
        run(hlo_passes.parse(text))
    assert not run(hlo_passes.parse(text), "{skip-opt-barriers=true}").changed
