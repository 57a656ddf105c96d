"""Writes collectives as custom-calls, so that XLA's whole pipeline passes them through.

    %r = f32[8] all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
    ->
    %r = f32[8] custom-call(%x), custom_call_target="hlo_passes.collective",
           operand_layout_constraints={f32[8]{0}}, custom_call_has_side_effect=true,
           backend_config="0"

`runtime/restore.py` puts collective 0 back after XLA has scheduled the module. The
custom-call counts as a side effect, so XLA neither merges nor drops it; its layouts are
fixed, because XLA would choose operand and result layouts independently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: Target of the custom-call that represents a collective.
TARGET: Final = "hlo_passes.collective"


@dataclass(frozen=True, slots=True)
class Collective:
    """The collective that a stand-in represents.

    Attributes:
        opcode: synchronous.
        attributes: texts by name, without `to_apply`.
        reduction: opcode of the reduction's root ('add'), '' if there is none.
        element_type: of the elements that are reduced.
        source_name: the instruction in the module that was loaded.
    """

    opcode: str
    attributes: Mapping[str, str]
    reduction: str
    element_type: str
    source_name: str

    @property
    def reducer_name(self) -> str:
        """Name of the computation that `to_apply` must name; '' without one."""
        if not self.reduction:
            return ""
        return f"hlo_passes_{self.reduction}_{self.element_type}"

    @property
    def reducer_text(self) -> str:
        """That computation as HLO text."""
        name, kind = self.reducer_name, self.element_type
        return (
            f"%{name} ({name}_a: {kind}[], {name}_b: {kind}[]) -> {kind}[] {{\n"
            f"  %{name}_a = {kind}[] parameter(0)\n"
            f"  %{name}_b = {kind}[] parameter(1)\n"
            f"  ROOT %{name}_r = {kind}[] {self.reduction}(%{name}_a, %{name}_b)\n"
            f"}}\n\n"
        )
