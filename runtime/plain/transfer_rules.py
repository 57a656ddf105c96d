"""Rules for sends and receives between devices: both together are a permute.

    %r = recv(%t), channel_id=1             nothing
    %s = send(%x, %t), channel_id=1         nothing
    %d = (f32[8], token[]) recv-done(%r)    collective-permute(%x) of the pairs of %r
    %e = token[] send-done(%s)              a token

A device that nobody sends to receives zeros, as from a permute. Sends and receives that
are pipelined through a loop are refused: their halves are in different iterations.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.analysis import transfer_attributes
from hlo_passes.ir.async_form import is_host_transfer
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import array_shape
from hlo_passes.runtime.plain.builder import Builder, Operation, Rule
from hlo_passes.runtime.plain.refusals import refuse
from hlo_passes.runtime.plain.values import TOKEN, Pending, Value


def _refuse_others(op: Operation) -> None:
    """Refuse a transfer with the host, or one whose done is elsewhere."""
    if is_host_transfer(op.source):
        refuse(op.source, "the host does not take part")
    done = f"{op.opcode}-done"
    if not _in_a_group(op.source) and any(u.opcode != done for u in op.source.users):
        refuse(op.source, "its done is in another iteration of a loop")


def _recv(builder: Builder, op: Operation) -> Value:
    _refuse_others(op)
    if _in_a_group(op.source):
        return (_moved(builder, op.source), _context(builder), TOKEN)
    return Pending(op.source, op.operands)


def _send(builder: Builder, op: Operation) -> Value:
    _refuse_others(op)
    if _in_a_group(op.source):
        return (op.operands[0], _context(builder), TOKEN)
    return Pending(op.source, op.operands)


def _recv_done(builder: Builder, op: Operation) -> Value:
    pending = op.operands[0]
    if not isinstance(pending, Pending):
        refuse(op.source, "its recv is not in the same computation")
    return (_moved(builder, pending.start), TOKEN)


def _send_done(builder: Builder, op: Operation) -> Value:
    if not isinstance(op.operands[0], Pending):
        refuse(op.source, "its send is not in the same computation")
    return TOKEN


def _context(builder: Builder) -> Instruction:
    """What a transfer returns beside data and token; nobody reads it."""
    return builder.constant(array_shape("u32", ()), "0")


def _in_a_group(transfer: Instruction) -> bool:
    """Whether a group of transfers that starts as a whole holds it."""
    callers = transfer.computation.module.callers(transfer.computation)
    return any(caller.opcode == "async-start" for caller in callers)


def _moved(builder: Builder, recv: Instruction) -> Value:
    """The data that a recv receives: a permute of what its send sends."""
    pairs = recv.frontend_attributes.get(transfer_attributes.PAIRS)
    if pairs is None:
        refuse(recv, f"it has no {transfer_attributes.PAIRS}")
    send = _send_of(builder, recv, pairs)
    if send is None:
        refuse(recv, "no send of its computation, or several, fit its channel")
    data = builder.values.get(send.operands[0])
    if data is None:
        refuse(recv, f"%{send.name} sends what is computed after it")
    attributes = {"source_target_pairs": pairs}
    if recv.channel_id is not None:
        attributes = {"channel_id": str(recv.channel_id), **attributes}
    return builder.write(
        Operation(
            recv, "collective-permute", send.operands[0].shape, (data,), attributes
        )
    )


def _send_of(builder: Builder, recv: Instruction, pairs: str) -> Instruction | None:
    """The send of the same channel and pairs; without channels, of the same token."""
    found = [
        send
        for send in builder.sends_of(recv.computation).get(recv.channel_id, ())
        if send.frontend_attributes.get(transfer_attributes.PAIRS) == pairs
    ]
    if len(found) > 1 and recv.channel_id is None:
        found = [send for send in found if send.operands[1] is recv.operands[0]]
    return found[0] if len(found) == 1 else None


RULES: Final[dict[str, Rule]] = {
    "recv": _recv,
    "send": _send,
    "recv-done": _recv_done,
    "send-done": _send_done,
}
