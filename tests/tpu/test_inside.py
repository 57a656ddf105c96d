"""Passes inside XLA:TPU's compilation: no module goes back without its schedule."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import ClassVar

import pytest

import hlo_passes
from hlo_passes import Module, Pass, PassContext, Pipeline, Pricing, Report, UsageError
from hlo_passes.errors import HloError
from hlo_passes.passes.framework.registry import pass_targets
from hlo_passes.runtime.installation.for_tpu import (
    NotForTpuError,
    Orders,
    bring_to_tpu,
    computations_with_cut_gathers,
    orders_of,
    require_schedule,
    unpinnable,
)
from hlo_passes.runtime.installation.install import _ModuleRun, prepare
from hlo_passes.runtime.installation.install import install as install_passes
from hlo_passes.runtime.installation.options import InstallOptions
from tests.tpu.test_aot import PROGRAM, PROGRAMS, command, needs_library
from tests.tpu.test_modules import TILED, costs_file
from tests.tpu.test_sparse_core import TEXT as ON_SPARSE_CORE
from tests.verify.test_handed_over import LOOP, MARK

STAGES = ("pre-scheduler", "post-scheduler")
#: A gather cut into fusions, as v5e has them, and two instructions nobody depends on.
CUT = """\
HloModule cut, is_scheduled=true, entry_computation_layout={(f32[8,128]{1,0:T(8,128)})->f32[8,128]{1,0:T(8,128)}}

%first_step (q: f32[8,128]) -> f32[8,128] {
  %q = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %c = f32[8,128]{1,0:T(8,128)} custom-call(%q), custom_call_target="AsyncCollectiveStart"
}

%within (t: f32[8,128]) -> f32[8,128] {
  %t = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %inner = f32[8,128]{1,0:T(8,128)} fusion(%t), kind=kLoop, calls=%first_step
}

ENTRY %main (p: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  %one = f32[8,128]{1,0:T(8,128)} negate(%p)
  %two = f32[8,128]{1,0:T(8,128)} cosine(%p)
  %step = f32[8,128]{1,0:T(8,128)} fusion(%one), kind=kLoop, calls=%within
  ROOT %r = f32[8,128]{1,0:T(8,128)} add(%step, %two)
}
"""
#: Two copies from the host's memory, and a permute, that start one after the other.
COPIES = """\
HloModule copies, is_scheduled=true

ENTRY %main (p: f32[8,128], h: f32[8,128], g: f32[8,128]) -> f32[8,128] {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  %h = f32[8,128]{1,0:T(8,128)S(5)} parameter(1)
  %g = f32[8,128]{1,0:T(8,128)S(5)} parameter(2)
  %n = f32[8,128]{1,0:T(8,128)} negate(%p)
  %a = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)S(5)}, u32[]) copy-start(%h)
  %b = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)S(5)}, u32[]) copy-start(%g)
  %s = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) collective-permute-start(%n), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %m = f32[8,128]{1,0:T(8,128)} cosine(%n)
  %c = f32[8,128]{1,0:T(8,128)} copy-done(%a)
  %d = f32[8,128]{1,0:T(8,128)} copy-done(%b)
  %e = f32[8,128]{1,0:T(8,128)} collective-permute-done(%s)
  ROOT %r = f32[8,128]{1,0:T(8,128)} add(%c, %d)
}
"""
WHOLE = CUT.replace("AsyncCollectiveStart", "Sharding")


@dataclasses.dataclass(frozen=True, slots=True)
class Unscheduling(Pass):
    """Leaves the module without a schedule."""

    name: ClassVar[str] = "unscheduling"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        module.set_attribute("is_scheduled", None)
        return True


@dataclasses.dataclass(frozen=True, slots=True)
class Swapping(Pass):
    """Exchanges the second and third instruction of the entry."""

    name: ClassVar[str] = "latency-hiding-scheduler"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        order = list(module.entry.instructions)
        order[1], order[2] = order[2], order[1]
        module.entry.set_order(order)
        return True


def pipeline_of(each: Pass) -> Pipeline:
    return Pipeline((each,), PassContext())


def names(module: Module) -> list[str]:
    return [i.name for i in module.entry.instructions]


@pytest.mark.parametrize("stage", STAGES)
def test_a_module_without_its_schedule_is_refused(stage: str) -> None:
    data = hlo_passes.parse(TILED).to_proto()
    run = _ModuleRun(pipeline_of(Unscheduling()), "tpu", stage, data)
    with pytest.raises(NotForTpuError, match=f"E052.*at {stage}"):
        run()


@pytest.mark.parametrize("stage", STAGES)
def test_bytes_without_a_schedule_are_refused(stage: str) -> None:
    module = hlo_passes.parse(TILED)
    data = module.to_proto()
    assert require_schedule(data, stage) == data
    module.set_attribute("is_scheduled", None)
    with pytest.raises(NotForTpuError):
        require_schedule(module.to_proto(), stage)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", sorted(pass_targets()))
def test_no_pass_loses_the_schedule(
    name: str, stage: str, tmp_path: pathlib.Path
) -> None:
    context = PassContext(Pricing(costs=costs_file(tmp_path)))
    data = hlo_passes.parse(TILED).to_proto()
    run = _ModuleRun(Pipeline.parse(name, context), "tpu", stage, data)
    try:
        changed = run()
    except HloError:
        return  # the compilation fails with its message
    if changed is not None:
        assert require_schedule(changed, stage) == changed


@pytest.mark.parametrize("stage", STAGES)
def test_the_scheduler_at_both_stages(stage: str, tmp_path: pathlib.Path) -> None:
    # The negation is placed before the start, so that there is something to move.
    lines = TILED.splitlines(keepends=True)
    start = next(k for k, line in enumerate(lines) if "%s = " in line)
    lines[start], lines[start + 1] = lines[start + 1], lines[start]
    module = hlo_passes.parse("".join(lines))
    context = PassContext(Pricing(costs=costs_file(tmp_path)))
    pipeline = Pipeline.parse("latency-hiding-scheduler", context)
    changed = _ModuleRun(pipeline, "tpu", stage, module.to_proto())()
    assert changed is not None
    found = Module.from_proto(changed)
    hlo_passes.verify(found)
    assert names(found) == ["p", "s", "n", "d", "r"]
    edges = {
        i.name: [p.name for p in i.control_predecessors]
        for i in found.entry.instructions
    }
    pinned = {"n": ["s"], "d": ["n"]} if stage == "pre-scheduler" else {}
    assert {name: near for name, near in edges.items() if near} == pinned


@pytest.mark.parametrize("name", ["latency-hiding-scheduler", "another-pass"])
def test_only_the_order_of_a_scheduler_is_pinned(name: str) -> None:
    module = hlo_passes.parse(WHOLE)
    came = orders_of(module)
    Swapping().run(module, PassContext(), Report())
    assert bring_to_tpu(module, "pre-scheduler", came, [name]) == ()
    assert any(i.control_predecessors for i in module.entry.instructions) == (
        name == "latency-hiding-scheduler"
    )


def test_no_edge_leads_out_of_the_start_of_a_copy() -> None:
    """XLA:TPU's scheduler ends the process at one; all else is pinned."""
    module = hlo_passes.parse(COPIES)
    came = orders_of(module)
    order = list(module.entry.instructions)
    order[4], order[5] = order[5], order[4]
    module.entry.set_order(order)
    assert bring_to_tpu(module, "pre-scheduler", came, ["schedule-improver"]) == ()
    hlo_passes.verify(module)
    edges = {
        i.name: [p.name for p in i.control_predecessors]
        for i in module.entry.instructions
    }
    assert {name: near for name, near in edges.items() if near} == {
        "a": ["n"],
        "b": ["n"],
        "m": ["s"],
        "c": ["m"],
        "d": ["c"],
        "e": ["d"],
        "r": ["e"],
    }


#: With an all-gather in place of the permute.
GATHERED = (
    TILED.replace("collective-permute", "all-gather")
    .replace(
        "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
        "replica_groups={{0},{1},{2},{3}}, dimensions={0}, use_global_device_ids=true",
    )
    .replace(", u32[]{:S(2)}, u32[]{:S(2)}", "")
)


def swapped(text: str) -> tuple[Module, Orders]:
    """A module whose second and third instruction change places; the order before."""
    module = hlo_passes.parse(text)
    came = orders_of(module)
    order = list(module.entry.instructions)
    order[1], order[2] = order[2], order[1]
    module.entry.set_order(order)
    return module, came


#: The permute in a scheduling group.
GROUPED = TILED.replace(
    "channel_id=1,", 'channel_id=1, frontend_attributes={_scheduling_group_id="3"},'
)


@pytest.mark.parametrize("text", [GATHERED, ON_SPARSE_CORE, GROUPED])
def test_what_edges_would_break_is_not_pinned(text: str) -> None:
    module, came = swapped(text)
    assert list(unpinnable(module)) == [module.entry]
    left = bring_to_tpu(module, "pre-scheduler", came, ["schedule-improver"])
    assert left == (module.entry.name,)
    # The compiler's scheduler starts from what it would have started from.
    assert module.to_text() == hlo_passes.parse(text).to_text()


def test_nothing_is_pinned_beside_loops_that_hand_a_transfer_on() -> None:
    loop = LOOP.replace("MARK", MARK).replace(
        "  %none = s32[]", "  %n = f32[4,8] negate(%p)\n  %none = s32[]"
    )
    module, came = swapped(loop)
    left = bring_to_tpu(module, "pre-scheduler", came, ["schedule-improver"])
    assert left == ("main",)
    assert list(unpinnable(module)) == list(module.computations)
    assert module.to_text() == hlo_passes.parse(loop).to_text()


def test_an_order_that_new_edges_forbid_is_not_given_back() -> None:
    module, came = swapped(GATHERED)
    _, first, then, *_ = module.entry.instructions
    module.entry.add_control_edge(first, then)
    left = bring_to_tpu(module, "pre-scheduler", came, ["schedule-improver"])
    assert left == ("main",)
    hlo_passes.verify(module)


def test_the_order_around_cut_all_gathers_stays() -> None:
    for text, kept in ((CUT, ("main",)), (WHOLE, ())):
        module = hlo_passes.parse(text)
        before = names(module)
        run = _ModuleRun(pipeline_of(Swapping()), "tpu", STAGES[1], module.to_proto())
        changed = run()
        assert run.kept == kept
        assert (changed is None) == bool(kept)
        if changed is not None:
            assert names(Module.from_proto(changed)) != before


def test_computations_with_cut_all_gathers() -> None:
    found = computations_with_cut_gathers(hlo_passes.parse(CUT))
    assert [each.name for each in found] == ["first_step", "within", "main"]
    assert computations_with_cut_gathers(hlo_passes.parse(WHOLE)) == []


def test_copies_of_the_compiler_are_not_merged() -> None:
    for stage in STAGES:
        with pytest.raises(UsageError, match="U061"):
            install_passes("hlo-cse", stage=stage, platforms="tpu")


def test_costs_of_a_tpu_are_read_before_a_compilation(tmp_path: pathlib.Path) -> None:
    for changes, problem in (({}, ""), ({"tensorcore_mhz": 0}, "U206")):
        context = PassContext(Pricing(costs=costs_file(tmp_path, **changes)))
        options = InstallOptions(platforms="tpu", context=context)
        if problem:
            with pytest.raises(UsageError, match=problem):
                prepare("schedule-improver", options)
        else:
            assert not prepare("schedule-improver", options).active


# -- with the library ---------------------------------------------------------------


@needs_library
@pytest.mark.parametrize(
    ("stage", "passes"),
    [
        ("post-scheduler", "latency-hiding-scheduler"),
        ("post-scheduler", "schedule-improver"),
        ("pre-scheduler", "latency-hiding-scheduler,schedule-improver"),
    ],
)
def test_an_order_inside_the_compilation(passes: str, stage: str) -> None:
    words = ("--target=v5p", "--topology=2x2x2", f"--stage={stage}", "--json")
    run = command("compile", PROGRAM, *words, f"--passes={passes}")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)["inside"]
    assert found["order_stays"] == []
    assert found["instructions_in_place"] == found["common_instructions"] > 0
    for row in found["with_passes"]:
        assert row["total_cycles"] <= row["xla_total_cycles"] * (1 + 1e-5)


@needs_library
def test_cut_all_gathers_inside_the_compilation() -> None:
    program = f"{PROGRAMS}:layers_gathered"
    run = command("compile", program, "--target=v5e", "--passes=schedule-improver")
    assert run.returncode == 0, run.stderr
    assert "accepted by XLA:TPU" in run.stdout
