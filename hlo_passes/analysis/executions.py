"""How often a step runs each computation: loops multiplied, every branch once.

    executions(TripCounts(module))    {main: 1, layer: 126, more_layers: 127}

A conditional runs one of its branches; each is counted as if it were that one. A loop
that nobody can count runs once. No computation runs more than `MOST_EXECUTIONS` times.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation

#: More than any step runs; twenty loops in one another, each of 64 bits, end here.
MOST_EXECUTIONS: Final = 10**18


def executions(counts: TripCounts) -> dict[Computation, int]:
    """Runs per step of the entry and of all that it runs.

    The loops that count once are `counts.unknown` then.
    """
    found = {counts.module.entry: 1}
    for computation in reversed(build_call_graph(counts.module).post_order):
        often = found.get(computation)
        if often is None:
            continue
        for instruction in computation.instructions:
            if not runs_callees(instruction):
                continue
            trips = 1
            is_loop = instruction.opcode == "while"
            if is_loop:
                trips = counts.or_once(instruction)
            for k, callee in enumerate(instruction.called_computations):
                # A loop asks its condition once more than it runs its body.
                more = trips + 1 if is_loop and k == 1 else trips
                runs = found.get(callee, 0) + often * more
                found[callee] = min(runs, MOST_EXECUTIONS)
    return found
