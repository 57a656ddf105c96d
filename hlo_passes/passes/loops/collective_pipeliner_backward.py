"""Starts the collectives of a loop iteration during the iteration before it.

Before:  while (5 times):  %x = dynamic-slice(%weights, %i, %zero)
                           %y = all-gather(%x)
                           f(%y)
After:   %x.0 = dynamic-slice(%weights, 0, %zero)
         %y.0 = all-gather(%x.0)
         while (4 times):  %x = dynamic-slice(%weights, %i + 1, %zero)
                           %y = all-gather(%x)                     for the next one
                           f(%y of the iteration before)
         f(%y of the last iteration)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from hlo_passes.analysis.counted_loops import counted_loop, known_integer
from hlo_passes.analysis.effects import has_control_edges, has_side_effect
from hlo_passes.analysis.host_offload import moved_slice
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.scalar_expressions import scalar_type, wrapped
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import array_shape, tuple_shape
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.loops.pipelined_stores import is_one_element
from hlo_passes.passes.loops.pipelining import (
    Callers,
    CollectivePipeliner,
    Copying,
    Move,
    PipelinedLoop,
    constant,
    drop_annotation,
    outputs_by_source,
)
from hlo_passes.passes.rewriting.cloning import (
    Copies,
    call_copies,
    element_of,
    repeat_control_edges,
)

#: What must not run a second time.
_ONCE: Final = frozenset(
    {"custom-call", "infeed", "outfeed", "rng", "rng-get-and-update-state"}
)


@dataclass(frozen=True, slots=True)
class CollectivePipelinerBackward(CollectivePipeliner):
    """Start a collective one loop iteration before the iteration that reads its result.

    The collective can then overlap with the compute of the iteration before. This works
    if everything that the collective is computed from is known one iteration earlier:
    the loop counter, state elements that never change, single numbers, and values
    computed from these. The collective of the first iteration runs before the loop, and
    the last iteration runs after the loop. XLA:GPU runs the pass with `op=all-gather`
    and, for host offloading, with `op=move-to-device`.

    A loop stays as it is if it does not count from a constant to a constant, runs at
    most once, or has control edges. XLA's count is one too low for some loops
    (`i <= 9`, or `i > 0` by -3), and XLA then loses their last iteration. Without XLA's
    quirks (`--no-xla-quirks`), the pass counts these loops correctly. It then also does
    not run an operation twice if that operation has effects besides its result.

    Ensures: moved collectives have `is_pipelined` in their backend config.
    Complexity: linear in instructions, plus, for each collective, the instructions that
        it is computed from.
    Source: openxla/xla `xla/service/collective_pipeliner.cc`.

    Attributes:
        op: the opcode to move; `move-to-device` stands for the custom calls that move
            slices to the device.
        only_marked: move only operations with the frontend attribute `is_pipelineable`.
        most_per_loop: the most operations to move in one loop.
        unique_channels: give copies of collectives their own channel ids.
        level: how many earlier runs have moved operations.
        last_run: remove what earlier runs marked.
        xla: the release of XLA to follow; none: the release that the run follows.
        invariant_ops: accept a collective even if other instructions read what it is
            computed from; those values are then computed twice.
    """

    name: ClassVar[str] = "collective-pipeliner-backward"

    op: str = "all-gather"
    invariant_ops: bool = True

    def find_moves(
        self,
        loop: PipelinedLoop,
        callers: Callers,
        context: PassContext,
        report: Report,
    ) -> list[Move]:
        """The collectives whose operands are known an iteration earlier."""
        search = _ChainSearch(self, loop, context.xla_quirks)
        moves: list[Move] = []
        for collective in post_order(loop.body):
            if not self.should_move(collective):
                continue
            chain = search.chain(collective)
            if isinstance(chain, str):
                report.remark(f"not moved: %{collective.name} {chain}")
                continue
            moves.append(Move([collective], chain))
            if len(moves) >= self.most_per_loop:
                break
        return moves

    def rewrite(
        self,
        loop: PipelinedLoop,
        moves: list[Move],
        copying: Copying,
        context: PassContext,
    ) -> Instruction:
        """Run the collectives an iteration earlier, and the last one after the loop."""
        return _Backward(loop, moves, copying, context.xla_quirks).run()


# -- what can be moved -----------------------------------------------------------------


@dataclass(slots=True)
class _ChainSearch:
    """Looks for what collectives of a loop are computed from.

    `_unchanged` are the elements of the state that the body hands on as they are.
    """

    pipeliner: CollectivePipelinerBackward
    loop: PipelinedLoop
    xla_quirks: bool
    _unchanged: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        state = self.loop.body.parameters[0]
        for index, end in enumerate(self.loop.body.root.operands):
            if end.tuple_index_or_none == index and end.operands[0] is state:
                self._unchanged.add(index)

    def chain(self, collective: Instruction) -> list[Instruction] | str:
        """All that it is computed from, operands first; a text says what forbids it."""
        if has_control_edges(collective):
            return "has control edges"
        chain: list[Instruction] = []
        seen = {collective}
        stack = [(collective, iter(collective.operands))]
        sliced = moved_slice(collective) if collective.opcode == "custom-call" else None
        if sliced is not None:
            seen.add(sliced)
            stack.append((sliced, iter(sliced.operands)))
        while stack:
            operation, operands = stack[-1]
            operand = next(operands, None)
            if operand is None:
                if operation is not collective:
                    chain.append(operation)
                stack.pop()
            elif operand.opcode != "parameter" and operand not in seen:
                if self._varies(operand):
                    return f"reads %{operand.name}, which each iteration changes"
                seen.add(operand)
                stack.append((operand, iter(operand.operands)))
        return self._problem(chain, seen) or chain

    def _problem(self, chain: Sequence[Instruction], seen: set[Instruction]) -> str:
        for operation in chain:
            opcode = operation.opcode
            if opcode == "after-all":
                continue
            if opcode == "recv-done":
                return f"waits for %{operation.name}"
            if not self.xla_quirks and opcode in _ONCE and has_side_effect(operation):
                return f"is computed from %{operation.name}, which must run once"
            if self.pipeliner.invariant_ops or all(u in seen for u in operation.users):
                continue
            if not is_one_element(operation.shape) and not self._is_unchanged(
                operation
            ):
                return f"is computed from %{operation.name}, which others read"
        return ""

    def _is_unchanged(self, operation: Instruction) -> bool:
        return (
            operation.tuple_index_or_none in self._unchanged
            and operation.operands[0].opcode == "parameter"
        )

    def _varies(self, operation: Instruction) -> bool:
        """Whether it is an array of the state that each iteration changes."""
        return (
            operation.opcode == "get-tuple-element"
            and operation.operands[0].opcode == "parameter"
            and operation.tuple_index != self.loop.counted.index
            and operation.tuple_index not in self._unchanged
            and not is_one_element(operation.shape)
        )


# -- rewriting -------------------------------------------------------------------------


@dataclass(slots=True)
class _Backward:
    """The rewriting of one loop."""

    loop: PipelinedLoop
    moves: Sequence[Move]
    copying: Copying
    xla_quirks: bool
    _places: dict[Instruction, int] = field(default_factory=dict)
    _left_out: set[Instruction] = field(default_factory=set)

    def run(self) -> Instruction:
        """Rewrite it; returns the new loop."""
        loop, old = self.loop, self.loop.loop
        counted = loop.counted
        kept = len(loop.start.operands)
        for k, move in enumerate(self.moves):
            self._places[move.collective] = kept + k
            self._leave_out_operand(move.collective)
        # Before the loop: the collectives of the first iteration. The state also holds
        # their results, and the counter of the next iteration.
        starts, before = self._first()
        kind = old.shape.elements[counted.index]
        next_count = wrapped(counted.type, counted.start + counted.step)
        starts.append(
            constant(loop.computation, counted.type, next_count, shape=kind, before=old)
        )
        shape = tuple_shape([start.shape for start in starts])
        # The loop: one iteration less.
        body = self._new_body(shape)
        condition = self._new_condition(shape)
        start = loop.computation.new("tuple", shape, starts, before=old)
        before[loop.body.root] = start
        repeat_control_edges(loop.body.root, before)
        new = loop.computation.new(
            "while",
            shape,
            [start],
            {"condition": f"%{condition.name}", "body": f"%{body.name}"},
            before=old,
        )
        # After the loop: the last iteration.
        result = self._last(new)
        loop.computation.replace_uses(old, result)
        loop.computation.remove_with_dead_operands(old)
        return new

    def _leave_out_operand(self, collective: Instruction) -> None:
        """Note an operand that acts and that only the collective reads.

        It is a recv before its done. Without the done it must not be there either.
        """
        if len(collective.operands) == 1:
            (operand,) = collective.operands
            if operand.user_count == 1 and has_side_effect(operand):
                self._left_out.add(operand)

    def _is_counter(self, instruction: Instruction) -> bool:
        return (
            instruction.tuple_index_or_none == self.loop.counted.index
            and instruction.operands[0].opcode == "parameter"
        )

    def _counters(self) -> Iterator[Instruction]:
        return filter(self._is_counter, self.loop.body.parameters[0].users)

    def _first(self) -> tuple[list[Instruction], Copies]:
        """The elements of the state before the loop without the next counter."""
        loop, old = self.loop, self.loop.loop
        copies: Copies = {loop.body.parameters[0]: loop.start}
        for counter in self._counters():
            copies[counter] = loop.start.operands[loop.counted.index]
        starts = list(loop.start.operands)
        for move in self.moves:
            last = None
            for copy in self._chain(move, loop.computation, copies, old):
                drop_annotation(copy)
                last = copy
            assert last is not None
            starts.append(last)
        return starts, copies

    def _chain(
        self,
        move: Move,
        computation: Computation,
        copies: Copies,
        before: Instruction | None,
    ) -> Iterator[Instruction]:
        """Copy a collective with what it is computed from, unless that is there."""
        for operation in (*move.formatting, move.collective):
            if not self._is_counter(operation) and operation not in copies:
                copy = self.copying.clone(operation, computation, copies, before)
                self.copying.mark_pipelined(copy)
                yield copy

    def _originals(self) -> Iterator[Instruction]:
        """The body without parameter and root, and without what is left out."""
        body = self.loop.body
        state = body.parameters[0]
        for instruction in post_order(body):
            if (
                instruction is not state
                and instruction is not body.root
                and instruction not in self._left_out
            ):
                yield instruction

    def _new_body(self, shape: object) -> Computation:
        """An iteration that starts the collectives of the next one."""
        loop, counted = self.loop, self.loop.counted
        old = loop.body
        module = old.module
        body = Computation(
            module.fresh_computation_name(old.name),
            execution_thread=old.execution_thread,
        )
        module.add_computation(body, before=old)
        state = body.new("parameter", shape, (), name="param", literal="0")  # type: ignore[arg-type]
        next_counter = element_of(state, len(state.shape.elements) - 1)
        copies: Copies = {old.parameters[0]: state}
        earlier: Copies = {old.parameters[0]: state}
        for counter in self._counters():
            earlier[counter] = next_counter
        ends: dict[int, Instruction] = {}
        others: list[tuple[int, Instruction]] = []
        by_collective = {move.collective: move for move in self.moves}
        for instruction in self._originals():
            move = by_collective.get(instruction)
            if move is not None:
                # The collective of the next iteration, and that of the one before.
                place = self._places[instruction]
                missing = [
                    i
                    for i in move.formatting
                    if i not in earlier and self._is_other_element(i)
                ]
                for copy in self._chain(move, body, earlier, None):
                    ends[place] = copy
                others += [(i.tuple_index, earlier[i]) for i in missing]
                copies[instruction] = element_of(state, place)
                continue
            projected = None
            if self.xla_quirks and _is_loop_element(instruction):
                projected = _projected_counter(instruction, state, body)
            if projected is not None:
                copies[instruction] = projected
                continue
            copy = self.copying.clone(instruction, body, copies, None)
            if copy.opcode == "while":
                call_copies(copy)
        # The collectives of the next iteration read its state.
        for index, element in others:
            body.replace_uses(element, copies[old.root.operands[index]])
        # Return the new state.
        kind = loop.loop.shape.elements[counted.index]
        step = constant(body, counted.type, counted.step, shape=kind)
        counter = copies[old.root.operands[counted.index]]
        results = [copies[end] for end in old.root.operands]
        results += [ends[self._places[move.collective]] for move in self.moves]
        results.append(body.new("add", kind, [counter, step]))
        root = body.new("tuple", state.shape, results)
        body.set_root(root)
        copies[old.root] = root
        repeat_control_edges(old.root, copies)
        return body

    def _is_other_element(self, instruction: Instruction) -> bool:
        return (
            instruction.opcode == "get-tuple-element"
            and instruction.operands[0].opcode == "parameter"
            and not self._is_counter(instruction)
        )

    def _new_condition(self, shape: object) -> Computation:
        """One iteration less than before."""
        loop, counted = self.loop, self.loop.counted
        old = loop.condition
        module = old.module
        condition = Computation(
            module.fresh_computation_name(old.name),
            execution_thread=old.execution_thread,
        )
        module.add_computation(condition, before=old)
        state = condition.new("parameter", shape, (), name="cond_param", literal="0")  # type: ignore[arg-type]
        last = counted.start + (loop.iterations - 1) * counted.step
        kind = loop.start.operands[counted.index].shape
        bound = constant(
            condition, counted.type, wrapped(counted.type, last), shape=kind
        )
        counter = element_of(state, counted.index)
        direction = "LT" if counted.step > 0 else "GT"
        compared = condition.new(
            "compare", old.root.shape, [counter, bound], {"direction": direction}
        )
        condition.set_root(compared)
        return condition

    def _last(self, new: Instruction) -> Instruction:
        """The last iteration after the loop; returns the result of the old loop."""
        loop, before = self.loop, self.loop.loop
        copies: Copies = {loop.body.parameters[0]: new}
        outputs = outputs_by_source(loop.body.root)
        results = list(loop.start.operands)
        groups: dict[int, int] = {}
        for instruction in self._originals():
            place = self._places.get(instruction)
            if place is not None:
                copies[instruction] = element_of(new, place, before=before)
            else:
                copy = self.copying.clone(instruction, loop.computation, copies, before)
                self.copying.renumber_group(copy, groups)
            for index in outputs.get(instruction, ()):
                results[index] = copies[instruction]
        return loop.computation.new("tuple", before.shape, results, before=before)


# -- counters of inner loops -----------------------------------------------------------


def _is_loop_element(instruction: Instruction) -> bool:
    return (
        instruction.opcode == "get-tuple-element"
        and instruction.operands[0].opcode == "while"
    )


def _projected_counter(
    element: Instruction, state: Instruction, body: Computation
) -> Instruction | None:
    """What XLA puts for the last counter of an inner loop: computed, not run.

    It takes the element of the OUTER state with the same index for the counter's start,
    which is right only if the inner loop got it from there.
    """
    inner, index = element.operands[0], element.tuple_index
    shape = inner.shape.elements[index]
    if not is_one_element(shape) or scalar_type(shape) in ("", "pred"):
        return None
    found = _bound_and_step(inner, index)
    if found is None or found[1] <= 0:
        return None
    if index >= len(state.shape.elements) or state.shape.elements[index] != shape:
        return None  # XLA's result is no valid module here
    bound, step = found
    kind = shape.element_type

    def number(value: int) -> Instruction:
        return constant(body, kind, value, shape=shape)

    start = element_of(state, index)
    end, by = number(bound), number(step)
    distance = body.new("subtract", shape, [end, start])
    rounded = body.new("add", shape, [distance, number(step - 1)])
    often = body.new("divide", shape, [rounded, by])
    is_past = body.new(
        "compare", array_shape("pred", ()), [start, end], {"direction": "GE"}
    )
    often = body.new("select", shape, [is_past, number(0), often])
    way = body.new("multiply", shape, [often, by])
    return body.new("add", shape, [start, way])


def _bound_and_step(inner: Instruction, index: int) -> tuple[int, int] | None:
    counted = counted_loop(inner)
    if counted is not None and counted.index == index:
        return counted.bound, counted.step
    body, condition = inner.called_computations[:2]
    compared = condition.root
    if compared.opcode != "compare" or compared.operands[1].opcode != "constant":
        return None
    bound = known_integer(compared.operands[1])
    if bound is None or body.root.opcode != "tuple":
        return None
    update = body.root.operands[index]
    while update.opcode == "get-tuple-element":
        source = update.operands[0]
        if source.opcode != "tuple":
            return None
        update = source.operands[update.tuple_index]
    if update.opcode != "add" or update.operands[1].opcode != "constant":
        return None
    step = known_integer(update.operands[1])
    return None if step is None else (bound, step)
