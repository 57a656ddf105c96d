"""What a forward pipeliner may move: operations whose result only goes into a store.

    %y = all-reduce(%x)                                      the collective
    %c = convert(%y)                                         formatting
    %s = add(%c, broadcast(%k))                              formatting, %k a side input
    %b = dynamic-update-slice(%buffer, %s, %i, %zero)        the store, read by the root

Between the collective and its store lies nothing but operations that may run later.
The store writes one slice of an element of the state that nothing else reads.

Source: openxla/xla `xla/service/collective_pipeliner.cc`
(`CheckStoreIntoSliceIsCompatible`, `IsSupportedDynamicUpdateSlice`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.counted_loops import known_integer
from hlo_passes.analysis.effects import has_control_edges, has_side_effect
from hlo_passes.analysis.index_ranges import IndexRange, IndexRanges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.scalar_expressions import wrapped
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.loops.pipelining import (
    FIRST_INDEX,
    INSERTED,
    Callers,
    CollectivePipeliner,
    Move,
    PipelinedLoop,
    outputs_by_source,
)

#: What may lie between a collective and its store.
_FORMATTING: Final = frozenset(
    {"all-gather", "all-reduce", "bitcast", "broadcast", "collective-permute",
     "concatenate", "convert", "dynamic-slice", "get-tuple-element", "pad", "reduce",
     "reduce-scatter", "reshape", "slice", "transpose"}
)  # fmt: skip
#: What the sink cannot do for all iterations at once.
_NOT_SUNK: Final = frozenset({"get-tuple-element", "reduce-scatter"})
#: Collectives of fewer elements may be followed by any reduction.
_FEW_ELEMENTS: Final = 1024
_SINKS_ALWAYS: Final = "always_sink"


@dataclass(frozen=True, slots=True)
class StoreRules:
    """What a pass accepts.

    Attributes:
        sinks: whether results leave the loop altogether.
        use_tree: accept several users of a collective, and elementwise operations.
        different_sizes: accept results of other shapes than the collective's operand.
    """

    sinks: bool
    use_tree: bool
    different_sizes: bool


@dataclass(slots=True)
class StoreSearch:
    """Looks for the operations of one loop that may be moved.

    Attributes:
        pipeliner: which operations are asked for, at which level.
        rules: what is accepted.
        loop: whose body is searched.
        context: with XLA's quirks any element 0 is taken for the counter, as XLA does.
    """

    pipeliner: CollectivePipeliner
    rules: StoreRules
    loop: PipelinedLoop
    callers: Callers
    report: Report
    context: PassContext
    order: Mapping[Instruction, int] = field(default_factory=dict)
    _elements: dict[int, int] = field(default_factory=dict)
    _outputs: Mapping[Instruction, list[int]] = field(default_factory=dict)
    ranges: IndexRanges | None = None

    def moves(self, most_elements: int | None = None) -> list[Move]:
        """All moves, in post order; operations that share a store form one.

        Operations of `most_elements` or more are left out.
        """
        body = self.loop.body
        self.order = {i: k for k, i in enumerate(post_order(body))}
        self.ranges = self._known_ranges()
        self._outputs = outputs_by_source(body.root)
        for element in body.parameters[0].users:
            index = element.tuple_index
            self._elements[index] = self._elements.get(index, 0) + 1
        found: list[Move | None] = []
        by_store: dict[Instruction, int] = {}
        for collective in self.order:
            if not self.pipeliner.should_move(collective):
                continue
            if most_elements is not None and (
                collective.shape.element_count >= most_elements
            ):
                continue
            move = self._move(collective)
            if isinstance(move, str):
                self.report.remark(f"not moved: %{collective.name} {move}")
                continue
            self._enter(move, found, by_store)
            if len(found) >= self.pipeliner.most_per_loop:
                break
        return _compacted(found)

    def _known_ranges(self) -> IndexRanges:
        counted = self.loop.counted
        last = counted.start + (self.loop.iterations - 1) * counted.step
        values = IndexRange(counted.start, wrapped(counted.type, last))
        state = self.loop.body.parameters[0]
        quirks = self.context.xla_quirks
        wanted = 0 if quirks else counted.index
        known = {
            i: values
            for i in self.order
            if i.tuple_index_or_none == wanted and (quirks or i.operands[0] is state)
        }
        release = self.context.release_for(
            self.loop.computation.module, self.pipeliner.xla
        )
        turns = release.negative_factors_turn_ranges
        return IndexRanges(known, self.callers.loop_of, turns=turns)

    # -- from a collective to its stores -----------------------------------------------

    def _move(self, collective: Instruction) -> Move | str:
        """What moving one operation takes; a text says why it cannot be moved."""
        if not self.rules.use_tree and collective.user_count != 1:
            return "has several users"
        if len(collective.operands) != 1:
            return "has several operands"
        if has_control_edges(collective):
            return "has control edges"
        walked = self._walk(collective)
        if isinstance(walked, str):
            return walked
        stores, sink = walked
        formatting = self._formatting(collective)
        if formatting is None:
            return "is followed by a slice whose place the state decides"
        formatting.sort(key=self.order.__getitem__)
        move = Move([collective], formatting, stores, token_sink=sink)
        root = self.loop.body.root
        for store in stores:
            problem = self._enter_store(store, move)
            if problem:
                return problem
        if sink is not None:
            move.outputs.append(root.operands.index(sink))
        return move

    def _walk(
        self, collective: Instruction
    ) -> tuple[list[Instruction], Instruction | None] | str:
        """The stores and the token sink that all users lead to."""
        stores: list[Instruction] = []
        sink: Instruction | None = None
        seen: set[Instruction] = set()
        stack = [(collective, iter(collective.users))]
        while stack:
            value, users = stack[-1]
            user = next(users, None)
            if user is None:
                stack.pop()
                continue
            if self._is_final(user):
                is_sink = self._is_token_sink(user)
                if not is_sink and user.operands[1] is not value:
                    return f"reaches %{user.name} as something else than its update"
                if user in stores:
                    continue
                if not self.rules.sinks and (stores or sink is not None):
                    return "reaches several stores"
                if is_sink:
                    sink = user
                else:
                    stores.append(user)
            elif not self._is_formatting(user, collective):
                return f"is read by %{user.name} ({user.opcode})"
            elif user not in seen:
                seen.add(user)
                stack.append((user, iter(user.users)))
        if self.rules.sinks and sink is not None:
            return "ends in a token"
        return (stores, sink) if stores or sink is not None else "reaches no store"

    def _is_token_sink(self, user: Instruction) -> bool:
        return (
            user.shape.is_token
            and user.user_count == 1
            and user.users[0] is self.loop.body.root
        )

    def _is_final(self, user: Instruction) -> bool:
        """Whether the walk ends here: in a store that leads to the root, or a sink."""
        if self._is_token_sink(user):
            return True
        if user.opcode != "dynamic-update-slice" or user.user_count != 1:
            return False
        if self.pipeliner.level == 0:
            return user.users[0] is self.loop.body.root
        for index in user.operands[FIRST_INDEX:]:
            if is_marked(index, INSERTED):
                return known_integer(index.operands[1]) == self.pipeliner.level
        return False

    def _is_formatting(self, user: Instruction, collective: Instruction) -> bool:
        """Whether something that reads the result may be moved with it."""
        opcode = user.opcode
        if has_control_edges(user):
            return False
        if opcode == "reduce" and user.shape.is_array:
            given = collective.operands[0].shape.element_count
            if user.shape.element_count == given or given < _FEW_ELEMENTS:
                return True
        if self.rules.sinks:
            if opcode in _NOT_SUNK:
                return False
            if opcode == "dynamic-update-slice":
                dimension = sliced_dimension(user)
                return dimension is not None and dimension != 0
        if opcode == "custom-call":
            return user.attributes.get("custom_call_has_side_effect") != "true"
        return opcode in _FORMATTING or (self.rules.use_tree and is_elementwise(user))

    def _formatting(self, collective: Instruction) -> list[Instruction] | None:
        """All on the way to the stores, with what is simple to copy beside it."""
        found: dict[Instruction, None] = {}
        seen: set[Instruction] = set()
        work = [collective]
        while work:
            operation = work.pop()
            if operation is not collective:
                if operation.opcode == "dynamic-slice":
                    if not _add_indices(operation, found):
                        return None
                else:
                    _add_broadcasts(operation, found)
                found[operation] = None
            for user in operation.users:
                if user not in seen and not self._is_final(user):
                    seen.add(user)
                    work.append(user)
        return list(found)

    # -- the store -------------------------------------------------------------------

    def _enter_store(self, store: Instruction, move: Move) -> str:
        """Note where a store writes; a text says why it cannot be moved."""
        dimension = sliced_dimension(store)
        if dimension is None:
            return f"is stored by %{store.name} in no single dimension"
        if self.rules.sinks:
            size = store.shape.dimensions[dimension] if store.shape.rank else 0
            if dimension != 0 or size != self.loop.iterations:
                return f"is stored by %{store.name} in other slices than iterations"
        if not self.rules.different_sizes and not _same_sizes(move):
            return "does not keep its size until it is stored"
        if self.pipeliner.level == 0:
            problem = self._buffer_problem(store, dimension)
            if problem:
                return problem
        output = self._output(store)
        if output is None:
            return f"is stored by %{store.name}, which no single result holds"
        if move.dimension not in (-1, dimension):
            return "is stored in several dimensions"
        move.dimension = dimension
        move.outputs.append(output)
        return ""

    def _buffer_problem(self, store: Instruction, dimension: int) -> str:
        buffer = store.operands[0]
        element = buffer.operands[0] if buffer.opcode == "opt-barrier" else buffer
        state = self.loop.body.parameters[0]
        is_element = (
            element.opcode == "get-tuple-element" and element.operands[0] is state
        )
        is_forced = (
            "frontend_attributes" in store.attributes
            and store.frontend_attributes.get(_SINKS_ALWAYS) == "1"
        )
        if not is_element and not is_forced:
            return f"is stored by %{store.name} in no element of the state"
        if element.opcode == "get-tuple-element" and (
            self._elements.get(element.tuple_index) != 1
        ):
            return f"is stored in %{element.name}, which is read twice"
        if any(user is not store for user in buffer.users):
            return f"is stored in %{buffer.name}, which others read"
        index = store.operands[FIRST_INDEX + dimension]
        values = self.ranges and self.ranges.of(index)
        if values is None or not values.is_linear:
            return f"is stored at %{index.name}, which does not follow the counter"
        return ""

    def _output(self, store: Instruction) -> int | None:
        """The element of the result that a store is, perhaps after other stores."""
        root = self.loop.body.root
        while store.opcode == "dynamic-update-slice" and store.user_count == 1:
            (user,) = store.users
            if user is root:
                places = self._outputs[store]
                return places[0] if len(places) == 1 else None
            store = user
        return None

    # -- operations that share a store -----------------------------------------------

    def _enter(
        self, move: Move, found: list[Move | None], by_store: dict[Instruction, int]
    ) -> None:
        """Add a move, or make it a part of those that have the same stores."""
        ends = [*move.stores, *([move.token_sink] if move.token_sink else [])]
        shared = list(dict.fromkeys(by_store[e] for e in ends if e in by_store))
        if not shared:
            for end in ends:
                by_store[end] = len(found)
            found.append(move)
            return
        target = found[min(shared)]
        assert target is not None
        if not self.rules.sinks:
            # The later operation becomes formatting of the first.
            have = {*target.formatting, *target.collectives}
            if move.collective not in have:
                added = [move.collective, *move.formatting]
                target.formatting += [i for i in added if i not in have]
        else:
            for place in shared:
                other = found[place]
                if other is not None and other is not target:
                    _absorb(target, other, by_store, min(shared))
                    found[place] = None
            _absorb(target, move, by_store, min(shared))
        target.formatting.sort(key=self.order.__getitem__)


def _absorb(
    target: Move, other: Move, by_store: dict[Instruction, int], place: int
) -> None:
    """Make all of a move a part of another one."""
    have, stores = {*target.formatting}, {*target.stores}
    target.collectives += [
        i for i in other.collectives if i not in have and i not in target.collectives
    ]
    target.formatting += [i for i in other.formatting if i not in have]
    for store, output in zip(other.stores, other.outputs, strict=True):
        by_store[store] = place
        if store not in stores:
            target.stores.append(store)
            target.outputs.append(output)


def _compacted(found: list[Move | None]) -> list[Move]:
    """Without what became a part of others, whose place the last one takes."""
    found = list(found)
    for place in range(len(found) - 1, -1, -1):
        if found[place] is None:
            found[place] = found[-1]
            found.pop()
    return [move for move in found if move is not None]


# -- small questions -----------------------------------------------------------------


def is_marked(instruction: Instruction, target: str) -> bool:
    """Whether it is the custom call of an earlier run."""
    return (
        instruction.opcode == "custom-call"
        and instruction.attributes.get("custom_call_target") == target
    )


def sliced_dimension(store: Instruction) -> int | None:
    """The dimension with the only index that is no constant; the others must be 0."""
    found: int | None = None
    for dimension, index in enumerate(store.operands[FIRST_INDEX:]):
        if index.opcode != "constant":
            if found is not None:
                return None
            found = dimension
        elif known_integer(index) != 0:
            return None
    return found


def is_elementwise(instruction: Instruction) -> bool:
    """Whether it works element by element; a loop fusion of such operations does."""
    if facts(instruction.opcode).is_elementwise:
        return True
    if instruction.opcode != "fusion" or instruction.attributes.get("kind") != "kLoop":
        return False
    return all(
        inner.opcode == "parameter" or is_elementwise(inner)
        for inner in instruction.called_computations[0].instructions
    )


def is_one_element(shape: Shape) -> bool:
    """Whether it is an array of one element."""
    return shape.is_array and all(size == 1 for size in shape.dimensions)


def _same_sizes(move: Move) -> bool:
    given = move.collective.operands[0].shape
    if not move.formatting:
        return given == move.collective.shape
    if given != move.formatting[-1].shape:
        return False
    return not any(is_one_element(i.shape) for i in move.side_inputs())


def _add_indices(sliced: Instruction, found: dict[Instruction, None]) -> bool:
    """Add all that a slice's indices are computed from; False where that is a state."""
    for index in sliced.operands[1:]:
        seen: set[Instruction] = set()
        stack = [(index, iter(index.operands))]
        while stack:
            operation, operands = stack[-1]
            operand = next(operands, None)
            if operand is None:
                found[operation] = None
                stack.pop()
                continue
            if operand.opcode == "parameter" or has_side_effect(operand):
                return False
            if operand not in seen:
                seen.add(operand)
                stack.append((operand, iter(operand.operands)))
    return True


def _add_broadcasts(operation: Instruction, found: dict[Instruction, None]) -> None:
    """Add broadcast operands and the constants that they broadcast."""
    for operand in operation.operands:
        if operand.opcode == "broadcast" and operand not in found:
            source = operand.operands[0]
            if source.opcode == "constant":
                found[source] = None
            found[operand] = None
