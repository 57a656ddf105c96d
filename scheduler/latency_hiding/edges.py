"""Edges of the dependence graph: data, control, and what asynchronous halves add.

    u reads buffer B;  d = done writes B          u -> start of d
    recv-done -> send-done (control), while       send-done -> while

The first kind keeps readers of a buffer out of the window in which a done's result is
written; the second keeps transfers from extending over a loop that depends on them.

Source: openxla/xla `latency_hiding_scheduler.cc`, HloScheduleGraph (Aug 2026).
"""

from __future__ import annotations

from hlo_passes.scheduler.latency_hiding.edge_latency import delays
from hlo_passes.scheduler.latency_hiding.fitting_hazards import connect_what_fits
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.hazard_edges import HazardEdges
from hlo_passes.scheduler.latency_hiding.metrics import topological_order
from hlo_passes.scheduler.latency_hiding.reachability import reaches
from hlo_passes.scheduler.memory.alias_hazards import HazardTable


def connect_all(graph: ScheduleGraph, table: HazardTable | None = None) -> None:
    """Add all edges, in one walk along the base order.

    Args:
        graph: without edges so far.
        table: of the uses that share memory with a done's result; None to leave
            hazards out.
    """
    hazards = HazardEdges(graph, table) if table is not None else None
    _connect(graph, hazards)
    if not graph.runs_backwards or len(topological_order(graph)) == len(graph):
        return
    # XLA would fail here.
    graph.disconnect_all()
    _connect(graph, None)
    if table is not None:
        connect_what_fits(graph, table)


def _connect(graph: ScheduleGraph, hazards: HazardEdges | None) -> None:
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
        if is_done[n] and hazards is not None:
            hazards.connect(n)
        if instruction.opcode == "send-done":
            _connect_send_done(graph, n)
            if top_down:
                _connect_receives_after_loops(graph, n)
    if hazards is not None:
        hazards.finish()


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
