"""Whether a TPU's costs are of a module: of its chip, its program and its stage.

    costs = require_tpu_costs("costs.json")
    remarks = require_costs_of(module, costs, "costs.json", "v5e")

The compiler's scheduler prices every instruction of each computation that has something
asynchronous. Of those that take time a costs file names all, if it is of the module's
compilation and stage; passes may add a few, or copy a loop's body. After that stage v5e
cuts all-gathers into fusions, whose names no costs have. Names such as `fusion.3` are
common, so a file of another program names some, too.

Other computations have no costs. A loop that runs one has a cost of its own. Of an
entry that has nothing asynchronous nothing is known, and the first line says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.module_state import WrongStateError, how_to_price_tpus
from hlo_passes.ir.async_form import is_start
from hlo_passes.ir.calls import runs_callees, scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import MATRIX_PRODUCTS
from hlo_passes.pricing import DEFAULT_TARGET
from hlo_passes.scheduler.estimators.table import bodies_of, is_priced_whole
from hlo_passes.scheduler.tpu.chips import is_chip
from hlo_passes.scheduler.tpu.costs import TpuCosts
from hlo_passes.scheduler.tpu.unpriced import LEAST_WORK, may_take_time

#: A file that names a smaller share of what takes time is of something else.
LEAST_NAMED: Final = 0.5
#: How the names begin that the compiler gives to the steps of a cut all-gather, and to
#: what a fusion beside them calls.
_CUT_STEPS: Final = ("async-collective-start", "async-collective-done")
_BESIDE_STEPS: Final = "async_collective_fusion"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a module its costs name.

    Attributes:
        priced: instructions that take time and that the compiler's scheduler prices.
        missing: those of them that the costs lack, in text order.
        cut: of the missing ones, those of all-gathers that were cut later.
    """

    priced: tuple[Instruction, ...]
    missing: tuple[Instruction, ...]
    cut: int = 0

    @property
    def total(self) -> int:
        """How many are priced."""
        return len(self.priced)

    @property
    def named_share(self) -> float:
        """Of all but what was cut later; 1 where there is nothing else."""
        asked = self.total - self.cut
        return (self.total - len(self.missing)) / asked if asked else 1.0


def coverage(module: Module, costs: TpuCosts) -> Coverage:
    """How much of a module the costs name; linear in instructions."""
    priced = [
        instruction
        for computation in scheduled_computations(module)
        if any(map(is_start, computation.instructions))
        for instruction in computation.instructions
        if instruction.opcode not in LEAST_WORK
    ]
    missing = [i for i in priced if i.name not in costs.node_cycles]
    return Coverage(tuple(priced), tuple(missing), sum(map(_is_cut, missing)))


def _is_cut(instruction: Instruction) -> bool:
    return instruction.name.startswith(_CUT_STEPS) or any(
        callee.name.startswith(_BESIDE_STEPS)
        for callee in instruction.called_computations
    )


def _is_product(instruction: Instruction) -> bool:
    """Whether it multiplies matrices; it may be most of the work."""
    return instruction.opcode in MATRIX_PRODUCTS or any(
        inner.opcode in MATRIX_PRODUCTS
        for callee in instruction.called_computations
        for inner in callee.instructions
    )


def require_costs_of(
    module: Module, costs: TpuCosts, path: str, target: str
) -> tuple[str, ...]:
    """Refuse costs of something else; returns what the first line says of gaps.

    Args:
        module: about to be priced.
        costs: that are to price it.
        path: of their file.
        target: that the user named; the default one says nothing.

    Raises WrongStateError S019: costs of another chip, program or stage.
    """
    if target not in (DEFAULT_TARGET, costs.chip):
        raise WrongStateError(
            f"{path} has costs of {costs.chip}, and the target is {target}",
            code="S019",
            hint=how_to_price_tpus(target if is_chip(target) else costs.chip),
        )
    found = coverage(module, costs)
    count = len(found.missing)
    told = _told_of(left_out(module, costs), path)
    if not count:
        return told
    lacks = f"{path} has no cost for {count} of {found.total} instructions that"
    products = [i for i in found.missing if _is_product(i) and not _is_cut(i)]
    lacks_products = len(products) > sum(map(_is_product, found.priced)) - len(products)
    if found.named_share < LEAST_NAMED or lacks_products:
        first = (*products, *found.missing)[0]
        raise WrongStateError(
            f"{lacks} take time, %{first.name} first: it is of another program, chip "
            "or stage",
            code="S019",
            location=first.location,
            hint=how_to_price_tpus(costs.chip),
        )
    return (f"{lacks} take time: is it of this program, chip and stage?", *told)


def left_out(module: Module, costs: TpuCosts) -> list[Instruction]:
    """What takes time in computations that the compiler does not price, and no caller.

    Complexity: linear in instructions.
    """
    found: list[Instruction] = []
    #: Whether a caller's cost counts what is in a computation.
    reached: dict[Computation, bool] = {module.entry: False}
    for computation in (left := [module.entry]):
        is_counted = reached[computation]
        is_priced = is_counted or any(map(is_start, computation.instructions))
        for instruction in computation.instructions:
            if not runs_callees(instruction):
                is_known = is_priced or instruction.name in costs.node_cycles
                if not is_known and may_take_time(instruction):
                    found.append(instruction)
                continue
            if is_priced_whole(instruction, costs.node_cycles, costs.latency_cycles):
                continue
            bodies = bodies_of(instruction)
            counts = instruction.name in costs.node_cycles and len(bodies) == 1
            for callee in bodies:
                if callee not in reached:
                    reached[callee] = is_counted or counts
                    left.append(callee)
    return found


def _told_of(unpriced: list[Instruction], path: str) -> tuple[str, ...]:
    if not unpriced:
        return ()
    count, first = len(unpriced), unpriced[0]
    what = "instruction" if count == 1 else "instructions"
    places = {each.computation.name for each in unpriced}
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return (
        f"{path} has no cost for {count} {what} of %{first.computation.name}{more}, "
        "where nothing is asynchronous: 0 was taken",
    )
