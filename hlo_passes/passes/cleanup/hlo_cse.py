"""Common subexpression elimination.

    Before:  %a = f32[8] add(%x, %y)       After:   %a = f32[8] add(%x, %y)
             %b = f32[8] add(%y, %x)                readers of %a and of %b
             %t = tuple(%a, %b)                     %t = tuple(%a, %a)

Combining can leave two get-tuple-elements with one index. The pass merges these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.effects import has_side_effect, is_safely_removable
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.structure import Structure, is_elided
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import is_done, is_start
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute

#: Instructions without operands that may be merged.
_MERGED_WITHOUT_OPERANDS = ("partition-id", "replica-id")
#: Frontend attributes: merge even without operands; never merge.
#: Source: openxla/xla `xla/side_effect_util.h`.
_SAFE_WITHOUT_OPERANDS = "_xla_cse_safe_zero_operand"
_MUST_FUSE = "MUST_FUSE"


@dataclass(frozen=True, slots=True)
class HloCse(Pass):
    """Keep only the first of several instructions that compute the same value.

    Readers of the others then read the first one. Equal instructions have equal
    opcodes, shapes, operands, attributes, channel ids and called computations. The
    order of the operands counts only if it matters to the operation. Names, metadata
    and most frontend attributes may differ.

    The pass leaves alone instructions with side effects, with control edges, or with
    the frontend attribute `MUST_FUSE`. It merges equal constants first, and does not
    compare constants whose values are elided.

    Ensures: a second run changes nothing, after `hlo-dce` has removed the dead code.
    Complexity: linear in instructions, plus the bodies of callees.
    Source: openxla/xla `xla/service/hlo_cse.cc`.

    Attributes:
        layout_sensitive: equal instructions must also have shapes with the same layout.
    """

    name: ClassVar[str] = "hlo-cse"

    layout_sensitive: bool = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each computation, including fusion bodies."""
        return merge(module, report, layout_sensitive=self.layout_sensitive)


def merge(
    module: Module,
    report: Report,
    *,
    layout_sensitive: bool = True,
    only: Callable[[Instruction], bool] | None = None,
    scalars: bool = False,
) -> bool:
    """Keep the first of equal constants and instructions; whether anything changed.

    Args:
        module: all its computations are visited, callees first.
        report: receives counts and remarks.
        layout_sensitive: equal instructions must also have shapes with the same layout.
        only: whether to merge an instruction; of all obstacles only control edges then
            count. None: merge instructions without side effects.
        scalars: merge only scalars, as XLA does before it unrolls loops.
    """
    version = module.version
    graph = build_call_graph(module)
    # Only callees matter, and those were visited: they do not change any more.
    structure = Structure(layout_sensitive=layout_sensitive)
    acting: dict[Computation, bool] = {}
    for computation in graph.post_order:
        before = module.version
        _merge_constants(computation, structure, report, scalars=scalars)
        _merge_instructions(
            computation, structure, acting, report, only, scalars=scalars
        )
        if not scalars:
            _merge_fusion_outputs(computation, graph, report)
        if module.version != before:
            restore_text_order(computation)
    return module.version != version


def _merge_constants(
    computation: Computation, structure: Structure, report: Report, *, scalars: bool
) -> None:
    """Keep the first, in list order, of equal constants."""
    kept: dict[tuple[str, str | None], Instruction] = {}
    for constant in computation.instructions:
        if constant.opcode != "constant" or is_elided(constant):
            continue
        if scalars and not constant.shape.is_scalar:
            continue
        first = kept.setdefault(
            (structure.shape_key(constant), constant.literal), constant
        )
        if first is not constant and is_safely_removable(constant):
            _replace(constant, first)
            report.count("constants-merged")


def _merge_instructions(
    computation: Computation,
    structure: Structure,
    acting: dict[Computation, bool],
    report: Report,
    only: Callable[[Instruction], bool] | None,
    *,
    scalars: bool,
) -> None:
    """Keep the first, in post order, of equal instructions."""
    kept: dict[Hashable, list[Instruction]] = {}
    for instruction in post_order(computation):
        if instruction.removed or not _has_something_to_merge(instruction):
            continue
        if only is not None and not only(instruction):
            continue
        if scalars and not instruction.shape.is_scalar:
            continue
        alike = kept.setdefault(_key(instruction, structure), [])
        first = next(
            (
                other
                for other in alike
                if structure.equal_apart_from_operands(instruction, other)
            ),
            None,
        )
        if only is not None:
            reason = "" if is_safely_removable(instruction) else "has control edges"
        else:
            reason = _reason_to_stay(instruction, acting)
        if reason:
            if first is not None:
                report.remark(
                    f"not merged: %{instruction.name} equals %{first.name}, "
                    f"but {reason}"
                )
            continue
        if first is None:
            alike.append(instruction)
            _share_iotas(instruction, structure)
        elif is_start(instruction) and not _are_alike_to_the_done(
            instruction, first, structure, acting
        ):
            report.remark(
                f"not merged: %{instruction.name} equals %{first.name}, "
                "but what follows them is not merged"
            )
        else:
            _replace(instruction, first)
            report.count("instructions-merged")


def _are_alike_to_the_done(
    one: Instruction,
    other: Instruction,
    structure: Structure,
    acting: dict[Computation, bool],
) -> bool:
    """Whether all updates and the dones of two starts will be merged, too.

    A start has one done; XLA would give one of them two.
    """
    while not is_done(one):
        if one.user_count != 1 or other.user_count != 1:
            return False
        (one,), (other,) = one.users, other.users
        if (
            not structure.equal_apart_from_operands(one, other)
            or _reason_to_stay(one, acting)
            or _reason_to_stay(other, acting)
        ):
            return False
    return True


def _has_something_to_merge(instruction: Instruction) -> bool:
    """Whether it has operands, or may be merged without operands."""
    if instruction.operands or instruction.opcode in _MERGED_WITHOUT_OPERANDS:
        return True
    return (
        "frontend_attributes" in instruction.attributes
        and _SAFE_WITHOUT_OPERANDS in instruction.frontend_attributes
    )


def _reason_to_stay(instruction: Instruction, acting: dict[Computation, bool]) -> str:
    """Why an instruction takes no part in merging; '' if it may."""
    if not facts(instruction.opcode).is_known:
        return f"{instruction.opcode} is unknown"
    if unknown := unknown_attribute(instruction):
        return f"has the unknown attribute {unknown}"
    if (
        "frontend_attributes" in instruction.attributes
        and _MUST_FUSE in instruction.frontend_attributes
    ):
        return f"is marked {_MUST_FUSE}"
    if not is_safely_removable(instruction):
        return "has control edges"
    if has_side_effect(instruction, acting):
        return f"{instruction.opcode} has a side effect"
    return ""


def _key(instruction: Instruction, structure: Structure) -> Hashable:
    """A key that is equal for equal instructions, and nearly only for them."""
    operands = tuple(_operand_key(o, structure) for o in instruction.operands)
    if facts(instruction.opcode).is_commutative:
        operands = tuple(sorted(operands))
    return (
        instruction.opcode,
        structure.shape_key(instruction),
        operands,
        structure.meaning(instruction),
        structure.callees_digest(instruction),
    )


def _operand_key(operand: Instruction, structure: Structure) -> tuple[str, str]:
    """The operand itself; equal iotas count as one."""
    if operand.opcode == "iota":
        dimension = operand.attributes["iota_dimension"]
        return structure.shape_key(operand), dimension
    return operand.name, ""


def _share_iotas(instruction: Instruction, structure: Structure) -> None:
    """Let an instruction that reads equal iotas read one of them."""
    first: dict[tuple[str, str], Instruction] = {}
    shared: list[Instruction] = []
    for operand in instruction.operands:
        if operand.opcode == "iota":
            operand = first.setdefault(_operand_key(operand, structure), operand)
        shared.append(operand)
    kept = set(shared)
    freed = [o for o in dict.fromkeys(instruction.operands) if o not in kept]
    computation = instruction.computation
    computation.set_operands(instruction, shared)
    for iota in freed:
        if not iota.user_count and not iota.is_root and is_safely_removable(iota):
            computation.remove(iota)


def _replace(instruction: Instruction, first: Instruction) -> None:
    """Let readers of one read the other; nothing else is copied."""
    computation = instruction.computation
    computation.replace_uses(instruction, first)
    computation.remove_with_dead_operands(instruction)


def _merge_fusion_outputs(body: Computation, graph: CallGraph, report: Report) -> None:
    """Let readers of a fusion's repeated output read its first occurrence."""
    callers = graph.callers_of(body)
    if (
        len(callers) != 1
        or callers[0].removed
        or callers[0].opcode != "fusion"
        or body.root.opcode != "tuple"
    ):
        return
    first_index: dict[Instruction, int] = {}
    for index, output in enumerate(body.root.operands):
        first_index.setdefault(output, index)
    if len(first_index) == len(body.root.operands):
        return
    for user in callers[0].users:
        if user.opcode == "get-tuple-element":
            index = first_index[body.root.operands[user.tuple_index]]
            if index != user.tuple_index:
                user.set_attribute("index", str(index))
                report.count("fusion-outputs-merged")
