"""Orders sends, recvs and the collectives around them, with control edges.

    Before:  r = recv(k)   s = send(x, k)   rd = recv-done(r)   sd = send-done(s)
    After:   r -> s -> rd -> sd, and every collective before r or after sd

If devices reach transfers and collectives in different orders, they wait for each
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.reachability import ancestors, reaches
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.errors import PassError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.transfers.p2p_groups import (
    Group,
    Node,
    TransferGroups,
    is_collective_done,
    is_device_transfer,
)

_CHAIN: Final = ("recv", "send", "recv-done", "send-done")


@dataclass(frozen=True, slots=True)
class LatencyHidingSchedulerPreparation(Pass):
    """Put the transfers of each channel in one order, and the collectives around them.

    The pass chains the transfers of a channel in the order recv, send, recv-done,
    send-done. If two channels form a cycle, the order is recv 0, send 0, recv 1, send
    1, recv-done 0, recv-done 1, send-done 0, send-done 1. If transfers are pipelined
    through a loop, all other collectives in the body of that loop come before them.
    Elsewhere, a collective comes after a chain if it depends on the chain, and before
    the chain otherwise. The pass leaves alone transfers with the host, and channels
    whose transfers are incomplete.

    XLA fails to compile if that order contradicts existing control edges. This happens
    for a ring that `collective-permute-decomposer` pipelines, and for any transfer that
    it made with its level `ENABLE`. Here, the parts keep the order that the edges
    demand.

    Requires: an unscheduled module; otherwise nothing happens.
    Ensures: a second run changes nothing.
    Complexity: linear in instructions for each transfer and collective.
    Source: openxla/xla `xla/service/p2p_schedule_preparation.cc`.
    """

    name: ClassVar[str] = "latency-hiding-scheduler-preparation"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Gather callees first, order callers first."""
        if module.is_scheduled:
            report.remark("not ordered: the module is scheduled already")
            return False
        version = module.version
        computations = build_call_graph(module).post_order
        transfers = TransferGroups()
        for computation in computations:
            transfers.gather(computation)
        for computation in reversed(computations):
            if transfers.groups and computation in transfers.channels:
                _Ordering(computation, transfers, report).run()
                restore_text_order(computation)
        return module.version != version


class _Ordering:
    """The edges of one computation."""

    def __init__(
        self, computation: Computation, transfers: TransferGroups, report: Report
    ) -> None:
        self.computation = computation
        self.transfers = transfers
        self.report = report

    def run(self) -> None:
        chains, pipelined = self._connect_chains()
        if not chains:
            return
        if pipelined is not None:
            self._put_others_before(pipelined)
        order = post_order(self.computation)
        for k, instruction in enumerate(order):
            group = self._group_of(instruction)
            if group is None or group.is_child(self.computation):
                continue
            if group.ends(self.computation)[0] is instruction:
                self._put_others_around(group, k, order)

    def _group_of(self, instruction: Instruction) -> Group | None:
        if not is_device_transfer(instruction) or instruction.channel_id is None:
            return None
        return self.transfers.group_in(self.computation, instruction.channel_id)

    # -- chains ---------------------------------------------------------------

    def _connect_chains(self) -> tuple[int, Group | None]:
        """Connect the chains; returns their number, and the one through this body."""
        chains = 0
        pipelined: Group | None = None
        for channel in sorted(self.transfers.channels[self.computation]):
            group = self.transfers.group_in(self.computation, channel)
            if group is None:
                continue
            chains += 1
            partner = group.partner(self.computation)
            if partner is not None and group.stream != 1:
                continue  # the other one has chained it already
            node = group.node(self.computation)
            if partner is None:
                self._chain_one(node)
            else:
                self._chain_two(partner.node(self.computation), node)
            if group.is_child(self.computation):
                if pipelined is not None:
                    raise PassError(
                        f"channels {pipelined.channel} and {channel} are pipelined "
                        "through one loop, but form no cycle",
                        code="E024",
                        location=node.parts["send"].location,
                    )
                pipelined = group
        return chains, pipelined

    def _chain_one(self, node: Node) -> None:
        self._chain([node.parts[opcode] for opcode in _CHAIN])

    def _chain_two(self, node0: Node, node1: Node) -> None:
        starts = [node.parts[o] for node in (node0, node1) for o in ("recv", "send")]
        dones = [
            node.parts[o] for o in ("recv-done", "send-done") for node in (node0, node1)
        ]
        self._chain([*starts, *dones])

    def _chain(self, parts: Sequence[Instruction]) -> None:
        for first, then in pairwise(self._allowed_order(parts)):
            self._add(first, then)

    def _allowed_order(self, parts: Sequence[Instruction]) -> Sequence[Instruction]:
        """The parts in their order, unless some must run before others already."""
        needed = {part: ancestors([part]) for part in parts}
        if not any(
            then in needed[first]
            for k, first in enumerate(parts)
            for then in parts[k + 1 :]
        ):
            return parts
        self.report.remark(
            f"ordered otherwise than in XLA: %{parts[0].name} and what belongs to it, "
            "whose control edges XLA would close to a cycle"
        )
        left, order = list(parts), list[Instruction]()
        while left:
            waiting = {
                p for p in left if any(o in needed[p] for o in left if o is not p)
            }
            order.append(next((p for p in left if p not in waiting), left[0]))
            left.remove(order[-1])
        return order

    # -- other collectives ----------------------------------------------------

    def _put_others_before(self, group: Group) -> None:
        """Put all collectives of a pipelined body before its chain."""
        computation = self.computation
        first, _ = group.ends(computation)
        for instruction in post_order(computation):
            if not self.transfers.may_communicate(instruction):
                continue
            if not is_device_transfer(instruction):
                self._order(instruction, first)
            elif instruction.opcode == "send-done":
                other = self._group_of(instruction)
                if other is not None and not other.is_child(computation):
                    self._order(other.ends(computation)[1], first)

    def _put_others_around(
        self, group: Group, place: int, order: tuple[Instruction, ...]
    ) -> None:
        """Put collectives and later chains before or after a chain."""
        computation = self.computation
        first, last = group.ends(computation)
        for k, instruction in enumerate(order):
            if is_device_transfer(instruction):
                other = self._group_of(instruction)
                if other is None or other.is_child(computation) or k <= place:
                    continue
                others_first, others_last = other.ends(computation)
                if others_first is not instruction:
                    continue
                if reaches(first, others_last):
                    self._order(last, others_first)
                else:
                    self._order(others_last, first)
                continue
            if not self.transfers.may_communicate(instruction):
                continue
            if group.kind == "pipelined" and group.parent.loop is instruction:
                continue
            if is_collective_done(instruction):
                self._put_beside(first, last, _start_of(instruction), instruction)
            self._put_beside(first, last, instruction, instruction)

    def _put_beside(
        self,
        first: Instruction,
        last: Instruction,
        begins: Instruction,
        ends: Instruction,
    ) -> None:
        """Put it after the chain if it depends on the chain, otherwise before."""
        if reaches(first, ends):
            self._order(last, begins)
        else:
            self._order(ends, first)

    def _order(self, first: Instruction, then: Instruction) -> None:
        if reaches(first, then):
            return
        if reaches(then, first):
            self.report.remark(
                f"not ordered: %{first.name} needs %{then.name}, which should follow it"
            )
            return
        self._add(first, then)

    def _add(self, first: Instruction, then: Instruction) -> None:
        if first not in then.control_predecessors:
            self.computation.add_control_edge(first, then)
            self.report.count("edges-added")


def _start_of(done: Instruction) -> Instruction:
    """The start of a native done; a generic done is its own, as in XLA."""
    return done.operands[0] if facts(done.opcode).spelling == "native" else done
