"""Computes values inside a loop if that is cheaper than to keep them in its state.

Before:  while from tuple(%zero, broadcast(%x)):
             %w = get-tuple-element(%state), index=1
             f(%w)
After:   while from tuple(%zero, broadcast(%x), %x):
             %x.1 = get-tuple-element(%state), index=2
             f(broadcast(%x.1))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import (
    CallGraph,
    build_call_graph,
    loops_outside_fusions,
)
from hlo_passes.analysis.effects import has_control_edges, has_side_effect
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.analysis.while_loop_patterns import (
    induction_variable,
    unique_element,
    xla_trip_count,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import INTEGRAL, array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.loop_state import (
    append_elements,
    invariant_elements,
    return_elements,
)
from hlo_passes.passes.loops.pipelined_stores import is_elementwise
from hlo_passes.passes.rewriting.cloning import Copies, clone_instruction
from hlo_passes.passes.rewriting.constants import spread
from hlo_passes.xla_release import XlaRelease

#: What takes parts of an array, of which the whole is then not computed again.
_SLICES: Final = frozenset({"dynamic-slice", "gather", "slice"})
_MOVES: Final = frozenset({"reshape", "transpose"})
#: Operations that may be visited a second time.
_MOST_VISITED: Final = 100


@dataclass(frozen=True, slots=True)
class WhileLoopFusibleSinking(Pass):
    """Recompute large but cheap values in each loop iteration, instead of keeping them.

    The pass looks for a state element that the body returns unchanged and that starts
    as elementwise operations, reshapes and transposes of broadcasts, constants and
    iotas. It copies these operations into the body. The values that the broadcasts
    read, which are much smaller, become part of the state. If the body takes slices of
    the element, the element stays.

    The pass also looks for a state element that starts as a broadcast constant and that
    an elementwise operation recomputes in each iteration. Such an element then starts
    as a buffer without values, and the body selects the constant in the first
    iteration. The loop must have a known number of iterations, and an addition or
    subtraction must change its counter.

    The pass skips loops that share their body or condition. XLA does not run the pass
    on GPUs. XLA believes its own count of the iterations. Without XLA's quirks
    (`--no-xla-quirks`), a buffer loses its values only if the loop is known to run. If
    an element uses one value in two ways, XLA copies that value twice; this pass copies
    it once.

    To recognize its first iteration, a loop with a buffer without values gets one more
    constant in its state. A second run sinks that constant.

    Complexity: linear in instructions and in what is copied.
    Source: openxla/xla `xla/service/while_loop_fusible_sinking.cc`.

    Attributes:
        broadcasts: let elements that start as a broadcast constant start without
            values.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "while-loop-fusible-sinking"

    broadcasts: bool = True
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit the loops of all computations: first to sink, then to save buffers."""
        version = module.version
        graph = build_call_graph(module)
        loops = loops_outside_fusions(module, graph)
        changed: dict[Computation, None] = {}
        for loop in loops:
            reason = _reason_to_keep(loop, graph)
            if reason:
                report.remark(f"not sunk: %{loop.name} {reason}")
            elif _sink(loop, report):
                changed[loop.computation] = None
        _restore(changed)
        if self.broadcasts:
            changed = {}
            release = context.release_for(module, self.xla)
            counts = None if context.xla_quirks else TripCounts(module)
            for loop in loops:
                if not _reason_to_keep(loop, graph) and _start_without_values(
                    loop, release, counts, report
                ):
                    body = loop.called_computations[0]
                    changed |= dict.fromkeys((body, loop.computation))
            _restore(changed)
        return module.version != version


def _restore(changed: Iterable[Computation]) -> None:
    """Restore the order of texts, once for all loops of a computation."""
    for computation in changed:
        restore_text_order(computation)


def _reason_to_keep(loop: Instruction, graph: CallGraph) -> str:
    if any(len(graph.callers_of(c)) > 1 for c in loop.called_computations):
        return "shares its body or condition"
    if loop.operands[0].opcode != "tuple":
        return "starts from no tuple"
    body = loop.called_computations[0]
    if body.root.opcode != "tuple" or body.root.user_count:
        return "has a body that returns no tuple"
    return ""


# -- what never changes ------------------------------------------------------------


@dataclass(slots=True)
class _Tree:
    """What one element starts as.

    Attributes:
        element: of the body.
        value: its start.
        inside: what is copied into the body, users before operands.
        outside: what the copies read from the state, in XLA's order.
    """

    element: Instruction
    value: Instruction
    inside: list[Instruction] = field(default_factory=list)
    outside: list[Instruction] = field(default_factory=list)


def _sink(loop: Instruction, report: Report) -> bool:
    """Copy into a loop what its unchanging elements start as.

    Returns whether the text around the loop is out of order.
    """
    start, computation = loop.operands[0], loop.computation
    # Find them, and say why the others stay.
    trees: list[_Tree] = []
    for element in invariant_elements(loop.called_computations[0]):
        value = start.operands[element.tuple_index]
        reason = _reason_to_hand_in(element, value)
        tree = None if reason else _tree(element, value)
        if tree is not None and tree.outside and _is_sharded(loop):
            reason, tree = "needs elements that the sharding does not have", None
        if tree is None:
            report.remark(f"not sunk: %{value.name} {reason}")
            continue
        trees.append(tree)
    if not trees:
        return False
    # Let nobody else read what the loop starts from.
    if start.is_root or start.user_count > 1:
        start = clone_instruction(start, computation, start.operands, before=loop)
        computation.set_operands(loop, [start])
    # After the loop all is known without it.
    has_elements = False
    for tree in trees:
        if tree.outside and not has_elements:
            has_elements = True
            if loop.is_root or any(u.tuple_index_or_none is None for u in loop.users):
                return_elements(loop)
    values = {tree.element.tuple_index: tree.value for tree in trees}
    for user in loop.users:
        index = user.tuple_index_or_none
        if index in values:
            computation.replace(user, values[index])
    # Compute it in the body, of what the state has in addition.
    body = loop.called_computations[0]
    outside = [value for tree in trees for value in tree.outside]
    elements = {tree.element for tree in trees}
    first = next(i for i in body.instructions if i in elements)
    added = append_elements(loop, outside, before=first) if outside else []
    taken = 0
    for tree in trees:
        mine = added[taken : taken + len(tree.outside)]
        taken += len(tree.outside)
        _compute(tree, mine)
        report.count("values-sunk")
    return has_elements


def _reason_to_hand_in(element: Instruction, value: Instruction) -> str:
    """Why an element stays in the state; '' if it need not."""
    if any(user.opcode in _SLICES for user in element.users):
        return "is sliced in the body"
    if has_control_edges(element):
        return "has control edges in the body"
    visited: set[Instruction] = set()
    work = [value]
    while work:
        one = work.pop()
        if one in visited:
            if len(visited) > _MOST_VISITED:
                return "is computed by too many operations"
            continue
        visited.add(one)
        if _expands(one):
            continue
        if not _is_candidate(one):
            what = "it" if one is value else f"%{one.name}"
            return f"is not made of broadcasts and constants: {what} is a {one.opcode}"
        work += one.operands
    return ""


def _expands(instruction: Instruction) -> bool:
    """Whether its result is larger than what it reads."""
    opcode = instruction.opcode
    return opcode in ("broadcast", "iota") or (
        opcode == "constant" and instruction.shape.is_scalar
    )


def _is_candidate(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    if opcode == "rng" or has_side_effect(instruction):
        return False
    return opcode == "constant" or opcode in _MOVES or is_elementwise(instruction)


def _is_sharded(loop: Instruction) -> bool:
    body, condition = loop.called_computations
    states = (loop, loop.operands[0], body.root)
    return any(
        "sharding" in one.attributes
        for one in (*states, body.parameters[0], condition.parameters[0])
    )


def _tree(element: Instruction, value: Instruction) -> _Tree:
    """Cut below the broadcasts, as XLA fuses: from the last operand on."""
    tree = _Tree(element, value, [value])
    inside = {value}
    operands = dict.fromkeys(value.operands)

    def take(wanted: Sequence[Instruction]) -> None:
        # Each taken operand makes room for its own operands at the end.
        work = list(wanted)
        while work:
            one = work.pop()
            if one not in operands:
                continue
            del operands[one]
            inside.add(one)
            tree.inside.append(one)
            for operand in one.operands:
                if operand not in operands and operand not in inside:
                    operands[operand] = None
                    if _expands(operand) == _expands(one):
                        work.append(operand)

    if _is_candidate(value) and not _expands(value):
        take([o for o in operands if not _expands(o)])
    take([o for o in operands if _expands(o)])
    tree.outside = list(operands)
    return tree


def _compute(tree: _Tree, added: Sequence[Instruction]) -> None:
    """Compute in the body what an element was."""
    body = tree.element.computation
    copies: Copies = dict(zip(tree.outside, added, strict=True))
    work = [tree.value]
    while work:
        one = work[-1]
        missing = [o for o in one.operands if o not in copies]
        if one in copies:
            work.pop()
        elif missing:
            work += reversed(missing)
        else:
            operands = [copies[o] for o in one.operands]
            copies[one] = clone_instruction(one, body, operands, before=tree.element)
            work.pop()
    body.replace(tree.element, copies[tree.value])


# -- what starts as a broadcast constant ---------------------------------------------


def _start_without_values(
    loop: Instruction, release: XlaRelease, counts: TripCounts | None, report: Report
) -> bool:
    """Let buffers start without values, and select the constants in the body.

    Returns whether it did; the texts of the body and around the loop are then out of
    order.
    """
    start, body = loop.operands[0], loop.called_computations[0]
    buffers = _overwritten(loop)
    if not buffers:
        return False
    index = induction_variable(loop, release)
    reason = ""
    if _is_sharded(loop):
        reason = "has a sharding"
    elif index is None or not xla_trip_count(loop, index, release):
        reason = "has no known trip count"
    elif counts is not None and not counts.of(loop):
        reason = "is not known to run"
    elif start.operands[index].shape.element_type not in INTEGRAL:
        reason = "counts no integers"
    elif body.root.operands[index].opcode not in ("add", "subtract"):
        reason = "does not add to its counter"
    elif unique_element(body, index) is None:
        reason = "reads its counter twice"
    if reason:
        report.remark(f"initial values stay: %{loop.name} {reason}")
        return False
    assert index is not None
    # Hand in where the counter starts, and compare: only the first iteration is there.
    counter = unique_element(body, index)
    assert counter is not None
    return_elements(loop)
    (first_value,) = append_elements(loop, [start.operands[index]], before=body.root)
    is_first = body.new(
        "compare", array_shape("pred"), (counter, first_value), {"direction": "EQ"}
    )
    operands = list(start.operands)
    for place, element in buffers.items():
        operands[place] = _select_start(operands[place], element, is_first)
        report.count("buffers-without-values")
    values = dict.fromkeys(start.operands[place] for place in buffers)
    loop.computation.set_operands(start, operands)
    for value in values:
        if not value.user_count and not value.is_root:
            loop.computation.remove(value)
    return True


def _overwritten(loop: Instruction) -> dict[int, Instruction]:
    """Elements that start as broadcast constants and are computed anew, by index."""
    start, body = loop.operands[0], loop.called_computations[0]
    if start.user_count != 1 or start.is_root:
        return {}
    elements: dict[int, list[Instruction]] = {}
    for user in body.parameters[0].users:
        index = user.tuple_index_or_none
        if index is not None:
            elements.setdefault(index, []).append(user)
    found: dict[int, Instruction] = {}
    for index, value in enumerate(start.operands):
        result, mine = body.root.operands[index], elements.get(index, ())
        if (
            value.opcode == "broadcast"
            and value.operands[0].opcode == "constant"
            and value.operands[0].shape.is_scalar
            and len(mine) == 1
            and result.opcode != "clamp"
            and (is_elementwise(result) or result.opcode == "constant")
        ):
            found[index] = mine[0]
    return found


def _select_start(
    value: Instruction, element: Instruction, is_first: Instruction
) -> Instruction:
    """Let the body select the constant first; a buffer without values."""
    body, shape = element.computation, value.shape
    constant = clone_instruction(value.operands[0], body, ())
    predicates = spread(is_first, array_shape("pred", shape.dimensions))
    selected = body.new("select", shape, (predicates, spread(constant, shape), element))
    body.replace_uses(element, selected)
    return value.computation.new(
        "custom-call",
        shape,
        (),
        {"custom_call_target": '"AllocateBuffer"'},
        before=value,
    )
