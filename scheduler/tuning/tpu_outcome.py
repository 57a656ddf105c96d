"""A step for a TPU by both statistics: the compiler's own, and our simulation.

    outcome = tpu_outcome(text, costs, rules)
    outcome.steps_us          (by the compiler's statistic, simulated with its costs)

`step_us`, by which a search chooses, is the compiler's: its scheduler decided by these
figures, and they know the links that collectives share. The simulation has the same
costs; it differs where collectives queue. Both are estimates, and costs of one module:
where a lever makes other fusions, the compiler prices those anew.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any, Final

from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.memory.tpu_sizes import tpu_parameters_bytes
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.tpu.costs import require_tpu_costs
from hlo_passes.scheduler.tpu.step import NoStatisticError, step_of
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.text.reader import parse

COMPILER: Final = "compiler"
SIMULATED: Final = "simulated"
#: Whose step is where in `Outcome.steps_us`.
STATISTICS: Final = (COMPILER, SIMULATED)


def tpu_outcome(
    text: str, costs: Mapping[str, Any], rules: Rules, *, digest: str = ""
) -> Outcome:
    """The step of a scheduled module.

    Args:
        text: of the module as the compiler's scheduler left it.
        costs: of the compilation, as `TpuCosts.to_json` has them, with statistics.
        rules: of the simulation.
        digest: sha256 of the text.

    Raises:
        NoStatisticError: R004, the compiler priced nothing.
        HloError: as the simulation.
    """
    if not text or not costs:
        raise NoStatisticError("the compiler's scheduler did not run: no statistic")
    module = parse(text, filename="<scheduled by XLA:TPU>")
    with tempfile.TemporaryDirectory(prefix="hlo-passes-costs-") as folder:
        file = pathlib.Path(folder, "costs.json")
        file.write_text(json.dumps(costs))
        found = require_tpu_costs(str(file))
        timeline = simulate_on(module, Pricing(costs=str(file)), rules)
    found = dataclasses.replace(found, statistics=costs["statistics"])
    step = step_of(module, found)
    total_us = step.total_cycles / found.mhz
    return Outcome(
        step_us=total_us,
        exposed_us=step.exposed_cycles / found.mhz,
        memory_bytes=step.peak_bytes + tpu_parameters_bytes(module, found.chip),
        bound_us=timeline.any_structure.us,
        bound_by=timeline.any_structure.bound_by,
        steps_us=(total_us, timeline.step_time_us),
        module=digest,
        remarks=timeline.remarks,
        unpriced=timeline.unpriced,
    )
