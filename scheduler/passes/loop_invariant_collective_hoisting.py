"""Runs loop-invariant collectives before the loop if that pays and fits.

Before:  while (16 times) from (0, %x, %shard):
             %w = f32[512,512] all-gather(%shard), ...         the same each time
             %y = dot(%x, %w)
After:   %w = f32[512,512] all-gather(%shard), ...
         while (16 times) from (0, %x, %w):
             %y = dot(%x, %w)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir.async_form import half, is_collective
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.cleanup.tuple_simplifier import TupleSimplifier
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.loops.dus_accumulator_zero_init_elimination import (
    DusAccumulatorZeroInitElimination,
    is_filled,
)
from hlo_passes.passes.loops.hoisting import loops_to_search
from hlo_passes.passes.loops.invariants import (
    Invariants,
    keep_elements,
    move_collectives,
    recomputed_elements,
)
from hlo_passes.passes.rewriting.cloning import call_copies
from hlo_passes.scheduler.passes.chain_choice import found_in, is_in
from hlo_passes.scheduler.passes.priced_chains import Key, key_of
from hlo_passes.scheduler.passes.priced_pass import BoundedRewrite
from hlo_passes.scheduler.passes.step_trials import PlaceT, StepTrials
from hlo_passes.scheduler.sums import sequential_sum

#: Changes some of them in the module or in a copy.
Write = Callable[[Module, Sequence[PlaceT]], object]


@dataclass(frozen=True, slots=True)
class LoopInvariantCollectiveHoisting(BoundedRewrite):
    """Move invariant collectives out of loops if the simulated step gets shorter.

    Some collectives give the same result in each iteration, such as the all-gather of a
    weight that each microbatch needs. Before the loop, such a collective runs only
    once, and so does everything that it is computed from. But its result then lives as
    long as the loop does. So the pass schedules and simulates the module with all of a
    loop's invariant collectives outside the loop. If that is no faster or needs more
    memory than the limit, the pass tries the collectives one by one. It starts with
    those that save the most for their bytes. Remarks say what each refused collective
    would cost, in time or memory, and why others cannot move.

    Collectives move if they have no side effects. The pass takes all collectives
    between partitions to come from one SPMD program, and they keep their channel.
    Collectives with constrained layouts, control edges or scheduling groups stay, and
    so do asynchronous ones. Nothing moves out of a loop of fewer than two iterations or
    of an unknown number of iterations: a loop that never runs must not begin to
    transfer. Nothing moves inside or under a conditional, because devices may take
    different branches.

    The pass also looks at what a loop starts with. If each iteration computes a state
    element alike, the element can start with that value and never change. This works if
    nothing reads what the element started with before, or if it started with that value
    already. If its first iteration reads something else, the element stays. Buffers
    that the loop overwrites completely start without a value, as with
    `dus-accumulator-zero-init-elimination`.

    The pass cleans up dead code and tuples afterward.

    Requires: an unscheduled module and no file of costs by name, unless `always`.
    Ensures: the step does not get longer, whether `gpu-schedule` or, unless
        `after-xla=false`, `xla-gpu` schedules it and `simulate` measures it; memory
        does not go above the limit, or above what it was; every bit is kept. A second
        run changes nothing, unless the trials of the first one used `most-instructions`
        up.
    Complexity: `gpu-schedule` and `simulate`, once for each loop where all may move,
        otherwise once more for each collective.
    Source: this project.

    Attributes:
        initial_values: also look at what loops start with.
        always: move whatever can move, without a price or a limit.
        min_gain: least share of the step that a collective must save.
    """

    name: ClassVar[str] = "loop-invariant-collective-hoisting"
    left: ClassVar[str] = "nothing moves out"

    initial_values: bool = True

    def rewrite(self, module: Module, context: PassContext, report: Report) -> None:
        """Visit every loop that was there at the start, callees first."""
        loops = _loops(module, report)
        search = _Search(self, module, context, report)
        for key, count in loops.items():
            # Cleaning up after one loop removes those that nobody reads.
            if self.initial_values and is_in(module, key):
                search.keep_elements(key)
            if is_in(module, key):
                search.move_collectives(key, count)
        if self.initial_values:
            search.leave_out_values()
        if search.trials is not None:
            search.trials.tell(report)


def _loops(module: Module, report: Report) -> dict[Key, int]:
    """The loops out of which something may move, with their trip counts."""
    counts, graph = TripCounts(module), build_call_graph(module)
    found: dict[Key, int] = {}
    for loop in loops_to_search(module, report):
        count = counts.of(loop)
        if count is None:
            reason = "has no known trip count"
        elif _is_conditional(loop.computation, graph):
            reason = "is under a conditional"
        else:
            found[key_of(loop)] = count
            continue
        report.remark(f"nothing moves out: %{loop.name} {reason}")
    return found


def _is_conditional(computation: Computation, graph: CallGraph) -> bool:
    """Whether a conditional decides if a computation runs."""
    work, seen = [computation], {computation}
    while work:
        for caller in graph.callers_of(work.pop()):
            if caller.opcode == "conditional":
                return True
            if caller.computation not in seen:
                seen.add(caller.computation)
                work.append(caller.computation)
    return False


def _fills_buffers(module: Module) -> bool:
    """Whether any loop starts with a buffer full of one value."""
    return any(
        is_filled(start)
        for computation in module.computations
        for loop in computation.instructions
        if loop.opcode == "while"
        for start in loop.operands[0].operands
    )


@dataclass(slots=True)
class _Search:
    """Changes the loops of a module.

    Attributes:
        options: the pass.
        module: that is changed.
        context: of the run.
        report: that counts and explains.
        trials: that decide; None before anything could be changed, or for `always`.
    """

    options: LoopInvariantCollectiveHoisting
    module: Module
    context: PassContext
    report: Report
    trials: StepTrials | None = None

    def keep_elements(self, key: Key) -> None:
        """Start a loop with the elements that its iterations compute alike."""
        found = recomputed_elements(Invariants(found_in(self.module, key)))
        for index, reason in found.items():
            if reason:
                self.report.remark(
                    f"initial value stays: element {index} of %{key[1]}: {reason}"
                )

        def write(module: Module, indices: Sequence[int]) -> None:
            loop, graph = found_in(module, key), build_call_graph(module)
            if any(len(graph.callers_of(c)) > 1 for c in loop.called_computations):
                call_copies(loop)
            keep_elements(loop, indices)
            self._clean_up(module)

        chosen = self._chosen(
            [index for index, reason in found.items() if not reason],
            write,
            lambda index: f"initial value stays: element {index} of %{key[1]}",
            f"with what %{key[1]} computes alike before it",
            least_gain=False,
        )
        if chosen:
            write(self.module, chosen)
            self.report.count("elements-kept", len(chosen))

    def move_collectives(self, key: Key, count: int) -> None:
        """Move the collectives of a loop that are invariant."""
        loop = found_in(self.module, key)
        invariants = Invariants(loop)
        for instruction in loop.called_computations[0].instructions:
            if is_collective(instruction) and half(instruction) in ("", "start"):
                reason = invariants.reason(instruction)
                if reason:
                    self.report.remark(f"not moved: %{instruction.name} {reason}")
        found = [value for value in invariants.values if is_collective(value)]
        outside = invariants.read_by_loop(found)

        def write(module: Module, names: Sequence[str]) -> None:
            loop = found_in(module, key)
            wanted = set(names)
            body = loop.called_computations[0]
            one = [i for i in body.instructions if i.name in wanted]
            move_collectives(loop, one, Report())
            self._clean_up(module)

        what = f"with it before %{key[1]}"
        chosen = self._chosen(
            [c.name for c in self._by_value(invariants, outside, count)],
            write,
            lambda name: f"not moved: %{name}",
            what,
        )
        if not chosen:
            return
        moved = {i for i in outside if i.name in chosen}
        needed = invariants.needed_by(moved)
        self.report.count("loops-changed")
        self.report.count("collectives-moved", sum(map(is_collective, needed)))
        self.report.count("bytes-outside", invariants.bytes_outside(moved))
        write(self.module, chosen)

    def leave_out_values(self) -> None:
        """Leave buffers without a value that loops overwrite completely."""
        if not _fills_buffers(self.module):
            return
        context = replace(self.context, xla_quirks=False)
        given = DusAccumulatorZeroInitElimination()
        trial = Report()
        if not given.run(self.module.clone(), context, trial):
            for remark in trial.remarks:
                self.report.remark(remark)
            return

        def write(module: Module, _: Sequence[int]) -> None:
            given.run(module, context, Report())

        chosen = self._chosen(
            [0],
            write,
            lambda _: "initial values stay: the buffers that loops overwrite",
            "without their initial values",
            least_gain=False,
        )
        if chosen:
            given.run(self.module, context, self.report)

    def _by_value(
        self, invariants: Invariants, collectives: Sequence[Instruction], count: int
    ) -> list[Instruction]:
        """Collectives, those first that save most for their bytes."""
        if self.options.always or len(collectives) < 2:
            return list(collectives)
        prices = self._trials().prices_us(
            key_of(value) for value in invariants.values if is_collective(value)
        )

        def worth(collective: Instruction) -> float:
            us = sequential_sum(
                prices.get(key_of(value), 0.0)
                for value in invariants.needed_by([collective])
            )
            return us * (count - 1) / max(1, invariants.bytes_outside([collective]))

        return sorted(collectives, key=worth, reverse=True)

    def _trials(self) -> StepTrials:
        if self.trials is None:
            self.trials = StepTrials(self.options, self.module, self.context.pricing)
        return self.trials

    def _chosen(
        self,
        found: list[PlaceT],
        write: Write[PlaceT],
        refusal: Callable[[PlaceT], str],
        what: str,
        *,
        least_gain: bool = True,
    ) -> list[PlaceT]:
        """Those to change: all if that pays and fits, else one after the other."""
        if self.options.always or not found:
            return found
        return self._trials().chosen(
            found, write, refusal, self.report, what, least_gain=least_gain
        )

    def _clean_up(self, module: Module) -> None:
        HloDce().run(module, self.context, Report())
        TupleSimplifier().run(module, self.context, Report())
