"""Follows the elements of a parameter through a plain module.

%t = (f32[8], s32[4]) tuple(%a, %p); %w = while(%t)     ->  %p is read as element 1 of
                                                            the loop, and inside it

Who hands elements on is the caller's to say (`heirs`): an index stays an index where a
number loses its sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hlo_passes.ir.instruction import Instruction


def uses(
    parameter: Instruction,
    heirs: Callable[[Instruction, Instruction], Iterator[Instruction]],
) -> Iterator[tuple[Instruction, Instruction]]:
    """All uses of a parameter's elements: a value that has them, and who reads it."""
    seen: set[Instruction] = {parameter}
    work = [parameter]
    while work:
        value = work.pop()
        for user in value.users:
            yield value, user
            for heir in heirs(value, user):
                if heir not in seen:
                    seen.add(heir)
                    work.append(heir)


def elements_of_uses(packed: Instruction, at: int) -> Iterator[Instruction]:
    """Where element `at` of a tuple comes out: of itself, of a loop, of a branch."""
    for user in packed.users:
        if user.opcode == "get-tuple-element" and user.tuple_index == at:
            yield user
        elif user.opcode in ("while", "conditional"):
            for callee in _callees_given(packed, user):
                for parameter in callee.parameters:
                    yield from _elements(parameter, at)
            if user.opcode == "while":
                yield from _elements(user, at)


def _callees_given(packed: Instruction, user: Instruction) -> Sequence:
    callees = user.called_computations
    if user.opcode == "while":
        return callees
    return [c for c, o in zip(callees, user.operands[1:], strict=True) if o is packed]


def _elements(whole: Instruction, at: int) -> Iterator[Instruction]:
    for user in whole.users:
        if user.opcode == "get-tuple-element" and user.tuple_index == at:
            yield user
