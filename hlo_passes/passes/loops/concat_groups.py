"""Which values of a loop's body can be computed joined, if their join is wanted.

    %joined = concatenate(%a, %b)        wanted joined: (%a, %b)
    %a = add(%x, %c)                     then also (%x, %y),
    %b = add(%y, %c)                     and %c twice

Source: openxla/xla `xla/service/while_loop_concat_code_motion.cc`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from hlo_passes.analysis.effects import acts_itself, has_control_edges
from hlo_passes.analysis.structure import Structure
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.ir.windows import parse_slice

#: Elementwise operations without a form on joined operands.
_NOT_JOINED: Final = frozenset({"map", "rng"})
_ARRAYS_AND_STARTS: Final = 2


@dataclass(slots=True, eq=False)
class Group:
    """Values that are computed joined.

    Attributes:
        elements: the values, in order.
        dimension: along which they are joined.
        inserted: whether that is a new dimension, as wide as there are elements.
    """

    elements: tuple[Instruction, ...]
    dimension: int
    inserted: bool
    _ends: list[int] = field(default_factory=list)

    @property
    def shape(self) -> Shape:
        """The joined shape."""
        first, at = self.elements[0].shape, self.dimension
        sizes = first.dimensions
        if self.inserted:
            return array_shape(
                first.element_type, (*sizes[:at], len(self.elements), *sizes[at:])
            )
        size = self.part(len(self.elements) - 1)[1]
        return first.with_dimensions((*sizes[:at], size, *sizes[at + 1 :]))

    def part(self, place: int) -> tuple[int, int]:
        """Where an element begins and ends in the joined dimension."""
        if self.inserted:
            return place, place + 1
        if not self._ends:
            sizes = (e.shape.dimensions[self.dimension] for e in self.elements)
            self._ends = list(accumulate(sizes))
        return self._ends[place - 1] if place else 0, self._ends[place]


@dataclass(slots=True)
class Groups:
    """The groups of one body, and what may be in none.

    Attributes:
        body_state: the parameter of the body.
        order: the place of each instruction of the body in post order.
        found: all groups.
        places: (group, place in it) of each value that is in a group.
        alone: what may be in no group.
    """

    body_state: Instruction
    order: Mapping[Instruction, int]
    found: list[Group] = field(default_factory=list)
    places: dict[Instruction, tuple[int, int]] = field(default_factory=dict)
    alone: set[Instruction] = field(default_factory=set)
    structure: Structure = field(
        default_factory=lambda: Structure(layout_sensitive=False)
    )

    def group_of(self, value: Instruction) -> Group | None:
        """The group that a value is in."""
        place = self.places.get(value)
        return None if place is None else self.found[place[0]]

    def add_for(self, concatenate: Instruction) -> str:
        """Find the groups with which an operation is not needed; a text says why not.

        What is found is forgotten if anything speaks against one of them.
        """
        before = len(self.found)
        problem = self._search(concatenate)
        if problem:
            for group in self.found[before:]:
                for element in group.elements:
                    del self.places[element]
            del self.found[before:]
        return problem

    def _search(self, concatenate: Instruction) -> str:
        body = concatenate.computation
        (along,) = concatenate.integers("dimensions")
        work: list[tuple[int, int, Group]] = []
        pushed = 0

        def push(group: Group) -> None:
            nonlocal pushed
            # Users come before their operands.
            heapq.heappush(work, (-self.order[group.elements[0]], pushed, group))
            pushed += 1

        push(Group(concatenate.operands, along, inserted=False))
        used: set[int] = set()
        seen: set[tuple[object, ...]] = set()
        while work:
            _, _, group = heapq.heappop(work)
            key = group.elements, group.dimension, group.inserted
            if key in seen:
                continue
            seen.add(key)
            first = group.elements[0]
            # What all share is joined with itself, where it is needed.
            if all(element is first for element in group.elements):
                if first in self.places:
                    return f"%{first.name} would be needed joined and as it is"
                self.alone.add(first)
                continue
            # Otherwise all must do the same, each to its own operands.
            is_state = all(
                e.opcode == "get-tuple-element" and e.operands[0] is self.body_state
                for e in group.elements
            )
            if not is_state:
                needed = self._needed_for(group)
                if isinstance(needed, str):
                    return needed
                for operands in needed:
                    push(operands)
            number = self._register(group)
            if isinstance(number, str):
                return number
            # Elements of the state are returned joined.
            if is_state and number not in used:
                ends = body.root.operands
                known = self.found[number]
                returned = tuple(ends[e.tuple_index] for e in known.elements)
                push(Group(returned, known.dimension, known.inserted))
            used.add(number)
        return ""

    def _register(self, group: Group) -> int | str:
        """The number of a group, of an equal one if there is; a text says why not."""
        for element in group.elements:
            if element in self.alone:
                return f"%{element.name} is needed as it is"
        if len(set(group.elements)) < len(group.elements):
            return f"%{group.elements[0].name} and others would be joined twice"
        places = [self.places.get(element) for element in group.elements]
        if all(place is None for place in places):
            self.found.append(group)
            number = len(self.found) - 1
            for k, element in enumerate(group.elements):
                self.places[element] = number, k
            return number
        known = places[0]
        if known is not None:
            same = [(known[0], k) for k in range(len(places))]
            if (
                places == same
                and self.found[known[0]].dimension == group.dimension
                and len(self.found[known[0]].elements) == len(places)
            ):
                return known[0]
        return f"%{group.elements[0].name} would be joined in two ways"

    def _needed_for(self, group: Group) -> list[Group] | str:
        """The operands that are needed joined; a text says what is against it."""
        first = group.elements[0]
        if any(has_control_edges(element) for element in group.elements):
            return f"%{first.name} or others have control edges"
        if first.opcode == "slice":
            return self._check_slices(group)
        reason = _why_not_joined(group)
        if reason:
            return f"%{first.name} ({first.opcode}) {reason}"
        for element in group.elements:
            if not self.structure.equal_apart_from_operands(first, element) or any(
                not mine.shape.compatible(yours.shape)
                for mine, yours in zip(element.operands, first.operands, strict=True)
            ):
                return f"%{first.name} and %{element.name} do not do the same"
        needed: list[Group] = []
        for place, operand in enumerate(first.operands):
            elements = tuple(element.operands[place] for element in group.elements)
            if is_shared_scalar(first, place):
                if any(element is not operand for element in elements):
                    return f"%{first.name} and others read different scalars"
                continue
            where = operand_dimension(first, group.dimension, inserted=group.inserted)
            if where is None:
                return f"%{first.name} ({first.opcode}) moves the joined dimension"
            needed.append(Group(elements, *where))
        return needed

    def _check_slices(self, group: Group) -> list[Group] | str:
        """Slices must cut one value into parts, in order."""
        first, at = group.elements[0], group.dimension
        whole = first.operands[0]
        if group.inserted:
            return f"%{first.name} would be joined along a new dimension"
        if whole in self.places:
            return f"%{whole.name} would be needed joined and as it is"
        self.alone.add(whole)
        offset = 0
        for element in group.elements:
            if element.opcode != "slice" or element.operands[0] is not whole:
                return f"%{first.name} and %{element.name} slice different values"
            wanted = [(0, size, 1) for size in whole.shape.dimensions]
            size = element.shape.dimensions[at]
            wanted[at] = offset, offset + size, 1
            if parse_slice(element.attributes["slice"]).dimensions != tuple(wanted):
                return f"%{element.name} is not the next part of %{whole.name}"
            offset += size
        if offset != whole.shape.dimensions[at]:
            return f"%{first.name} and others are not all of %{whole.name}"
        return []


def is_shared_scalar(instruction: Instruction, place: int) -> bool:
    """Whether an operand stays as it is: the start of a reduction, a bound of clamp."""
    if instruction.opcode == "reduce":
        return place > 0
    operand = instruction.operands[place]
    return facts(instruction.opcode).is_elementwise and (
        operand.shape.dimensions != instruction.shape.dimensions
    )


def _why_not_joined(group: Group) -> str:
    """Why an operation has no form on joined operands; '' if it has."""
    first = group.elements[0]
    opcode = first.opcode
    if not first.shape.is_array:
        return "returns no array"
    if opcode == "all-reduce":
        return "has a channel id" if first.channel_id is not None else ""
    if opcode == "custom-call":
        if first.attributes.get("custom_call_target") != '"Sharding"':
            return "has no joined form"
        return "has a sharding without the new dimension" if group.inserted else ""
    if opcode == "reduce":
        starts = {element.operands[-1] for element in group.elements}
        if len(first.operands) != _ARRAYS_AND_STARTS or len(starts) > 1:
            return "starts from different values"
        return ""
    if opcode in ("broadcast", "reshape"):
        return ""
    if facts(opcode).is_elementwise and opcode not in _NOT_JOINED:
        if acts_itself(first):
            return "has side effects"
        return ""
    return "has no joined form"


def operand_dimension(
    instruction: Instruction, dimension: int, *, inserted: bool
) -> tuple[int, bool] | None:
    """(dimension, whether inserted) of the first operand joined, for a joined result.

    None where that cannot be.
    """
    opcode = instruction.opcode
    if opcode == "broadcast":
        return _below_broadcast(instruction, dimension, inserted=inserted)
    if opcode == "reduce":
        for gone in sorted(instruction.integers("dimensions")):
            if gone < dimension or (gone == dimension and not inserted):
                dimension += 1
        return dimension, inserted
    if opcode == "reshape":
        return _below_reshape(instruction, dimension, inserted=inserted)
    return dimension, inserted


def _below_broadcast(
    broadcast: Instruction, dimension: int, *, inserted: bool
) -> tuple[int, bool]:
    places = broadcast.integers("dimensions")
    if dimension in places:
        return places.index(dimension), inserted
    # A new dimension of the operand goes next to the closest one, as in the result.
    nearest, found = broadcast.shape.rank, 0
    for k, place in enumerate(places):
        if abs(dimension - place) < nearest:
            nearest = abs(dimension - place)
            found = k + 1 if place < dimension else k
    return found, True


def _below_reshape(
    reshape: Instruction, dimension: int, *, inserted: bool
) -> tuple[int, bool] | None:
    """Only dimensions of size 1 may come and go before the joined one."""
    given, made = reshape.operands[0].shape.dimensions, reshape.shape.dimensions
    i = j = 0
    while True:
        size = given[i] if i < len(given) else None
        if size is not None and j < len(made) and size == made[j]:
            if j == dimension:
                return i, inserted and size != 1
            i, j = i + 1, j + 1
        elif size == 1:
            if j == dimension and inserted:
                return i, False
            i += 1
        elif j == dimension:
            return i, True
        elif j < len(made) and made[j] == 1:
            j += 1
        else:
            return None


def elements_read(computation_state: Instruction) -> Sequence[int] | None:
    """The elements of a state that are read; None where it is read as a whole."""
    indices = [user.tuple_index_or_none for user in computation_state.users]
    return None if None in indices else [k for k in indices if k is not None]
