"""Runs the iterations of a short loop one after the other, without a loop.

Before:  while (3 times):  %y = f(%x, %i)
After:   %y = f(%x, 0)
         %y.1 = f(%y, 1)
         %y.2 = f(%y.1, 2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.counted_loops import counted_loop
from hlo_passes.analysis.effects import has_control_edges, has_side_effect
from hlo_passes.analysis.scheduling_annotations import next_group
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.analysis.while_loop_patterns import (
    first_value,
    induction_variable,
    xla_divided_trip_count,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.cleanup.hlo_cse import merge
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.cleanup.tuple_simplifier import TupleSimplifier
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.while_loop_constant_sinking import (
    WhileLoopConstantSinking,
)
from hlo_passes.passes.rewriting.unrolling import Numbering, unroll, unroll_in_loop
from hlo_passes.xla_release import XlaRelease

_TRANSFERS: Final = frozenset({"send", "send-done", "recv", "recv-done"})


@dataclass(frozen=True, slots=True)
class WhileLoopUnroller(Pass):
    """Unroll loops that run a known, small number of times.

    The counter must start as a constant, change by a constant, and be compared with
    another constant. After unrolling, each iteration reads its counter value as a
    constant. Its collectives get their own channel ids, and its scheduling groups get
    new numbers. Loops with sends or receives stay, and so do loops with control edges.
    Before unrolling, the pass merges equal scalars, simplifies tuples, and copies
    scalar constants into the loops. It removes dead code at the end. XLA calls the pass
    `while_loop_unroller`, and does not run it on GPUs.

    XLA takes every step of a counter for 1, so a loop with a step of 2 computes
    something else afterward. XLA also puts an operation into the scheduling group that
    was begun last, and lets the loop around the iterations keep the trip count of the
    old loop. Without XLA's quirks (`--no-xla-quirks`), none of this happens, and the
    pass also unrolls loops that count down.

    Ensures: a second run changes nothing, unless loops are put around the iterations.
    Complexity: linear in the instructions that are made.
    Source: openxla/xla `xla/service/while_loop_unroller.cc`.

    Attributes:
        wrap: put a loop that runs once around the iterations.
        most_instructions: leave loops with a larger body alone.
        most_iterations: leave loops that run more often alone.
        most_in_all: do not unroll a loop if it would then have more instructions, not
            counting what was unrolled in its body.
        most_made: the same limit, but what was unrolled in its body counts.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "while-loop-unroller"

    wrap: bool = False
    most_instructions: int = 800
    most_iterations: int = 64
    most_in_all: int = 10_000
    most_made: int = 1_000_000
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Unroll loops, inner ones first."""
        version = module.version
        self._prepare(module, context)
        release = context.release_for(module, self.xla)
        # Decide before anything is unrolled.
        found: list[tuple[Instruction, int, range]] = []
        for computation in computations_post_order(module, fusions=False):
            for loop in computation.instructions:
                if loop.opcode != "while":
                    continue
                counted = self._iterations(loop, release, quirks=context.xla_quirks)
                if isinstance(counted, str):
                    report.remark(f"not unrolled: %{loop.name} {counted}")
                else:
                    found.append((loop, *counted))
        numbering = Numbering(
            next_channel_id(module), next_group(module), context.xla_quirks
        )
        unordered: Computation | None = None
        for loop, index, values in found:
            # Loops of one computation follow one another: order it after the last.
            if unordered is not None and unordered is not loop.computation:
                restore_text_order(unordered)
                unordered = None
            size = len(loop.called_computations[0].instructions) * len(values)
            if size > self.most_made:
                report.remark(
                    f"not unrolled: %{loop.name} would have {size} instructions"
                )
                continue
            report.count("loops-unrolled")
            group = numbering.group
            if self.wrap:
                names = f"unrolled{loop.name}-cond", f"unrolled-body-{loop.name}"
                new = unroll_in_loop(
                    loop,
                    index,
                    values,
                    numbering,
                    names=names,
                    direction="LE" if values.step > 0 else "GE",
                    counts_once=not context.xla_quirks,
                )
                restore_text_order(new.called_computations[0])
            else:
                unordered = loop.computation
                unroll(loop, index, values, numbering)
            # XLA leaves a number out before each loop.
            if numbering.group is not None and numbering.group != group:
                numbering.group += 1
        if unordered is not None:
            restore_text_order(unordered)
        if module.version == version:
            return False
        HloDce().run(module, context, Report())
        return True

    def _prepare(self, module: Module, context: PassContext) -> None:
        """Let loops count with constants of their own."""
        merge(module, Report(), scalars=True)
        TupleSimplifier().run(module, context, Report())
        sinking = WhileLoopConstantSinking(broadcasts=True, only_scalars=True)
        while sinking.run(module, context, Report()):
            pass

    def _iterations(
        self, loop: Instruction, release: XlaRelease, *, quirks: bool
    ) -> tuple[int, range] | str:
        """(element that counts, its values), or why a loop is not unrolled."""
        body, condition = loop.called_computations
        if has_control_edges(loop):
            return "has control edges"
        if loop.operands[0].opcode != "tuple" or body.root.opcode != "tuple":
            return "has a state that is no tuple"
        inside = (*body.instructions, *condition.instructions)
        if any(instruction.opcode in _TRANSFERS for instruction in inside):
            return "sends or receives"
        if any(map(has_side_effect, condition.instructions)):
            return "has a condition with side effects"
        counted = _values(loop, release, quirks=quirks)
        if counted is None:
            return "has no counter that XLA knows" if quirks else "does not count"
        values = counted[1]
        # `len` ends at 2**63.
        count = max(0, -((values.start - values.stop) // values.step))
        size = len(body.instructions)
        if not count:
            return "does not run"
        if size > self.most_instructions:
            return f"has {size} instructions"
        if count > self.most_iterations:
            return f"runs {count} times"
        if count * size > self.most_in_all:
            return f"would have {count * size} instructions"
        return counted


def _values(
    loop: Instruction, release: XlaRelease, *, quirks: bool
) -> tuple[int, range] | None:
    """(element that counts, its values)."""
    if not quirks:
        counted = counted_loop(loop)
        if counted is None or counted.iterations is None:
            return None
        end = counted.start + counted.iterations * counted.step
        return counted.index, range(counted.start, end, counted.step)
    index = induction_variable(loop, release)
    if index is None:
        return None
    first = first_value(loop, index)
    count = xla_divided_trip_count(loop, index, release)
    if first is None or count is None:
        return None
    return index, range(first, first + count)
