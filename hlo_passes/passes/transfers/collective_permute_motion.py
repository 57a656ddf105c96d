"""Moves permutes from the end of a loop's body to its beginning.

Before:  %k = f32[8] get-tuple-element(%state), index=1
         ... what reads %k
         %c = f32[8] collective-permute(%u), source_target_pairs={{0,1},{1,0}}
         ROOT %t = (s32[], f32[8]) tuple(%next, %c)
After:   %k = f32[8] get-tuple-element(%state), index=1
         %c = f32[8] collective-permute(%k), source_target_pairs={{0,1},{1,0}}
         %s = f32[8] select(%is_first, %k, %c)
         ... what reads %s
         ROOT %t = (s32[], f32[8]) tuple(%next, %u)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.effects import acts_itself, has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.analysis.while_loop_patterns import induction_variable
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import BITS, array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.cloning import clone_instruction
from hlo_passes.passes.rewriting.eligibility import unknown_attribute

#: More operations than this are not moved together.
_LARGEST_CLUSTER: Final = 8
#: The same in every iteration, without operands.
_INVARIANT: Final = frozenset({"constant", "iota", "replica-id", "partition-id"})
#: The same if their operands are, besides elementwise operations.
_INVARIANT_OF_OPERANDS: Final = frozenset(
    {"broadcast", "reduce", "reshape", "dynamic-slice", "transpose"}
)


@dataclass(frozen=True, slots=True)
class CollectivePermuteMotion(Pass):
    """Move a permute from the end of a loop iteration to the beginning of the next one.

    The permute can then overlap with the work that the iteration does before it reads
    the permuted value. The first iteration takes the value as it is. The result of the
    last permute is never computed, so the pass moves a permute only if nothing reads
    that element after the loop. Up to seven elementwise operations after the permute
    move with it, if their other operands are the same in each iteration. The loop must
    count from a constant by a constant.

    XLA assumes that nothing reads a loop that is the result of its computation. It also
    moves the permutes of a body for one loop even if another loop runs the same body.
    Without XLA's quirks (`--no-xla-quirks`), these permutes stay.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/service/spmd/collective_permute_motion.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "collective-permute-motion"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit loops, inner ones first."""
        version = module.version
        release = context.release_for(module, self.xla)
        graph = build_call_graph(module)
        for computation in graph.post_order:
            if graph.is_fusion_body(computation):
                continue
            for loop in post_order(computation):
                if loop.opcode != "while":
                    continue
                if not any(
                    i.opcode == "collective-permute"
                    for i in loop.called_computations[0].instructions
                ):
                    continue
                counter = induction_variable(loop, release)
                found = _Loop.of(loop, counter)
                if isinstance(found, str):
                    report.remark(f"not moved: permutes of %{loop.name}, which {found}")
                    continue
                if not context.xla_quirks:
                    if len(graph.callers_of(found.body)) > 1:
                        report.remark(
                            f"not moved: permutes of %{loop.name}, whose body another "
                            "loop runs"
                        )
                        continue
                    if loop.is_root:
                        found.read_after |= set(range(len(found.body.root.operands)))
                if found.move(report):
                    restore_text_order(found.body)
        return module.version != version


@dataclass(slots=True)
class _Loop:
    """A loop whose permutes may move.

    Attributes:
        body: of the loop.
        counter: what counts, in the body.
        first: the constant that it starts with.
        elements: index -> the one get-tuple-element of the state.
        read_after: indices that something reads after the loop.
        invariant: what is the same in each iteration.
    """

    body: Computation
    counter: Instruction
    first: Instruction
    elements: dict[int, Instruction]
    read_after: set[int]
    invariant: set[Instruction] = field(default_factory=set)

    @staticmethod
    def of(loop: Instruction, counter: int | None) -> _Loop | str:
        """The loop, or why nothing of it moves."""
        body = loop.called_computations[0]
        root, start = body.root, loop.operands[0]
        if root.opcode != "tuple" or start.opcode != "tuple":
            return "does not build its state as a tuple"
        if counter is None:
            return "has no variable that alone decides when it ends"
        (state,) = body.parameters
        if any(user.opcode != "get-tuple-element" for user in state.users):
            return "hands on its state as a whole"
        # Elements that are read in one place.
        times = Counter(user.tuple_index for user in state.users)
        elements = {
            user.tuple_index: user
            for user in state.users
            if times[user.tuple_index] == 1
        }
        variable = elements.get(counter)
        if variable is None or variable.shape.dimensions:
            return "reads its counter in several places, or counts no scalar"
        update = root.operands[counter]
        if update.opcode not in ("add", "subtract") or variable not in update.operands:
            return "does not count by adding to its counter"
        other = update.operands[update.operands[0] is variable]
        first = start.operands[counter]
        if other.opcode != "constant" or first.opcode != "constant":
            return "does not count from a constant by a constant"
        # What reads the loop as a whole reads all elements.
        read_after = {
            user.tuple_index
            for user in loop.users
            if user.opcode == "get-tuple-element"
        }
        if any(user.opcode != "get-tuple-element" for user in loop.users):
            read_after = set(range(len(root.operands)))
        found = _Loop(body, variable, first, elements, read_after)
        found.invariant = _invariant(body)
        return found

    def move(self, report: Report) -> bool:
        """Move what can move; whether anything did."""
        outputs = self.body.root.operands
        times = Counter(outputs)
        moved = False
        for index, output in enumerate(outputs):
            if output in self.invariant or not _may_be_cluster(output):
                continue
            cluster = self._cluster(output)
            if isinstance(cluster, str):
                if cluster:
                    report.remark(f"not moved: %{output.name} {cluster}")
                continue
            permute = next(i for i in cluster if i.opcode == "collective-permute")
            element = self.elements.get(index)
            reason = ""
            if times[output] > 1:
                reason = "is several elements of the state"
            elif index in self.read_after:
                reason = "is read after the loop"
            elif element is None:
                reason = "is not read by one instruction in the body"
            elif permute.operands[0] is element:
                reason = "begins the iteration"
            elif any(map(has_control_edges, cluster)):
                reason = "has control edges, or what moves with it"
            elif unknown := unknown_attribute(permute):
                reason = f"has the unknown attribute {unknown}"
            if reason or element is None:
                report.remark(f"not moved: %{permute.name} {reason}")
                continue
            self._move(output, cluster, permute, element)
            report.count("permutes-moved")
            moved = True
        return moved

    def _cluster(self, output: Instruction) -> list[Instruction] | str:
        """A permute and what follows it, last operation first; or why not.

        The reason is '' where there is no permute.
        """
        cluster: list[Instruction] = []
        queue = [output]
        permutes = 0
        reason = ""
        for instruction in queue:
            if len(cluster) >= _LARGEST_CLUSTER:
                reason = reason or f"follows on more than {_LARGEST_CLUSTER} operations"
                break
            cluster.append(instruction)
            if instruction.user_count > 1:
                reason = reason or "needs what others read, too"
            if instruction.opcode == "collective-permute":
                permutes += 1
                continue
            if not _is_elementwise(instruction):
                reason = reason or "needs more than a permute, elementwise"
                continue
            queue += [o for o in instruction.operands if o not in self.invariant]
        if not permutes:
            return ""
        return reason or (cluster if permutes == 1 else "needs several permutes")

    def _move(
        self,
        output: Instruction,
        cluster: Iterable[Instruction],
        permute: Instruction,
        element: Instruction,
    ) -> None:
        body = self.body
        readers = element.users
        # Copy the operations, and let the copies read the element.
        copies = {permute.operands[0]: element}
        for instruction in reversed([*cluster]):
            operands = [copies.get(o, o) for o in instruction.operands]
            copies[instruction] = clone_instruction(instruction, body, operands)
        permuted = copies[output]
        # Take the element itself in the first iteration.
        if self.first.computation is not body:
            self.first = clone_instruction(self.first, body, ())
        is_first = body.new(
            "compare",
            array_shape("pred", ()),
            [self.counter, self.first],
            {"direction": "EQ"},
        )
        everywhere = body.new(
            "broadcast",
            permuted.shape.with_element_type("pred"),
            [is_first],
            {"dimensions": "{}"},
        )
        value = body.new("select", permuted.shape, [everywhere, element, permuted])
        for reader in readers:
            body.replace_operand(reader, element, value)
        body.replace_operand(body.root, output, permute.operands[0])
        body.remove_with_dead_operands(output)


def _may_be_cluster(output: Instruction) -> bool:
    return output.opcode == "collective-permute" or _is_elementwise(output)


def _is_elementwise(instruction: Instruction) -> bool:
    """Whether each element of the result needs one element of each operand."""
    opcode = instruction.opcode
    if opcode == "bitcast-convert":
        before, after = instruction.operands[0].shape, instruction.shape
        return BITS[before.element_type] == BITS[after.element_type]
    return facts(opcode).is_elementwise and not acts_itself(instruction)


def _invariant(body: Computation) -> set[Instruction]:
    """What has the same value in each iteration."""
    (state,) = body.parameters
    found: set[Instruction] = set()
    for index, output in enumerate(body.root.operands):
        while output.opcode in ("reshape", "copy"):
            output = output.operands[0]
        if output.tuple_index_or_none == index and output.operands[0] is state:
            found.add(output)
    for instruction in post_order(body):
        if instruction.opcode in _INVARIANT or (
            (
                instruction.opcode in _INVARIANT_OF_OPERANDS
                or _is_elementwise(instruction)
            )
            and all(operand in found for operand in instruction.operands)
        ):
            found.add(instruction)
    return found
