"""Lets permutes skip a select that depends only on the device.

Before:  %is = pred[] compare(partition-id, 0), direction=EQ
         %s = f32[8] select(%is, %a, %b)
         %c = f32[8] collective-permute(%s), channel_id=1, source_target_pairs={{0,1}}
After:   %c = f32[8] collective-permute(%a), channel_id=1, source_target_pairs={{0,1}}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.integers import constant_integer
from hlo_passes.analysis.scalar_expressions import in_range
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import INTEGRAL
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute

_PERMUTES: Final = frozenset({"collective-permute", "collective-permute-start"})
_BESIDE_THE_ID: Final = frozenset({"convert", "broadcast"})
#: Whether what is compared decides for the first or the second operand.
_EQUAL: Final = {"EQ": True, "NE": False}


@dataclass(frozen=True, slots=True)
class CollectiveSelectFolder(Pass):
    """Let a permute bypass a select if all sending devices choose the same operand.

    The select must compare an id with a constant, by EQ or NE: the partition id for a
    permute with a channel, the replica id for a permute without one. The select stays
    if others read it. Where a ring is permuted again, the pass undoes half of the
    selection that `collective-permute-cycle-decomposer` added.

    XLA looks through any conversion of the compared numbers. Without XLA's quirks
    (`--no-xla-quirks`), the pass stops at conversions that could change these numbers.

    Ensures: a second run changes nothing, except where selects select from selects.
    Complexity: linear in instructions and pairs.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/collective_select_folder.cc`; not in the
    pipeline of XLA:GPU.
    """

    name: ClassVar[str] = "collective-select-folder"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all permutes."""
        version = module.version
        for computation in module.computations:
            for permute in computation.instructions:
                if permute.opcode not in _PERMUTES or not permute.operands:
                    continue
                if permute.operands[0].opcode != "select":
                    continue
                chosen = _chosen(permute, any_conversion=context.xla_quirks)
                if isinstance(chosen, str):
                    report.remark(f"not folded: %{permute.name} {chosen}")
                    continue
                _, *others = permute.operands
                computation.set_operands(permute, [chosen, *others])
                report.count("selects-folded")
        return module.version != version


def _chosen(permute: Instruction, *, any_conversion: bool) -> Instruction | str:
    """The operand of the select that all sources take, or why it is not known."""
    predicate, if_true, if_false = permute.operands[0].operands
    compare = _beneath(predicate)
    if compare.opcode != "compare":
        return "selects by something else than a comparison"
    is_equal = _EQUAL.get(compare.attributes.get("direction", "").strip())
    if is_equal is None:
        return "selects by another comparison than EQ or NE"
    device, constant = map(_beneath, compare.operands)
    if constant.opcode != "constant":
        device, constant = constant, device
    is_partition = permute.channel_id is not None
    if device.opcode != ("partition-id" if is_partition else "replica-id"):
        kind = "partition" if is_partition else "replica"
        return f"does not select by its {kind} and a constant"
    number = None
    if constant.opcode == "constant" and not constant.shape.dimensions:
        number = constant_integer(constant)
    if number is None or constant.shape.element_type == "pred":
        return "does not select by an integer constant"
    if unknown := unknown_attribute(permute):
        return f"has the unknown attribute {unknown}"
    sources = [source for source, _ in permute.source_target_pairs or ()]
    if not sources:
        return "sends nothing"
    if not any_conversion and not all(
        _is_kept(operand, [number, *sources]) for operand in compare.operands
    ):
        return "selects by numbers that a conversion may change"
    decisions = {(source == number) == is_equal for source in sources}
    if len(decisions) > 1:
        return "sends one operand from some devices and the other from others"
    return if_true if decisions.pop() else if_false


def _beneath(instruction: Instruction) -> Instruction:
    """What conversions and broadcasts hand on."""
    while instruction.opcode in _BESIDE_THE_ID:
        instruction = instruction.operands[0]
    return instruction


def _is_kept(instruction: Instruction, numbers: Sequence[int]) -> bool:
    """Whether the conversions on the way to an operand keep these numbers."""
    while instruction.opcode in _BESIDE_THE_ID:
        kind = instruction.shape.element_type
        if instruction.opcode == "convert" and not (
            kind in INTEGRAL and all(in_range(kind, number) for number in numbers)
        ):
            return False
        instruction = instruction.operands[0]
    return True
