"""Copies of instructions and computations, made as XLA makes them.

    %y = f32[8] negate(%x), metadata={...}  ->  %y.1 = f32[8] negate(%a), metadata={...}
    %f = f32[8] fusion(%x), calls=%g        ->  %f.1 = f32[8] fusion(%a), calls=%g.1

A copy keeps shape, attributes and metadata. It calls the computations that the original
calls; only what belongs to one caller, the body of a fusion, is copied too. Control
edges are not copied with an instruction, but among the copies of one computation.

Source: openxla/xla `xla/hlo/ir/hlo_instruction.cc`, `hlo_computation.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.calls import call_instead
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Shape
from hlo_passes.whole_numbers import integer_of

#: Original -> copy.
Copies = dict[Instruction, Instruction]
#: Makes what the copy has for an instruction of the original.
Replacement = Callable[[Computation, Copies], Instruction]

#: Callers whose callees are theirs alone.
OWNERS: Final = frozenset({"async-start", "custom-call", "fusion"})
#: Opcodes that only name values.
_DOES_NOTHING: Final = frozenset({"constant", "get-tuple-element", "tuple"})


def clone_instruction(
    instruction: Instruction,
    computation: Computation,
    operands: Iterable[Instruction],
    *,
    before: Instruction | None = None,
    shape: Shape | None = None,
    changes: Mapping[str, str] | None = None,
) -> Instruction:
    """A copy that reads other operands. It has no control edges.

    Args:
        instruction: what is copied.
        computation: where the copy goes, at the end
        operands: of the copy.
        before: or before this one.
        shape: of the copy; the same one when not given.
        changes: attributes that differ.
    """
    attributes = {**instruction.attributes, **(changes or {})}
    operands = tuple(operands)
    if facts(instruction.opcode).half in ("update", "done") and "calls" in attributes:
        # It names what its start wraps.
        attributes["calls"] = operands[0].attributes["calls"]
    copy = computation.new(
        instruction.opcode,
        shape or instruction.shape,
        operands,
        attributes,
        name=instruction.name,
        literal=instruction.literal,
        before=before,
    )
    if instruction.opcode in OWNERS:
        call_copies(copy)
    return copy


def call_copies(caller: Instruction) -> None:
    """Let an instruction call copies of the computations that it calls.

    Raises TooLargeError (E028) before anything is copied.
    """
    callees, sizes = caller.called_computations, dict[Computation, int]()
    room = sum(size_of_copy(callee, sizes) for callee in callees)
    caller.computation.module.make_room(room)
    for place, callee in enumerate(callees):
        call_instead(caller, place, clone_computation(callee)[0])


def size_of_copy(computation: Computation, known: dict[Computation, int]) -> int:
    """How many instructions a copy has, with the computations that it brings along.

    Args:
        computation: to be copied.
        known: sizes by computation; what is found is added.
    """
    waiting, opened = [computation], set[Computation]()
    while waiting:
        each = waiting[-1]
        if each in known:
            waiting.pop()
            continue
        owned = [
            callee
            for instruction in each.instructions
            if instruction.opcode in OWNERS
            for callee in instruction.called_computations
        ]
        unknown = [callee for callee in owned if callee not in known]
        if unknown and each not in opened:
            opened.add(each)
            waiting += unknown
        else:
            known[each] = len(each.instructions) + sum(known.get(c, 0) for c in owned)
            waiting.pop()
    return known[computation]


def name_with_suffix(name: str, suffix: str) -> str:
    """The name that XLA gives to a copy that a pass marks, before it is made unique.

    %k -> %k.sunk -> %k.sunk2 -> %k.sunk3, with "sunk"; a name that goes on after the
    suffix, like %k.sunk.1, gets it once more.
    """
    stem, found, after = name.rpartition(f".{suffix}")
    number = integer_of(after) if after else 1
    if not found or number is None:
        return f"{name}.{suffix}"
    return f"{stem}{found}{number + 1}"


def clone_computation(
    computation: Computation,
    replacements: Mapping[Instruction, Replacement] | None = None,
    order: Sequence[Instruction] | None = None,
    *,
    name: str | None = None,
) -> tuple[Computation, Copies]:
    """A copy of a computation, and the copy of each instruction.

    Args:
        computation: what is copied; it stays as it is.
        name: stem of the copy's name; the original's when not given.
        replacements: what makes the copy of some instructions. The copies of all that
            comes before them in the order are known by then.
        order: the instructions to copy, in an order in which operands come before their
            users; all in post order when not given.
    """
    module = computation.module
    copy = Computation(
        module.fresh_computation_name(name or computation.name),
        execution_thread=computation.execution_thread,
    )
    module.add_computation(copy, before=computation)
    made = replacements or {}
    copies: Copies = {}
    order = post_order(computation) if order is None else order
    for instruction in order:
        make = made.get(instruction)
        copies[instruction] = (
            clone_instruction(
                instruction, copy, [copies[o] for o in instruction.operands]
            )
            if make is None
            else make(copy, copies)
        )
    for instruction in order:
        repeat_control_edges(instruction, copies)
    copy.set_root(copies[computation.root])
    return copy, copies


def repeat_control_edges(
    original: Instruction, copies: Mapping[Instruction, Instruction]
) -> None:
    """Let the copy wait for the copies of what the original waits for.

    An edge into another computation is left out.
    """
    if not original.control_predecessors:
        return
    copy = copies[original]
    for predecessor in original.control_predecessors:
        first = copies.get(predecessor)
        if first is not None and first.computation is copy.computation:
            copy.computation.add_control_edge(first, copy)


def wait_likewise(instruction: Instruction, copies: Iterable[Instruction]) -> None:
    """Let copies before an instruction wait for what it waits for by control edges.

    Those that read one that waits need no edges; those that do nothing have none, since
    a parameter may take their place, and what they would wait for may read it.

    Args:
        instruction: of the copies' computation.
        copies: operands first.
    """
    waiting: set[Instruction] = set()
    for copy in copies if instruction.control_predecessors else ():
        if waiting.isdisjoint(copy.operands):
            if copy.opcode in _DOES_NOTHING:
                continue
            for before in instruction.control_predecessors:
                instruction.computation.add_control_edge(before, copy)
        waiting.add(copy)


def element_of(
    source: Instruction, index: int, *, before: Instruction | None = None
) -> Instruction:
    """A new get-tuple-element of a tuple, at the end or before another instruction."""
    return source.computation.new(
        "get-tuple-element",
        source.shape.elements[index],
        [source],
        {"index": str(index)},
        before=before,
    )
