"""Assigns GPU queues to fusions and copies that should not run on the default queue.

    Before:  %fused { ... ROOT %d = f32[8] dot(...),
                 backend_config={"operation_queue_id":"3"} }
             %f = f32[8] fusion(%x), kind=kLoop, calls=%fused
    After:   %f = ..., backend_config={"operation_queue_id":"3",...}

In a scheduled module, the pass does the same for asynchronous copies, and for slices in
asynchronous computations:

    Before:  %async { ROOT %s = f32[4] dynamic-slice(%p, %i), ... }
    After:   %async { ROOT %wrapped_dynamic-slice = f32[4] fusion(%p, %i), kind=kLoop,
                 calls=%wrapped_dynamic-slice_computation,
                 backend_config={"operation_queue_id":"7",...} }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.async_form import is_fusion, is_start
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import has_gpu_config, operation_queue_id
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.passes.asynchrony.async_wrapping import body_instruction
from hlo_passes.passes.asynchrony.written_out import write_out
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.gpu_backend_config import set_operation_queue_id
from hlo_passes.passes.rewriting.replacement import take_place
from hlo_passes.xla_release import XlaRelease

_SLICES: Final = ("dynamic-slice", "dynamic-update-slice")
#: Sugar that starts one.
_STARTED_SLICES: Final = tuple(f"{opcode}-start" for opcode in _SLICES)


@dataclass(frozen=True, slots=True)
class StreamAttributeAnnotator(Pass):
    """Give fusions, copies and slices that overlap others an `operation_queue_id`.

    A fusion takes the queue of its root. The pass leaves the fusion alone if the root
    is a tuple or has no queue, or if another instruction inside has a different queue.

    The pass changes copies and slices only in a scheduled module. A `copy-start`
    without a queue receives a new queue; its number is the next free channel id. A
    dynamic-slice or dynamic-update-slice in an asynchronous computation moves into a
    fusion of its own, which receives a new queue in the same way. If the start of such
    a slice or of a fusion is written in short form (`dynamic-slice-start`), the pass
    first writes it out, as XLA reads it.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/backends/gpu/transforms/stream_attribute_annotator.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "stream-attribute-annotator"

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every computation, callees first."""
        version = module.version
        release = context.release_for(module, self.xla)
        fresh = next_channel_id(module)
        graph = build_call_graph(module)
        for computation in graph.post_order:
            in_async = graph.is_async_body(computation)
            for instruction in post_order(computation):
                opcode = instruction.opcode
                if is_fusion(instruction):
                    _annotate_fusion(instruction, release, report)
                elif not module.is_scheduled:
                    continue
                elif opcode == "copy-start":
                    _annotate_copy(instruction, release, fresh, report)
                elif (in_async and opcode in _SLICES) or opcode in _STARTED_SLICES:
                    _wrap_slice(instruction, release, fresh, report)
        return module.version != version


def _annotate_fusion(fusion: Instruction, release: XlaRelease, report: Report) -> None:
    (body,) = fusion.called_computations
    queue = _queue_of_root(body)
    if not queue or operation_queue_id(fusion) or not _may_write(fusion, report):
        return
    for instruction in body.instructions:
        if operation_queue_id(instruction) not in (0, queue):
            report.remark(
                f"not annotated: %{fusion.name} holds %{instruction.name} of queue "
                f"{operation_queue_id(instruction)} and a root of queue {queue}"
            )
            return
    set_operation_queue_id(_as_read(fusion), release, queue)
    report.count("fusions-annotated")


def _annotate_copy(
    copy: Instruction, release: XlaRelease, fresh: int, report: Report
) -> None:
    if operation_queue_id(copy) or not _may_write(copy, report):
        return
    set_operation_queue_id(copy, release, fresh)
    report.count("copies-annotated")


def _wrap_slice(
    piece: Instruction, release: XlaRelease, fresh: int, report: Report
) -> None:
    if not _may_write(piece, report):
        return
    piece = _as_read(piece)
    computation = piece.computation
    fusion = computation.new(
        "fusion",
        piece.shape,
        dict.fromkeys(piece.operands),
        {"kind": "kLoop", "calls": f"%{_body_of(piece).name}"},
        name=f"wrapped_{piece.opcode}",
        before=piece,
    )
    for name in ("metadata", "frontend_attributes", "backend_config"):
        if name in piece.attributes:
            fusion.set_attribute(name, piece.attributes[name])
    _record_scheduling_name(fusion)
    take_place(piece, fusion)
    set_operation_queue_id(fusion, release, fresh)
    report.count("slices-wrapped")


def _queue_of_root(body: Computation) -> int:
    return 0 if body.root.opcode == "tuple" else operation_queue_id(body.root)


def _as_read(instruction: Instruction) -> Instruction:
    """The operation itself: of a start in sugar, what it starts, written out."""
    return write_out(instruction) if is_start(instruction) else instruction


def _may_write(instruction: Instruction, report: Report) -> bool:
    if not has_gpu_config(instruction):
        report.remark(
            f"not annotated: the backend config of %{instruction.name} is not JSON"
        )
        return False
    unknown = unknown_attribute(instruction)
    if unknown and facts(instruction.opcode).is_sugar:
        report.remark(
            f"not annotated: %{instruction.name} has the unknown attribute {unknown}"
        )
        return False
    return True


def _body_of(piece: Instruction) -> Computation:
    """A fusion body that does the same as one instruction."""
    module = piece.computation.module
    body = Computation(
        module.fresh_computation_name(f"wrapped_{piece.opcode}_computation"),
        execution_thread=piece.computation.execution_thread,
    )
    module.add_computation(body, before=piece.computation)
    root = body_instruction(piece, body)
    body.set_root(root)
    _record_scheduling_name(root)
    return body


def _record_scheduling_name(instruction: Instruction) -> None:
    instruction.metadata = instruction.metadata.replace(
        scheduling_name=instruction.name
    )
