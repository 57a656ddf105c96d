"""Collectives that XLA:TPU cuts into fusions, so that products run beside them.

    %s = (...) fusion(%x), calls=%begins          all-gather, then AsyncCollectiveStart
    %f = (...) fusion(..., %y, %z), calls=%both   a product, and the same all-gather
    %d = ... fusion(...), calls=%ends             all-gather, then AsyncCollectiveDone

The three hold one all-gather, with one channel: it is in flight from %s to %d, as if
they were its start and done, and what runs between them is computed meanwhile.
v5e does that to its all-gathers, after its scheduler (`docs/tpu.md`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.async_form import is_collective
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction

_BEGINS: Final = '"AsyncCollectiveStart"'
_ENDS: Final = '"AsyncCollectiveDone"'


@dataclass(slots=True)
class Continuations:
    """The collectives of one computation that are fusions.

    Attributes:
        done_of: the fusion that ends one, by the fusion that begins it.
        start_of: the other way round.
        alone: fusions that begin or end one, without the other half here.
    """

    done_of: dict[Instruction, Instruction] = field(default_factory=dict)
    start_of: dict[Instruction, Instruction] = field(default_factory=dict)
    alone: list[Instruction] = field(default_factory=list)


def continuations(computation: Computation) -> Continuations:
    """Fusions of a computation that begin and end a collective, in pairs.

    Complexity: linear in the computation and in the bodies of its custom fusions.
    """
    found = Continuations()
    begun: dict[str, Instruction] = {}
    for instruction in computation.instructions:
        if instruction.opcode != "fusion" or not instruction.mentions("kCustom"):
            continue
        half, channel = _half_and_channel(instruction)
        if half == _BEGINS:
            if channel in begun:
                found.alone.append(begun[channel])
            begun[channel] = instruction
        elif half == _ENDS and channel in begun:
            start = begun.pop(channel)
            found.done_of[start], found.start_of[instruction] = instruction, start
        elif half == _ENDS:
            found.alone.append(instruction)
    found.alone += begun.values()
    return found


def _half_and_channel(fusion: Instruction) -> tuple[str, str]:
    """The call that marks a half, and the channel of the collective; '' for none."""
    half = channel = ""
    for body in fusion.called_computations:
        for instruction in body.instructions:
            if instruction.opcode == "custom-call":
                half = instruction.attributes.get("custom_call_target", "")
            elif is_collective(instruction):
                channel = instruction.attributes.get("channel_id", "")
    return half, channel
