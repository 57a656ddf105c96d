"""Runs instructions that have their own queue on a thread beside the main thread.

Before:  %d = f32[8] dot(%x, %y), ..., backend_config={"operation_queue_id":"5"}
After:   %s = ((f32[4], f32[4,8]), f32[8]) async-start(%x, %y),
              async_execution_thread="parallel", calls=%async_computation,
              backend_config={"operation_queue_id":"5"}
         %d = f32[8] async-done(%s),
              backend_config={"operation_queue_id":"5",
                  "force_earliest_schedule":false,...}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.ir.gpu_config import operation_queue_id
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.passes.asynchrony.async_wrapping import (
    MAIN_THREAD,
    async_pair,
    replace_by_pair,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.gpu_backend_config import set_force_earliest_schedule

#: Thread of computations that run beside the main one.
PARALLEL_THREAD: Final = "parallel"


@dataclass(frozen=True, slots=True)
class AsyncStreamAttributeWrapper(Pass):
    """Turn each instruction with an `operation_queue_id` into an asynchronous pair.

    The pass moves the instruction into a computation on the thread `parallel`, and
    starts and awaits that computation. Queue 0 is the default queue, so instructions
    with this number stay as they are.

    The pass also leaves alone parameters, starts, updates, dones, sends and recvs. The
    same holds for instructions that are in a fusion, on another thread, or in a
    computation that an asynchronous start runs. It leaves copies alone because XLA's
    verifier refuses a copy's pair in the form that this pass would write.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/backends/gpu/transforms/stream_attribute_async_wrapper.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "async-stream-attribute-wrapper"

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every computation except fusion and asynchronous bodies."""
        version = module.version
        release = context.release_for(module, self.xla)
        graph = build_call_graph(module)
        for computation in graph.post_order:
            if (
                computation.execution_thread != MAIN_THREAD
                or graph.is_fusion_body(computation)
                or graph.is_async_body(computation)
            ):
                continue
            for instruction in computation.instructions:
                if operation_queue_id(instruction) and _is_eligible(
                    instruction, report
                ):
                    start, done = async_pair(
                        instruction,
                        thread=PARALLEL_THREAD,
                        copying=context.xla_quirks,
                    )
                    replace_by_pair(instruction, start, done)
                    set_force_earliest_schedule(done, release, value=False)
                    report.count("instructions-wrapped")
        return module.version != version


def _is_eligible(instruction: Instruction, report: Report) -> bool:
    opcode = instruction.opcode
    if opcode == "parameter" or facts(opcode).half:
        return False
    if opcode == "copy":
        report.remark(f"not wrapped: %{instruction.name} is a copy")
        return False
    if unknown := unknown_attribute(instruction):
        report.remark(
            f"not wrapped: %{instruction.name} has the unknown attribute {unknown}"
        )
        return False
    return True
