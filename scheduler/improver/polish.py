"""The last step: every start as early and every done as late as costs nothing.

An earlier start or a later done never makes a step longer, as long as no other half on
its stream is passed; it gives the pair a wider window, should the costs be wrong.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.scheduler.improver.atoms import ENDS, STARTS
from hlo_passes.scheduler.improver.moves import shift
from hlo_passes.scheduler.improver.window import RESOLUTION_US, Window

#: No half goes further than this in one step.
_FARTHEST: Final = 1000


def polish(window: Window) -> None:
    """Widen the window of every pair, in program order, where it costs nothing."""
    atoms = window.atoms
    halves = [v for v in window.order if atoms.kind[v] in (STARTS, ENDS)]
    for v in halves:
        if atoms.kind[v] == STARTS:
            _move(window, v, -1)
    for v in reversed(halves):
        if atoms.kind[v] == ENDS:
            _move(window, v, 1)


def _move(window: Window, v: int, step: int) -> None:
    """Move one half as far as it can go; of refused distances, try half."""
    atoms = window.atoms
    source = window.position[v]
    far = _room(window, v, step)
    while far:
        target = source + step * far
        low, high = min(source, target), max(source, target)
        new = shift(window.order[low : high + 1], source - low, target - low, atoms)
        if new is not None and window.try_window(low, new, RESOLUTION_US):
            return
        far //= 2


def _room(window: Window, v: int, step: int) -> int:
    """Atoms that a half may pass: up to a neighbor, or a half on its stream."""
    atoms, order = window.atoms, window.order
    near = set(atoms.preds[v] if step < 0 else atoms.succs[v])
    mine = _stream(window, v)
    place = window.position[v]
    room = 0
    while room < _FARTHEST and 0 <= place + step < len(order):
        place += step
        other = order[place]
        if other in near or _stream(window, other) == mine:
            break
        room += 1
    return room


def _stream(window: Window, v: int) -> int:
    """The stream of a half; -1 for anything else."""
    atoms = window.atoms
    return atoms.stream[atoms.partner[v] if atoms.kind[v] == ENDS else v]
