"""Names of instructions as the scheduler knew them, in their metadata.

    Before:  %f = f32[8] fusion(%x), ..., metadata={op_name="jit(f)/add"}
    After:   %f = ..., metadata={op_name="jit(f)/add" scheduling_name="f"}

Later passes rename; a profile then still finds what was scheduled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.ir.module import Module
from hlo_passes.passes.base import Pass, PassContext, Report


@dataclass(frozen=True, slots=True)
class SchedulingInstructionAnnotator(Pass):
    """Write `scheduling_name` into the metadata of every instruction without one.

    Constants are left out, since their names are not final yet.

    Requires: a scheduled module, else nothing happens.
    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/scheduling_instruction_annotator.cc`.
    """

    name: ClassVar[str] = "scheduling-instruction-annotator"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Every computation, fusion bodies too."""
        if not module.is_scheduled:
            report.remark("not annotated: the module is not scheduled")
            return False
        version = module.version
        for computation in build_call_graph(module).post_order:
            for instruction in computation.instructions:
                if instruction.opcode == "constant":
                    continue
                if "scheduling_name=" in instruction.attributes.get("metadata", ""):
                    continue
                instruction.metadata = instruction.metadata.replace(
                    scheduling_name=instruction.name
                )
                report.count("instructions-annotated")
        return module.version != version
