"""The ready-list loop: no-ops, groups, then what the policy picks, until all is placed.

No rule lives here: a policy decides, the state does the bookkeeping.
"""

from __future__ import annotations

from hlo_passes.errors import PassError
from scheduler.latency_hiding.resources import RESOURCE_NAMES
from scheduler.latency_hiding.scan import Policy
from scheduler.latency_hiding.state import SchedulingState


def run(state: SchedulingState, policy: Policy) -> list[int]:
    """Place everything; the nodes in program order.

    Raises PassError E030 (nothing fits), E031 (a group cannot be placed), E033 (a cycle
    of edges).
    """
    groups = state.groups
    while state.ready or state.noops:
        if groups is not None and groups.start(state, pessimistic=True):
            continue
        if state.noops:
            state.place(state.noops.pop())
            continue
        slot = _pick(state, policy)
        if slot is None:
            if groups is not None and groups.start(state, pessimistic=False):
                continue
            raise _blocked(state)
        state.place(state.take(slot))
    if len(state.order) != len(state.graph):
        raise _incomplete(state)
    return state.order if state.top_down else state.order[::-1]


def _pick(state: SchedulingState, policy: Policy) -> int | None:
    """The policy's choice; blocked groups are dissolved where that is asked for."""
    slot = policy.pick(state)
    while (
        slot is None
        and state.settings.deannotate_group_if_blocked
        and state.groups is not None
        and state.groups.give_up_smallest(state)
    ):
        slot = policy.pick(state)
    return slot


def _blocked(state: SchedulingState) -> PassError:
    graph = state.graph
    if state.groups is not None:
        told = state.groups.explain_block(state)
        if told:
            return PassError(
                f"%{graph.computation.name}: {told}: it exceeds the overlap limits",
                code="E031",
                hint="raise the limit, or make the group smaller",
            )
    lines = []
    for n in state.ready[:8]:
        short = [
            f"{count} of {RESOURCE_NAMES[r]} ({state.free[r]} free)"
            for r, count in graph.needs.get(n, ())
            if count > state.free[r]
        ]
        lines.append(f"%{graph.name(n)} needs {', '.join(short) or 'its group'}")
    return PassError(
        f"%{graph.computation.name}: nothing can be placed: {'; '.join(lines)}",
        code="E030",
        hint="raise the overlap limit that is exceeded",
    )


def _incomplete(state: SchedulingState) -> PassError:
    graph = state.graph
    left = [graph.name(n) for n in range(len(graph)) if not state.placed[n]]
    return PassError(
        f"%{graph.computation.name}: {len(left)} instructions depend on each other in "
        f"a circle, %{left[0]} among them",
        code="E033",
    )
