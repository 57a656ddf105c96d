"""Gives each call site in the control flow a computation of its own.

    %a = while(...), body=%b    %c = while(...), body=%b
        ->   %c = while(...), body=%b.1, a copy of %b and of what it calls

What is applied to elements (`to_apply` of a reduce), fused or wrapped stays shared.
XLA copies what a copied loop calls twice where the first copy brought copies already,
as of the bodies of fusions; those of the first copy stay, and nothing calls them.

Source: openxla/xla `xla/hlo/transforms/simplifiers/flatten_call_graph.cc`.
"""

from __future__ import annotations

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.ir.calls import call_instead, runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.rewriting.cloning import OWNERS, clone_computation, size_of_copy


def flatten_call_graph(module: Module, *, xla_quirks: bool) -> None:
    """Copy what several loops, conditionals or calls run, callers first.

    Args:
        module: what is changed.
        xla_quirks: leave the copies that XLA leaves and nothing calls.

    Raises TooLargeError (E028) before anything is copied.
    """
    graph = build_call_graph(module)
    module.make_room(_copied_instructions(graph))
    for computation in reversed(graph.post_order):
        callers = graph.callers_of(computation)
        sites = [
            (caller, place)
            for caller in callers
            if runs_callees(caller)
            for place, callee in enumerate(caller.called_computations)
            if callee is computation
        ]
        is_shared = any(not runs_callees(caller) for caller in callers)
        for caller, place in sites if is_shared else sites[1:]:
            _give_own(caller, place, xla_quirks=xla_quirks)


def _copied_instructions(graph: CallGraph) -> int:
    """How many instructions are copied until each call has its own computation."""
    # How often each one runs, if every call is counted once.
    calls = dict.fromkeys(graph.post_order, 0)
    for computation in reversed(graph.post_order):
        often = max(calls[computation], 1)
        for instruction in computation.instructions:
            if runs_callees(instruction):
                for callee in instruction.called_computations:
                    calls[callee] += often
    sizes: dict[Computation, int] = {}
    return sum(
        (often - 1) * size_of_copy(computation, sizes)
        for computation, often in calls.items()
        if often > 1
    )


def _give_own(caller: Instruction, place: int, *, xla_quirks: bool) -> None:
    """Let one call site run a copy, and the calls in the copy copies of theirs."""
    work = [(caller, place)]
    while work:
        instruction, place = work.pop()
        copy, _ = clone_computation(instruction.called_computations[place])
        call_instead(instruction, place, copy)
        for inner in copy.instructions:
            if runs_callees(inner) or (xla_quirks and inner.opcode in OWNERS):
                work += [(inner, k) for k in range(len(inner.called_computations))]
