"""Collectives that XLA 0.12 runs as fusions of its own: they are collectives still."""

from __future__ import annotations

import pathlib

import pytest

import hlo_passes
from hlo_passes import Module, PassContext, Pipeline, parse, scheduler
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.tuning.facts import facts_of

_HEADER = """HloModule step, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

"""
_REDUCTION = (
    "channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, "
    "to_apply=%add"
)
_AT_ONCE = f"""{_HEADER}ENTRY %main (x: f32[65536]) -> f32[65536] {{
  %x = f32[65536]{{0}} parameter(0)
  ROOT %r = f32[65536]{{0}} all-reduce(%x), {_REDUCTION}
}}
"""
_STARTED = f"""{_HEADER}ENTRY %main (x: f32[65536]) -> f32[65536] {{
  %x = f32[65536]{{0}} parameter(0)
  %r = f32[65536]{{0}} all-reduce-start(%x), {_REDUCTION}
  ROOT %d = f32[65536]{{0}} all-reduce-done(%r)
}}
"""
_MAKE = "collective-kernel-strategy-annotator{xla=0.12},collective-fusion{xla=0.12}"
FORMS = pytest.mark.parametrize(
    "text", [_AT_ONCE, _STARTED], ids=("at once", "started")
)


def _made(text: str) -> Module:
    """The kernel, in a module that has an order."""
    module = parse(text)
    assert Pipeline.parse(_MAKE, PassContext()).run(module).changed
    return parse(
        module.to_text().replace("HloModule step", "HloModule step, is_scheduled=true")
    )


@FORMS
def test_a_kernel_is_listed_as_its_collective(text: str) -> None:
    step = scheduler.simulate(_made(text))
    (row,) = step.collectives
    assert row.opcode == "all-reduce"
    assert row.bytes == 65536 * 4
    assert row.groups == "{{0,1,2,3},{4,5,6,7}}"
    assert row.model == "sol/nvlink-kernel"
    assert row.latency_us == row.exposed_us == step.step_time_us
    assert step.communication_us == step.step_time_us > 2.0
    assert step.computations["main"].other_exposed_us == 0.0


def test_both_forms_take_the_same_time() -> None:
    steps = [scheduler.simulate(_made(text)) for text in (_AT_ONCE, _STARTED)]
    assert steps[0].step_time_us == steps[1].step_time_us


@FORMS
def test_a_kernel_has_a_price(text: str) -> None:
    """It is not among those without one, and `--extended` changes nothing."""
    module = _made(text)
    plain, extended = (
        scheduler.simulate(module, Pricing(extended=flag)) for flag in (False, True)
    )
    assert plain.neglected.count == 0
    assert plain.step_time_us == extended.step_time_us
    rows = scheduler.estimate(module).rows
    assert max(row.latency_us or row.node_cost_us for row in rows) == plain.step_time_us


@FORMS
def test_kernels_share_links_as_other_collectives(text: str) -> None:
    timeline = scheduler.simulate(_made(text), share_links=True)
    assert timeline.collectives[0].exposed_us == timeline.step_time_us


@FORMS
def test_tune_sees_a_kernel_as_its_collective(text: str) -> None:
    facts = facts_of(_made(text), Topology(1, 1, 8))
    assert facts.kinds == {"all-reduce"}
    assert not facts.has_async_work


@pytest.mark.parametrize(
    "old",
    [
        '"kernel_strategy":"KERNEL_STRATEGY_TRITON_ONE_SHOT"',
        '"kind":"__triton_collective"',
    ],
)
def test_what_a_fusion_says_of_itself_does_not_matter(old: str) -> None:
    """A fusion with a collective in it is one, and takes a collective's time."""
    module = parse(_made(_AT_ONCE).to_text().replace(old, old.split(":")[0] + ':""'))
    step = scheduler.simulate(module)
    (row,) = step.collectives
    assert row.opcode == "all-reduce"
    assert row.exposed_us == step.step_time_us > 2.0
    rows = scheduler.estimate(module).rows
    assert max(row.node_cost_us for row in rows) == step.step_time_us


def test_a_profile_has_the_last_word(tmp_path: pathlib.Path) -> None:
    module = _made(_AT_ONCE)
    (kernel,) = (i for i in module.entry.instructions if i.opcode == "fusion")
    file = tmp_path / "profile.pbtxt"
    file.write_text(f'costs {{ name: "{kernel.name}" cost_us: 123.0 }}\n')
    on = Pricing(profile=str(file))
    assert scheduler.simulate(module, on).step_time_us == 123.0
    assert max(row.node_cost_us for row in scheduler.estimate(module, on).rows) == 123.0


@pytest.mark.parametrize("start", ["call", "async"])
def test_a_call_that_ends_in_a_collective_is_a_call(start: str) -> None:
    wrapper, run = "", "call-start(%x), to_apply=%body"
    if start == "async":
        run = "async-start(%x), calls=%wrapper"
        wrapper = """%wrapper (q: f32[65536]) -> f32[65536] {
  %q = f32[65536]{0} parameter(0)
  ROOT %c = f32[65536]{0} call(%q), to_apply=%body
}

"""
    text = f"""{_HEADER.replace("HloModule step", "HloModule step, is_scheduled=true")}%body (p: f32[65536]) -> f32[65536] {{
  %p = f32[65536]{{0}} parameter(0)
  %n = f32[65536]{{0}} negate(%p)
  ROOT %r = f32[65536]{{0}} all-reduce(%n), {_REDUCTION}
}}

{wrapper}ENTRY %main (x: f32[65536]) -> f32[65536] {{
  %x = f32[65536]{{0}} parameter(0)
  %s = ((f32[65536]{{0}}), f32[65536]{{0}}) {run}
  ROOT %d = f32[65536]{{0}} {start}-done(%s)
}}
"""
    step = scheduler.simulate(parse(text))
    assert [row.name for row in step.collectives] == ["r"]
    assert facts_of(parse(text), Topology(1, 1, 8)).has_async_work


def test_other_fusions_are_no_collectives() -> None:
    text = """HloModule step, is_scheduled=true

%fused (p: f32[64]) -> f32[64] {
  %p = f32[64] parameter(0)
  ROOT %n = f32[64] negate(%p)
}

ENTRY %main (x: f32[64]) -> f32[64] {
  %x = f32[64] parameter(0)
  ROOT %f = f32[64] fusion(%x), kind=kLoop, calls=%fused
}
"""
    assert scheduler.simulate(hlo_passes.parse(text)).collectives == ()
