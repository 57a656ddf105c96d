"""Starts and awaits all sends and receives of a computation together.

Before:  %r = (f32[8], u32[], token[]) recv(%t), channel_id=1
         %d = (f32[8], token[]) recv-done(%r), channel_id=1
         %s = (f32[8], u32[], token[]) send(%x, %t), channel_id=1
         %e = token[] send-done(%s), channel_id=1
After:   %send_recv_group_1 { ROOT tuple(recv(%param0), send(%param1, %param2)) }
         %a = ((token[], f32[8], token[]), (...), s32[]) async-start(%t, %x, %t),
                calls=%send_recv_group_1, frontend_attributes={_collectives_group=""}
         %b = (...) async-done(%a)
         %d = (f32[8], token[]) tuple(elements 0 and 2 of %b's first element)
         %e = token[] element 2 of %b's second element
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import FrontendAttributes
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import TRANSFERS
from hlo_passes.ir.shapes import array_shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.cloning import clone_instruction, element_of
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.transfers.p2p_groups import is_device_transfer

#: Frontend attribute of a group of collectives that start together.
_GROUP: Final = "_collectives_group"
#: Element of a send's or recv's result: the token.
_TOKEN: Final = 2


@dataclass(frozen=True, slots=True)
class CollectiveSendRecvCombiner(Pass):
    """Put the sends and receives of a computation into one asynchronous group.

    The sends and receives then run as one NCCL call, whose parts do not wait for each
    other. The group starts where the operands of all its transfers are available. The
    pass leaves alone transfers whose done is in another place, for example around a
    loop, and transfers with the host.

    If one transfer needs what another one receives, or waits for the end of another
    one, XLA closes a cycle and fails to compile. Here, such transfers form another
    group that comes later.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/collective_send_recv_combiner.cc`; not in
    the pipeline of XLA:GPU.
    """

    name: ClassVar[str] = "collective-send-recv-combiner"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all computations, callees first."""
        version = module.version
        graph = build_call_graph(module)
        number = 0
        for computation in graph.post_order:
            order = post_order(computation)
            transfers = [i for i in order if i.opcode in TRANSFERS]
            if not transfers:
                continue
            if graph.is_async_body(computation):
                report.remark(f"not combined: %{computation.name} is a group already")
                continue
            chosen: list[Instruction] = []
            for transfer in transfers:
                reason = _reason_to_keep(transfer)
                if reason:
                    report.remark(f"not combined: %{transfer.name} {reason}")
                else:
                    chosen.append(transfer)
            groups = _independent_groups(order, chosen)
            if chosen and not groups:
                report.remark(
                    f"not combined: the transfers of %{computation.name}, which need "
                    "each other"
                )
            for group in groups:
                number += 1
                _combine(group, number)
                report.count("groups-made")
                report.count("transfers-combined", len(group))
            if groups:
                restore_text_order(computation)
        return module.version != version


def _reason_to_keep(transfer: Instruction) -> str:
    if not is_device_transfer(transfer):
        return "is a transfer with the host"
    done = f"{transfer.opcode}-done"
    if len(transfer.users) != 1 or transfer.users[0].opcode != done:
        return f"has no {done} of its own"
    for half in (transfer, transfer.users[0]):
        if unknown := unknown_attribute(half):
            return f"or its done has the unknown attribute {unknown}"
    return ""


def _independent_groups(
    order: Sequence[Instruction], chosen: Sequence[Instruction]
) -> list[list[Instruction]]:
    """The transfers, those apart that need the end of others; [] if there is no way.

    Both ends of a channel stay together, or else one would wait for a later group.
    """
    if not chosen:
        return []
    channel_of = {transfer: transfer.channel_id for transfer in chosen}
    dones = {transfer.users[0] for transfer in chosen}

    def unit(instruction: Instruction) -> Instruction | int | None:
        return channel_of.get(instruction, instruction)

    # Count for each unit what must come before it, and let it wait for that.
    waiting: dict[Instruction | int | None, int] = dict.fromkeys(map(unit, order), 0)
    following: dict[Instruction | int | None, list[Instruction | int | None]] = {}
    for instruction in order:
        for before in (*instruction.operands, *instruction.control_predecessors):
            if unit(before) != unit(instruction):
                waiting[unit(instruction)] += 1
                following.setdefault(unit(before), []).append(unit(instruction))
    # Each unit is ready after its last predecessor; a done ends a group.
    level = dict.fromkeys(waiting, 0)
    ready = [one for one, count in waiting.items() if not count]
    for one in ready:
        if one in dones:
            level[one] += 1
        for other in following.get(one, ()):
            level[other] = max(level[other], level[one])
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    if len(ready) < len(waiting):
        return []
    groups: dict[int, list[Instruction]] = {}
    for transfer in chosen:
        groups.setdefault(level[unit(transfer)], []).append(transfer)
    return [groups[key] for key in sorted(groups)]


def _combine(transfers: Sequence[Instruction], number: int) -> None:
    computation = transfers[0].computation
    wrapped = _wrapped(computation.module, transfers, number)
    # Start and await the group.
    operands = [operand for transfer in transfers for operand in transfer.operands]
    result = wrapped.root.shape
    start = computation.new(
        "async-start",
        tuple_shape(
            [tuple_shape([o.shape for o in operands]), result, array_shape("s32", ())]
        ),
        operands,
        {
            "calls": f"%{wrapped.name}",
            "frontend_attributes": FrontendAttributes.of({_GROUP: ""}).to_text(),
        },
        name=f"{wrapped.name}.start",
    )
    done = computation.new(
        "async-done",
        result,
        [start],
        {"calls": f"%{wrapped.name}"},
        name=f"{wrapped.name}.done",
    )
    # Give the readers of each done what the group returned.
    for index, transfer in enumerate(transfers):
        (old_done,) = transfer.users
        part = element_of(done, index)
        ended = element_of(part, _TOKEN)
        if transfer.opcode == "recv":
            ended = computation.new(
                "tuple", old_done.shape, [element_of(part, 0), ended]
            )
        _move_control_edges(transfer, start)
        _move_control_edges(old_done, ended)
        computation.replace_uses(old_done, ended)
        computation.remove(old_done)
        computation.remove(transfer)


def _wrapped(
    module: Module, transfers: Sequence[Instruction], number: int
) -> Computation:
    """A computation with copies of the transfers, which returns them all."""
    wrapped = Computation(module.fresh_computation_name(f"send_recv_group_{number}"))
    module.add_computation(wrapped, before=transfers[0].computation)
    copies: list[Instruction] = []
    count = 0
    for transfer in transfers:
        parameters: list[Instruction] = []
        for operand in transfer.operands:
            parameters.append(
                wrapped.new(
                    "parameter",
                    operand.shape,
                    name=f"param{count}",
                    literal=str(count),
                )
            )
            count += 1
        copies.append(clone_instruction(transfer, wrapped, parameters))
    wrapped.set_root(
        wrapped.new("tuple", tuple_shape([copy.shape for copy in copies]), copies)
    )
    return wrapped


def _move_control_edges(old: Instruction, new: Instruction) -> None:
    """Edges between two parts of a group hold of themselves and are dropped."""
    computation = old.computation
    for predecessor in old.control_predecessors:
        if predecessor is not new:
            computation.add_control_edge(predecessor, new)
    for successor in old.control_successors:
        if successor is not new:
            computation.add_control_edge(new, successor)
    computation.drop_control_edges(old)
