"""All orders of the atoms of small problems, and the shortest step among them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from hlo_passes.scheduler.improver.atoms import Atoms
from tests.scheduler.improver.naive import walk

#: Orders that are tried in the suite; problems with more are left out.
MOST_ORDERS = 3_000


def orders(atoms: Atoms) -> Iterator[list[int]]:
    """Every order of the atoms that holds all edges."""
    left = [len(near) for near in atoms.preds]
    order: list[int] = []

    def extend() -> Iterator[list[int]]:
        if len(order) == len(atoms):
            yield list(order)
        for v in range(len(atoms)):
            if left[v] == 0:
                left[v] = -1
                for s in atoms.succs[v]:
                    left[s] -= 1
                order.append(v)
                yield from extend()
                order.pop()
                for s in atoms.succs[v]:
                    left[s] += 1
                left[v] = 0

    return extend()


def optimum(
    atoms: Atoms,
    accepts: Callable[[Sequence[int]], bool] | None = None,
    most_orders: int = MOST_ORDERS,
) -> float | None:
    """The least step of all orders within the limits; None for too many orders."""
    tried = list(itertools.islice(orders(atoms), most_orders + 1))
    if len(tried) > most_orders:
        return None
    found = [(walk(atoms, order), order) for order in tried]
    return min(
        one.step_us
        for one, order in found
        if not one.breaks and (accepts is None or accepts(order))
    )


def random_order(atoms: Atoms, draw: random.Random) -> list[int]:
    """Any order of the atoms that holds all edges."""
    left = [len(near) for near in atoms.preds]
    ready = [v for v, count in enumerate(left) if not count]
    order: list[int] = []
    while ready:
        v = ready.pop(draw.randrange(len(ready)))
        order.append(v)
        for s in atoms.succs[v]:
            left[s] -= 1
            if not left[s]:
                ready.append(s)
    return order
