"""Which nodes lead to which others: by the computation's edges, or by the graph's."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph


def reached(graph: ScheduleGraph, source: int, targets: set[int]) -> set[int]:
    """The targets to which operand and control edges of the computation lead.

    A source reaches itself. These edges never go against the base order, which bounds
    the search.
    """
    found = targets & {source}
    left = {n for n in targets if n > source}
    if not left:
        return found
    last = max(left)
    index, instructions = graph.index, graph.instructions
    seen = {source}
    work = [source]
    while work and left:
        instruction = instructions[work.pop()]
        for follower in (*instruction._users, *instruction._control_successors):
            n = index[follower]
            if n <= last and n not in seen:
                seen.add(n)
                work.append(n)
                if n in left:
                    left.discard(n)
                    found.add(n)
    return found


def reaches(graph: ScheduleGraph, source: int, target: int) -> bool:
    """Whether operand and control edges of the computation lead there; itself too."""
    return bool(reached(graph, source, {target}))


def below(
    graph: ScheduleGraph,
    ancestor: int,
    asked: Container[int],
    waiting: Callable[[int], Iterable[int]],
) -> set[int]:
    """All nodes that the graph so far leads to, including the ancestor.

    Nodes after the one being visited have no edges yet, so there are few.

    Args:
        graph: some of its edges.
        ancestor: a node.
        asked: nodes that may have more successors than the graph says.
        waiting: which ones, by node.
    """
    succs = graph.succs
    seen = {ancestor}
    work = [ancestor]
    while work:
        node = work.pop()
        followers = [*succs[node], *waiting(node)] if node in asked else succs[node]
        for n in followers:
            if n not in seen:
                seen.add(n)
                # Most nodes have no edges yet.
                if succs[n] or n in asked:
                    work.append(n)
    return seen
