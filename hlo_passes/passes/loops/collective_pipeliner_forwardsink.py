"""Moves collectives out of a loop: one runs after the loop, for all iterations.

Before:  while (5 times):  %x = f(%i)
                           %y = all-reduce(f32[4] %x)
                           %b = dynamic-update-slice(%buffer, reshape(%y), %i, %zero)
After:   while (5 times):  %x = f(%i)
                           %all = dynamic-update-slice(%all_x, reshape(%x), %i, %zero)
         %b = all-reduce(f32[5,4] %all)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from hlo_passes.analysis.effects import has_side_effect
from hlo_passes.analysis.index_ranges import IndexRanges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.loops.batching import (
    Batching,
    full_shape,
    why_not_batched,
    zeros,
)
from hlo_passes.passes.loops.pipelined_stores import (
    StoreRules,
    StoreSearch,
    is_marked,
)
from hlo_passes.passes.loops.pipelining import (
    SUNK,
    Callers,
    CollectivePipeliner,
    Copying,
    Move,
    PipelinedLoop,
    parameter_of,
)
from hlo_passes.passes.rewriting.cloning import Copies, clone_computation, element_of


@dataclass(frozen=True, slots=True)
class CollectivePipelinerForwardsink(CollectivePipeliner):
    """Run a collective once after a loop, for all iterations together.

    The pass moves a collective if its results only go into stores. Each iteration must
    store one slice, and each buffer must have as many slices as the loop has
    iterations. Formatting operations may be between the collective and the store. The
    new loop keeps the operands of all iterations. After the loop, the collective and
    its formatting run once on all of these operands. The pass repeats this until
    nothing changes, so a chain of collectives leaves the loop one collective at a time,
    the last one first. XLA:GPU does not run the pass.

    XLA also moves stores that miss some slices (such as a store at `i + 5`), and the
    missed slices are then wrong. Without XLA's quirks (`--no-xla-quirks`), the pass
    leaves such loops alone. Either way, it leaves operations alone that have no form
    for all iterations at once. XLA fails on those.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions for each collective of the longest chain.
    Source: openxla/xla `xla/service/collective_pipeliner.cc`.

    Attributes:
        op: the opcode to move.
        only_marked: move only operations with the frontend attribute `is_pipelineable`.
        most_per_loop: the most operations that may leave one loop in one round.
        unique_channels: give copies of collectives their own channel ids.
        level: how many earlier runs have moved operations; each of them left marks.
        last_run: do not mark what the loop keeps; otherwise the marks are for the next
            run.
        xla: the release of XLA to follow; none: the release that the run follows.
        use_tree: accept a collective with several users, and accept elementwise
            operations.
        different_sizes: accept a result whose shape differs from the shape of the
            collective's operand.
        delayed_elements: collectives with at least this many elements leave the loop
            after all others; none: treat all collectives alike.
    """

    name: ClassVar[str] = "collective-pipeliner-forwardsink"

    use_tree: bool = True
    different_sizes: bool = True
    delayed_elements: int | None = None

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Sink until nothing changes, and then what was delayed."""
        changed = False
        while self.run_once(module, context, report):
            changed = True
        last = dataclasses.replace(self, delayed_elements=None)
        return last.run_once(module, context, report) or changed

    def find_moves(
        self,
        loop: PipelinedLoop,
        callers: Callers,
        context: PassContext,
        report: Report,
    ) -> list[Move]:
        """The collectives whose results only go into stores of their own slices."""
        rules = StoreRules(
            sinks=True, use_tree=self.use_tree, different_sizes=self.different_sizes
        )
        search = StoreSearch(self, rules, loop, callers, report, context)
        moves = search.moves(self.delayed_elements)
        return [m for m in moves if self._can_sink(m, loop, search, context, report)]

    def _can_sink(
        self,
        move: Move,
        loop: PipelinedLoop,
        search: StoreSearch,
        context: PassContext,
        report: Report,
    ) -> bool:
        invariance = _Invariance(dict.fromkeys(move.collectives, False))
        formatting = {*move.formatting}
        for operation in (*move.collectives, *move.formatting):
            if invariance.of(operation):
                reason = ""
                if operation.opcode != "broadcast" and not all(
                    o in formatting or o.opcode == "constant"
                    for o in operation.operands
                ):
                    reason = "reads what would have all iterations"
            else:
                reason = why_not_batched(operation)
                is_store = operation.opcode == "dynamic-update-slice"
                if is_store and not context.xla_quirks:
                    reason = "may write outside of what it changes"
            if reason:
                report.remark(
                    f"not moved: %{move.collective.name}, %{operation.name} {reason}"
                )
                return False
        indices = {store.operands[2] for store in move.stores}
        if context.xla_quirks:
            return True
        ranges = search.ranges
        if ranges is None or not all(
            _writes_each_slice(i, ranges, loop.iterations) for i in indices
        ):
            report.remark(
                f"not moved: %{move.collective.name} is not stored in every slice"
            )
            return False
        return len(indices) == 1

    def rewrite(
        self,
        loop: PipelinedLoop,
        moves: list[Move],
        copying: Copying,
        context: PassContext,
    ) -> Instruction:
        """Keep the operands of all iterations, and run the moves after the loop."""
        return _Sink(self, loop, moves, copying, context.xla_quirks).run()


def _writes_each_slice(index: Instruction, ranges: IndexRanges, count: int) -> bool:
    values = ranges.of(index)
    return values is not None and {values.first, values.last} == {0, count - 1}


@dataclass(slots=True)
class _Invariance:
    """Which values depend on no state and on no effect."""

    known: dict[Instruction, bool]

    def of(self, value: Instruction) -> bool:
        """Whether a value is the same in every iteration."""
        known = self.known
        stack = [value]
        while stack:
            one = stack[-1]
            if one in known:
                stack.pop()
                continue
            if one.opcode == "parameter" or has_side_effect(one):
                known[one] = False
                continue
            missing = [o for o in one.operands if o not in known]
            if missing:
                stack += missing
            else:
                known[one] = all(known[o] for o in one.operands)
        return known[value]


@dataclass(slots=True)
class _Sink:
    """The rewriting of one loop."""

    options: CollectivePipelinerForwardsink
    loop: PipelinedLoop
    moves: Sequence[Move]
    copying: Copying
    xla_quirks: bool
    _invariance: _Invariance = field(default_factory=lambda: _Invariance({}))
    #: Value -> the element of the new state that keeps it.
    _places: dict[Instruction, int] = field(default_factory=dict)

    def run(self) -> Instruction:
        """Rewrite it; returns the new loop."""
        loop, old = self.loop, self.loop.loop
        computation, body = loop.computation, loop.body
        _unwrap(body)
        # The state also keeps the operands of the collectives and what their formatting
        # reads: of all iterations, or once what never changes.
        starts = list(loop.start.operands)
        kept: list[tuple[Instruction, Move]] = []
        collectives: dict[Instruction, int] = {}
        for move in self.moves:
            for collective in move.collectives:
                collectives[collective] = len(starts)
                starts.append(self._room(move, collective.operands[0].shape))
                kept.append((collective.operands[0], move))
                self._invariance.known[collective] = False
        for move in self.moves:
            for value in move.side_inputs():
                if value.opcode == "constant" or value in self._places:
                    continue
                self._places[value] = len(starts)
                shape = value.shape
                is_same = self._invariance.of(value)
                starts.append(
                    zeros(computation, shape, old)
                    if is_same
                    else self._room(move, shape)
                )
                kept.append((value, move))
        # Copy the loop without the old stores and what led to them.
        shape = tuple_shape([start.shape for start in starts])
        new_body = self._new_body(shape, kept, len(collectives))
        condition, _ = clone_computation(
            loop.condition,
            {
                loop.condition.parameters[0]: parameter_of(
                    shape, f"sink_{loop.condition.parameters[0].name}"
                )
            },
        )
        start = computation.new("tuple", shape, starts, before=old)
        new = computation.new(
            "while",
            shape,
            [start],
            {"condition": f"%{condition.name}", "body": f"%{new_body.name}"},
            before=old,
        )
        # Run what was moved for all iterations, and put the old result together.
        results = self._after(new, collectives)
        result = computation.new("tuple", old.shape, results, before=old)
        computation.replace_uses(old, result)
        computation.remove_with_dead_operands(old)
        return new

    def _count(self, move: Move) -> int:
        """How many slices the buffer of a move has."""
        return move.stores[0].shape.dimensions[move.dimension]

    def _room(self, move: Move, shape: Shape) -> Instruction:
        """Zeros for the values of all iterations."""
        full = full_shape(self._count(move), shape)
        return zeros(self.loop.computation, full, self.loop.loop)

    # -- in the loop -------------------------------------------------------------------

    def _new_body(
        self, shape: Shape, kept: list[tuple[Instruction, Move]], collectives: int
    ) -> Computation:
        body = self.loop.body
        moved = {output for move in self.moves for output in move.outputs}
        state = body.parameters[0]
        # Leave out what reads the old buffers; they are handed on as they are.
        left_out: set[Instruction] = set()
        for element in state.users:
            if element.tuple_index in moved:
                work = list(element.users)
                while work:
                    reader = work.pop()
                    if reader is not body.root and reader not in left_out:
                        left_out.add(reader)
                        work += reader.users
        old_root = body.root

        def new_root(computation: Computation, copies: Copies) -> Instruction:
            new_state = copies[state]
            ends: list[Instruction] = []
            for index, end in enumerate(old_root.operands):
                if index in moved:
                    ends.append(element_of(new_state, index))
                else:
                    ends.append(copies[end])
            for value, move in kept:
                is_operand = len(ends) < len(old_root.operands) + collectives
                if not is_operand and self._invariance.of(value):
                    ends.append(copies[value])
                else:
                    ends.append(
                        self._appended(
                            new_state,
                            len(ends),
                            copies[value],
                            copies[move.store_index()],
                            is_marked=is_operand and not self.options.last_run,
                        )
                    )
            return computation.new("tuple", shape, ends)

        order = [i for i in post_order(body) if i not in left_out and i is not old_root]
        new_body, copies = clone_computation(
            body,
            {
                state: parameter_of(shape, f"sink_{state.name}"),
                old_root: new_root,
            },
            [*order, old_root],
        )
        if not self.xla_quirks:
            for move in self.moves:
                for collective in move.collectives:
                    dead = copies[collective]
                    self._remove_unread(new_body, dead)
        return new_body

    def _remove_unread(self, body: Computation, collective: Instruction) -> None:
        """Remove a collective with its formatting, if the loop does not read them."""
        readers = [collective]
        for reader in readers:
            if reader is body.root:
                return
            readers += [user for user in reader.users if user not in readers]
        for reader in reversed(readers):
            if not reader.removed and not reader.user_count:
                body.remove_with_dead_operands(reader)

    def _appended(
        self,
        state: Instruction,
        place: int,
        value: Instruction,
        index: Instruction,
        *,
        is_marked: bool,
    ) -> Instruction:
        """The values of all iterations so far, with that of this one."""
        body = state.computation
        full = state.shape.elements[place]
        row = body.new(
            "reshape",
            full_shape(1, value.shape),
            [value],
        )
        zero = zeros(body, index.shape, None)
        if is_marked:
            row = body.new(
                "custom-call", row.shape, [row], {"custom_call_target": SUNK}
            )
        return body.new(
            "dynamic-update-slice",
            full,
            [element_of(state, place), row, index, *[zero] * value.shape.rank],
        )

    # -- after the loop ----------------------------------------------------------------

    def _after(
        self, new: Instruction, collectives: dict[Instruction, int]
    ) -> list[Instruction]:
        """The elements of the old result."""
        loop, before = self.loop, self.loop.loop
        computation = loop.computation
        results: dict[int, Instruction] = {}
        values: Copies = {}
        for move in self.moves:
            batching = Batching(
                self._count(move), computation, before, values, self.copying
            )
            for collective in move.collectives:
                place = collectives[collective]
                operand = element_of(new, place, before=before)
                values[collective.operands[0]] = operand
            for value in move.side_inputs():
                if value.opcode == "constant":
                    continue
                element = element_of(new, self._places[value], before=before)
                if self._invariance.of(value):
                    element = batching.repeated(element)
                values[value] = element
            batching.varying = {
                i
                for i in (*move.collectives, *move.formatting)
                if not self._invariance.of(i)
            }
            for collective in move.collectives:
                batching.add(collective)
                self.copying.give_channel(values[collective])
            for operation in move.formatting:
                batching.add(operation)
            for store, output in zip(move.stores, move.outputs, strict=True):
                value = values[store.operands[1]]
                if not value.shape.compatible(store.shape):
                    value = computation.new(
                        "reshape", store.shape, [value], before=before
                    )
                results[output] = value
        return [
            results[k] if k in results else element_of(new, k, before=before)
            for k in range(len(loop.start.operands))
        ]


def _unwrap(body: Computation) -> None:
    """Remove the marks of the run before around what is stored."""
    for store in body.root.operands:
        if store.opcode == "dynamic-update-slice" and is_marked(
            store.operands[1], SUNK
        ):
            mark = store.operands[1]
            body.set_operands(
                store, [store.operands[0], mark.operands[0], *store.operands[2:]]
            )
            if not mark.user_count:
                body.remove(mark)
