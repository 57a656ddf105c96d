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
    module.make_room(_copied_instructions(graph, xla_quirks=xla_quirks))
    for computation in reversed(graph.post_order):
        for caller, place in _to_copy(computation, graph):
            _give_own(caller, place, xla_quirks=xla_quirks)


def _to_copy(
    computation: Computation, graph: CallGraph
) -> list[tuple[Instruction, int]]:
    """Call sites of a computation that need a copy of it: all but the first one.

    All of them where something else has it, too.
    """
    callers = graph.callers_of(computation)
    sites = [
        (caller, place)
        for caller in callers
        if runs_callees(caller)
        for place, callee in enumerate(caller.called_computations)
        if callee is computation
    ]
    is_shared = any(not runs_callees(caller) for caller in callers)
    return sites if is_shared else sites[1:]


def _copied_instructions(graph: CallGraph, *, xla_quirks: bool) -> int:
    """How many instructions are made until each call has its own computation."""
    sizes: dict[Computation, int] = {}
    # What a copy makes: its own instructions, and what the calls in it get.
    made: dict[Computation, int] = {}
    total = 0
    for computation in graph.post_order:
        made[computation] = size_of_copy(computation, sizes) + sum(
            made.get(callee, 0)
            for instruction in computation.instructions
            if _has_own(instruction, xla_quirks=xla_quirks)
            for callee in instruction.called_computations
        )
        total += made[computation] * len(_to_copy(computation, graph))
    return total


def _has_own(instruction: Instruction, *, xla_quirks: bool) -> bool:
    """Whether what an instruction of a copy calls is copied once more."""
    return runs_callees(instruction) or (xla_quirks and instruction.opcode in OWNERS)


def _give_own(caller: Instruction, place: int, *, xla_quirks: bool) -> None:
    """Let one call site run a copy, and the calls in the copy copies of theirs."""
    work = [(caller, place)]
    while work:
        instruction, place = work.pop()
        copy, _ = clone_computation(instruction.called_computations[place])
        call_instead(instruction, place, copy)
        for inner in copy.instructions:
            if _has_own(inner, xla_quirks=xla_quirks):
                work += [(inner, k) for k in range(len(inner.called_computations))]
