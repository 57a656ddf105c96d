"""What a program for TPUs has, and which levers of its chip a search tries.

    facts = tpu_facts_of(module)               of a module that XLA:TPU scheduled
    choices = tpu_choices_for(facts, "v5e")    settings to try, and why not the others

XLA:TPU puts collectives and products into fusions, so their bodies are looked at, too.
An all-reduce of which a fusion keeps a slice is a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_passes.ir.async_form import half, is_collective, is_start, work_of
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import MATRIX_PRODUCTS
from hlo_passes.scheduler.tpu.chips import chip
from hlo_passes.scheduler.tuning.choices import Choices
from hlo_passes.scheduler.tuning.facts import ProgramFacts, facts_from
from hlo_passes.scheduler.tuning.tpu_levers import TPU_LEVERS, Effect, TpuLever

_SLICES: Final = frozenset(["dynamic-slice", "slice"])
#: What is known to do something comes first, above all what shortened a step on this
#: chip: a small budget goes no further.
_FIRST: Final[tuple[Effect, ...]] = ("seen", "untried", "none seen")
#: Levers that are never tried, by what makes that pointless.
_NEVER: Final = {
    "scheduler": "without its scheduler the compiler has no statistic to judge by",
    "VMEM of a fusion": "it chooses tiles, and the scheduler prices products before "
    "tiles are final",
}


def tpu_facts_of(module: Module) -> ProgramFacts:
    """What a module has.

    Complexity: linear in instructions.
    """
    return facts_from(
        module,
        _kinds,
        has_products=any(
            i.opcode in MATRIX_PRODUCTS
            for c in module.computations
            for i in c.instructions
        ),
        has_async_work=any(
            is_start(i) and not is_collective(i)
            for c in scheduled_computations(module)
            for i in c.instructions
        ),
        crosses_domains=False,
    )


def _kinds(computation: Computation) -> Iterator[str]:
    """The kind of each collective that begins here or in a fusion here."""
    for instruction in computation.instructions:
        if instruction.opcode == "fusion":
            for callee in instruction.called_computations:
                yield from _fused_kinds(callee)
        elif is_collective(instruction) and half(instruction) in ("", "start"):
            yield work_of(instruction)


def _fused_kinds(body: Computation) -> Iterator[str]:
    opcodes = {each.opcode for each in body.instructions}
    for each in body.instructions:
        if is_collective(each) and half(each) in ("", "start"):
            kind = work_of(each)
            if kind == "all-reduce" and opcodes & _SLICES:
                kind = "reduce-scatter"
            yield kind


def tpu_choices_for(facts: ProgramFacts, target: str) -> Choices:
    """The levers of a chip that may matter for a program.

    Raises UsageError U250 for an unknown chip.
    """
    name = chip(target).name
    dropped: dict[str, str] = {}
    kept: dict[str, tuple[str, ...]] = {}
    for row in sorted(TPU_LEVERS.values(), key=lambda row: _rank(row, name)):
        lever = row.lever
        why = _NEVER.get(lever.name, "") or facts.pointless(lever)
        if not row.is_of(name):
            why = f"{name} does not have it"
        if why:
            dropped[lever.name] = why
        else:
            kept[lever.name] = tuple(each.setting for each in lever.settings)
    return Choices(kept, dropped)


def _rank(row: TpuLever, chip_name: str) -> tuple[bool, int]:
    """Smaller comes first."""
    return chip_name not in row.shortens, _FIRST.index(row.effect)
