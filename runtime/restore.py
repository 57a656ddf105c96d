"""Runs inside XLA's compiler, after its scheduler: restores collectives and order.

    %cc = f32[8]{0} custom-call(%x), custom_call_target="hlo_passes.collective", ...
    ->
    %cc = f32[8]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%hlo_passes_add_f32

XLA has inserted its copies by then, constrained only by dependences, so every order
that respects them (and the control edges of the copies) computes the same values. If
the module came with a schedule, its order is restored: each instruction carries its
position in `op_name`, and what XLA added runs once its operands are ready.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence

from hlo_passes.errors import HloError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.rewriting.replacement import take_place
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.plain.builder import POSITION_MARK, PlainModule
from hlo_passes.runtime.plain.stand_ins import TARGET, Collective
from hlo_passes.text.reader import parse

_POSITION = re.compile(rf"{POSITION_MARK}(\d+)")


class ScheduleLostError(HloError):
    """XLA's result cannot be brought into the order of the module that was loaded."""

    default_code = "R003"


def restored(proto: bytes, plain: PlainModule) -> bytes:
    """XLA's result for a plain module, with its collectives and in its order.

    Args:
        proto: XLA's scheduled module.
        plain: the module that was compiled.

    Raises:
        ScheduleLostError: the collectives would run in another order.
    """
    text = jax_private.proto_to_text(proto)
    reducers = {
        c.reducer_name: c.reducer_text for c in plain.collectives if c.reduction
    }
    if reducers:
        first = re.search(r"^(?:ENTRY )?%\S+ \(", text, re.MULTILINE)
        assert first is not None
        text = (
            text[: first.start()] + "".join(reducers.values()) + text[first.start() :]
        )
    module = parse(text, filename="<compiled by XLA>")
    _put_back(module, plain.collectives)
    if plain.is_scheduled:
        for computation in module.computations:
            bring_into_order(computation)
    return jax_private.text_to_proto(module.to_text())


def _put_back(module: Module, collectives: Sequence[Collective]) -> None:
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode != "custom-call":
                continue
            if instruction.attributes.get("custom_call_target") != f'"{TARGET}"':
                continue
            number = int(instruction.attributes["backend_config"].strip('"'))
            _replace(computation, instruction, collectives[number])


def _replace(
    computation: Computation, stand_in: Instruction, collective: Collective
) -> None:
    attributes = dict(collective.attributes)
    if collective.reduction:
        attributes["to_apply"] = "%" + collective.reducer_name
    attributes["metadata"] = stand_in.attributes["metadata"]
    real = computation.new(
        collective.opcode,
        stand_in.shape,
        stand_in.operands,
        attributes,
        name=f"{collective.opcode}_{collective.source_name}",
        before=stand_in,
    )
    take_place(stand_in, real)


def position(instruction: Instruction) -> int | None:
    """The position in the loaded module; None for instructions that XLA added."""
    match = _POSITION.search(instruction.attributes.get("metadata", ""))
    return int(match[1]) if match else None


def bring_into_order(computation: Computation) -> None:
    """Order by position, under data and control dependences.

    XLA gives what it makes the metadata of something near, so that a parameter may have
    the position of a later instruction. It must not delay a collective that needs it.
    """
    old = computation.instructions
    latest = _needed_by_collectives(old)
    key: dict[Instruction, tuple[int, int]] = {}
    waiting: dict[Instruction, int] = {}
    for place, instruction in enumerate(old):
        before = {*instruction.operands, *instruction.control_predecessors}
        waiting[instruction] = len(before)
        own = position(instruction)
        if own is None:
            own = max((key[b][0] for b in before), default=0)
        key[instruction] = (min(own, latest.get(instruction, own)), place)
    by_key = {key[i]: i for i in old}
    ready = [key[i] for i in old if not waiting[i]]
    heapq.heapify(ready)
    order: list[Instruction] = []
    while ready:
        instruction = by_key[heapq.heappop(ready)]
        order.append(instruction)
        for after in dict.fromkeys(
            (*instruction.users, *instruction.control_successors)
        ):
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, key[after])
    _check_collectives(computation, order)
    computation.set_order(order)


def _needed_by_collectives(order: Sequence[Instruction]) -> dict[Instruction, int]:
    """The first position of the collectives that need each instruction, or are it."""
    latest: dict[Instruction, int] = {}
    for instruction in reversed(order):
        if (own := _position_of_collective(instruction)) is not None:
            latest[instruction] = min(own, latest.get(instruction, own))
        if (first := latest.get(instruction)) is not None:
            for each in (*instruction.operands, *instruction.control_predecessors):
                latest[each] = min(first, latest.get(each, first))
    return latest


def _position_of_collective(instruction: Instruction) -> int | None:
    attributes = instruction.attributes
    if "channel_id" in attributes or "replica_groups" in attributes:
        return position(instruction)
    return None


def _check_collectives(computation: Computation, order: Sequence[Instruction]) -> None:
    found = map(_position_of_collective, order)
    positions = [p for p in found if p is not None]
    if positions != sorted(positions):
        raise ScheduleLostError(
            f"the collectives of %{computation.name} cannot keep their order",
            hint="this is a defect of hlo-passes: please report the module",
        )
