"""Two attributes read a thousand times, without splitting all the others.

    get-tuple-element(%t), index=3, ...            3
    fusion(%a), kind=kLoop, calls=%fused, ...      %fused

Both come first in what XLA prints; any other text takes the ordinary way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction

_INDEX: Final = re.compile(r", index=(\d+)(?:,|$)")
_CALLS: Final = re.compile(r", kind=k[A-Z][a-z]+, calls=%([\w.-]+)(?:,|$)")


def tuple_index(element: Instruction) -> int:
    """`index=` of a get-tuple-element."""
    if element._attributes is None:
        match = _INDEX.match(element._tail)
        if match is not None:
            return int(match[1])
    return element.tuple_index


def fused_computation(fusion: Instruction) -> Computation | None:
    """The body of a fusion; None for one that names none."""
    if fusion._attributes is None:
        match = _CALLS.match(fusion._tail)
        if match is not None:
            found = fusion.computation.module.computation(match[1])
            if found is not None:
                return found
    bodies = fusion.called_computations
    return bodies[0] if bodies else None
