"""Dead code elimination.

    Before:  %n = f32[8] negate(%p)                     nothing reads %n
             %u = (f32[8], f32[8]) fusion(%p), calls=%f   only element 1 is read
             %g = f32[8] get-tuple-element(%u), index=1
    After:   %u = f32[8] fusion(%p), calls=%f           %f returns the old element 1

The pass also removes computations that nothing reachable from the entry calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.effects import (
    follows_a_bound_start,
    has_side_effect,
    is_removable,
    is_safely_removable,
)
from hlo_passes.analysis.frontend_flags import is_flag_set
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import begun_collective
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.replacement import replace_relaying_control
from hlo_passes.passes.rewriting.unreached import remove_unreached_computations

#: Frontend flags that keep an instruction that nothing reads.
KEEPS = ("disable_while_loop_dce", "preserve_tuple_indices")
#: Collectives of the class whose members the option allows to remove.
_COLLECTIVES_WITH_GROUPS = frozenset(
    opcode
    for opcode in opcodes.ROWS
    if begun_collective(opcode) not in ("", "collective-permute")
)


@dataclass(frozen=True, slots=True)
class HloDce(Pass):
    """Remove instructions without users, and computations without callers.

    Instructions with side effects, with control edges, or with unknown opcodes stay
    even if nothing reads them. So do parameters, except unread ones of fusions.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, plus the bodies of dead loops.
    Source: openxla/xla `xla/hlo/transforms/simplifiers/hlo_dce.cc`.

    Attributes:
        remove_cross_partition_collective_ops: also remove dead collectives with a
            channel id, except permutes and those with `constrain_layout`.
    """

    name: ClassVar[str] = "hlo-dce"

    remove_cross_partition_collective_ops: bool = False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit callers before callees: a caller's dead uses then free its callee."""
        version = module.version
        graph = build_call_graph(module)
        seen = {module.entry}
        agenda = [module.entry]
        while agenda:
            computation = agenda.pop()
            self._clean(computation, graph, report)
            for instruction in computation.instructions:
                for callee in instruction.called_computations:
                    if callee not in seen:
                        seen.add(callee)
                        agenda.append(callee)
        if count := remove_unreached_computations(module):
            report.count("computations-removed", count)
        return module.version != version

    def _clean(
        self, computation: Computation, graph: CallGraph, report: Report
    ) -> None:
        fusion = _fusion_of(computation, graph)
        if fusion is not None and _drop_unused_outputs(computation, fusion):
            report.count("fusion-outputs-narrowed")
        dead = [i for i in computation.instructions if self._can_go(i, report)]
        for instruction in dead:
            if not instruction.removed:
                removed = computation.remove_with_dead_operands(instruction)
                report.count("instructions-removed", removed)
        if fusion is not None:
            _drop_unused_parameters(computation, fusion, report)

    def _can_go(self, instruction: Instruction, report: Report) -> bool:
        if instruction.user_count or instruction.is_root:
            return False
        if instruction.opcode == "parameter":
            return False
        if not opcodes.facts(instruction.opcode).is_known:
            report.remark(
                f"not removed: %{instruction.name} is unused, "
                f"but {instruction.opcode} is unknown"
            )
            return False
        if not is_safely_removable(instruction):
            report.remark(
                f"not removed: %{instruction.name} is unused, but has control edges"
            )
            return False
        if follows_a_bound_start(instruction):
            report.remark(
                f"not removed: %{instruction.name} is unused, but what it follows has "
                "control edges"
            )
            return False
        kept = next((flag for flag in KEEPS if is_flag_set(instruction, flag)), "")
        if not kept and _is_sharding_anchor(instruction):
            kept = "Sharding"
        if kept:
            report.remark(
                f"not removed: %{instruction.name} is unused, but marked {kept}"
            )
            return False
        if instruction.opcode == "after-all" and _orders_effects(instruction):
            return False
        if not has_side_effect(instruction):
            return True
        if self._may_go_by_option(instruction) or self._is_idle_loop(instruction):
            return True
        report.remark(
            f"not removed: %{instruction.name} is unused, "
            f"but {instruction.opcode} has a side effect"
        )
        return False

    def _may_go_by_option(self, instruction: Instruction) -> bool:
        return (
            self.remove_cross_partition_collective_ops
            and instruction.opcode in _COLLECTIVES_WITH_GROUPS
            and instruction.attributes.get("constrain_layout") != "true"
        )

    def _is_idle_loop(self, instruction: Instruction) -> bool:
        """A loop whose bodies act only through collectives that the option removes."""
        return instruction.opcode == "while" and all(
            not has_side_effect(i) or self._may_go_by_option(i)
            for callee in instruction.called_computations
            for i in callee.instructions
        )


def _fusion_of(computation: Computation, graph: CallGraph) -> Instruction | None:
    """The only fusion that calls a computation; None if there is no such fusion."""
    callers = graph.callers_of(computation)
    if len(callers) != 1 or callers[0].opcode != "fusion" or callers[0].removed:
        return None
    return callers[0]


def _is_sharding_anchor(instruction: Instruction) -> bool:
    """A Sharding custom-call on a value that it does not own."""
    if (
        instruction.opcode != "custom-call"
        or instruction.attributes.get("custom_call_target") != '"Sharding"'
    ):
        return False
    operand = instruction.operands[0]
    return operand.is_root or operand.opcode == "parameter" or operand.user_count != 1


def _orders_effects(after_all: Instruction) -> bool:
    """Whether a token joins instructions with side effects."""
    sources = (
        o.operands[0] if o.opcode == "get-tuple-element" else o
        for o in after_all.operands
    )
    return any(has_side_effect(source) for source in sources)


def _drop_unused_outputs(body: Computation, fusion: Instruction) -> bool:
    """Remove unread elements from a fusion's tuple; True if there were any."""
    # A fusion qualifies if it returns a tuple that is only taken apart.
    root = body.root
    if (
        root.opcode != "tuple"
        or "sharding" in root.attributes
        or "output_to_operand_aliasing" in fusion.attributes
        or fusion.control_predecessors
        or fusion.control_successors
        or fusion.attributes.get("kind") == "kCustom"
        or fusion.is_root
        or not fusion.users
        or any(u.opcode != "get-tuple-element" for u in fusion.users)
    ):
        return False
    # Keep outputs that are read or have side effects.
    read = {user.tuple_index for user in fusion.users}
    used = [k for k, o in enumerate(root.operands) if k in read or has_side_effect(o)]
    if len(used) == len(root.operands):
        return False
    # Give the fusion its new shape and its elements their new indices. A single output
    # needs no tuple.
    owner = fusion.computation
    shapes = [fusion.shape.elements[k] for k in used]
    if len(used) == 1:
        owner.set_shape(fusion, shapes[0])
        for element in fusion.users:
            replace_relaying_control(element, fusion)
        body.set_root(root.operands[used[0]])
    else:
        owner.set_shape(fusion, tuple_shape(shapes))
        new_index = {old: new for new, old in enumerate(used)}
        for element in fusion.users:
            element.set_attribute("index", str(new_index[element.tuple_index]))
        outputs = [root.operands[k] for k in used]
        new_root = body.new("tuple", tuple_shape(shapes), outputs, before=root)
        for attribute in ("metadata", "frontend_attributes"):
            new_root.set_attribute(attribute, root.attributes.get(attribute))
        body.set_root(new_root)
    body.remove_with_dead_operands(root)
    return True


def _drop_unused_parameters(
    body: Computation, fusion: Instruction, report: Report
) -> None:
    """Remove unread parameters from a fusion, with what fed them."""
    parameters = body.parameters
    dead = {
        p.parameter_number
        for p in parameters
        if not p.user_count
        and not p.is_root
        and not p.control_predecessors
        and not p.control_successors
    }
    if not dead:
        return
    kept = [p for p in parameters if p.parameter_number not in dead]
    for parameter in parameters:
        if parameter.parameter_number in dead:
            body.remove(parameter)
    for number, parameter in enumerate(kept):
        if parameter.literal != str(number):
            parameter.literal = str(number)
            body.touch(parameter)
    owner = fusion.computation
    freed = [fusion.operands[k] for k in sorted(dead)]
    owner.set_operands(
        fusion, [o for k, o in enumerate(fusion.operands) if k not in dead]
    )
    report.count("fusion-parameters-removed", len(dead))
    for operand in freed:
        if (
            not operand.removed
            and not operand.user_count
            and not operand.is_root
            and is_removable(operand)
        ):
            owner.remove_with_dead_operands(operand)
