"""Depths of nodes: what is above them, computed once per computation.

    async_depth   latency of asynchronous pairs on the heaviest way down to a node
    depth         costs and latencies on that way
    graph_depth   edges on the longest way
    hops          edges to the nearest node that ends a copy inside the GPU

Source: openxla/xla `latency_hiding_scheduler.cc`, InitializeGraphAnalysis (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph

_FAR: Final = 2**31 - 1
_WRAP: Final = 2**32


def topological_order(graph: ScheduleGraph) -> Sequence[int]:
    """Predecessors first; nodes on a cycle are left out."""
    count = len(graph)
    if not graph.runs_backwards:
        return range(count)
    left = [len(p) for p in graph.preds]
    work = [n for n in range(count) if not left[n]]
    for n in work:
        for s in graph.succs[n]:
            left[s] -= 1
            if not left[s]:
                work.append(s)
    return work


def async_depths(graph: ScheduleGraph, order: Sequence[int]) -> list[float]:
    """Latencies of dones above each node, the heaviest way, us."""
    depth = [0.0] * len(graph)
    preds, is_done, pred_us = graph.preds, graph.is_done, graph.pred_us
    for n in order:
        above = preds[n]
        if not above:
            continue
        if is_done[n]:
            latencies = pred_us[n] or [1.0] * len(above)
            depth[n] = max(
                depth[p] + us for p, us in zip(above, latencies, strict=True)
            )
        elif len(above) == 1:
            depth[n] = depth[above[0]]
        else:
            depth[n] = max([depth[p] for p in above])
    return depth


def async_heights(graph: ScheduleGraph, order: Sequence[int]) -> list[float]:
    """Latencies of starts below each node, the heaviest way, us."""
    height = [0.0] * len(graph)
    for n in reversed(order):
        below = graph.succs[n]
        if not below:
            continue
        if graph.is_start[n]:
            latencies = graph.succ_us[n] or [1.0] * len(below)
            height[n] = max(
                height[s] + us for s, us in zip(below, latencies, strict=True)
            )
        else:
            height[n] = max([height[s] for s in below])
    return height


def depths(graph: ScheduleGraph, order: Sequence[int]) -> list[float]:
    """Costs and latencies above each node, the heaviest way, us."""
    depth = [0.0] * len(graph)
    cost, pred_us = graph.cost, graph.pred_us
    for n in order:
        deepest = 0.0
        latencies = pred_us[n]
        for k, p in enumerate(graph.preds[n]):
            us = 1.0 if latencies is None else latencies[k]
            way = depth[p] + cost[p] + us
            if way > deepest:
                deepest = way
        depth[n] = deepest
    return depth


def graph_depths(graph: ScheduleGraph, order: Sequence[int]) -> list[int]:
    """Edges above each node, the longest way."""
    depth = [0] * len(graph)
    for n in order:
        above = graph.preds[n]
        if above:
            depth[n] = 1 + max([depth[p] for p in above])
    return depth


def hops(graph: ScheduleGraph, order: Sequence[int]) -> list[int]:
    """Edges to the nearest node above that occupies selectively, as XLA counts them.

    XLA's number is a signed one of 32 bits and wraps: a node with only parameters above
    it has -2^31, and such numbers spread downwards through the minimum.
    """
    found = [_FAR] * len(graph)
    tracker, instructions = graph.tracker, graph.instructions
    for n in order:
        if n in graph.resources and tracker.occupies_selectively(instructions[n]):
            found[n] = 0
        elif graph.preds[n]:
            nearest = min([found[p] for p in graph.preds[n]]) + 1
            found[n] = (nearest + 2**31) % _WRAP - 2**31
    return found
