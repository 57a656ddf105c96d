"""Sends and recvs of one channel, and how they are pipelined through a loop.

    unpipelined: recv, send, recv-done, send-done of a channel in one computation
    pipelined:   the four in a loop's body, and four more around the loop
    cycle:       two channels of a body, one on stream 1, one on stream 0

Source: openxla/xla `xla/service/p2p_schedule_preparation.cc` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from hlo_passes.analysis import transfer_attributes
from hlo_passes.analysis.post_order import post_order
from hlo_passes.errors import PassError
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import (
    is_collective,
    is_done,
    is_host_transfer,
    is_transfer,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction

Kind = Literal["unpipelined", "pipelined", "unrecognized"]
#: Stream of a pipelined transfer; None if the attribute says neither.
StreamNumber = Literal[0, 1] | None

_MOST_PIPELINED_CHANNELS: Final = 2
#: send, recv and their dones.
_TRANSFERS_OF_A_CHANNEL: Final = 4


def is_device_transfer(instruction: Instruction) -> bool:
    """Whether it is a send, a recv or one of their dones, between devices."""
    return is_transfer(instruction) and not is_host_transfer(instruction)


@dataclass(slots=True)
class Node:
    """The transfers of a channel in one computation, by opcode.

    Attributes:
        parts: opcode -> instruction.
        loop: the while through which they are pipelined, in the computation around it.
    """

    parts: dict[str, Instruction] = field(default_factory=dict)
    computation: Computation | None = None
    loop: Instruction | None = None

    def record(self, instruction: Instruction) -> bool:
        """Add a transfer or the loop; False if its place is taken."""
        if self.computation is None:
            self.computation = instruction.computation
        elif self.computation is not instruction.computation:
            return False
        if instruction.opcode == "while":
            if self.loop is not None:
                return False
            self.loop = instruction
            return True
        if instruction.opcode in self.parts:
            return False
        self.parts[instruction.opcode] = instruction
        return True

    @property
    def is_complete(self) -> bool:
        """Whether it has all four transfers."""
        return len(self.parts) == _TRANSFERS_OF_A_CHANNEL

    @property
    def stream(self) -> StreamNumber:
        """The stream on which send and recv agree."""
        said = {
            self.parts[opcode].frontend_attributes.get(transfer_attributes.PIPELINE, "")
            for opcode in ("send", "recv")
        }
        if said == {"0"}:
            return 0
        return 1 if said == {"1"} else None


@dataclass(slots=True)
class Group:
    """All transfers of a channel.

    Attributes:
        channel: its id.
        kind: 'unpipelined', 'pipelined' or 'unrecognized'.
        child: where the channel was found first: the loop's body, if it is pipelined.
        parent: around the loop; empty for unpipelined groups.
        stream: on which it is pipelined.
        complement: the other group of a cycle.
    """

    channel: int
    kind: Kind = "unpipelined"
    child: Node = field(default_factory=Node)
    parent: Node = field(default_factory=Node)
    stream: StreamNumber = None
    complement: Group | None = None

    def record(self, instruction: Instruction) -> None:
        """Add a transfer."""
        if self.kind == "unrecognized":
            return
        if self.child.computation in (None, instruction.computation):
            if self.kind == "pipelined":
                raise _unexpected(instruction, "is pipelined already")
            node = self.child
        else:
            self.kind = "pipelined"
            node = self.parent
        if not node.record(instruction):
            self.kind = "unrecognized"

    def settle(self) -> bool:
        """Find the stream; False if it is incomplete or contradictory."""
        if self.kind == "unrecognized" or not self.child.is_complete:
            return False
        stream = self.child.stream
        if self.kind == "pipelined":
            if not self.parent.is_complete or self.parent.loop is None:
                return False
            if stream is None or self.parent.stream != stream:
                return False
        self.stream = stream
        return True

    def is_child(self, computation: Computation) -> bool:
        """Whether it is pipelined through a loop with this body."""
        return self.kind == "pipelined" and computation is self.child.computation

    def is_in(self, computation: Computation) -> bool:
        """Whether it has transfers in a computation."""
        return computation in (self.child.computation, self.parent.computation)

    def node(self, computation: Computation) -> Node:
        """Its transfers in a computation that it is in."""
        return self.child if computation is self.child.computation else self.parent

    def partner(self, computation: Computation) -> Group | None:
        """The other group of a cycle, if it is in a computation too."""
        other = self.complement
        return other if other is not None and other.is_in(computation) else None

    def ends(self, computation: Computation) -> tuple[Instruction, Instruction]:
        """First and last transfer of its chain: a recv and a send-done."""
        node, partner = self.node(computation), self.partner(computation)
        if partner is None:
            return node.parts["recv"], node.parts["send-done"]
        other = partner.node(computation)
        if self.stream == 1:
            return other.parts["recv"], node.parts["send-done"]
        return node.parts["recv"], other.parts["send-done"]


class TransferGroups:
    """Groups of a module, gathered computation by computation, callees first.

    Attributes:
        groups: channel -> group.
        channels: computation -> channels that it uses.
        communicates: computation -> whether it runs any collective, itself or below.
    """

    def __init__(self) -> None:
        """Start with nothing gathered."""
        self.groups: dict[int, Group] = {}
        self.channels: dict[Computation, set[int]] = {}
        self.communicates: dict[Computation, bool] = {}

    def gather(self, computation: Computation) -> None:
        """Add the transfers of a computation.

        Raises PassError E024 for transfers that do not fit a group.
        """
        self.communicates[computation] = False
        loops: list[Instruction] = []
        for instruction in post_order(computation):
            if self.may_communicate(instruction):
                self.communicates[computation] = True
            if instruction.opcode == "while":
                loops.append(instruction)
            elif is_device_transfer(instruction):
                channel = instruction.channel_id
                if channel is None:
                    raise _unexpected(instruction, "has no channel id")
                group = self.groups.setdefault(channel, Group(channel))
                group.record(instruction)
                self.channels.setdefault(computation, set()).add(channel)
        for loop in loops:
            self._record_loop(loop)
        self.groups = {c: g for c, g in self.groups.items() if g.settle()}
        for group in self.groups.values():
            is_elsewhere = (
                group.kind == "pipelined"
                and group.parent.computation is not computation
            )
            if not is_elsewhere and group.complement is None and group.stream == 1:
                self._find_complement(group)

    def group_in(self, computation: Computation, channel: int) -> Group | None:
        """The group of a channel, if it has transfers in the computation.

        Transfers that were left alone can share their channel with a group elsewhere.
        """
        group = self.groups.get(channel)
        return group if group is not None and group.is_in(computation) else None

    def may_communicate(self, instruction: Instruction) -> bool:
        """Whether it is or calls a collective, or is a custom call; not for starts.

        Its callees must have been gathered.
        """
        opcode = instruction.opcode
        if opcode == "custom-call" or opcode in opcodes.SYNC_COLLECTIVES:
            return True
        if is_done(instruction) and (
            is_transfer(instruction) or is_collective(instruction)
        ):
            return True
        return any(
            self.communicates.get(callee, False)
            for callee in instruction.called_computations
        )

    def _record_loop(self, loop: Instruction) -> None:
        """Add the loop to the channels that are pipelined through it."""
        (initial,) = loop.operands
        body = loop.called_computations[0]
        inside = self.channels.get(body)
        if initial.opcode != "tuple" or inside is None:
            return
        recorded = 0
        for value in initial.operands:
            if value.opcode != "send-done" or value.channel_id not in inside:
                continue
            group = self.groups.get(value.channel_id)
            if group is None or group.kind != "pipelined":
                continue
            recorded += 1
            if recorded > _MOST_PIPELINED_CHANNELS:
                raise _unexpected(loop, "pipelines more than two channels")
            if not group.parent.record(loop):
                group.kind = "unrecognized"

    def _find_complement(self, group: Group) -> None:
        """Find the group that forms a cycle with one on stream 1."""
        for other in self.groups.values():
            if other is group or other.child.computation is not group.child.computation:
                continue
            is_pipelined = other.kind == "pipelined"
            if is_pipelined:
                if other.parent.computation is not group.parent.computation:
                    continue
                if other.stream != 0:
                    raise _unexpected(
                        other.child.parts["send"],
                        f"is on the same stream as channel {group.channel}",
                    )
            elif other.stream != 0:
                continue
            group.complement = other
            other.complement = group


def is_collective_done(instruction: Instruction) -> bool:
    """Native or generic done of a collective."""
    return is_done(instruction) and is_collective(instruction)


def _unexpected(instruction: Instruction, what: str) -> PassError:
    return PassError(
        f"%{instruction.name} {what}", code="E024", location=instruction.location
    )
