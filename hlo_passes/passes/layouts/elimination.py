"""The smallest sum of tables, by taking away one variable after the other.

    min over a, b, c of  F(a,b) + G(b,c)        a and b decide F, b and c decide G
    = min over b, c of  F'(b) + G(b,c)          F'(b) = min over a of F(a,b)

The variable that stands in tables with the fewest others goes next, as in Bertele and
Brioschi, Nonserial Dynamic Programming (1972). The work is the entries of all tables
made: small where few variables hang together at a time, such as in chains and trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any, Final

import numpy as np

#: Of an array, in all releases of NumPy.
_MOST_DIMENSIONS: Final = 32

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """A term of the sum.

    Attributes:
        variables: those that decide it, one per dimension of `values`.
        values: by their states; infinite for what is not allowed.
    """

    variables: tuple[int, ...]
    values: Array


def smallest(
    sizes: Sequence[int], tables: Sequence[Table], most_entries: int
) -> list[int] | None:
    """States of all variables for which the sum of the tables is smallest.

    Args:
        sizes: the number of states of each variable, at most 65,536.
        tables: the terms.
        most_entries: of all tables that are made on the way.

    Returns:
        None where more entries would be needed. Among equal sums, lower states of the
        variables that are taken away last.
    """
    tables_of: list[dict[Table, None]] = [{} for _ in sizes]
    beside: list[set[int]] = [set() for _ in sizes]
    for table in tables:
        for variable in table.variables:
            tables_of[variable][table] = None
            beside[variable].update(v for v in table.variables if v != variable)
    waiting = [(len(others), v) for v, others in enumerate(beside)]
    heapify(waiting)
    best: list[tuple[tuple[int, ...], Any]] = []
    is_taken = [False] * len(sizes)
    while waiting:
        degree, variable = heappop(waiting)
        if is_taken[variable] or len(beside[variable]) != degree:
            continue  # it waits with its present degree, too
        others = sorted(beside[variable])
        scope = (variable, *others)
        most_entries -= prod(sizes[v] for v in scope)
        if most_entries < 0 or len(scope) > _MOST_DIMENSIONS:
            return None
        own = tuple(tables_of[variable])
        whole = _sum(own, scope, sizes)
        is_taken[variable] = True
        best.append((scope, whole.argmin(axis=0).astype(np.uint16)))
        for table in own:
            for v in table.variables:
                tables_of[v].pop(table, None)
        rest = Table(scope[1:], whole.min(axis=0))
        for v in others:
            tables_of[v][rest] = None
            beside[v].update(others)
            beside[v] -= {v, variable}
            heappush(waiting, (len(beside[v]), v))
    states = [0] * len(sizes)
    for (variable, *others), state in reversed(best):
        states[variable] = int(state[tuple(states[v] for v in others)])
    return states


def _sum(
    tables: Sequence[Table], scope: tuple[int, ...], sizes: Sequence[int]
) -> Array:
    """One table over all variables of the scope."""
    place = {v: k for k, v in enumerate(scope)}
    whole = np.zeros([sizes[v] for v in scope])
    for table in tables:
        order = sorted(
            range(len(table.variables)), key=lambda k: place[table.variables[k]]
        )
        shape = [1] * len(scope)
        for v in table.variables:
            shape[place[v]] = sizes[v]
        whole += table.values.transpose(order).reshape(shape)
    return whole
