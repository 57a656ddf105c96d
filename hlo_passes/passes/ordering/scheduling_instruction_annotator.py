"""Records in the metadata what instructions are called when they are scheduled.

    Before:  %f = f32[8] fusion(%x), ..., metadata={op_name="jit(f)/add"}
    After:   %f = ..., metadata={op_name="jit(f)/add" scheduling_name="f"}

Later passes rename instructions. A profile can still find them by these names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report

#: The text after the name, as XLA prints it.
_AFTER_NAME: Final = re.compile(r"( stack_frame_id=\d+)?\}$")
#: Names that need no escape.
_NAME: Final = re.compile(r"[\w.\-]+")


@dataclass(frozen=True, slots=True)
class SchedulingInstructionAnnotator(Pass):
    """Write each instruction's name into its metadata, as `scheduling_name`.

    The pass skips instructions that already have a `scheduling_name`. It also skips
    constants, because their names are not final yet.

    Requires: a scheduled module; otherwise nothing happens.
    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/scheduling_instruction_annotator.cc`.
    """

    name: ClassVar[str] = "scheduling-instruction-annotator"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every computation, including fusion bodies."""
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
                _record_name(instruction)
                report.count("instructions-annotated")
        return module.version != version


def _record_name(instruction: Instruction) -> None:
    """Write the name where XLA prints it, and keep the rest of the text."""
    written = instruction.attributes.get("metadata", "")
    name = f'scheduling_name="{instruction.name}"'
    following = _AFTER_NAME.search(written)
    if not written or written == "{}":
        instruction.set_attribute("metadata", f"{{{name}}}")
    elif (
        following
        and "metadata_payload" not in written
        and not written.startswith("{stack_frame_id")
        and _NAME.fullmatch(instruction.name)
    ):
        head = written[: following.start()]
        instruction.set_attribute("metadata", f"{head} {name}{following[0]}")
    else:
        instruction.metadata = instruction.metadata.replace(
            scheduling_name=instruction.name
        )
