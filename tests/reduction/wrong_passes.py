"""Passes with a defect, for `hlo-passes bisect` to find."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import ComputationPass, PassContext, Report


@dataclass(frozen=True, slots=True)
class CommuteOperands(ComputationPass):
    """Swap the operands of what commutes, and by mistake of `mistake` too."""

    name: ClassVar[str] = "commute-operands"
    mistake: str = "remainder"

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        for i in computation.instructions:
            if i.opcode in ("add", "multiply", "maximum", self.mistake):
                first, second = i.operands
                if first is not second:
                    computation.set_operands(i, (second, first))


@dataclass(frozen=True, slots=True)
class SwapPermutes(ComputationPass):
    """Hand the results of the first two permutes of one type to each other's users."""

    name: ClassVar[str] = "swap-permutes"

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        permutes = [
            i for i in computation.instructions if i.opcode == "collective-permute"
        ]
        for one, other in itertools.pairwise(permutes):
            if one.shape == other.shape and one.operands != other.operands:
                users = one.users, other.users
                operands = one.operands, other.operands
                if other in users[0]:
                    continue
                computation.set_operands(one, operands[1][:1])
                computation.set_operands(other, operands[0][:1])
                return


@dataclass(frozen=True, slots=True)
class CountDown(ComputationPass):
    """Subtract what is added to a counter: a loop runs two billion times."""

    name: ClassVar[str] = "count-down"

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        for i in computation.instructions:
            if i.opcode == "add" and i.operands[1].opcode == "constant":
                down = computation.new("subtract", i.shape, i.operands, before=i)
                computation.replace(i, down)


@dataclass(frozen=True, slots=True)
class FailOnDots(ComputationPass):
    """Raise where a dot reads a transpose."""

    name: ClassVar[str] = "fail-on-dots"

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        for i in computation.instructions:
            if i.opcode == "dot" and any(o.opcode == "transpose" for o in i.operands):
                raise KeyError(i.name)


def count(module: Module, opcode: str) -> int:
    """How many there are of an opcode."""
    return sum(i.opcode == opcode for c in module.computations for i in c.instructions)
