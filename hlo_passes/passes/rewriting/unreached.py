"""Removes the computations that nothing runs.

    ENTRY %main: while(...), body=%body.sunk    %body, which nothing calls
        ->   %body went, with what only %body calls

Source: openxla/xla `HloModule::RemoveUnusedComputations`.
"""

from __future__ import annotations

from hlo_passes.ir.module import Module


def remove_unreached_computations(module: Module) -> int:
    """Remove what the entry does not call, directly or not; returns how many."""
    unreached = dict.fromkeys(module.computations)
    del unreached[module.entry]
    agenda = [module.entry]
    while agenda:
        for instruction in agenda.pop().instructions:
            for callee in instruction.called_computations:
                if callee in unreached:
                    del unreached[callee]
                    agenda.append(callee)
    for computation in unreached:
        module.remove_computation(computation)
    return len(unreached)
