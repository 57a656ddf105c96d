"""Replaces combined instructions by elements of the combined one.

readers of %b    ->    readers of  %g = f32[8] get-tuple-element(%c), index=1
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.combining.combining import Anchor


def elements_for(
    members: Sequence[Instruction],
    combined: Instruction,
    anchor: Anchor,
    indices: Sequence[int] | None = None,
) -> list[Instruction]:
    """Replace the members by elements of `combined`; returns the elements.

    An element copies the member's op metadata, frontend attributes and sharding.
    Members carry no control edges.

    Args:
        members: what is replaced.
        combined: whose elements take their place.
        anchor: where the elements go.
        indices: the element for each member; 0, 1, ... when not given.
    """
    computation = combined.computation
    elements: list[Instruction] = []
    for index, member in zip(indices or range(len(members)), members, strict=True):
        element = computation.new(
            "get-tuple-element",
            member.shape,
            (combined,),
            {"index": str(index)},
            before=anchor.before,
            after=anchor.after,
        )
        computation.replace(member, element)
        elements.append(element)
    return elements
