"""Atoms: what a search moves. Instructions that cost nothing stick to a neighbor.

    %t = get-tuple-element(%w)     after the only atom that it needs      (tail)
    %b = bitcast(%x)               before the only atom that needs it     (head)
    %p = parameter(0)              in no atom: placed before its first user

An atom has at most one instruction that takes time, begins, ends, calls or holds
anything. Its members keep the order given. Nothing is lost: every path through a member
goes through the atom, so atoms can never wait for each other in a circle.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.scheduler.improver.problem import Counts, Problem
from hlo_passes.scheduler.sums import sequential_sum

_NOWHERE: Final = -1
#: What an atom does, besides computing.
COMPUTES: Final = 0
STARTS: Final = 1
ENDS: Final = 2
HOLDS: Final = 3


@dataclass(slots=True, eq=False)
class Atoms:
    """The atoms of a problem, numbered by the order given.

    Attributes:
        problem: whose instructions they are.
        members: nodes of each atom, in the order given.
        atom_of: by node; -1 for one that floats.
        floating: nodes in no atom, in the order given.
        cost_us, latency_us, stream, partner: as in `Problem`, by atom.
        kind: COMPUTES, STARTS and ENDS of pairs, HOLDS: all others that have something
            in flight.
        preds, succs: neighboring atoms.
        resource: of a pair, the place of its resource in `limits`; -1 for none.
        more: by half of a pair, resources that it holds besides, as a call on several
            SparseCores does.
        limits: of the resources that occur.
        base_used: in flight before the first atom, by resource.
        changes, needs: of atoms that hold something besides pairs.
        holders: those of them that change what is in flight for good.
        allocs, frees: buffers that begin and end, read from the bottom up.
        inner_bytes: the most that what it calls needs.
        users: by buffer, the atoms that read it.
        clashes: by start, atoms that must not be in flight with it.
        group_of: by atom, its scheduling group, -1 for none; None if there are none.
        xla_before_us, xla_after_us: cost in XLA's statistic up to its half, and after.
        xla_start, xla_latency_us: by done; -1 for what XLA does not count.
    """

    problem: Problem
    members: list[list[int]]
    atom_of: list[int]
    floating: list[int]
    cost_us: list[float]
    latency_us: list[float]
    stream: list[int]
    partner: list[int]
    kind: list[int]
    preds: list[tuple[int, ...]]
    succs: list[tuple[int, ...]]
    resource: list[int]
    more: dict[int, tuple[int, ...]]
    limits: list[int]
    base_used: list[int]
    changes: dict[int, Counts]
    needs: dict[int, Counts]
    holders: list[int]
    allocs: list[tuple[int, ...]]
    frees: list[tuple[int, ...]]
    inner_bytes: list[int]
    users: dict[int, list[int]]
    clashes: dict[int, frozenset[int]]
    group_of: list[int] | None
    xla_before_us: list[float]
    xla_after_us: list[float]
    xla_start: list[int]
    xla_latency_us: list[float]

    def __len__(self) -> int:
        """Number of atoms."""
        return len(self.members)

    @property
    def dones(self) -> list[int]:
        """Dones of pairs, by number."""
        return [a for a, kind in enumerate(self.kind) if kind == ENDS]

    def expand(self, order: Sequence[int]) -> list[int]:
        """The order of all instructions that follows an order of atoms."""
        problem = self.problem
        placed = bytearray(len(problem))
        floats = bytearray(len(problem))
        found: list[int] = []

        def put(node: int) -> None:
            # Iterative, for chains of any length: what floats comes before its user.
            stack = [node]
            while stack:
                n = stack[-1]
                if placed[n]:
                    stack.pop()
                    continue
                missing = [p for p in problem.preds[n] if floats[p] and not placed[p]]
                if missing:
                    stack += missing
                    continue
                placed[n] = 1
                found.append(n)
                stack.pop()

        for n in self.floating:
            floats[n] = 1
        # Parameters keep their place at the top.
        for n in self.floating:
            if problem.instructions[n].opcode == "parameter":
                put(n)
        for atom in order:
            for n in self.members[atom]:
                put(n)
        for n in self.floating:
            put(n)
        return found


def make_atoms(problem: Problem) -> Atoms:
    """Compress a problem."""
    grouped = {n for members in problem.groups.values() for n in members}
    plain = [
        n not in grouped and _is_plain(problem, n) and n != len(problem) - 1
        for n in range(len(problem))
    ]
    glue = _Glue(problem, plain, grouped)
    glue.tails()
    glue.heads()
    members, atom_of = glue.atoms()
    atoms = _empty(problem, members, atom_of, glue.floating)
    cores = [next((n for n in m if not plain[n]), _NOWHERE) for m in members]
    _fill_edges(atoms)
    _fill_times(atoms, cores)
    _fill_resources(atoms, cores)
    _fill_memory(atoms, cores)
    _fill_groups(atoms)
    return atoms


def _is_plain(problem: Problem, n: int) -> bool:
    """Whether an instruction takes nothing and holds nothing."""
    return (
        problem.cost_us[n] == 0.0
        and not problem.is_start[n]
        and not problem.is_done[n]
        and n not in problem.changes
        and n not in problem.needs
        and n not in problem.xla_pairs
        and problem.memory.inner_peak_bytes[n] == 0
    )


class _Glue:
    """Which instructions stick to which."""

    def __init__(self, problem: Problem, plain: list[bool], grouped: set[int]) -> None:
        self.problem = problem
        self.plain = plain
        self.grouped = grouped
        self.root = list(range(len(problem)))
        self.floats = bytearray(len(problem))
        self.floating: list[int] = []

    def find(self, n: int) -> int:
        root = self.root
        while root[n] != n:
            root[n] = root[root[n]]
            n = root[n]
        return n

    def tails(self) -> None:
        """Glue to the only atom before; what needs nothing floats."""
        for n, is_plain in enumerate(self.plain):
            if not is_plain:
                continue
            before = {self.find(p) for p in self.problem.preds[n] if not self.floats[p]}
            if not before:
                self.floats[n] = 1
                self.floating.append(n)
            elif len(before) == 1:
                self._join(n, before.pop())

    def heads(self) -> None:
        """Glue to the only atom after, with everything that stuck to it before."""
        held: dict[int, list[int]] = {}
        for n in range(len(self.problem)):
            if not self.floats[n]:
                held.setdefault(self.find(n), []).append(n)
        succs = self.problem.succs
        for n in reversed(range(len(self.problem))):
            if not self.plain[n] or self.floats[n] or self.root[n] != n:
                continue
            mine = held[n]
            after = {self.find(s) for m in mine for s in succs[m]} - {n}
            if len(after) == 1:
                self._join(n, after.pop())

    def _join(self, n: int, atom: int) -> None:
        if atom not in self.grouped:  # no stranger in a scheduling group
            self.root[n] = atom

    def atoms(self) -> tuple[list[list[int]], list[int]]:
        """Members by atom, and the atom of each node."""
        held: dict[int, list[int]] = {}
        for n in range(len(self.problem)):
            if not self.floats[n]:
                held.setdefault(self.find(n), []).append(n)
        # An atom is where its core was.
        place = {
            root: max((n for n in mine if not self.plain[n]), default=root)
            for root, mine in held.items()
        }
        roots = sorted(held, key=lambda root: place[root])
        atom_of = [_NOWHERE] * len(self.problem)
        for atom, root in enumerate(roots):
            for n in held[root]:
                atom_of[n] = atom
        return [held[root] for root in roots], atom_of


def _empty(
    problem: Problem, members: list[list[int]], atom_of: list[int], floating: list[int]
) -> Atoms:
    count = len(members)
    return Atoms(
        problem=problem,
        members=members,
        atom_of=atom_of,
        floating=floating,
        cost_us=[
            sequential_sum(problem.cost_us[n] for n in mine if problem.cost_us[n])
            for mine in members
        ],
        latency_us=[0.0] * count,
        stream=[-1] * count,
        partner=[-1] * count,
        kind=[COMPUTES] * count,
        preds=[()] * count,
        succs=[()] * count,
        resource=[-1] * count,
        more={},
        limits=[],
        base_used=[],
        changes={},
        needs={},
        holders=[],
        allocs=[()] * count,
        frees=[()] * count,
        inner_bytes=[0] * count,
        users={},
        clashes={},
        group_of=None,
        xla_before_us=[0.0] * count,
        xla_after_us=[0.0] * count,
        xla_start=[-1] * count,
        xla_latency_us=[0.0] * count,
    )


def _fill_edges(atoms: Atoms) -> None:
    atom_of = atoms.atom_of
    before: list[set[int]] = [set() for _ in atoms.members]
    after: list[set[int]] = [set() for _ in atoms.members]
    for n, succs in enumerate(atoms.problem.succs):
        a = atom_of[n]
        if a == _NOWHERE:
            continue
        for s in succs:
            b = atom_of[s]
            if b not in (_NOWHERE, a):
                after[a].add(b)
                before[b].add(a)
    for a, b in _handed_over_edges(atoms):
        after[a].add(b)
        before[b].add(a)
    atoms.preds = [tuple(sorted(near)) for near in before]
    atoms.succs = [tuple(sorted(near)) for near in after]


def _handed_over_edges(atoms: Atoms) -> list[tuple[int, int]]:
    """Edges that keep the work in the window of a transfer between iterations.

    It begins late in one iteration and ends early in the next. Nothing that ran while
    it was in flight may leave: what came after its start, and what came before its
    done. Only what costs counts.
    """
    problem = atoms.problem
    started = {atoms.atom_of[n] for n in problem.handed_over if problem.is_start[n]}
    ended = {atoms.atom_of[n] for n in problem.handed_over} - started
    found: list[tuple[int, int]] = []
    # Transfers keep their order, so an edge to or from the nearest one is enough.
    for own, others in ((started, range(len(atoms))), (ended, range(len(atoms))[::-1])):
        last = _NOWHERE
        for atom in others if own else ():
            if last != _NOWHERE and (atom in own or atoms.cost_us[atom] > 0.0):
                found.append((min(last, atom), max(last, atom)))
            if atom in own:
                last = atom
    return found


def _fill_times(atoms: Atoms, cores: list[int]) -> None:
    problem = atoms.problem
    together: dict[frozenset[int], frozenset[int]] = {}
    for atom, core in enumerate(cores):
        passed = False
        for n in atoms.members[atom]:
            if passed:
                atoms.xla_after_us[atom] += problem.xla_cost_us[n]
            else:
                atoms.xla_before_us[atom] += problem.xla_cost_us[n]
            passed = passed or n == core
        if core == _NOWHERE:
            continue
        atoms.latency_us[atom] = problem.latency_us[core]
        atoms.stream[atom] = problem.stream[core]
        if problem.partner[core] != _NOWHERE:
            atoms.partner[atom] = atoms.atom_of[problem.partner[core]]
        if problem.is_start[core]:
            ends_here = atoms.partner[atom] != _NOWHERE
            atoms.kind[atom] = STARTS if ends_here else HOLDS
        elif problem.is_done[core]:
            atoms.kind[atom] = ENDS
        pair = problem.xla_pairs.get(core)
        if pair is not None:
            atoms.xla_start[atom] = atoms.atom_of[pair[0]]
            atoms.xla_latency_us[atom] = pair[1]
        if core in problem.clashes:
            others = problem.clashes[core]  # one set for all that are alike
            if others not in together:
                together[others] = frozenset(atoms.atom_of[o] for o in others)
            atoms.clashes[atom] = together[others]


def _fill_resources(atoms: Atoms, cores: list[int]) -> None:
    problem = atoms.problem
    place: dict[int, int] = {}

    def numbered(counts: Counts) -> Counts:
        return tuple((place.setdefault(r, len(place)), k) for r, k in counts)

    for atom, core in enumerate(cores):
        changes = numbered(problem.changes.get(core, ()))
        needs = numbered(problem.needs.get(core, ()))
        if atoms.kind[atom] in (STARTS, ENDS):
            held = [r for r, _ in changes]
            if held:
                atoms.resource[atom] = held[0]
            if len(held) > 1:
                atoms.more[atom] = tuple(held[1:])
            continue
        if changes:
            atoms.changes[atom] = changes
            atoms.holders.append(atom)
        if needs:
            atoms.needs[atom] = needs
        if (changes or needs) and atoms.kind[atom] == COMPUTES:
            atoms.kind[atom] = HOLDS
    limits = problem.limits
    atoms.limits = [limits[r] for r in place]
    # What ends here without a start has been in flight from the beginning on.
    atoms.base_used = [0] * len(place)
    for atom in atoms.holders:
        for r, change in atoms.changes[atom]:
            if change < 0:
                atoms.base_used[r] -= change


def _fill_memory(atoms: Atoms, cores: list[int]) -> None:
    memory = atoms.problem.memory
    sizes = memory.sizes_bytes
    # Buffers of what floats are left to the exact count of whole orders.
    left_out = {b for n in atoms.floating for b in memory.frees[n]}
    for atom, members in enumerate(atoms.members):
        if cores[atom] != _NOWHERE:
            atoms.inner_bytes[atom] = memory.inner_peak_bytes[cores[atom]]
        for table, of in ((atoms.allocs, memory.allocs), (atoms.frees, memory.frees)):
            found = dict.fromkeys(b for n in members for b in of[n])
            table[atom] = tuple(b for b in found if sizes[b] > 0 and b not in left_out)
        for b in atoms.allocs[atom]:
            atoms.users.setdefault(b, []).append(atom)


def _fill_groups(atoms: Atoms) -> None:
    """Members of a scheduling group keep their order and stay together."""
    if not atoms.problem.groups:
        return
    group_of = [-1] * len(atoms)
    extra: list[tuple[int, int]] = []
    for number, nodes in enumerate(atoms.problem.groups.values()):
        own = [atoms.atom_of[n] for n in nodes if atoms.atom_of[n] != _NOWHERE]
        mine = sorted(set(own))
        extra += itertools.pairwise(mine)
        # One that is in pieces already keeps its order alone.
        if mine and mine[-1] - mine[0] == len(mine) - 1:
            for atom in mine:
                group_of[atom] = number
    for a, b in extra:
        atoms.succs[a] = tuple(sorted({*atoms.succs[a], b}))
        atoms.preds[b] = tuple(sorted({*atoms.preds[b], a}))
    atoms.group_of = group_of
