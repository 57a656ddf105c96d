"""Turns instructions that the user put on a stream into asynchronous calls.

Before:  %a = f32[8] add(%x, %y), frontend_attributes={_xla_stream_annotation="1"}
After:   %called_computation { ROOT %a = f32[8] add(%param_0, %param_1) }
         %async_computation {
             ROOT %a.1 = f32[8] call(%param_0, %param_1),
                 to_apply=%called_computation }
         %s = ((f32[8], f32[8]), f32[8]) async-start(%x, %y),
              calls=%async_computation,
              frontend_attributes={_xla_stream_annotation="1"}
         %d = f32[8] async-done(%s),
              frontend_attributes={_xla_stream_annotation="1"}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import is_host_transfer
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.asynchrony.async_stream_attribute_wrapper import PARALLEL_THREAD
from hlo_passes.passes.asynchrony.async_wrapping import (
    MAIN_THREAD,
    async_pair,
    body_instruction,
    replace_by_pair,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.gpu_backend_config import set_force_earliest_schedule
from hlo_passes.passes.rewriting.replacement import take_place
from hlo_passes.xla_release import XlaRelease

#: Frontend attribute with a stream's number, or 'collective'.
#: Source: openxla/xla `xla/side_effect_util.h`; the same for the next.
STREAM_ANNOTATION: Final = "_xla_stream_annotation"
GROUP_ANNOTATION: Final = "_scheduling_group_id"
_OF_PAIRS: Final = (STREAM_ANNOTATION, GROUP_ANNOTATION)
#: Attributes that move from a wrapped instruction to its call; others describe its
#: work.
_MOVED: Final = "frontend_attributes"


@dataclass(frozen=True, slots=True)
class ExplicitStreamAnnotationAsyncWrapper(Pass):
    """Turn each instruction with `_xla_stream_annotation` into an asynchronous call.

    With this frontend attribute, a user puts an instruction on a stream. If the
    instruction is not a call, the pass first moves it into a computation of its own and
    calls that; XLA 0.10.2 leaves such an instruction alone. Only the start and the done
    keep the annotation and `_scheduling_group_id`. From 0.11 on, the computations run
    on the thread `parallel`. The pass visits callers before callees.

    The pass leaves alone collectives, instructions that are already asynchronous,
    copies to and from the host, and parameters. It also leaves alone instructions in a
    fusion, below one, or in an asynchronous computation.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/explicit_stream_annotation_async_wrapper.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "explicit-stream-annotation-async-wrapper"

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Every computation, callers first."""
        version = module.version
        release = context.release_for(module, self.xla)
        graph = build_call_graph(module)
        below_fusions = _below_fusions(graph)
        for computation in reversed(graph.post_order):
            if computation in below_fusions or graph.is_async_body(computation):
                continue
            for instruction in computation.instructions:
                if not _is_annotated(instruction):
                    continue
                if (
                    instruction.opcode != "call"
                    and not release.wraps_annotated_instructions
                ):
                    continue
                if _is_eligible(instruction, report):
                    _wrap(instruction, release)
                    report.count("instructions-wrapped")
        return module.version != version


def _wrap(instruction: Instruction, release: XlaRelease) -> None:
    call = instruction if instruction.opcode == "call" else _called(instruction)
    marks = call.frontend_attributes
    for callee in call.called_computations:
        for inner in callee.instructions:
            _clear(inner)
    _clear(call)
    thread = PARALLEL_THREAD if release.annotated_on_parallel_thread else MAIN_THREAD
    start, done = async_pair(call, thread=thread, copying=True)
    replace_by_pair(call, start, done)
    start.frontend_attributes = marks
    done.frontend_attributes = marks
    if has_gpu_config(done):
        set_force_earliest_schedule(done, release, value=False)


def _is_annotated(instruction: Instruction) -> bool:
    written = instruction.attributes.get("frontend_attributes", "")
    return (
        STREAM_ANNOTATION in written
        and STREAM_ANNOTATION in instruction.frontend_attributes
    )


def _is_eligible(instruction: Instruction, report: Report) -> bool:
    opcode = instruction.opcode
    row = opcodes.facts(opcode)
    is_transfer = row.spelling == "transfer"
    if row.is_collective or (row.half and not is_transfer):
        return False
    if is_transfer and row.half == "start" and not is_host_transfer(instruction):
        return False
    if opcode == "parameter" or is_transfer:
        report.remark(f"not wrapped: %{instruction.name} is a {opcode}")
        return False
    if unknown := unknown_attribute(instruction):
        report.remark(
            f"not wrapped: %{instruction.name} has the unknown attribute {unknown}"
        )
        return False
    return True


def _below_fusions(graph: CallGraph) -> set[Computation]:
    """Fusion bodies and everything that they call, directly or not."""
    found: set[Computation] = set()
    for computation in reversed(graph.post_order):
        if graph.is_fusion_body(computation) or any(
            caller.computation in found for caller in graph.callers_of(computation)
        ):
            found.add(computation)
    return found


def _clear(instruction: Instruction) -> None:
    """Drop what is legal only on start and done."""
    if "frontend_attributes" not in instruction.attributes:
        return
    marks = instruction.frontend_attributes
    for name in _OF_PAIRS:
        marks = marks.without(name)
    instruction.frontend_attributes = marks


def _called(instruction: Instruction) -> Instruction:
    """Replace the instruction by a call of a computation that does the same."""
    computation = instruction.computation
    module = computation.module
    marks = instruction.frontend_attributes
    instruction.set_attribute(_MOVED, None)
    body = Computation(
        module.fresh_computation_name("called_computation"),
        execution_thread=computation.execution_thread,
    )
    module.add_computation(body, before=computation)
    body.set_root(body_instruction(instruction, body))
    attributes = {"to_apply": f"%{body.name}"}
    if "metadata" in instruction.attributes:
        attributes["metadata"] = instruction.attributes["metadata"]
    call = computation.new(
        "call",
        instruction.shape,
        dict.fromkeys(instruction.operands),
        attributes,
        name=instruction.name,
        before=instruction,
    )
    call.frontend_attributes = marks
    take_place(instruction, call)
    return call
