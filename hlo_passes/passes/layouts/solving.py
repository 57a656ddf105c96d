"""Chooses the layouts of one part of a computation.

few orders at a time hang together    tables (elimination.py)   exact
two orders for every choice           one cut (moves.py)        exact
else                                  cut after cut             no worse than given
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from hlo_passes.passes.layouts.elimination import Table, smallest
from hlo_passes.passes.layouts.moves import expanded, of_two_orders
from hlo_passes.passes.layouts.problem import Chosen, Group, Part
from hlo_passes.passes.layouts.ties import Order

#: States of one array that the tables may have: its order, and the copies of it.
_MOST_STATES: Final = 4096


@dataclass(frozen=True, slots=True)
class Solution:
    """What was chosen for a part.

    Attributes:
        chosen: an order of the axes for every choice.
        copied_bytes: what is copied with it.
        is_exact: whether no layouts need fewer bytes.
    """

    chosen: Chosen
    copied_bytes: int
    is_exact: bool


def solve(part: Part, exact_limit: int) -> Solution:
    """The cheapest layouts, or the cheapest found.

    Args:
        part: of a computation.
        exact_limit: most entries of all tables.
    """
    part.offer_orders()
    chosen = _by_tables(part, exact_limit)
    is_exact = chosen is not None and part.is_complete
    if chosen is None and exact_limit:
        chosen = of_two_orders(part)
        is_exact = chosen is not None
    if chosen is None:
        chosen = expanded(part, part.given)
    copied = part.cost(chosen)
    return Solution(chosen, copied, is_exact or not copied)


def _by_tables(part: Part, most_entries: int) -> Chosen | None:
    """The cheapest of the orders offered; None where tables would be too large."""
    number = {choice: k for k, choice in enumerate(part.choices)}
    sizes = [len(choice.orders) for choice in part.choices]
    tables: list[Table] = []

    def wants(group: Group, k: int) -> tuple[int | None, list[Order]]:
        """The number of a member's choice, and what it wants in each state."""
        member = group.members[k]
        if member.choice is None:
            return None, [member.fixed]
        return number[member.choice], [member.wants(o) for o in member.choice.orders]

    def add(variables: tuple[int | None, ...], costs: list[list[float]]) -> None:
        """A table of two variables; a fixed one has one state and no number."""
        known = tuple(v for v in variables if v is not None)
        shape = [sizes[v] for v in known]
        tables.append(Table(known, np.array(costs, dtype=np.float64).reshape(shape)))

    for group in part.groups:
        writer, written = wants(group, 0)
        readers = [wants(group, k) for k in range(1, len(group.members))]
        size = float(group.size)
        if len(readers) == 1:
            ((reader, read),) = readers
            costs = [[size * (w != r) for r in read] for w in written]
            add((writer, reader), costs)
            continue
        states = _states(written, [read for _, read in readers])
        if states is None:
            return None
        array = len(sizes)
        sizes.append(len(states))
        add((array,), [[size * (len(state) - 1) for state in states]])
        add(
            (writer, array),
            [[0.0 if w == state[0] else np.inf for state in states] for w in written],
        )
        for reader, read in readers:
            costs = [[size * (r not in state) for state in states] for r in read]
            add((reader, array), costs)
    found = smallest(sizes, tables, most_entries)
    if found is None:
        return None
    return {
        choice: tuple(choice.orders)[state]
        for choice, state in zip(part.choices, found, strict=False)
    }


def _states(
    written: Sequence[Order], read: Sequence[Sequence[Order]]
) -> list[tuple[Order, ...]] | None:
    """The order of an array, and those of the copies that several readers share.

    A copy for one reader alone is priced with that reader. None where there are too
    many states.
    """
    readers_of: dict[Order, int] = {}
    for orders in read:
        for order in dict.fromkeys(orders):
            readers_of[order] = readers_of.get(order, 0) + 1
    shared = [order for order, count in readers_of.items() if count > 1]
    states: list[tuple[Order, ...]] = []
    for order in dict.fromkeys(written):
        copies = [each for each in shared if each != order]
        for count in range(min(len(copies), len(read) // 2) + 1):
            for some in combinations(copies, count):
                states.append((order, *some))
                if len(states) > _MOST_STATES:
                    return None
    return states
