"""What runs before what: along operands and control edges.

a = negate(p)
b = add(a, q), control-predecessors={c}
reaches(a, b), reaches(c, b), reaches(b, b)     True
reaches(b, a)                                   False
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction


def reaches(first: Instruction, then: Instruction) -> bool:
    """Whether a path leads from one to the other; every instruction reaches itself.

    Linear in what `then` needs. For many questions about one `then`, call `ancestors`
    once.
    """
    if first is then:
        return True
    seen = {then}
    stack = [then]
    while stack:
        current = stack.pop()
        for needed in (*current.operands, *current._control_predecessors):
            if needed is first:
                return True
            if needed not in seen:
                seen.add(needed)
                stack.append(needed)
    return False


def ancestors(
    instructions: Iterable[Instruction],
    place: Mapping[Instruction, int] | None = None,
    first: int = 0,
) -> set[Instruction]:
    """All that reaches any of these, themselves included; for membership only.

    Args:
        instructions: what is reached.
        place: in an order that no edge goes against; all instructions have one.
        first: what comes before this place is left out, and not searched.
    """
    seen = set(instructions)
    stack = list(seen)
    while stack:
        current = stack.pop()
        for needed in (*current.operands, *current._control_predecessors):
            if needed not in seen and (place is None or place[needed] >= first):
                seen.add(needed)
                stack.append(needed)
    return seen


def descendants(instructions: Iterable[Instruction]) -> set[Instruction]:
    """All that waits for any of these, themselves included; for membership only."""
    seen = set(instructions)
    work = list(seen)
    while work:
        current = work.pop()
        for user in (*current.users, *current.control_successors):
            if user not in seen:
                seen.add(user)
                work.append(user)
    return seen
