"""Cycles in the pairs of permutes, as XLA looks for them.

    {0,1},{1,2},{2,3},{3,0}       a cycle; cutting the edge at index 3 leaves a line
    {0,3},{1,0},{2,1},{3,2}       the same backward; the edge at index 0
    {3,0} and {0,1},{1,2},{2,3}   the two parts of a ring

Source: openxla/xla `xla/service/collective_permute_cycle.cc`,
`xla/backends/gpu/transforms/collectives/collective_permute_cycle_decomposer.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Devices that send and receive.
Pairs = Sequence[tuple[int, int]]


def cut_edges(pairs: Pairs) -> tuple[int, ...]:
    """Indices of edges without which no cycle of several devices is left.

    Most edges of a ring lead to higher ids (forward) or to lower ones (backward, also
    if neither are more). Of those that lead the other way, the edges that come to where
    the others start are cut. Some may be cut that are on no cycle.
    """
    ascending = sum(source < target for source, target in pairs)
    forward = ascending > len(pairs) - ascending
    # Where the many edges begin (forward) or end (backward).
    along: set[int] = set()
    against: list[tuple[int, int]] = []
    for index, (source, target) in enumerate(pairs):
        if (source < target) if forward else (source > target):
            along.add(source if forward else target)
        else:
            against.append((target if forward else source, index))
    return tuple(index for device, index in against if device in along)


def has_cycle(pairs: Pairs) -> bool:
    """Whether data would come back to where it was; also for a device's own."""
    target_of = dict(pairs)
    ends: set[int] = set()
    for source in target_of:
        path: set[int] = set()
        device = source
        while device in target_of and device not in ends:
            if device in path:
                return True
            path.add(device)
            device = target_of[device]
        ends |= path
    return False


def close_a_ring(back: Pairs, others: Pairs) -> bool:
    """Whether one pair closes the line of the others, 0 to n-1 or n-1 to 0, in order.

    Devices that do not come in order, or do not start at 0, are no ring here.
    """
    last = len(others)
    if len(back) != 1:
        return False
    forward = [(device, device + 1) for device in range(last)]
    if back[0] == (last, 0):
        return list(others) == forward
    return back[0] == (0, last) and list(others) == [(t, s) for s, t in forward]
