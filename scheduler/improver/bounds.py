"""What no order of the atoms can be shorter than.

the greatest of

all that the compute lane runs
all that one stream runs
the longest chain of atoms that need each other
the lane and one stream, less what of them can run at once: of all atoms, or of those
between a head that must come before them and a tail that must follow
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_passes.scheduler.improver.atoms import ENDS, STARTS, Atoms
from hlo_passes.scheduler.simulation.bound import (
    Bound,
    chain_bound,
    lane_bound,
    stream_bound,
    the_greatest,
)
from hlo_passes.scheduler.simulation.overlap_bound import Overlaps, Pair
from hlo_passes.scheduler.simulation.section_bound import (
    Lanes,
    bound_of,
    longest_section,
)
from hlo_passes.scheduler.sums import sequential_sum


def lower_bound(atoms: Atoms) -> Bound:
    """A bound for the step of every order within the overlap limits."""
    names = atoms.problem.stream_names
    streams: dict[int, list[Pair]] = {}
    for v, kind in enumerate(atoms.kind):
        if kind == STARTS:
            pair = Pair(v, atoms.partner[v], atoms.latency_us[v])
            streams.setdefault(atoms.stream[v], []).append(pair)
    lane_us = sequential_sum(atoms.cost_us)
    busy = {k: sequential_sum(p.us for p in own) for k, own in streams.items()}
    found = [lane_bound(lane_us)]
    found += [stream_bound(us, names[k]) for k, us in sorted(busy.items())]
    found.append(chain_bound(_longest_chain_us(atoms)))
    if streams:
        pairs = [pair for own in streams.values() for pair in own]
        overlaps = Overlaps(atoms.preds, pairs, _apart(atoms, pairs))
        room = {v: us for v, us in enumerate(atoms.cost_us) if us > 0.0}
        lanes = Lanes(
            overlaps,
            atoms.cost_us,
            dict.fromkeys(streams, room),
            streams,
            _one_by_one(atoms, streams),
        )
        found.append(bound_of(longest_section(lanes), names))
    return the_greatest(found)


def _one_by_one(atoms: Atoms, streams: Mapping[int, Sequence[Pair]]) -> frozenset[int]:
    """Streams whose pairs all hold the only instance of one resource."""
    found = []
    for k, own in streams.items():
        held = {atoms.resource[pair.start] for pair in own}
        r = held.pop()
        if not held and r >= 0 and atoms.limits[r] <= 1:
            found.append(k)
    return frozenset(found)


def _apart(atoms: Atoms, pairs: list[Pair]) -> dict[int, frozenset[int]]:
    """By caller, the starts that its body leaves no room for under the limits."""
    found: dict[int, frozenset[int]] = {}
    alike: dict[tuple[int, ...], frozenset[int]] = {}
    for v, needs in atoms.needs.items():
        full = tuple(r for r, count in needs if count + 1 > atoms.limits[r])
        if full and full not in alike:
            alike[full] = frozenset(
                pair.start for pair in pairs if atoms.resource[pair.start] in full
            )
        if full:
            found[v] = alike[full]
    return found


def _longest_chain_us(atoms: Atoms) -> float:
    # Numbers follow the order given, so predecessors come first.
    ends = [0.0] * len(atoms)
    for v, near in enumerate(atoms.preds):
        begin = max([ends[p] for p in near], default=0.0)
        if atoms.kind[v] == ENDS:
            start = atoms.partner[v]
            begin = max(begin, ends[start] + atoms.latency_us[start])
        ends[v] = begin + atoms.cost_us[v]
    return max(ends, default=0.0)
