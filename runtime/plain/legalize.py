"""The entrance: a module in, a plain module out, or a refusal by name.

hlo_passes.runtime.plain.legalize.plain_module(module) -> PlainModule
"""

from __future__ import annotations

from hlo_passes.analysis.module_state import module_state
from hlo_passes.analysis.partitioning import mark_of_no_partitioning
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.runtime.plain import (
    collective_rules,
    library_call_rules,
    product_rules,
    ragged_rules,
    structure_rules,
    top_k_rules,
    transfer_rules,
)
from hlo_passes.runtime.plain.builder import Builder, PlainModule, Rule

_RULES: dict[str, Rule] = {
    **structure_rules.RULES,
    **collective_rules.RULES,
    **library_call_rules.RULES,
    **product_rules.RULES,
    **ragged_rules.RULES,
    **top_k_rules.RULES,
    **transfer_rules.RULES,
}


def plain_module(module: Module) -> PlainModule:
    """Rewrite a module in plain HLO, for as many devices as it asks for.

    Raises:
        UnsupportedHloError: S010 for an instruction that cannot run here, S011 for a
            module that is not partitioned yet; with the place in the text.
    """
    _check_partitioned(module)
    return Builder(module, _rule_of).entry()


def _rule_of(opcode: str) -> Rule | None:
    rule = _RULES.get(opcode)
    if rule is not None:
        return rule
    return structure_rules.ASYNCHRONOUS_RULES.get(facts(opcode).half)


def _check_partitioned(module: Module) -> None:
    mark = mark_of_no_partitioning(module)
    if mark is None:
        return
    instruction, what = mark
    raise UnsupportedHloError(
        f"%{instruction.name} has {what}: the module is not partitioned yet",
        code="S011",
        location=instruction.location,
        hint=module_state(module).cure,
    )
