"""One step of a module, run once: the programs, the engine that ran them, its clocks.

step = run_step(module, topology, estimator, rules)
max(step.entry.elapsed)      how long it takes, us
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.simulation.engine import Engine, Run
from hlo_passes.scheduler.simulation.prices import Prices
from hlo_passes.scheduler.simulation.program import Program, ProgramBuilder
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.setting import Setting
from hlo_passes.scheduler.simulation.surroundings import Surroundings

#: More than the age of the universe, and far from where floats end.
_MOST_US: Final = 1e30


@dataclass(frozen=True, slots=True)
class Step:
    """A step that ran.

    Attributes:
        prices: and where they mean little.
        surroundings: streams, devices and trip counts.
        programs: of all computations that a step may run, in text order.
        engine: that ran them.
        entry: the run of the entry.
        device_count: clocks; 1 where all devices do the same.
    """

    prices: Prices
    surroundings: Surroundings
    programs: dict[Computation, Program]
    engine: Engine
    entry: Run
    device_count: int

    @property
    def us(self) -> float:
        """How long the device that ends last takes, us."""
        return max(self.entry.elapsed)


def run_step(
    module: Module, topology: Topology, estimator: Estimator, rules: Rules
) -> Step:
    """Run a module once, with prepared prices and rules.

    Raises UnsupportedHloError S023 for a step that is longer than any number.
    """
    # Turn each computation into a program of priced steps.
    prices = Prices(estimator, as_xla=rules.xla_statistic)
    surroundings = Surroundings(module, topology, rules)
    builder = ProgramBuilder(prices, surroundings, rules)
    programs = _programs(builder, module)
    # Run the entry; devices differ only if a collective leaves some out.
    every_device = surroundings.leaves_out and not rules.share_links
    device_count = surroundings.device_count if every_device else 1
    engine = Engine(builder, rules, device_count, Setting(contention=rules.contention))
    entry = engine.entry(module.entry)
    if not max(entry.elapsed) < _MOST_US:
        raise UnsupportedHloError(
            "the step takes longer than a number can tell: its loops run too often",
            code="S023",
            hint="their trip counts are multiplied; look for a wrong known_trip_count",
        )
    return Step(prices, surroundings, programs, engine, entry, device_count)


def _programs(builder: ProgramBuilder, module: Module) -> dict[Computation, Program]:
    """Programs of all computations that a step may run, in text order."""
    programs: dict[Computation, Program] = {}
    waiting = [module.entry]
    while waiting:
        computation = waiting.pop()
        if computation in programs:
            continue
        program = programs[computation] = builder.of(computation)
        waiting += [work.body for work in program.works if work.body is not None]
        for instruction in program.order:
            if builder.prices.has_whole_loop(instruction):
                continue
            if instruction.opcode == "while":
                waiting += instruction.called_computations[:1]  # without the condition
            elif runs_callees(instruction):
                waiting += instruction.called_computations
    return {c: programs[c] for c in module.computations if c in programs}
