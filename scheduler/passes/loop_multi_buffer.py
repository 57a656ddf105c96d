"""Runs several iterations of a loop as one if that makes the step shorter.

Before:  while (10 times):  %y = all-gather(%x), channel_id=1
                            f(%y)
After:   %y.3 = all-gather(%first), channel_id=4       10 mod 3 iterations
         f(%y.3)
         while (3 times):   %y = all-gather(%x), channel_id=1
                            f(%y)
                            %y.1 = all-gather(%x.1), channel_id=2
                            f(%y.1)
                            %y.2 = all-gather(%x.2), channel_id=3
                            f(%y.2)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.scheduling_annotations import (
    Annotation,
    annotation_of,
    next_group,
    set_annotation,
)
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir.async_form import half, is_collective, is_transfer
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.loops.iteration_copies import (
    Copying,
    Iteration,
    edges_between_iterations,
    peel,
    set_counts,
    shift_iterations,
    unroll_body,
)
from hlo_passes.passes.rewriting.cloning import call_copies
from hlo_passes.passes.rewriting.flattening import flatten_call_graph
from hlo_passes.passes.rewriting.replacement import replace_relaying_control
from hlo_passes.scheduler.passes.chain_choice import found_in
from hlo_passes.scheduler.passes.priced_chains import Key, key_of
from hlo_passes.scheduler.passes.priced_pass import BoundedRewrite
from hlo_passes.scheduler.passes.step_trials import StepTrials
from hlo_passes.scheduler.passes.stream_values import STREAM_ANNOTATION

_LEAST_BUFFERS: Final = 2


@dataclass(frozen=True, slots=True)
class LoopMultiBuffer(BoundedRewrite):
    """Run k iterations of a loop as one if the simulated step gets shorter.

    `loop-double-buffer-transformer` turns two iterations into one, as XLA does. This
    pass does it for any number, and asks first. Within the longer iteration, the
    collectives of one old iteration can run beside the compute of another, and each old
    iteration has its own buffers. Of n iterations, the first n mod k run before the
    loop.

    As in `loop-double-buffer-transformer`, control edges make each old iteration wait
    for the one before, except for its collectives. Here, anything that only collectives
    read does not wait either, such as the slice of the weights that an all-gather
    collects. Arithmetic on scalars does not wait either. Otherwise, no gather could
    start early.

    The pass decides by price: it schedules and simulates the module with each loop
    changed, callees first. A loop stays as it is if the step does not get shorter, or
    if the step would need more memory than the limit; remarks give the figures. A loop
    needs no trip count in its backend config if the count follows from the program.
    Loops with sends and receives stay. `always` unrolls whatever can be unrolled,
    without asking.

    Collectives get their own channel ids, and scheduling groups get their own numbers.
    If `num-stream-buffers` (s) is 2 or more, the collectives of old iteration j go to
    communication stream j mod s, so that s of them can be in flight. XLA has only one
    such stream unless `xla_gpu_experimental_enable_collective_multi_streaming` is set.
    With several streams, only the order of the collectives keeps two devices from
    beginning with different ones.

    Requires: an unscheduled module and no file of costs by name, unless `always`.
    Ensures: the step does not get longer, whether `gpu-schedule` or, unless
        `after-xla=false`, `xla-gpu` schedules it and `simulate` measures it; memory
        does not go above the limit, or above what it was; every bit is kept. Trip
        count, start and step in the backend config are those of the new loop.
    Complexity: `gpu-schedule` and `simulate`, for each loop.
    Source: this project; XLA has it for two iterations.

    Attributes:
        buffers: k, how many iterations become one.
        num_stream_buffers: s, the number of communication streams; 1: annotate nothing.
        only_with_collectives: leave loops without a collective in their body alone.
        control_edges: make each old iteration wait for the one before. XLA:GPU can
            abort over such edges when it fuses. So leave them out inside its
            compilation; only the scheduler then decides the order.
        max_instructions: leave a loop alone if its new body would be larger.
        max_control_edges: leave a loop alone if it would have more control edges,
            counting those of the iterations before the loop. Each reader of the state
            waits for each element of it, so the edges may grow with the square of the
            state.
        always: unroll whatever can be unrolled, without a price or a limit.
        min_gain: least share of the step that a loop must save.
        parallel_collective_overlap_limit: the most collectives in flight in the trials;
            at least `num-stream-buffers`.
    """

    name: ClassVar[str] = "loop-multi-buffer"
    left: ClassVar[str] = "nothing buffered"

    buffers: int = 2
    num_stream_buffers: int = 1
    only_with_collectives: bool = True
    control_edges: bool = True
    max_instructions: int = 10_000
    max_control_edges: int = 100_000

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        if self.buffers < _LEAST_BUFFERS:
            raise ValueError("buffers must be 2 or more")
        most = min(self.buffers, self.parallel_collective_overlap_limit)
        if not 1 <= self.num_stream_buffers <= most:
            raise ValueError(
                "num-stream-buffers must be 1 or more, and neither more than buffers "
                "nor than parallel-collective-overlap-limit"
            )
        if min(self.max_instructions, self.max_control_edges) < 0:
            raise ValueError("max-instructions and max-control-edges must be 0 or more")
        BoundedRewrite.__post_init__(self)

    def rewrite(self, module: Module, context: PassContext, report: Report) -> None:
        """Find the loops that can be unrolled; then unroll those that pay."""
        found = self._loops(module, report)
        if not found:
            return
        if self.always:
            for key, count in found.items():
                self._write(module, key, count)
                self._count(report, count)
            return
        trials = StepTrials(self, module, context.pricing)
        for key, count in found.items():
            what = f"with {self.buffers} buffers"
            after = trials.judged(
                lambda copy, at=key, n=count: self._write(copy, at, n), what
            )
            if isinstance(after, str):
                report.remark(f"not buffered: %{key[1]} {after}")
                continue
            self._write(module, key, count)
            trials.now = after
            self._count(report, count)
        trials.tell(report)

    def _count(self, report: Report, count: int) -> None:
        report.count("loops-buffered")
        if count % self.buffers:
            report.count("iterations-peeled", count % self.buffers)

    def _loops(self, module: Module, report: Report) -> dict[Key, int]:
        """The loops that can be unrolled, callees first, with their trip counts."""
        graph, counts = build_call_graph(module), TripCounts(module)
        found: dict[Key, int] = {}
        for computation in graph.post_order:
            if graph.is_fusion_body(computation):
                continue
            for loop in computation.instructions:
                if loop.opcode != "while":
                    continue
                count = counts.of(loop)
                reason = self._reason_to_keep(loop, count)
                if reason:
                    report.remark(f"not buffered: %{loop.name} {reason}")
                elif count is not None:
                    found[key_of(loop)] = count
        return found

    def _reason_to_keep(self, loop: Instruction, count: int | None) -> str:
        body = loop.called_computations[0]
        inside = body.instructions
        if self.only_with_collectives and not any(map(is_collective, inside)):
            return "has no collective in its body"
        if count is None:
            return "has no known trip count"
        if count < self.buffers:
            return f"runs {count} times, less than {self.buffers}"
        if body.root.opcode != "tuple":
            return "has a body that returns no tuple"
        if any(map(is_transfer, inside)):
            return "sends or receives"
        if any(half(i) == "start" and not _has_done(i) for i in inside):
            return "starts what another iteration ends"
        size = self.buffers * len(inside)
        if size > self.max_instructions:
            return f"would have {size} instructions"
        edges = self._control_edges(body, count)
        if edges > self.max_control_edges:
            return f"would have {edges} control edges"
        return ""

    def _control_edges(self, body: Computation, count: int) -> int:
        """Those of all iterations, in the new body and before the loop."""
        own = sum(len(i.control_predecessors) for i in body.instructions)
        first = count % self.buffers
        gaps = self.buffers - 1 + max(0, first - 1)
        between = edges_between_iterations(body, self._ahead(body))
        return own * (self.buffers + first) + between * gaps

    def _ahead(self, body: Computation) -> set[Instruction]:
        """What need not wait for the iteration before."""
        return ahead_of_others(body) if self.control_edges else {*body.instructions}

    def _write(self, module: Module, key: Key, count: int) -> None:
        """Unroll a loop of the module or of a copy."""
        loop = found_in(module, key)
        graph = build_call_graph(module)
        if any(len(graph.callers_of(c)) > 1 for c in loop.called_computations):
            call_copies(loop)
        body, first = loop.called_computations[0], count % self.buffers
        copying = Copying(
            next_channel_id(module), xla_quirks=False, shifts_wrapped=True
        )
        groups = _Groups(next_group(module))
        ahead = self._ahead(body)
        # The place of the result in an iteration; what nobody reads follows it.
        state, result = body.parameters[0], body.root
        place = [i for i in post_order(body) if i is not state].index(result)
        peeled = peel(loop, first, copying, set(ahead))
        iterations = unroll_body(body, self.buffers, copying, ahead)
        copies = (*peeled, *iterations[1:-1])
        for each in (result, *(iteration[place] for iteration in copies)):
            _hand_over(each)
        shift_iterations(iterations, first, copying)
        set_counts(loop, count // self.buffers, first, self.buffers)
        for instructions in (*peeled, *iterations[1:]):
            groups.renumber(instructions)
        for instructions in (peeled, iterations):
            for number, iteration in enumerate(instructions):
                self._put_on_streams(iteration, number)
        restore_text_order(body)
        if first:
            restore_text_order(loop.computation)
        flatten_call_graph(module, xla_quirks=False)

    def _put_on_streams(self, iteration: Iteration, number: int) -> None:
        if self.num_stream_buffers == 1:
            return
        for instruction in iteration:
            if (
                not instruction.removed
                and is_collective(instruction)
                and half(instruction) in ("", "start")
                and STREAM_ANNOTATION not in instruction.frontend_attributes
            ):
                stream = str(number % self.num_stream_buffers)
                attributes = instruction.frontend_attributes
                instruction.frontend_attributes = attributes.with_value(
                    STREAM_ANNOTATION, stream
                )


def ahead_of_others(body: Computation) -> set[Instruction]:
    """The instructions of a body that need not wait for the iteration before.

    These are arithmetic on scalars, which needs no buffers, and instructions that only
    collectives read, in this iteration or, through the state, in the next one.
    """
    state, root = body.parameters[0], body.root
    readers: dict[int, list[Instruction]] = {}
    for element in state.users:
        if element.opcode != "get-tuple-element":
            return set()
        readers.setdefault(element.tuple_index, []).extend(element.users)
    order = [
        i
        for i in post_order(body)
        if not (i is root or i is state or state in i.operands or is_collective(i))
    ]
    carried: dict[Instruction, list[Instruction]] = {}
    for index, end in enumerate(root.operands):
        carried.setdefault(end, []).extend(readers.get(index, ()))
    # Count, for each, the readers that are no collectives; start where there are none.
    waits_for: dict[Instruction, int] = {}
    reads: dict[Instruction, list[Instruction]] = {}
    for instruction in order:
        users = dict.fromkeys(u for u in instruction.users if u is not root)
        users.update(dict.fromkeys(carried.get(instruction, ())))
        others = [user for user in users if not is_collective(user)]
        if users:
            waits_for[instruction] = len(others)
        for user in others:
            reads.setdefault(user, []).append(instruction)
    found: set[Instruction] = set()
    ready = [i for i, count in waits_for.items() if not count]
    while ready:
        served = ready.pop()
        found.add(served)
        for instruction in reads.get(served, ()):
            if instruction in waits_for:
                waits_for[instruction] -= 1
                if not waits_for[instruction]:
                    ready.append(instruction)
    return found | {
        i
        for i in order
        if facts(i.opcode).is_elementwise and i.shape.is_array and not i.shape.rank
    }


def _hand_over(result: Instruction) -> None:
    """Let the next iteration read what this one makes, without a tuple in between.

    For a tuple is there when all of its elements are.
    """
    for element in result.users:
        if element.opcode == "get-tuple-element":
            replace_relaying_control(element, result.operands[element.tuple_index])
    if not result.user_count:
        result.computation.remove(result)


def _has_done(start: Instruction) -> bool:
    """Whether what ends it is in the same computation."""
    users = list(start.users)
    while users:
        user = users.pop()
        if half(user) == "done":
            return True
        if half(user) == "update":
            users += user.users
    return False


@dataclass(slots=True)
class _Groups:
    """Gives the scheduling groups of an iteration numbers of their own."""

    next: int

    def renumber(self, iteration: Iterable[Instruction]) -> None:
        """Number them anew."""
        numbers: dict[int, int] = {}
        for instruction in iteration:
            annotation = None if instruction.removed else annotation_of(instruction)
            if annotation is None or annotation.group is None:
                continue
            if annotation.group not in numbers:
                numbers[annotation.group] = self.next
                self.next += 1
            set_annotation(
                instruction,
                Annotation(numbers[annotation.group], annotation.iteration),
            )
