"""Edges of the dependence graph: data, control, and what asynchronous halves add.

    u reads buffer B;  d = done writes B          u -> start of d
    recv-done -> send-done (control), while       send-done -> while

The first kind keeps readers of a buffer out of the window in which a done's result is
written; the second keeps transfers from extending over a loop that depends on them.

Source: openxla/xla `latency_hiding_scheduler.cc`, HloScheduleGraph (Aug 2026).
"""

from __future__ import annotations

from hlo_passes.scheduler.latency_hiding.edge_latency import delays
from hlo_passes.scheduler.latency_hiding.graph import HazardUses, ScheduleGraph
from hlo_passes.scheduler.latency_hiding.metrics import topological_order


def connect_all(graph: ScheduleGraph, hazard_uses: HazardUses | None = None) -> None:
    """Add all edges, in one walk along the base order.

    Args:
        graph: without edges so far.
        hazard_uses: of a done, the uses that share memory with its result; None to
            leave hazards out.
    """
    index, instructions = graph.index, graph.instructions
    is_delaying = delays(graph.estimator)
    preds, pred_us, all_succs = graph.preds, graph.pred_us, graph.succs
    is_done = graph.is_done
    top_down = graph.tracker.settings.top_down_scheduling
    for n, instruction in enumerate(instructions):
        targets = [index[u] for u in instruction.users]
        if instruction.control_successors:
            targets += [index[c] for c in instruction.control_successors]
        if is_delaying(instruction):
            for target in targets:
                graph.connect_estimated(n, target)
        elif not all_succs[n]:
            # This is the common case of `connect`, inlined: every latency is 1.
            all_succs[n] = targets
            for target in targets:
                preds[target].append(n)
                if pred_us[target] is not None:
                    pred_us[target].append(1.0)  # type: ignore[union-attr]
        else:
            for target in targets:
                graph.connect(n, target)
        if is_done[n] and hazard_uses is not None:
            _connect_hazards(graph, n, hazard_uses)
        if instruction.opcode == "send-done":
            _connect_send_done(graph, n)
            if top_down:
                _connect_receives_after_loops(graph, n)
    if graph.runs_backwards:
        _break_cycles(graph)


def _connect_hazards(graph: ScheduleGraph, done: int, uses: HazardUses) -> None:
    """Put what may still use the memory of a done's result before its start."""
    instruction = graph.instructions[done]
    index = graph.index
    start = index[instruction.operands[0]]
    found = [(index.get(user), user, operand) for user, operand in uses(instruction)]
    nodes = {node for node, _, _ in found if node is not None and node != start}
    if not nodes:
        return
    later = reached(graph, done, nodes)
    # An edge into the start changes nothing below it, so one search is enough.
    below = _below(graph, start)
    # A hazard's edge parallel to the operand's own does not change the order, but how
    # many nodes a start makes available (kCreatesMoreReadyNodes). Newer releases leave
    # it out: that is what their log shows for an all-reduce in place of a bitcast's
    # operand. Whether they leave out every edge that is there already is a guess that
    # nothing contradicts.
    repeats = graph.tracker.settings.release.repeats_hazard_edges
    for node, user, operand in found:
        if node is None or node == start or node in later or node in below:
            continue
        if not repeats and start in graph.succs[node]:
            continue
        if not user.operands[operand].shape.is_token:
            graph.connect(node, start)
            graph.hazards.append((node, start))


def _break_cycles(graph: ScheduleGraph) -> None:
    """Remove hazard edges on cycles, on which XLA would fail.

    They occur if others read what is written in place: in modules that
    copy insertion has not seen.
    """
    inside = {*range(len(graph))}.difference(topological_order(graph))
    if not inside:
        return
    for node, start in graph.hazards:
        if node in inside and start in inside:
            graph.disconnect(node, start)
            graph.dropped_hazards.append((node, start))


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
        for follower in (*instruction.users, *instruction.control_successors):
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


def _below(graph: ScheduleGraph, ancestor: int) -> set[int]:
    """All nodes that the graph so far leads to, including the ancestor.

    Nodes after the one being visited have no edges yet, so there are few.
    """
    succs = graph.succs
    seen = {ancestor}
    work = [ancestor]
    while work:
        for n in succs[work.pop()]:
            if n not in seen:
                seen.add(n)
                work.append(n)
    return seen


def _loops(graph: ScheduleGraph) -> list[int]:
    return [n for n, i in enumerate(graph.instructions) if i.opcode == "while"]


def _connect_send_done(graph: ScheduleGraph, send_done: int) -> None:
    """Let a send be done before the first loop that depends on its receive."""
    for predecessor in graph.instructions[send_done].control_predecessors:
        if predecessor.opcode == "recv-done":
            recv_done = graph.index[predecessor]
            for loop in _loops(graph):
                if loop > recv_done and reaches(graph, recv_done, loop):
                    graph.connect(send_done, loop)
                    break
            return


def _connect_receives_after_loops(graph: ScheduleGraph, send_done: int) -> None:
    """Top-down: keep a receive that a later send orders after the loop."""
    for loop in _loops(graph):
        if loop >= send_done or not reaches(graph, loop, send_done):
            continue
        for successor in graph.instructions[send_done].control_successors:
            if successor.opcode == "recv-done":
                graph.connect(loop, graph.index[successor.operands[0]])
