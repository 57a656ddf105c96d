"""What a computation copies between layouts, as a sum to make small.

    %x = f32[4,8]{1,0} parameter(0)           a fixed member: its order is (0,1)
    %n = f32[4,8] negate(%x)                  a choice, by the order of its axes
    %t = f32[8,4] transpose(%n)               another

    group of %x:   %x, %n's operand           32 elements * 4 bytes
    group of %n:   %n, %t's operand           likewise

A group is an array and what reads it. Its members each want one order of the array's
dimensions in memory. It costs its bytes for every order but one: who writes it makes
one order, a copy makes each further one, however many read that copy.

Groups that share a choice hang together. Each such part is solved on its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.layouts.ties import (
    MOVING,
    Order,
    Side,
    Tie,
    all_orders,
    always_moves,
    dimensions_in,
    has_choice,
    is_plain,
    order_of,
    orders_for,
    tie_of,
)

#: Orders that one choice is offered at most: all of four dimensions.
MOST_ORDERS: Final = 24


@dataclass(eq=False, slots=True)
class Choice:
    """An instruction whose layouts may change.

    Attributes:
        instruction: the one.
        tie: how its layouts hang together.
        groups: those that it is a member of.
        orders: of its axes that may be chosen; the given one first.
    """

    instruction: Instruction
    tie: Tie
    groups: dict[Group, None] = field(default_factory=dict)
    orders: dict[Order, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the order that is given."""
        self.orders = {self.tie.given: None}


@dataclass(frozen=True, slots=True)
class Member:
    """One that wants an order of an array's dimensions.

    Attributes:
        choice: None where the order is fixed.
        side: the array's dimensions by axis of the choice.
        fixed: the order, where it is.
        moves: whether it changes the order without a copy before it.
    """

    choice: Choice | None = None
    side: Side = ()
    fixed: Order = ()
    moves: bool = False

    def wants(self, order: Order) -> Order:
        """The order of the array's dimensions, by the order that is chosen."""
        return self.fixed if self.choice is None else dimensions_in(self.side, order)


#: What is chosen: an order of the axes for every choice.
Chosen = dict[Choice, Order]


@dataclass(eq=False, slots=True)
class Group:
    """An array, who writes it, and who reads it.

    Who reads a copy that changes the layout reads the array: the copy may go.

    Attributes:
        array: the instruction that writes it.
        members: the writer first.
        copies: of the array, into other layouts.
        given_bytes: that these copies write now, readers that move the array, each for
            itself, and the copies that XLA would have to add for the others.
    """

    array: Instruction
    members: list[Member]
    copies: list[Instruction]
    given_bytes: int

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return self.array.shape.byte_size

    def cost(self, chosen: Chosen) -> int:
        """Bytes that copies of the array write."""
        return self.size * (len(set(self.wanted(chosen))) - 1)

    def wanted(self, chosen: Chosen) -> list[Order]:
        """What every member wants."""
        return [m.wants(chosen[m.choice] if m.choice else ()) for m in self.members]


@dataclass(eq=False, slots=True)
class Part:
    """Choices and groups that hang together.

    Attributes:
        choices: in text order.
        groups: in text order of what writes the array.
        is_complete: whether the orders offered contain a best choice among all.
    """

    choices: list[Choice]
    groups: list[Group]
    is_complete: bool = True

    @property
    def given(self) -> Chosen:
        """The orders that the given layouts show."""
        return {choice: choice.tie.given for choice in self.choices}

    def cost(self, chosen: Chosen) -> int:
        """Bytes that are copied."""
        return sum(group.cost(chosen) for group in self.groups)

    def given_bytes(self) -> int:
        """Bytes that are copied now."""
        return sum(group.given_bytes for group in self.groups)

    def moving_arrays(self) -> list[Instruction]:
        """Arrays that are copied now."""
        return [group.array for group in self.groups if group.given_bytes]

    def offer_orders(self) -> None:
        """Collect the orders worth choosing.

        What has no fixed or narrow member can take the order of a neighbor and costs no
        more, so orders that reach a choice from others are enough: from fixed members,
        through ties in both directions. Three kinds of choices are offered all of
        theirs, since not all can take their neighbors': those with a slowest axis, with
        dimensions that stay together, and with axes left open on a cycle.
        """
        reached: list[tuple[Group, Order]] = []
        seen: dict[Group, set[Order]] = {group: set() for group in self.groups}

        def reach(group: Group, order: Order) -> None:
            if order not in seen[group]:
                seen[group].add(order)
                reached.append((group, order))

        def offer(choice: Choice, orders: Iterable[Order] | None) -> None:
            if orders is None:
                self.is_complete = False
                return
            for order in orders:
                if order in choice.orders or not choice.tie.allows(order):
                    continue
                if len(choice.orders) == MOST_ORDERS:
                    self.is_complete = False
                    return
                choice.orders[order] = None
                spread(choice, order)

        def spread(choice: Choice, order: Order) -> None:
            for group in choice.groups:
                for member in group.members:
                    if member.choice is choice:
                        reach(group, member.wants(order))

        for group in self.groups:
            for member in group.members:
                if member.choice is None:
                    reach(group, member.fixed)
        has_cycle = self._has_cycle()
        for choice in self.choices:
            spread(choice, choice.tie.given)
            tie = choice.tie
            if (
                tie.slowest is not None
                or tie.joins_dimensions
                or (has_cycle and tie.leaves_out_axes)
            ):
                offer(choice, all_orders(tie, MOST_ORDERS))
        while reached:
            group, order = reached.pop()
            for member in group.members:
                if member.choice is not None:
                    offer(member.choice, orders_for(member.side, order, MOST_ORDERS))

    def _has_cycle(self) -> bool:
        """Whether a choice and a group are joined in two ways."""
        edges = sum(len(choice.groups) for choice in self.choices)
        return edges >= len(self.choices) + len(self.groups)


def parts_of(computation: Computation) -> list[Part]:
    """What can be chosen in a computation, in parts that do not touch."""
    choices: dict[Instruction, Choice] = {}
    copies: dict[Instruction, None] = {}
    for instruction in computation.instructions:
        tie = tie_of(instruction)
        if tie is None:
            continue
        if _moves_as_copy(instruction):
            copies[instruction] = None
        else:
            choices[instruction] = Choice(instruction, tie)
    origin = {copy: _origin(copy, copies) for copy in copies}
    arrays = [
        i for i in computation.instructions if has_choice(i.shape) and i not in copies
    ]
    reads = reads_of(computation, arrays, origin)
    copies_of: dict[Instruction, list[Instruction]] = {}
    for copy, array in origin.items():
        copies_of.setdefault(array, []).append(copy)
    groups = [
        _group_of(array, its_reads, copies_of.get(array, []), choices)
        for array, its_reads in reads.items()
    ]
    return _split([group for group in groups if group is not None])


def _moves_as_copy(instruction: Instruction) -> bool:
    """Whether it is a copy into another layout; any other has another purpose."""
    return instruction.opcode == "copy" and (
        order_of(instruction.shape) != order_of(instruction.operands[0].shape)
    )


def _origin(copy: Instruction, copies: Container[Instruction]) -> Instruction:
    """What is copied, through all copies into other layouts."""
    while copy in copies:
        copy = copy.operands[0]
    return copy


#: Who reads an array, and as which operand.
Reads = list[tuple[Instruction, int]]


def reads_of(
    computation: Computation,
    arrays: Iterable[Instruction],
    origin: Mapping[Instruction, Instruction],
) -> dict[Instruction, Reads]:
    """Who reads each of some arrays, or a copy of it, in text order.

    Args:
        computation: the one.
        arrays: some of its instructions.
        origin: what copies are copies of; they do not count as readers.
    """
    reads: dict[Instruction, Reads] = {array: [] for array in arrays}
    for instruction in computation.instructions:
        if instruction in origin:
            continue
        for k, operand in enumerate(instruction.operands):
            array = origin.get(operand, operand)
            if array in reads:
                reads[array].append((instruction, k))
    return reads


def _group_of(
    array: Instruction,
    reads: Reads,
    copies: list[Instruction],
    choices: dict[Instruction, Choice],
) -> Group | None:
    """An array with its readers; None where nothing can be chosen, or nobody reads."""
    writer, size = choices.get(array), array.shape.byte_size
    as_given = Member(fixed=order_of(array.shape))
    readers: dict[Member, None] = {}
    moved = len(copies) * size
    added: dict[tuple[Instruction, Order], None] = {}
    for user, k in reads:
        if always_moves(user):
            continue
        member = _reading(user, k, choices.get(user))
        readers[member] = None
        read = user.operands[k]
        order = member.wants(member.choice.tie.given if member.choice else ())
        if order != order_of(read.shape):
            if member.moves:
                moved += size
            else:
                added[read, order] = None
    root = array.computation.root
    if root is array or root in copies:
        readers[Member(fixed=order_of(root.shape))] = None
    members = [Member(writer, writer.tie.result) if writer else as_given, *readers]
    if not copies and (not readers or all(m.choice is None for m in members)):
        return None
    group = Group(array, members, copies, moved + len(added) * size)
    for member in members:
        if member.choice is not None:
            member.choice.groups[group] = None
    return group


def _reading(user: Instruction, k: int, reader: Choice | None) -> Member:
    """What wants the operand `k` of a user."""
    if reader is not None and k < len(reader.tie.operands):
        side = reader.tie.operands[k]
        if side is not None:
            return Member(reader, side, moves=user.opcode in MOVING)
    return Member(fixed=order_of(read_by_fixed(user, k)))


def read_by_fixed(user: Instruction, k: int) -> Shape:
    """As what an instruction that keeps its layouts reads an operand.

    A tuple holds arrays as its shape says; all others read what they are given.
    """
    if user.opcode == "tuple" and is_plain(user.shape.elements[k]):
        return user.shape.elements[k]
    return user.operands[k].shape


def _split(groups: Sequence[Group]) -> list[Part]:
    """Groups by what they share."""
    above: dict[Choice, Choice] = {}

    def top(choice: Choice) -> Choice:
        while choice in above:
            following = above[choice]
            if following in above:
                above[choice] = above[following]
            choice = following
        return choice

    for group in groups:
        choices = _choices_of(group)
        for other in choices[1:]:
            one, another = top(choices[0]), top(other)
            if one is not another:
                above[another] = one
    parts: dict[Choice | Group, Part] = {}
    known: dict[Choice, None] = {}
    for group in groups:
        choices = _choices_of(group)
        part = parts.setdefault(top(choices[0]) if choices else group, Part([], []))
        part.groups.append(group)
        for choice in choices:
            if choice not in known:
                known[choice] = None
                part.choices.append(choice)
    return list(parts.values())


def _choices_of(group: Group) -> list[Choice]:
    return [m.choice for m in group.members if m.choice is not None]
