"""The ready-list loop: no-ops, groups, then what the policy picks, until all is placed.

There are no rules here: a policy decides, the state does the bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hlo_passes.errors import PassError
from hlo_passes.scheduler.latency_hiding.groups import GroupState
from hlo_passes.scheduler.latency_hiding.pairs import Policy
from hlo_passes.scheduler.latency_hiding.state import SchedulingState

#: Placements between two reports of progress.
_PROGRESS_STEP: Final = 4096
#: Candidates that a message about a blocked schedule lists.
_NAMED: Final = 8


def run(
    state: SchedulingState,
    policy: Policy,
    groups: GroupState | None = None,
    *,
    note_start: Callable[[int, int | None], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[int]:
    """Place everything; returns the nodes in program order.

    Args:
        state: seeded.
        policy: what decides.
        groups: scheduling groups, None where there are none.
        note_start: called with a start that was chosen and its last rival.
        progress: called from time to time with the number placed.

    Raises PassError E030 (nothing fits), E031 (a group cannot be placed), E033 (a cycle
    of edges).
    """
    is_start = state.graph.is_start
    reported = 0
    while state.ready or state.noops:
        if progress is not None and len(state.order) - reported >= _PROGRESS_STEP:
            reported = len(state.order)
            progress(reported)
        if groups is not None and groups.start(state, pessimistic=True):
            continue
        if state.noops:
            state.place(state.noops.pop())
            continue
        slot = _pick(state, policy, groups)
        if slot is None:
            if groups is not None and groups.start(state, pessimistic=False):
                continue
            raise _blocked(state, groups)
        n = state.ready.take(slot)
        if note_start is not None and is_start[n]:
            note_start(n, policy.runner_up)
        state.place(n)
    if len(state.order) != len(state.graph):
        raise _incomplete(state)
    return state.order if state.top_down else state.order[::-1]


def _pick(
    state: SchedulingState, policy: Policy, groups: GroupState | None
) -> int | None:
    """The policy's choice; blocked groups are dissolved where that is asked for."""
    slot = policy.pick(state.ready)
    while (
        slot is None
        and state.settings.deannotate_group_if_blocked
        and groups is not None
        and groups.give_up_smallest(state)
    ):
        slot = policy.pick(state.ready)
    return slot


def _blocked(state: SchedulingState, groups: GroupState | None) -> PassError:
    graph = state.graph
    if groups is not None:
        why = groups.explain_block(state)
        if why:
            return PassError(
                f"%{graph.computation.name}: {why}: it exceeds the overlap limits",
                code="E031",
                hint="raise the limit, or make the group smaller",
            )
    why = "; ".join(map(state.misfit, state.ready[:_NAMED]))
    return PassError(
        f"%{graph.computation.name}: nothing can be placed: {why}",
        code="E030",
        hint="raise the overlap limit that is exceeded",
    )


def _incomplete(state: SchedulingState) -> PassError:
    graph = state.graph
    left = [graph.name(n) for n in range(len(graph)) if not state.placed[n]]
    return PassError(
        f"%{graph.computation.name}: {len(left)} instructions depend on each other in "
        f"a cycle, %{left[0]} among them",
        code="E033",
    )
