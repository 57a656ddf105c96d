"""Which atoms must come before, and which after, the halves of each pair.

    %s = all-gather-start(%x)      %x: before the pair        after = until = 1
    %f = fusion(%y)                %f: no path says           beside it, perhaps
    %d = all-gather-done(%s)
    %g = fusion(%d)                %g: after the pair         before = ended = 1

Sets of pairs are whole numbers, a bit for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_passes.scheduler.improver.atoms import STARTS, Atoms


@dataclass(frozen=True, slots=True)
class Reach:
    """Paths between atoms and halves of pairs.

    Attributes:
        starts: of the pairs, in the order given.
        before: by atom, pairs whose start comes before it.
        ended: by atom, pairs whose done comes before it, or is it.
        after: by atom, pairs whose start comes after it, or is it.
        until: by atom, pairs whose done comes after it, or is it.
        alone: by atom, pairs that the limits keep out of its own time, if any.
    """

    starts: list[int]
    before: list[int]
    ended: list[int]
    after: list[int]
    until: list[int]
    alone: dict[int, int]


def reach_of(atoms: Atoms) -> Reach:
    """Follow all edges, once down and once up."""
    count = len(atoms)
    starts = [v for v, kind in enumerate(atoms.kind) if kind == STARTS]
    before, ended = [0] * count, [0] * count
    after, until = [0] * count, [0] * count
    begins = [0] * count
    for k, s in enumerate(starts):
        done = atoms.partner[s]
        begins[s] = after[s] = ended[done] = until[done] = 1 << k
    for v, near in enumerate(atoms.preds):
        begun, over = before[v], ended[v]
        for p in near:
            begun |= before[p] | begins[p]
            over |= ended[p]
        before[v], ended[v] = begun, over
    for v in reversed(range(count)):
        here, until_here = after[v], until[v]
        for p in atoms.preds[v] if here or until_here else ():
            after[p] |= here
            until[p] |= until_here
    return Reach(starts, before, ended, after, until, _alone(atoms, starts))


def _alone(atoms: Atoms, starts: list[int]) -> dict[int, int]:
    """By caller, the pairs for which its body leaves no room under the limits."""
    of: dict[int, int] = {}
    for k, s in enumerate(starts):
        r = atoms.resource[s]
        of[r] = of.get(r, 0) | 1 << k
    found = {}
    for v, needs in atoms.needs.items():
        mask = 0
        for r, count in needs:
            if count + 1 > atoms.limits[r]:
                mask |= of.get(r, 0)
        if mask:
            found[v] = mask
    return found
