"""Runs the collectives of a loop iteration during the next iteration.

Before:  while (5 times):  %x = f(%i)
                           %y = all-reduce(%x)
                           %b = dynamic-update-slice(%buffer, %y, %i, %zero)
After:   %x.0 = f(0)
         while (4 times):  %y = all-reduce(%x of the iteration before)
                           %b = dynamic-update-slice(%buffer, %y, %i before, %zero)
                           %x = f(%i)
         %y.5 = all-reduce(%x of the last iteration)
         %b.5 = dynamic-update-slice(%b, %y.5, %last_i, %zero)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.loops.pipelined_stores import StoreRules, StoreSearch
from hlo_passes.passes.loops.pipelining import (
    FIRST_INDEX,
    Callers,
    CollectivePipeliner,
    Copying,
    Move,
    PipelinedLoop,
    constant,
    drop_annotation,
    marked_as_inserted,
    parameter_of,
)
from hlo_passes.passes.rewriting.cloning import (
    Copies,
    call_copies,
    clone_computation,
    clone_instruction,
    element_of,
    repeat_control_edges,
)


@dataclass(frozen=True, slots=True)
class CollectivePipelinerForward(CollectivePipeliner):
    """Run the collective of each loop iteration during the next iteration.

    The collective then has a whole iteration of compute to overlap with. The pass moves
    a collective if its result goes into one store of a slice and nowhere else.
    Formatting operations may be between the collective and the store. The first
    iteration runs before the loop, up to the collective. The rest of the last iteration
    runs after the loop. XLA:GPU runs the pass with `op=all-reduce`, `op=reduce-scatter`
    and, for host offloading, `op=move-to-host`.

    A loop stays as it is if it does not count from a constant to a constant, runs at
    most once, has control edges, or is the result of its computation. XLA believes that
    some loops run although they never do. Without XLA's quirks (`--no-xla-quirks`), the
    pass leaves these loops alone.

    Ensures: moved collectives have `is_pipelined` in their backend config.
    Complexity: linear in instructions, plus, for each collective, the instructions that
        its result leads to.
    Source: openxla/xla `xla/service/collective_pipeliner.cc`.

    Attributes:
        op: the opcode to move; `move-to-host` stands for the custom calls that move
            slices to the host.
        use_tree: accept a collective with several users, and accept elementwise
            operations.
        different_sizes: accept a result whose shape differs from the shape of the
            collective's operand.
        reuse_buffer: keep an operand until the next iteration in the buffer of the
            store, if it has the shape of the stored value.
    """

    name: ClassVar[str] = "collective-pipeliner-forward"

    use_tree: bool = True
    different_sizes: bool = True
    reuse_buffer: bool = False

    def find_moves(
        self,
        loop: PipelinedLoop,
        callers: Callers,
        context: PassContext,
        report: Report,
    ) -> list[Move]:
        """The collectives whose results only go into stores."""
        if loop.loop.is_root:
            report.remark(
                f"not pipelined: %{loop.loop.name} is the result of its computation"
            )
            return []
        rules = StoreRules(
            sinks=False, use_tree=self.use_tree, different_sizes=self.different_sizes
        )
        search = StoreSearch(self, rules, loop, callers, report, context)
        return search.moves()

    def rewrite(
        self,
        loop: PipelinedLoop,
        moves: list[Move],
        copying: Copying,
        context: PassContext,
    ) -> Instruction:
        """Run the first iteration before the loop, the rest of the last one after."""
        return _Forward(self, loop, moves, copying).run()


@dataclass(slots=True)
class _State:
    """The elements of the new state, in order: at the start, and after an iteration."""

    starts: list[Instruction]
    ends: list[Instruction]

    def add(self, start: Instruction, end: Instruction) -> int:
        """Add an element; returns its index."""
        self.starts.append(start)
        self.ends.append(end)
        return len(self.ends) - 1

    @property
    def shape(self) -> Shape:
        """The tuple of all elements."""
        return tuple_shape([end.shape for end in self.ends])


@dataclass(slots=True)
class _Side:
    """Where the second half of an iteration is written: in the loop, or after it.

    Attributes:
        computation: the body, or the computation that runs the loop.
        state: the parameter of the body, or the loop.
        before: what is written goes before this one in text order; None: to the end.
        is_after: whether this is after the loop.
        values: what replaces the side inputs.
    """

    computation: Computation
    state: Instruction
    before: Instruction | None
    is_after: bool
    values: Copies = field(default_factory=dict)

    def operands(self, original: Instruction, values: Copies) -> list[Instruction]:
        """What a copy reads: what was copied for one move, or side inputs."""
        return [values[o] if o in values else self.values[o] for o in original.operands]

    def element(self, index: int) -> Instruction:
        """An element of the state after the iteration before."""
        return element_of(self.state, index, before=self.before)


@dataclass(slots=True)
class _Forward:
    """The rewriting of one loop."""

    options: CollectivePipelinerForward
    loop: PipelinedLoop
    moves: Sequence[Move]
    copying: Copying
    #: Element of the result -> who reads it after the loop.
    _results: dict[int, list[Instruction]] = field(default_factory=dict)

    def run(self) -> Instruction:
        """Rewrite it; returns the new loop."""
        loop, old = self.loop, self.loop.loop
        body = loop.body
        raw = {id(m): m for m in self.moves if self._keeps_operand(m)}
        # Run the first iteration up to the collectives before the loop.
        skipped = self._skipped(raw)
        peeled = self._peel(skipped)
        state = _State(list(loop.start.operands), list(body.root.operands))
        for index, end in enumerate(state.ends):
            if end in peeled and end not in skipped:
                state.starts[index] = peeled[end]
        # The state also holds the indices of the stores, the operands of the
        # collectives, and what else the second half of an iteration reads.
        index_places: dict[Instruction, int] = {}
        for move in self.moves:
            if move.stores and move.store_index() not in index_places:
                index = move.store_index()
                index_places[index] = state.add(peeled[index], index)
        raw_places: dict[int, int] = {}
        for key, move in raw.items():
            operand = move.collective.operands[0]
            raw_places[key] = state.add(peeled[operand], operand)
        side_places: list[tuple[Instruction, int]] = []
        for move in self.moves:
            for value in move.side_inputs():
                place = state.add(peeled[value], value)
                side_places.append((value, place))
        # Copy condition and body with the larger state, and replace the loop.
        new, copies = self._new_loop(state, peeled)
        inside = _Side(new.called_computations[0], _state_of(new), None, is_after=False)
        outside = _Side(new.computation, new, old, is_after=True)
        for value, place in side_places:
            inside.values[copies[value]] = inside.element(place)
            outside.values[copies[value]] = outside.element(place)
        for element in new.users:
            if element.opcode == "get-tuple-element":
                self._results.setdefault(element.tuple_index, []).append(element)
        # Write the second half of an iteration into the loop and after it.
        for move in self.moves:
            copied = _copied(move, copies)
            place = raw_places.get(id(move))
            if not move.stores:
                assert place is not None
                self._sink_token(copied, place, inside, outside)
            else:
                index_place = index_places[move.store_index()]
                self._store(copied, place, index_place, inside, outside)
        old.computation.remove_with_dead_operands(old)
        return new

    def _keeps_operand(self, move: Move) -> bool:
        """Whether the collective's operand needs an element of the state of its own."""
        result = (move.formatting or move.collectives)[-1].shape
        operand = move.collective.operands[0].shape
        return (
            not self.options.reuse_buffer
            or result != operand
            or move.token_sink is not None
        )

    def _skipped(self, raw: dict[int, Move]) -> dict[Instruction, Instruction]:
        """What the peeled iteration leaves out -> what it has in its place."""
        skipped: dict[Instruction, Instruction] = {}
        for move in self.moves:
            collective = move.collective
            skipped[collective] = collective.operands[0]
            if move.formatting:
                skipped.setdefault(move.formatting[-1], collective)
            if id(move) in raw:
                end = move.stores[0] if move.stores else move.token_sink
                assert end is not None
                skipped[end] = end.operands[0]
        return skipped

    def _peel(self, skipped: dict[Instruction, Instruction]) -> Copies:
        """Copy the body before the loop, for the first iteration."""
        loop, before = self.loop, self.loop.loop
        body, start = loop.body, loop.start
        state = body.parameters[0]
        peeled: Copies = {state: start}
        for element in state.users:
            peeled[element] = start.operands[element.tuple_index]
        groups: dict[int, int] = {}
        for instruction in post_order(body):
            if instruction is state:
                continue
            if instruction in skipped:
                peeled[instruction] = peeled[skipped[instruction]]
                continue
            copy = self.copying.clone(instruction, loop.computation, peeled, before)
            if copy.opcode == "while":
                call_copies(copy)
            _leave_iteration(copy, self.copying, groups)
        return peeled

    def _new_loop(
        self, state: _State, peeled: Copies
    ) -> tuple[Instruction, dict[Instruction, Instruction]]:
        """The loop with the larger state, and the copies in its body."""
        loop, old = self.loop, self.loop.loop
        body, shape = loop.body, state.shape
        condition, _ = clone_computation(
            loop.condition,
            {loop.condition.parameters[0]: parameter_of(shape, "loop_peel_cond_param")},
        )
        ends = state.ends

        def new_root(computation: Computation, copies: Copies) -> Instruction:
            return computation.new("tuple", shape, [copies[end] for end in ends])

        # What is dead in the body may come after its root.
        order = [i for i in post_order(body) if i is not body.root]
        new_body, copies = clone_computation(
            body,
            {
                body.parameters[0]: parameter_of(shape, "loop_peel_param"),
                body.root: new_root,
            },
            [*order, body.root],
        )
        start = loop.computation.new("tuple", shape, state.starts, before=old)
        peeled[body.root] = start
        repeat_control_edges(body.root, peeled)
        new = loop.computation.new(
            "while",
            shape,
            [start],
            {"condition": f"%{condition.name}", "body": f"%{new_body.name}"},
            before=old,
        )
        loop.computation.replace_uses(old, new)
        return new, copies

    # -- the second half of an iteration ---------------------------------------------

    def _finish(
        self, move: Move, operand: Instruction, side: _Side
    ) -> tuple[Instruction, Copies]:
        """The collective and its formatting; returns the result, and all copies."""
        computation, before = side.computation, side.before
        result = clone_instruction(
            move.collective, computation, [operand], before=before
        )
        self.copying.give_channel(result)
        if side.is_after:
            drop_annotation(result)
        self.copying.mark_pipelined(result)
        if not self.options.last_run:
            result = marked_as_inserted(result, self.options.level, before)
        values: Copies = {move.collective: result}
        for operation in move.formatting:
            operands = side.operands(operation, values)
            result = clone_instruction(operation, computation, operands, before=before)
            if side.is_after:
                drop_annotation(result)
            self.copying.mark_pipelined(result)
            values[operation] = result
        return result, values

    def _store(
        self,
        move: Move,
        place: int | None,
        index_place: int,
        inside: _Side,
        outside: _Side,
    ) -> None:
        """Store the result of the iteration before, in the loop and after it."""
        (store,), (output,) = move.stores, move.outputs
        operand = move.collective.operands[0]
        results = self._results.get(output, [])
        # Read index, buffer and operand of the iteration before.
        index = inside.element(index_place)
        if not self.options.last_run:
            index = marked_as_inserted(index, self.options.level, inside.before)
        last_index = outside.element(index_place)
        buffer, last_buffer = store.operands[0], outside.element(output)
        data, last_data = buffer, last_buffer
        if place is not None:
            data, last_data = inside.element(place), outside.element(place)
        # Store in the loop. Where the buffer also keeps the operand until the next
        # iteration, that goes into it afterwards.
        stored = self._stored(move, buffer, data, index, inside)
        if place is None:
            indices = _indices(move, inside, move.store_index())
            stored = inside.computation.new(
                "dynamic-update-slice", stored.shape, [stored, operand, *indices]
            )
        inside.computation.replace_uses(store, stored)
        inside.computation.remove_with_dead_operands(store)
        # Store after the loop.
        last = self._stored(move, last_buffer, last_data, last_index, outside)
        _replace_all(results, last)

    def _stored(
        self,
        move: Move,
        buffer: Instruction,
        data: Instruction,
        index: Instruction,
        side: _Side,
    ) -> Instruction:
        indices = _indices(move, side, index)
        shape = move.collective.operands[0].shape
        if shape != data.shape:
            sizes = ",".join(map(str, shape.dimensions))
            data = side.computation.new(
                "dynamic-slice",
                shape,
                [data, *indices],
                {"dynamic_slice_sizes": f"{{{sizes}}}"},
                before=side.before,
            )
        result, _ = self._finish(move, data, side)
        return side.computation.new(
            "dynamic-update-slice",
            move.stores[0].shape,
            [buffer, result, *indices],
            before=side.before,
        )

    def _sink_token(
        self, move: Move, place: int, inside: _Side, outside: _Side
    ) -> None:
        """Let the consumer of a result take that of the iteration before."""
        (output,), sink = move.outputs, move.token_sink
        assert sink is not None
        results = self._results.get(output, [])
        token = sink.operands[-1]
        ends = []
        for side in (inside, outside):
            _, values = self._finish(move, side.element(place), side)
            values[token] = side.element(output) if side.is_after else token
            operands = side.operands(sink, values)
            ends.append(
                clone_instruction(sink, side.computation, operands, before=side.before)
            )
        drop_annotation(ends[1])
        inside.computation.replace_uses(sink, ends[0])
        inside.computation.remove_with_dead_operands(sink)
        _replace_all(results, ends[1])


def _state_of(loop: Instruction) -> Instruction:
    return loop.called_computations[0].parameters[0]


def _copied(move: Move, copies: Copies) -> Move:
    """The move in the copy of the body."""
    return Move(
        [copies[i] for i in move.collectives],
        [copies[i] for i in move.formatting],
        [copies[i] for i in move.stores],
        move.outputs,
        move.dimension,
        copies[move.token_sink] if move.token_sink is not None else None,
    )


def _replace_all(elements: Sequence[Instruction], new: Instruction) -> None:
    for element in elements:
        element.computation.replace_uses(element, new)
        element.computation.remove_with_dead_operands(element)


def _indices(move: Move, side: _Side, index: Instruction) -> list[Instruction]:
    """Where a store writes: `index` in its dimension, 0 in the others."""
    kind = index.shape.element_type
    zero = constant(side.computation, kind, 0, before=side.before)
    count = len(move.stores[0].operands) - FIRST_INDEX
    return [index if k == move.dimension else zero for k in range(count)]


def _leave_iteration(
    copy: Instruction, copying: Copying, groups: dict[int, int]
) -> None:
    """Take a copy before the loop out of the scheduling of its iteration."""
    if not copy.mentions("_scheduling_group_id"):
        return
    if ":" in copy.frontend_attributes["_scheduling_group_id"]:
        drop_annotation(copy)
    else:
        copying.renumber_group(copy, groups)
