"""Costs of a module as a profile for XLA: `estimate --write-profile`.

    profile_of(module, make_estimator("sol")).to_text()

Where an estimator has no price but a constant, nothing is written: XLA then asks its
own model, as without a profile. So a simulation with `profile`, and after it the same
estimator, takes as long as one without.
"""

from __future__ import annotations

from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import done_of, is_start
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.base import (
    Estimator,
    is_async_collective,
    is_constant,
)
from hlo_passes.scheduler.estimators.profile import (
    REMATERIALIZED,
    Profile,
    is_async_fusion,
)
from hlo_passes.scheduler.latency.collectives import collective_begun
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.passes.stream_values import runs_synchronously
from hlo_passes.scheduler.simulation.prices import Prices


def profile_of(
    module: Module, estimator: Estimator, *, with_constants: bool = False
) -> Profile:
    """An estimator's costs of a module, as a profile for XLA.

    It has what XLA looks up: for the scheduler, instructions of computations with an
    async operation; and if there are any, those of the entry and of loops, which XLA's
    check of a profile counts. Starts carry their latency, dones carry nothing, and a
    rematerialized clone has the cost of what it is a clone of.

    Args:
        module: to price.
        estimator: gives the prices.
        with_constants: also write what is only a constant of XLA, as its strict check
            of a profile demands. Such a profile orders as XLA does, and lengthens a
            simulation.
    """
    prices = Prices(estimator)
    costs: dict[str, float] = {}
    for computation in _looked_up(module):
        for instruction in computation.instructions:
            if with_constants:
                found = _of_xla(instruction, estimator)
            elif REMATERIALIZED.search(instruction.name):
                continue  # a reader would average it with the original
            else:
                found = simulated_price(instruction, prices)
            if found is not None and (with_constants or not is_constant(found.model)):
                costs[instruction.name] = found.us
    return Profile(costs)


def simulated_price(instruction: Instruction, prices: Prices) -> Estimate | None:
    """The price that a simulation takes."""
    if is_start(instruction):
        done = done_of(instruction)
        if done is None:
            return None
        if runs_synchronously(instruction):
            return prices.synchronous(instruction)
        return prices.latency(instruction, done)
    if _is_done_of_collective(instruction):
        return None
    if opcodes.facts(instruction.opcode).half == "" and collective_begun(instruction):
        return prices.synchronous(instruction)
    return prices.compute(instruction)


def _of_xla(instruction: Instruction, estimator: Estimator) -> Estimate | None:
    """The price that XLA's scheduler takes."""
    if is_start(instruction):
        done = done_of(instruction)
        return None if done is None else estimator.latency(instruction, done)
    if _is_done_of_collective(instruction):
        return None
    return estimator.node_cost(instruction)


def _is_done_of_collective(instruction: Instruction) -> bool:
    return is_async_collective(instruction) and not is_async_fusion(instruction)


def _looked_up(module: Module) -> list[Computation]:
    """The computations whose instructions XLA asks a profile for."""
    priced = scheduled_computations(module)
    scheduled = {c for c in priced if any(map(is_start, c.instructions))}
    if not scheduled:
        return []
    checked = {module.entry}
    for computation in priced:
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                checked.update(instruction.called_computations)
    return [c for c in priced if c in scheduled or c in checked]
