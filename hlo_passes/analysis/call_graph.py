"""The call graph: computations, callees first; callers, fusion and async bodies.

    %add ...                    called by reduce
    %fused (...) {...}          called by fusion: a fusion body
    %wrapped (...) {...}        called by async-start: an async body
    ENTRY %main ...             callees come before callers

The order is the one in which XLA prints a module: depth first from the computations
that nobody calls. Most of XLA's passes walk another one, a topological order that is
kept up to date since the module was made. Both have callees first, but which of two
siblings comes first there depends on the compilation's history, which no text shows.

Source of the order: openxla/xla `xla/hlo/ir/hlo_module.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module


@dataclass(frozen=True, slots=True)
class CallGraph:
    """Calls of a module at one moment.

    Attributes:
        post_order: all computations, callees before callers.
        callers: instructions that call a computation, in text order.
    """

    post_order: tuple[Computation, ...]
    callers: dict[Computation, tuple[Instruction, ...]]

    def callers_of(self, computation: Computation) -> tuple[Instruction, ...]:
        """Instructions that call a computation."""
        return self.callers.get(computation, ())

    def is_fusion_body(self, computation: Computation) -> bool:
        """Whether a fusion calls it."""
        return any(i.opcode == "fusion" for i in self.callers_of(computation))

    def is_async_body(self, computation: Computation) -> bool:
        """Whether an async-start wraps it."""
        return any(i.opcode == "async-start" for i in self.callers_of(computation))


def build_call_graph(module: Module) -> CallGraph:
    """The calls of `module` as it is now."""
    callees: dict[Computation, tuple[Computation, ...]] = {}
    callers: dict[Computation, dict[Instruction, None]] = {}
    for owner in module.computations:
        called: dict[Computation, None] = {}
        for instruction in owner.instructions:
            for callee in instruction.called_computations:
                called[callee] = None
                callers.setdefault(callee, {})[instruction] = None
        callees[owner] = tuple(called)
    # The walk starts at computations that nobody calls, in module order.
    # What is only reachable from itself (refused by the verifier) comes last.
    starts = [c for c in module.computations if c not in callers]
    post_order: list[Computation] = []
    opened: set[Computation] = set()
    for start in (*starts, *module.computations):
        stack = [] if start in opened else [(start, iter(callees[start]))]
        opened.add(start)
        while stack:
            computation, remaining = stack[-1]
            following = next((c for c in remaining if c not in opened), None)
            if following is None:
                stack.pop()
                post_order.append(computation)
            else:
                opened.add(following)
                stack.append((following, iter(callees[following])))
    return CallGraph(tuple(post_order), {c: tuple(i) for c, i in callers.items()})


def call_depth(module: Module) -> int:
    """How many computations are in one another at most; 1 without any call."""
    depth: dict[Computation, int] = {}
    for computation in build_call_graph(module).post_order:
        called = (c for i in computation.instructions for c in i.called_computations)
        depth[computation] = 1 + max((depth.get(c, 0) for c in called), default=0)
    return max(depth.values(), default=0)


def computations_post_order(
    module: Module, *, fusions: bool = True
) -> tuple[Computation, ...]:
    """Computations, callees before callers; perhaps without fusion bodies."""
    graph = build_call_graph(module)
    if fusions:
        return graph.post_order
    return tuple(c for c in graph.post_order if not graph.is_fusion_body(c))


def loops_outside_fusions(module: Module, graph: CallGraph) -> list[Instruction]:
    """All loops, in text order, but for those in fusion bodies."""
    return [
        instruction
        for computation in module.computations
        if not graph.is_fusion_body(computation)
        for instruction in computation.instructions
        if instruction.opcode == "while"
    ]
