"""Makes the pieces of chains of permutes.

%i = u32[] partition-id()
%a = u32[] add(%i, 3)              the member that is three further on, of four
%r = u32[] remainder(%a, 4)
%s = u32[] multiply(%r, 8)         where its block begins; one for all uses
%b = f32[8] dynamic-slice(%x, %s)
%p = f32[8] collective-permute(%b), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.device_offsets import Groups
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.asynchrony.explicit_stream_annotation_async_wrapper import (
    GROUP_ANNOTATION,
)
from hlo_passes.passes.decomposing.own_position import (
    is_everybody,
    position_in_group,
)
from hlo_passes.passes.rewriting.constants import scalar
from hlo_passes.passes.rewriting.copies import derive

_POSITION: Final = array_shape("u32")


@dataclass(frozen=True, slots=True)
class Term:
    """One of the terms whose sum is the number of a block.

    Attributes:
        groups: the groups in which a device has a position.
        ahead: how many members further on the block's owner is: a number, or an
            instruction that computes one (u32, so that 0 to 2^31 are safe).
        stride: the number of blocks from one member to the next.
    """

    groups: Groups
    ahead: int | Instruction
    stride: int = 1


class ChainPieces:
    """Adds pieces of chains to a computation.

    Attributes:
        collective: the collective that the chains replace.
        computation: where the pieces go: into the computation of the collective, or
            into the body of a loop.
        made: all new instructions, in order.
        first: the permutes that need no other permute.
    """

    def __init__(
        self,
        collective: Instruction,
        identity: str,
        channels: Iterator[int],
        computation: Computation | None = None,
    ) -> None:
        """Begin without any pieces; `identity` is partition-id or replica-id."""
        self.collective = collective
        self.computation = computation or collective.computation
        self.identity = identity
        self.channels = channels
        self.made: list[Instruction] = []
        self.first: list[Instruction] = []
        #: What needs a permute.
        self._moved: set[Instruction] = set()
        self._positions: dict[Groups, Instruction] = {}
        self._scalars: dict[tuple[str, int], Instruction] = {}
        self._known_starts: dict[tuple[Term, int], Instruction] = {}

    def permute(
        self,
        value: Instruction,
        groups: Groups,
        by: int,
        sends: Callable[[int], bool] = lambda place: True,
    ) -> Instruction:
        """Send a value from each member to the one that is `by` members further on.

        Args:
            value: what is sent.
            groups: the groups of the members.
            by: how many members further on the value is received.
            sends: whether the member in a place of its group has anything to send; a
                member that receives nothing has zeros.
        """
        pairs = [
            (member, group[(place + by) % len(group)])
            for group in groups
            for place, member in enumerate(group)
            if sends(place)
        ]
        attributes = {"source_target_pairs": lists_text(pairs)}
        if self.identity == "partition-id":
            attributes["channel_id"] = str(next(self.channels))
        attributes = in_print_order(attributes, "collective-permute")
        permute = self.make("collective-permute", value.shape, (value,), **attributes)
        derive(permute, self.collective)
        if permute.mentions(GROUP_ANNOTATION):
            kept = permute.frontend_attributes.without(GROUP_ANNOTATION)
            permute.frontend_attributes = kept
        if permute not in self._moved:
            self.first.append(permute)
            self._moved.add(permute)
        return permute

    def block(
        self, whole: Instruction, dimension: int, place: Sequence[Term], size: int
    ) -> Instruction:
        """Cut a block out of an array.

        Args:
            whole: the array, which blocks of this size fill.
            dimension: the dimension along which the blocks follow one another.
            place: the terms whose sum is the block's number.
            size: the size of a block along the dimension.
        """
        sizes = list(whole.shape.dimensions)
        sizes[dimension] = size
        starts = self._starts(whole.shape.rank, dimension, place, size)
        return self.make(
            "dynamic-slice",
            whole.shape.with_dimensions(tuple(sizes)),
            (whole, *starts),
            dynamic_slice_sizes=f"{{{','.join(map(str, sizes))}}}",
        )

    def put(
        self,
        whole: Instruction,
        block: Instruction,
        dimension: int,
        place: Sequence[Term],
    ) -> Instruction:
        """Write a block into an array, in the place that terms give; see `block`."""
        size = block.shape.dimensions[dimension]
        starts = self._starts(whole.shape.rank, dimension, place, size)
        return self.make("dynamic-update-slice", whole.shape, (whole, block, *starts))

    def _starts(
        self, rank: int, dimension: int, place: Sequence[Term], size: int
    ) -> list[Instruction]:
        starts = [self.scalar("u32", 0)] * rank
        first, *others = [self._start(term, size) for term in place]
        for other in others:
            first = self.make("add", _POSITION, (first, other))
        starts[dimension] = first
        return starts

    def _start(self, term: Term, size: int) -> Instruction:
        """A term, times the size of a block; one for all uses."""
        members = len(term.groups[0])
        if isinstance(term.ahead, int):
            term = Term(term.groups, term.ahead % members, term.stride)
        key = term, size
        if key not in self._known_starts:
            place = self._position(term.groups)
            if term.ahead:
                further = term.ahead
                if isinstance(further, int):
                    further = self.scalar("u32", further)
                place = self.make("add", _POSITION, (place, further))
                count = self.scalar("u32", members)
                place = self.make("remainder", _POSITION, (place, count))
            rows = self.scalar("u32", term.stride * size)
            self._known_starts[key] = self.make("multiply", _POSITION, (place, rows))
        return self._known_starts[key]

    def _position(self, groups: Groups) -> Instruction:
        """The place of this device in its group."""
        if groups not in self._positions:
            place = self.make(self.identity, _POSITION)
            if not is_everybody(groups):
                place = position_in_group(self.computation, place, groups)
                (lookup,) = place.operands
                self.made += [lookup.operands[0], lookup, place]
            self._positions[groups] = place
        return self._positions[groups]

    def scalar(self, kind: str, number: int) -> Instruction:
        """A constant; all uses of a number share it."""
        known = self._scalars.get((kind, number))
        if known is None:
            known = scalar(self.computation, kind, number)
            self._scalars[kind, number] = known
            self.made.append(known)
        return known

    def make(
        self,
        opcode: str,
        shape: Shape,
        operands: Sequence[Instruction] = (),
        **attributes: str,
    ) -> Instruction:
        """A new instruction."""
        return self.note(self.computation.new(opcode, shape, operands, attributes))

    def note(self, new: Instruction) -> Instruction:
        """Count an instruction among the new ones; returns it."""
        self.made.append(new)
        if not self._moved.isdisjoint(new.operands):
            self._moved.add(new)
        return new
