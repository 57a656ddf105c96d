"""Repeats a simulated step in other settings; only the clocks run again.

sensitivity_of(engine, module.entry, run).exposed_us      (391.0, 1204.0)

Programs and prices are those of the step; each setting costs one more pass of the
engine over them, without accounts, spans and memory.
"""

from __future__ import annotations

from hlo_passes.ir.computation import Computation
from hlo_passes.scheduler.simulation.engine import Engine, Run
from hlo_passes.scheduler.simulation.ranges import Outcome, Sensitivity
from hlo_passes.scheduler.simulation.setting import settings


def sensitivity_of(engine: Engine, entry: Computation, run: Run) -> Sensitivity:
    """The step in all settings.

    Args:
        engine: that ran it.
        entry: what it ran.
        run: what came out.
    """
    rules = engine.rules
    plain = _outcome(engine, run)
    outcomes = []
    for setting in settings(rules.contention if rules.may_contend else None):
        if setting == engine.setting:
            outcomes.append(plain)
            continue
        other = Engine(engine.builder, rules, engine.devices, setting)
        outcomes.append(_outcome(other, other.entry(entry)))
    return Sensitivity(plain, tuple(outcomes))


def _outcome(engine: Engine, run: Run) -> Outcome:
    """On the device that ends last."""
    step = max(run.elapsed)
    device = run.elapsed.index(step)
    return Outcome(engine.setting, step, max(0.0, step - run.compute_on(device)))
