"""What a module runs: the computations that the entry reaches, without fusion bodies.

    entry:  w = while(t), body=%body, condition=%cond        reached: body, cond
            f = fusion(x), calls=%fused                      left out: fused
            r = reduce(x, c), to_apply=%add                  reached: add

Callees come before callers. Each instruction has a number: those of one computation
follow one another, in the order of its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

#: Threads that have a schedule on a GPU; other computations (host code) run elsewhere.
#: Source: openxla/xla `xla/service/gpu/gpu_hlo_schedule.cc`.
SCHEDULED_THREADS: Final = frozenset({"main", "parallel", "sparsecore"})

#: Frequent opcodes that call nothing but a fusion body.
_CALL_NOTHING: Final = frozenset(
    """fusion get-tuple-element bitcast parameter constant tuple copy add multiply
    broadcast dot all-gather-start all-gather-done all-reduce-done async-done""".split()
)


@dataclass(frozen=True, slots=True)
class Reached:
    """Computations that the entry reaches.

    Attributes:
        module: the module that has them.
        computations: callees before callers, the entry last.
        instructions: by number.
        number: instruction -> number.
        block: computation -> the numbers of its instructions.
        callees: number -> what it calls, in XLA's order; only where there is any.
        call_sites: computation -> numbers of its callers, in the order of the calls.
    """

    module: Module
    computations: tuple[Computation, ...]
    instructions: list[Instruction]
    number: dict[Instruction, int]
    block: dict[Computation, range]
    callees: dict[int, tuple[Computation, ...]]
    call_sites: dict[Computation, list[int]]

    def runs_on(self, computation: Computation) -> bool:
        """Whether a computation has a schedule."""
        return (
            computation in self.block
            and computation.execution_thread in SCHEDULED_THREADS
        )


def reach(module: Module) -> Reached:
    """Walk the calls of `module` from its entry."""
    called: dict[Computation, list[tuple[Instruction, tuple[Computation, ...]]]] = {}
    post_order: list[Computation] = []
    stack = [(module.entry, _first_calls(module.entry, called))]
    while stack:
        computation, remaining = stack[-1]
        following = next((c for c in remaining if c not in called), None)
        if following is None:
            stack.pop()
            post_order.append(computation)
        else:
            stack.append((following, _first_calls(following, called)))

    instructions: list[Instruction] = []
    block: dict[Computation, range] = {}
    for computation in post_order:
        first = len(instructions)
        instructions += computation.instructions
        block[computation] = range(first, len(instructions))
    number = {instruction: n for n, instruction in enumerate(instructions)}
    callees: dict[int, tuple[Computation, ...]] = {}
    call_sites: dict[Computation, list[int]] = {c: [] for c in post_order}
    for computation in post_order:
        for instruction, targets in called[computation]:
            n = number[instruction]
            callees[n] = targets
            for target in dict.fromkeys(targets):
                call_sites[target].append(n)
    return Reached(
        module,
        tuple(post_order),
        instructions,
        number,
        block,
        callees,
        call_sites,
    )


def _first_calls(
    computation: Computation,
    called: dict[Computation, list[tuple[Instruction, tuple[Computation, ...]]]],
):
    """Record what the instructions of `computation` call; returns the callees."""
    calls = [
        (instruction, targets)
        for instruction in computation.instructions
        if instruction.opcode not in _CALL_NOTHING
        and (targets := instruction.called_computations)
    ]
    called[computation] = calls
    return iter([target for _, targets in calls for target in targets])
