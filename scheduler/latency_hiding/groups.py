"""Scheduling groups: annotated instructions that are placed one after the other.

    frontend_attributes={_scheduling_group_id="3"}

A group is tried before every single pick once everything that reads its members is
placed. It is placed as soon as its need fits: first counted as if its dones all
overlapped, and if nothing else can be placed, as if they did not.

Inside a group `GROUP_RULES` decide, and no other rule.

Source: openxla/xla `latency_hiding_scheduler.cc`, AnnotationTracker,
AnnotationReadySetLt and TryScheduleOneAnnotationGroup (Aug 2026).
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from hlo_passes.errors import PassError
from hlo_passes.ir.async_form import is_done, is_generic, start_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.latency_hiding import attributes as attr
from hlo_passes.scheduler.latency_hiding.candidates import Array, Candidates
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.pairs import Watcher
from hlo_passes.scheduler.latency_hiding.resources import RESOURCE_NAMES, Resource
from hlo_passes.scheduler.latency_hiding.rule import Rule, by_number
from hlo_passes.scheduler.latency_hiding.scan import policy
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from hlo_passes.whole_numbers import integer_of

_LEADING_NUMBER: Final = re.compile(r"\s*(-?[0-9]+)")
_NONE: Final = -1


#: Rules inside a group, in XLA's order.
GROUP_RULES: Final = (
    by_number(
        "group-original-order", "kOriginalSequenceOrder",
        "the later one in the given order, where both have that hint",
        lambda s, n: n, kind=lambda s, n: _keeps_order(s.graph, n),
    ),
    by_number(
        "group-done", "kAnnotatedAsyncDone", "what occupies a resource",
        lambda s, n: s.graph.occupies[n], by_class="all", proven=True,
    ),
    by_number(
        "group-not-start", "kAnnotatedNotAsyncStart", "what releases no resource",
        lambda s, n: s.graph.releases[n], smaller=True, by_class="all", proven=True,
    ),
    Rule(
        "group-last", "kAnnotatedNoReason", "the later one of equal candidates",
        lambda s, a, b: 1, lambda s, n: None,
    ),
)  # fmt: skip


def annotated_group(instruction: Instruction) -> int | None:
    """The group that an instruction is annotated with; None for none."""
    text = attr.frontend(instruction, attr.GROUP_ID)
    found = _LEADING_NUMBER.match(text or "")
    return integer_of(found[1]) if found else None


def find_groups(graph: ScheduleGraph) -> dict[int, list[int]]:
    """Members by group, both in the order of the instruction list."""
    found: dict[int, list[int]] = {}
    for n, instruction in enumerate(graph.instructions):
        group = annotated_group(instruction)
        if group is not None and group != _NONE:
            found.setdefault(group, []).append(n)
    if graph.tracker.settings.top_down_scheduling:
        return _top_down_groups(graph, found)
    return found


def _top_down_groups(
    graph: ScheduleGraph, groups: dict[int, list[int]]
) -> dict[int, list[int]]:
    """Groups for top-down: dones pass their annotation to their starts.

    Groups of generic halves alone are dropped: a start and its done would be placed
    side by side.
    """
    annotated = {n for members in groups.values() for n in members}
    found: dict[int, list[int]] = {}
    for group, members in groups.items():
        if all(is_generic(graph.instructions[n]) for n in members):
            continue
        moved: list[int] = []
        for n in members:
            start, instruction = n, graph.instructions[n]
            if is_generic(instruction) and is_done(instruction):
                start = graph.index[start_of(instruction)]
            moved.append(n if start in annotated else start)
        found[group] = sorted(dict.fromkeys(moved))
    return found


class GroupState:
    """Groups of one computation while it is placed."""

    def __init__(
        self,
        state: SchedulingState,
        members: dict[int, list[int]],
        watcher: Watcher | None,
    ) -> None:
        """Start with whole groups; those that nothing reads are ready."""
        self._members = members
        self._policy = policy(state, GROUP_RULES, watcher)
        self._group_of: dict[int, int] = {
            n: group for group, nodes in members.items() for n in nodes
        }
        self._has_none = np.ones(len(state.graph), np.bool_)
        self._has_none[list(self._group_of)] = False
        self._total: dict[int, int] = {}
        self._placed = dict.fromkeys(members, 0)
        self._ready: list[int] = []
        self._holders: set[int] = set()
        self._ongoing = _NONE
        self._candidates = Candidates()
        for group, nodes in members.items():
            inside = set(nodes)
            outside = {s for n in nodes for s in state.below[n] if s not in inside}
            self._total[group] = len(outside)
            if not outside:
                self._ready.append(group)

    def group_of(self, n: int) -> int:
        """The current group of a node, -1 for none."""
        return self._group_of.get(n, _NONE)

    def without_group(self, nodes: Array) -> Array:
        """Those of some nodes that belong to no group now, in their order."""
        return nodes[self._has_none.take(nodes)]

    def _leave_group(self, n: int) -> None:
        self._group_of.pop(n, None)
        self._has_none[n] = True

    def note_placed(self, state: SchedulingState, n: int) -> None:
        """Count a placed node as one that read members of groups."""
        self._holders.discard(n)
        own = self.group_of(n)
        seen: dict[int, None] = {}
        for p in state.above[n]:
            group = self.group_of(p)
            if group != own and group != _NONE:
                seen[group] = None
        for group in seen:
            self._placed[group] += 1
            if self._placed[group] == self._total[group]:
                self._ready.append(group)

    def note_available(self, n: int, group: int) -> None:
        """Record that a member of the group being placed became a candidate."""
        if group == self._ongoing:
            self._candidates.add(n)

    # -- placing a group ------------------------------------------------------

    def start(self, state: SchedulingState, *, pessimistic: bool) -> bool:
        """Place the first ready group that fits; False if there is none."""
        if not self._ready or self._holders:
            return False
        for k, group in enumerate(self._ready):
            need = self.need(state, group, pessimistic=pessimistic)
            if all(count <= state.free[r] for r, count in need.items()):
                self._ready[k] = self._ready[-1]
                self._ready.pop()
                self._ongoing = group
                self._place_members(state, group)
                self._ongoing = _NONE
                return True
        return False

    def need(
        self, state: SchedulingState, group: int, *, pessimistic: bool
    ) -> dict[Resource, int]:
        """Instances that a group needs: as its members are ordered if all keep that.

        XLA asks one member, the first that its compiler made, and aborts where that one
        keeps the order and another does not. A text does not say which was made first.
        Where XLA has a result for a mixed group, that one does not keep the order.
        """
        graph = state.graph
        members = self._members[group]
        if all(_keeps_order(graph, n) for n in members):
            return _need_in_order(state, members)
        inside = set(members)
        need: dict[Resource, int] = {}
        for n in members:
            start = graph.start_of(n)
            member = graph.instructions[n]
            adds_up = (
                is_generic(member)
                and is_done(member)
                and (pessimistic or start not in inside)
            )
            for resource, count in graph.needs.get(n, ()):
                known = need.get(resource, 0)
                need[resource] = known + count if adds_up else max(known, count)
        return need

    def _place_members(self, state: SchedulingState, group: int) -> None:
        settings, graph = state.settings, state.graph
        members = [n for n in self._members[group] if self.group_of(n) == group]
        self._candidates = Candidates(state.ready.among(members))
        size, done, handed_back = len(self._members[group]), 0, 0
        while self._candidates:
            slot = self._policy.pick(self._candidates, group)
            if slot is None:
                raise PassError(
                    f"no member of scheduling group {group} fits the overlap limits",
                    code="E031",
                )
            n = self._candidates.take(slot)
            is_last = done == size - 1
            if (
                settings.flexible_scheduling_annotation_scheduling
                and is_last
                and graph.is_start[n]
            ):
                handed_back += 1
                self._leave_group(n)
                if settings.aggressive_flexible_annotation_scheduling:
                    state.hold_back(n)
                self._holders.add(n)
                continue
            state.ready.take(state.ready.slot(n))
            state.place(n)
            done += 1
        if done < size - handed_back:
            self._let_go(state, group)

    def _let_go(self, state: SchedulingState, group: int) -> None:
        """Release members that were not available; other groups wait for them."""
        graph = state.graph
        for n in self._members[group]:
            if state.placed[n]:
                continue
            if not (graph.is_start[n] or graph.is_done[n]):
                raise PassError(
                    f"%{graph.name(n)} of scheduling group {group} could not be placed "
                    "with its group",
                    code="E031",
                    hint="only starts and dones may remain",
                    location=graph.instructions[n].location,
                )
            self._leave_group(n)
            self._holders.add(n)

    # -- when nothing fits ----------------------------------------------------

    def give_up_smallest(self, state: SchedulingState) -> bool:
        """Dissolve the smallest group that waits; False if there is none."""
        found = [g for g in map(self.group_of, state.ready) if g != _NONE]
        if not found:
            return False
        group = min(found, key=lambda g: len(self._members[g]))
        for n in self._members[group]:
            self._leave_group(n)
        if group in self._ready:
            self._ready.remove(group)
        if self._ongoing == group:
            self._ongoing = _NONE
        return True

    def explain_block(self, state: SchedulingState) -> str:
        """What the first ready group needs; '' if none is ready."""
        if not self._ready:
            return ""
        group = self._ready[0]
        need = self.need(state, group, pessimistic=False)
        parts = [
            f"{count} of {RESOURCE_NAMES[r]}, of which {state.free[r]} are free"
            for r, count in sorted(need.items())
            if count > state.free[r]
        ]
        return f"scheduling group {group} needs {', '.join(parts) or 'other groups'}"


def _keeps_order(graph: ScheduleGraph, n: int) -> bool:
    return attr.frontend(graph.instructions[n], attr.KEEP_ORDER) == "true"


def _need_in_order(state: SchedulingState, members: list[int]) -> dict[Resource, int]:
    """Need of members that keep the order they have."""
    graph = state.graph
    now: dict[Resource, int] = {}
    most: dict[Resource, int] = {}
    sign = -1 if state.top_down else 1
    for n in sorted(members, reverse=True):
        if graph.is_start[n]:
            for user in graph.instructions[n].users:
                for resource, count in graph.needs.get(graph.index[user], ()):
                    now[resource] = now.get(resource, 0) - sign * count
            continue
        for resource, count in graph.needs.get(n, ()):
            now[resource] = now.get(resource, 0) + sign * count
        for resource, count in now.items():
            most[resource] = max(most.get(resource, 0), count)
    return most
