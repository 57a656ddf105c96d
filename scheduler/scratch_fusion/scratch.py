"""How much scratch a fusion needs, in the order of evaluation that needs least.

    order        in scratch while it is computed                       f32, per element
    %a = x + y   x, y, a                                               12 bytes
    %b = a * x   a, x, b             x stays, since it is read here    12 bytes
    %c = b * a   b, a, c                                               12 bytes

A value that is read comes into scratch where it is read first and leaves after it was
read last; a value that is computed leaves after it was read last in the fusion, at once
if nothing there reads it. Operands and result of an instruction are there together.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo_passes.scheduler.scratch_fusion.parts import Part, members


def narrowest_order(
    part: Part, nodes: int, most_states: int | None = None
) -> tuple[int, tuple[int, ...]]:
    """Bits of scratch per element at the widest point, and the order of evaluation.

    Args:
        part: whose instructions they are.
        nodes: instructions of one fusion.
        most_states: sets of instructions computed first that are followed at a time;
            None for all, so that no order needs less.
    """
    front: Mapping[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    values = part.loads(nodes) | nodes
    for _ in range(nodes.bit_count()):
        following: dict[int, tuple[int, tuple[int, ...]]] = {}
        for done, (widest, order) in front.items():
            resident = _resident(part, nodes, values, done)
            staying = bits_of(part, resident)
            left = nodes & ~done
            for node in members(left):
                if part.reads[node] & left:
                    continue
                live = staying + bits_of(
                    part, (part.reads[node] | 1 << node) & ~resident
                )
                state = max(widest, live), (*order, node)
                after = done | 1 << node
                if after not in following or state < following[after]:
                    following[after] = state
        if most_states is not None and len(following) > most_states:
            ranked = sorted(
                following.items(),
                key=lambda entry: (
                    entry[1][0],
                    bits_of(part, _resident(part, nodes, values, entry[0])),
                    entry[1][1],
                ),
            )
            following = dict(ranked[:most_states])
        front = following
    ((_, found),) = front.items()
    return found


def _resident(part: Part, nodes: int, values: int, done: int) -> int:
    """Values in scratch between two instructions."""
    left = nodes & ~done
    found = 0
    for value in members(values):
        readers = part.readers[value]
        is_there = done >> value & 1 if nodes >> value & 1 else readers & done
        if is_there and readers & left:
            found |= 1 << value
    return found


def bits_of(part: Part, values: int) -> int:
    """Of all these values together, per element."""
    return sum(part.bits[value] for value in members(values))
