"""Turns the permutes in loops into sends and receives.

Before:  %c = f32[8] collective-permute(%x), channel_id=1,
                                           source_target_pairs={{0,1},{1,2}}
After:   %t = token[] after-all()
         %r = (f32[8], u32[], token[]) recv(%t), channel_id=1,
                frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}
         %s = (f32[8], u32[], token[]) send(%x, %t), channel_id=1, ... as %r
         %d = (f32[8], token[]) recv-done(%r), channel_id=1
         %e = token[] send-done(%s), channel_id=1
         %c = f32[8] get-tuple-element(%d), index=0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

from hlo_passes.analysis import transfer_attributes
from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shape_parser import parse_shape
from hlo_passes.ir.shapes import array_shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.transfers.conflicts import conflicting_collectives
from hlo_passes.passes.transfers.permute_cycles import close_a_ring, has_cycle


class _Transfer(NamedTuple):
    """What replaces a permute."""

    recv: Instruction
    send: Instruction
    recv_done: Instruction
    send_done: Instruction


@dataclass(frozen=True, slots=True)
class CollectivePermuteDecomposer(Pass):
    """Replace the permutes of a loop's body with sends and receives, in one chain.

    The pass replaces a permute of one array if its pairs have no cycle (see
    `collective-permute-cycle-decomposer`) and if exactly one loop runs its computation.
    Control edges order the recv, the send and the recv-done of each permute. They also
    put all permutes into one chain, in post order: each permute's send comes before the
    next recv, and its send-done before the next recv-done. Collectives that connect two
    devices of the chain come after the chain. Otherwise, devices could wait for each
    other.

    Some permutes send an element of the loop's state as it is. The pass sets
    `_xla_send_recv_pipeline` to 0 for the first of them. If two of them form a ring
    from 0 to n-1, it sets the attribute to 0 for the one that goes back, and to 1 for
    the other one.

    XLA fails to compile if a collective that must come after the chain computes
    something that the chain sends. Here, that collective comes before the first
    transfer that needs it. XLA ignores collectives that do not list their groups.
    Without XLA's quirks (`--no-xla-quirks`), these collectives, and those that reduce
    over all partitions, count as connecting all devices.

    Ensures: a second run changes nothing.
    Complexity: near-linear in instructions, pairs, and members of different groups.
    Source: openxla/xla `xla/service/collective_permute_decomposer.cc`.

    Attributes:
        threshold_bytes: leave smaller permutes alone, unless the level is `ENABLE`.
        pipeline_parallelism_opt_level: `ENABLE` replaces only one permute of a body. It
            takes the one with the most pairs among those that send an element of the
            state. Its send then comes after its recv-done. The transfer and all
            conflicting collectives go onto the stream `p2p`, beside other collectives.
    """

    name: ClassVar[str] = "collective-permute-decomposer"
    needs_collectives: ClassVar[bool] = True

    threshold_bytes: int = 0
    pipeline_parallelism_opt_level: Literal["DISABLE", "ENABLE"] = "DISABLE"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit computations, callers first."""
        version = module.version
        graph = build_call_graph(module)
        for computation in reversed(graph.post_order):
            callers = graph.callers_of(computation)
            in_loop = len(callers) == 1 and callers[0].opcode == "while"
            permutes: list[Instruction] = []
            for permute in post_order(computation):
                if permute.opcode != "collective-permute":
                    continue
                reason = self._reason(permute) if in_loop else "is not a loop's own"
                if reason:
                    report.remark(f"not decomposed: %{permute.name} {reason}")
                else:
                    permutes.append(permute)
            if not permutes:
                continue
            is_body = callers[0].called_computations[0] is computation
            marks = _marks(permutes) if is_body else {}
            if self._is_enabled:
                permutes = _with_most_pairs(permutes, report)
            self._decompose(computation, permutes, marks, context)
            report.count("permutes-decomposed", len(permutes))
        return module.version != version

    @property
    def _is_enabled(self) -> bool:
        return self.pipeline_parallelism_opt_level == "ENABLE"

    def _reason(self, permute: Instruction) -> str:
        if len(permute.operands) != 1 or not permute.shape.is_array:
            return "moves several arrays or a part of one"
        size = permute.shape.byte_size
        if not self._is_enabled and size < self.threshold_bytes:
            return f"has {size} bytes, fewer than {self.threshold_bytes}"
        if has_cycle(tuple(permute.source_target_pairs or ())):
            return "has pairs with a cycle"
        if self._is_enabled and not _sends_state(permute):
            return "does not send an element of the loop's state as it is"
        if has_control_edges(permute):
            return "has control edges"
        if unknown := unknown_attribute(permute):
            return f"has the unknown attribute {unknown}"
        return ""

    def _decompose(
        self,
        computation: Computation,
        permutes: Sequence[Instruction],
        marks: dict[Instruction, str],
        context: PassContext,
    ) -> None:
        conflicting = conflicting_collectives(
            computation, permutes, groups_may_be_left_out=not context.xla_quirks
        )
        chain = [
            self._make_transfer(permute, marks.get(permute, "")) for permute in permutes
        ]
        # Order the chain, and everything else that connects the same devices.
        for before, after in pairwise(chain):
            computation.add_control_edge(before.send, after.recv)
            computation.add_control_edge(before.send_done, after.recv_done)
        needed = _first_needed(computation, chain)
        for collective in conflicting:
            place = needed.get(collective, len(chain))
            if place < len(chain):
                computation.add_control_edge(collective, chain[place].recv)
            if place:
                computation.add_control_edge(chain[place - 1].send_done, collective)
        if self._is_enabled:
            transfers = [half for one in chain for half in (one.send, one.recv)]
            for one in (*conflicting, *transfers):
                one.frontend_attributes = one.frontend_attributes.with_value(
                    transfer_attributes.STREAM, transfer_attributes.P2P
                )
        restore_text_order(computation)

    def _make_transfer(self, permute: Instruction, mark: str) -> _Transfer:
        computation, name = permute.computation, permute.name
        (data,) = permute.operands
        token = parse_shape("token[]")
        begun = tuple_shape([data.shape, array_shape("u32", ()), token])
        channel = {
            n: permute.attributes[n] for n in ("channel_id",) if n in permute.attributes
        }
        after_all = computation.new("after-all", token, name=f"{name}-after-all")
        recv = computation.new("recv", begun, [after_all], channel, name=f"{name}-recv")
        send = computation.new(
            "send", begun, [data, after_all], channel, name=f"{name}-send"
        )
        pairs = permute.source_target_pairs
        for half in (recv, send):
            half.frontend_attributes = permute.frontend_attributes.with_value(
                transfer_attributes.PAIRS, pairs.to_text() if pairs else "{}"
            )
            half.set_attribute("metadata", permute.attributes.get("metadata"))
        recv_done = computation.new(
            "recv-done",
            tuple_shape([data.shape, token]),
            [recv],
            channel,
            name=f"{name}-recv-done",
        )
        received = computation.new(
            "get-tuple-element",
            data.shape,
            [recv_done],
            {"index": "0"},
            name=f"{name}-recv-data",
        )
        send_done = computation.new(
            "send-done", token, [send], channel, name=f"{name}-send-done"
        )
        computation.replace_uses(permute, received)
        computation.remove_with_dead_operands(permute)
        if self._is_enabled:
            computation.add_control_edge(recv_done, send)
        else:
            computation.add_control_edge(recv, send)
            computation.add_control_edge(send, recv_done)
        transfer = _Transfer(recv, send, recv_done, send_done)
        for half in transfer if mark else ():
            half.frontend_attributes = half.frontend_attributes.with_value(
                transfer_attributes.PIPELINE, mark
            )
        return transfer


def _sends_state(permute: Instruction) -> bool:
    """Whether it permutes an element of the loop's state as the iteration finds it."""
    data = permute.operands[0]
    return data.opcode == "get-tuple-element" and data.operands[0].opcode == "parameter"


def _marks(permutes: Sequence[Instruction]) -> dict[Instruction, str]:
    """How the permutes are pipelined that are: '0' or '1'."""
    sending = [permute for permute in permutes if _sends_state(permute)]
    if not sending:
        return {}
    first, *others = sending
    pairs = tuple(first.source_target_pairs or ())
    for other in others:
        theirs = tuple(other.source_target_pairs or ())
        if close_a_ring(pairs, theirs):
            return {first: "0", other: "1"}
        if close_a_ring(theirs, pairs):
            return {other: "0", first: "1"}
    return {first: "0"}


def _with_most_pairs(
    permutes: Sequence[Instruction], report: Report
) -> list[Instruction]:
    """The first of those with most pairs, as a list."""
    chosen = max(permutes, key=lambda permute: len(permute.source_target_pairs or ()))
    for permute in permutes:
        if permute is not chosen:
            report.remark(
                f"not decomposed: %{permute.name} is less than %{chosen.name}, and one "
                "permute of a loop is decomposed"
            )
    return [chosen]


def _first_needed(
    computation: Computation, chain: Sequence[_Transfer]
) -> dict[Instruction, int]:
    """For what the chain needs: the number of the first transfer that needs it."""
    first = {half: k for k, transfer in enumerate(chain) for half in transfer}
    for instruction in reversed(post_order(computation)):
        place = first.get(instruction)
        if place is None:
            continue
        for needed in (*instruction.operands, *instruction.control_predecessors):
            first[needed] = min(place, first.get(needed, place))
    return first
