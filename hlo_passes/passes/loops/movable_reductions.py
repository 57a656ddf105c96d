"""Which all-reduces of a loop could run once, after it.

    %r = all-reduce(%x)                                      an accumulation: nothing
    ROOT ... tuple(..., add(%total, %r), ...)                else reads %total or %r

    %r = all-reduce(%x)                                      stored slices: nothing
    ROOT ... tuple(..., dynamic-update-slice(%all, %r, %i)) else reads %all or %r

Source: openxla/xla `xla/service/while_loop_all_reduce_code_motion.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.counted_loops import known_integer
from hlo_passes.analysis.replication import SharedValues
from hlo_passes.analysis.while_loop_patterns import induction_variable, loop_range
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.element_types import (
    converts_without_loss,
    integer_range,
    is_floating,
)
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.literals import parse_literal
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.loops.pipelining import outputs_by_source
from hlo_passes.xla_release import XlaRelease

_NUMBERS: Final = frozenset(
    ["bf16", "f16", "f32", "f64"]
    + [f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64)]
)
_SAME_ELEMENTS: Final = frozenset({"bitcast", "convert", "reshape", "transpose"})
#: What an all-reduce may pass on the way to its sum, or the sum to the result.
_LINEAR: Final = _SAME_ELEMENTS | {"get-tuple-element", "slice"}
_REDUCTIONS: Final = frozenset({"add", "maximum", "minimum", "multiply"})
_OF_BOOLEANS: Final = frozenset({"and", "or"})


@dataclass(frozen=True, slots=True)
class Accumulation:
    """An element of the state to which an all-reduce is added.

    Attributes:
        adds: the `add`, or the `scatter` whose result is reduced.
        buffer: the value to which it adds.
        index: the element.
        read: the dynamic-slice through which it is read, if any.
        written: the dynamic-update-slice through which it is written, if any.
    """

    adds: Instruction
    buffer: Instruction
    index: int
    read: Instruction | None
    written: Instruction | None


@dataclass(frozen=True, slots=True)
class StoredSlices:
    """What all iterations store of an all-reduce: a part of an element of the state."""

    shape: Shape
    offsets: tuple[int, ...]
    index: int


Movable = list[Accumulation] | StoredSlices


@dataclass(slots=True)
class ReductionSearch:
    """Judges the all-reduces of one body.

    Attributes:
        body: the computation of an iteration.
        loops: all loops that run it.
        shared: the values that all devices of a group have.
        release: which induction variables XLA finds.
        most_bytes: of the slices of all iterations.
        xla_quirks: accept choices by what differs between devices, conversions that
            give others sums, and scatters into what is reduced, as XLA does.
    """

    body: Computation
    loops: Sequence[Instruction]
    shared: SharedValues
    release: XlaRelease
    most_bytes: int
    xla_quirks: bool
    _counter: tuple[int, int] | None = None
    #: Index -> the elements of the state with it, in the body.
    _elements: dict[int, list[Instruction]] = field(default_factory=dict)
    _only_elements: bool = True
    _outputs: Mapping[Instruction, list[int]] = field(default_factory=dict)
    #: Elements that a condition reads.
    _decisive: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Look at the loops once, not for each reduction."""
        self._counter = self._shared_counter()
        for user in self.body.parameters[0].users:
            index = user.tuple_index_or_none
            if index is None:
                self._only_elements = False
            else:
                self._elements.setdefault(index, []).append(user)
        self._outputs = outputs_by_source(self.body.root)
        for loop in self.loops:
            for instruction in loop.called_computations[1].instructions:
                if instruction.opcode == "get-tuple-element":
                    self._decisive.add(instruction.tuple_index)

    def movable(self, reduction: Instruction) -> Movable | str:
        """How an all-reduce or reduce-scatter may move; a text says why it cannot."""
        kind = _reduction(reduction)
        if not kind or reduction.shape.is_tuple or len(reduction.operands) != 1:
            return "is no simple reduction of one array"
        if reduction.opcode == "reduce-scatter":
            if kind != "add" or reduction.shape.element_type not in _NUMBERS:
                return "is no sum"
            return self._scattered_sums(reduction)
        slices = self._stored_slices(reduction)
        if slices is not None:
            return slices
        if kind != "add" or reduction.shape.element_type not in _NUMBERS:
            return "is no sum"
        scattered = self._scattered(reduction)
        if scattered is not None:
            if not self.xla_quirks:
                return "reduces what earlier iterations have reduced"
            return [scattered]
        return self._accumulations(reduction)

    # -- sums ------------------------------------------------------------------------

    def _accumulations(self, reduction: Instruction) -> list[Accumulation] | str:
        """The sums that all uses lead to."""
        found: list[Accumulation] = []
        work = [reduction]
        while work:
            value = work.pop()
            for user in value.users:
                if user.opcode == "add":
                    sum_ = self._sum(user, value, reduction)
                    if sum_ is None:
                        return f"is added to no sum of its own in %{user.name}"
                    found.append(sum_)
                elif self._passes(user, value, reduction):
                    work.append(user)
                else:
                    return f"is read by %{user.name} ({user.opcode})"
        if any(self._is_read_elsewhere(sum_, reduction) for sum_ in found):
            return "is added to a sum that the loop reads"
        return found

    def _scattered_sums(self, reduction: Instruction) -> list[Accumulation] | str:
        """The sums of a reduce-scatter: nothing but a choice of 0 may lie between."""
        found: list[Accumulation] = []
        readers: list[tuple[Instruction, Instruction]] = []
        for user in reduction.users:
            if user.opcode == "select":
                if not (
                    _chooses_or_zero(user, reduction)
                    and _is_broadcast_scalar(user.operands[0])
                    and (
                        self.xla_quirks
                        or self.shared.is_shared(user.operands[0], reduction)
                    )
                ):
                    return f"is read by %{user.name} (select)"
                readers += [(user, reader) for reader in user.users]
            else:
                readers.append((reduction, user))
        for value, add in readers:
            if add.opcode != "add":
                return f"is read by %{add.name} ({add.opcode})"
            buffer = add.operands[1 - add.operands.index(value)]
            index = buffer.tuple_index_or_none
            if (
                index is None
                or buffer.operands[0].opcode != "parameter"
                or self._outputs.get(add) != [index]
                or add.user_count != 1
            ):
                return f"is added to no sum of its own in %{add.name}"
            found.append(Accumulation(add, buffer, index, None, None))
        adds = {sum_.adds for sum_ in found}
        for sum_ in found:
            if sum_.index in self._decisive or not self._only_elements:
                return "is added to a sum that the loop reads"
            for element in self._elements[sum_.index]:
                if any(user not in adds for user in element.users):
                    return "is added to a sum that the loop reads"
        if len({sum_.index for sum_ in found}) != len(found):
            return "is added to one sum twice"
        return found

    def _passes(
        self, user: Instruction, value: Instruction, reduction: Instruction
    ) -> bool:
        """Whether an operation gives the same before and after the sum."""
        if user.opcode in _LINEAR or user.opcode == "broadcast":
            return self.xla_quirks or _is_linear(user)
        if user.opcode == "select":
            return _chooses_or_zero(user, value) and (
                self.xla_quirks or self.shared.is_shared(user.operands[0], reduction)
            )
        if user.opcode != "multiply":
            return False
        # A factor may be a number that all devices share, being reduced itself.
        factor = user.operands[1 - user.operands.index(value)]
        is_repeated = False
        while factor.opcode in ("broadcast", "convert"):
            is_repeated |= factor.opcode == "broadcast"
            factor = factor.operands[0]
        if factor.opcode != "all-reduce" or factor.shape.rank or not is_repeated:
            return False
        if not reduction.shape.rank:
            return False
        return self.xla_quirks or all(
            factor.spelling_of(name) == reduction.spelling_of(name)
            for name in ("replica_groups", "use_global_device_ids")
        )

    def _sum(
        self, add: Instruction, value: Instruction, reduction: Instruction
    ) -> Accumulation | None:
        buffer = add.operands[1 - add.operands.index(value)]
        origin, output = _origin(buffer), self._output(add)
        if origin is None or output is None:
            return None
        if not (self.xla_quirks or _is_read_whole(buffer)):
            return None
        (index, read), (at, written) = origin, output
        if index is None or index != at or (read is None) != (written is None):
            return None
        if read is not None and written is not None:
            places = written.operands[2:]
            if read.operands[1:] != places or not all(
                self.shared.is_shared(place, reduction) for place in places
            ):
                return None
        return Accumulation(add, buffer, index, read, written)

    def _output(
        self, value: Instruction
    ) -> tuple[int | None, Instruction | None] | None:
        """(element, store) of the result that a value becomes; None for others."""
        index: int | None = None
        store: Instruction | None = None
        is_returned = False
        work = [value]
        while work:
            one = work.pop()
            for user in one.users:
                if user.opcode in _LINEAR:
                    if not (self.xla_quirks or _is_linear(user)):
                        return None
                    work.append(user)
                elif user.opcode == "dynamic-update-slice" and store is None:
                    store = user
                    work.append(user)
                elif user.opcode == "tuple" and index is None:
                    index = user.operands.index(one)
                    if user is self.body.root:
                        is_returned = True
                    else:
                        work.append(user)
                else:
                    return None
        return (index, store) if is_returned else None

    def _is_read_elsewhere(self, sum_: Accumulation, reduction: Instruction) -> bool:
        """Whether the loop reads the element for anything but the sum."""
        if not self._only_elements:
            return True
        work = list(self._elements.get(sum_.index, ()))
        while work:
            value = work.pop()
            for user in value.users:
                if user.opcode in _SAME_ELEMENTS:
                    work.append(user)
                elif user.opcode == "select":
                    if not (
                        _chooses_or_zero(user, value)
                        and self.shared.is_shared(user.operands[0], reduction)
                    ):
                        return True
                    work.append(user)
                elif user not in (sum_.adds, sum_.read, sum_.written):
                    return True
        return False

    def _scattered(self, reduction: Instruction) -> Accumulation | None:
        """A scatter into the element, whose result each iteration reduces."""
        scatter = reduction.operands[0]
        while scatter.opcode in _SAME_ELEMENTS or scatter.opcode == "slice":
            scatter = scatter.operands[0]
        if scatter.opcode != "scatter":
            return None
        base = scatter.operands[0]
        while base.opcode == "select":
            zeros = [is_zero(choice) for choice in base.operands[1:]]
            if zeros.count(True) != 1:
                return None
            base = base.operands[1 + zeros.index(False)]
        origin, output = _origin(base), self._output(reduction)
        if origin is None or output is None:
            return None
        index, read = origin
        if index is None or index != output[0]:
            return None
        for user in base.users:
            if user.opcode == "get-tuple-element" or user is scatter:
                continue
            if user.opcode != "select" or not _chooses_or_zero(user, base):
                return None
        return Accumulation(scatter, base, index, read, None)

    # -- stored slices -----------------------------------------------------------------

    def _stored_slices(self, reduction: Instruction) -> StoredSlices | None:
        """What the stores of all iterations write, if each writes its own slice."""
        if self._counter is None:
            return None
        counter, last = self._counter
        if (last + 1) * reduction.shape.byte_size > self.most_bytes:
            return None
        # Follow the only path to the stores.
        value, shape = reduction, reduction.shape
        while True:
            if value.user_count != 1:
                return None
            (user,) = value.users
            if user.opcode not in ("reshape", "convert"):
                break
            value = user
            if user.opcode == "reshape":
                shape = user.shape
            elif not (self.xla_quirks or _reduces_alike(user, _reduction(reduction))):
                return None
            else:
                shape = shape.with_element_type(user.shape.element_type)
        sizes, offsets = list(shape.dimensions), [0] * shape.rank
        if user.shape.rank != shape.rank:
            return None
        store, written = user, value
        while store.opcode == "dynamic-update-slice":
            if store.operands[1] is not written or store.user_count != 1:
                return None
            for k, index in enumerate(store.operands[2:]):
                number = known_integer(index) if index.opcode == "constant" else None
                if number is not None:
                    offsets[k] += number
                elif (
                    _is_counter(index, counter, last)
                    and written.shape.dimensions[k] == 1
                ):
                    sizes[k] = last + 1
                else:
                    return None
            written, (store,) = store, store.users
        if written is value or store is not self.body.root:
            return None
        return self._checked(written, shape.with_dimensions(tuple(sizes)), offsets)

    def _checked(
        self, store: Instruction, shape: Shape, offsets: list[int]
    ) -> StoredSlices | None:
        """The slices, if nothing but the last store touches their buffer."""
        buffer = store.operands[0]
        if (
            buffer.opcode != "get-tuple-element"
            or buffer.operands[0].opcode != "parameter"
            or self._outputs.get(store) != [buffer.tuple_index]
            or buffer.user_count != 1
        ):
            return None
        index = buffer.tuple_index
        if len(self._elements[index]) != 1 or index in self._decisive:
            return None
        # No store may begin outside of the buffer, where it would be shifted.
        fits = len(offsets) == shape.rank == buffer.shape.rank and all(
            first >= 0 and first + size <= whole
            for first, size, whole in zip(
                offsets, shape.dimensions, buffer.shape.dimensions, strict=True
            )
        )
        return StoredSlices(shape, tuple(offsets), index) if fits else None

    def _shared_counter(self) -> tuple[int, int] | None:
        """(element, last value) of a counter from 0 by 1 that all loops share."""
        found: set[tuple[int, int]] = set()
        for loop in self.loops:
            index = induction_variable(loop, self.release)
            if index is None or not is_zero(loop.operands[0].operands[index]):
                return None
            values = loop_range(loop, index)
            if values is None or values.step != 1 or values.last < 0:
                return None
            found.add((index, values.last))
        return found.pop() if len(found) == 1 else None


# -- small questions -----------------------------------------------------------------


def is_zero(value: Instruction) -> bool:
    """Whether it is the scalar constant 0, or its broadcast."""
    while value.opcode == "broadcast":
        value = value.operands[0]
    if value.opcode != "constant" or value.shape.rank or value.literal is None:
        return False
    array = parse_literal(value.literal, value.shape).array
    return array is not None and not array.any()


def _is_read_whole(value: Instruction) -> bool:
    """Whether no conversion of an element of the state loses anything of it."""
    while value.opcode != "parameter":
        operand = value.operands[0]
        if value.opcode == "convert":
            old, new = operand.shape.element_type, value.shape.element_type
            is_rounded = is_floating(old) and is_floating(new)
            if not (is_rounded or converts_without_loss(old, new)):
                return False
        value = operand
    return True


def _is_linear(operation: Instruction) -> bool:
    """Whether it gives the same of a sum as of the numbers that are added.

    XLA asks nothing of conversions. Rounding to an integer is not linear, and a narrow
    sum may overflow where a wide one does not. The rounding of floating types differs
    as the order of additions does.
    """
    return operation.opcode != "convert" or _reduces_alike(operation, "add", wide=False)


def _reduces_alike(convert: Instruction, kind: str, *, wide: bool = True) -> bool:
    """Whether converting reduced numbers and reducing converted ones is the same.

    Args:
        convert: from the type of the numbers to another one.
        kind: of the reduction.
        wide: whether a conversion without loss is undone before numbers are reduced.
    """
    old, new = convert.operands[0].shape.element_type, convert.shape.element_type
    if wide and converts_without_loss(old, new):
        return True
    if is_floating(old) and is_floating(new):
        return True
    if kind in ("maximum", "minimum") or not {old, new} <= _NUMBERS:
        return False
    if is_floating(old) or is_floating(new):
        return False
    (least, most), (low, high) = integer_range(old), integer_range(new)
    return high - low <= most - least


def _is_counter(index: Instruction, counter: int, last: int) -> bool:
    """Whether it is the counter, or what is left of it until its last value."""
    if index.opcode == "subtract" and known_integer(index.operands[0]) == last:
        index = index.operands[1]
    return (
        index.tuple_index_or_none == counter and index.operands[0].opcode == "parameter"
    )


def _is_broadcast_scalar(value: Instruction) -> bool:
    return value.opcode == "broadcast" and not value.operands[0].shape.rank


def _chooses_or_zero(select: Instruction, value: Instruction) -> bool:
    place = select.operands.index(value)
    return place > 0 and is_zero(select.operands[3 - place])


def _origin(value: Instruction) -> tuple[int | None, Instruction | None] | None:
    """(element, slice) of the state that a value is; None for anything else."""
    index: int | None = None
    read: Instruction | None = None
    while value.opcode != "parameter":
        if value.opcode == "get-tuple-element" and index is None:
            index = value.tuple_index
        elif value.opcode == "dynamic-slice" and read is None:
            read = value
        elif value.opcode not in _SAME_ELEMENTS:
            return None
        value = value.operands[0]
    return index, read


def _reduction(collective: Instruction) -> str:
    """What a reduction of two numbers does, '' for anything else."""
    root = collective.called_computations[0].root
    if len(root.operands) != 2 or any(o.opcode != "parameter" for o in root.operands):
        return ""
    if root.operands[0] is root.operands[1]:
        return ""
    if root.opcode in _OF_BOOLEANS and root.shape.element_type == "pred":
        return root.opcode
    return root.opcode if root.opcode in _REDUCTIONS else ""
