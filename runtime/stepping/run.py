"""`hlo-passes run --sync`: the worker's part.

answer["steps"] = {"programs", "values", "must_be_same", "not_the_same", "compared",
                   "different", "first_difference"}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlo_passes.analysis.program_places import program_places
from hlo_passes.ir.module import Module
from hlo_passes.runtime.comparison import Tolerance
from hlo_passes.runtime.stepping.parting import Partings
from hlo_passes.runtime.stepping.same_rows import SameRows
from hlo_passes.runtime.stepping.stepper import Stepper, Value


@dataclass(slots=True)
class Stepped:
    """A run in steps.

    Attributes:
        outputs: of the module, (devices, *shape) each.
        other_outputs: of the other module; None without one.
        report: what `--json` has under "steps".
    """

    outputs: list[np.ndarray]
    other_outputs: list[np.ndarray] | None
    report: dict[str, Any] = field(default_factory=dict)


def run_in_steps(
    module: Module,
    other: Module | None,
    inputs: Sequence[np.ndarray],
    topology: tuple[int, int],
    *,
    each: bool,
    tolerance: Tolerance | None,
    say: Callable[[str], None],
) -> Stepped:
    """Run a module step by step, and another one beside it.

    Args:
        module: one device's program.
        other: with the same parameters; None to compare nothing.
        inputs: one array per parameter leaf, (devices, *shape).
        topology: (replicas, partitions).
        each: look at every value; else at those of collectives.
        tolerance: None: every bit.
        say: called with what runs next.
    """
    for one in (module, other):
        if one is not None:
            _count_devices(one, topology)
    mine = Stepper(module, topology, each=each, say=say)
    theirs, partings = None, Partings(tolerance)
    if other is None:
        values = mine.run(inputs)
    else:
        theirs = Stepper(other, topology, each=each, say=say)
        values = partings.follow(mine, theirs, inputs)
    # Look at every value once; the partings keep what they wait for.
    same, checked, apart, count = SameRows(module, topology), 0, [], 0
    for value in values:
        count += 1
        if not same.groups_of(value.instruction):
            continue
        checked += 1
        if (devices := same.first_difference(value)) is not None:
            apart.append({**_place(value), "devices": list(devices)})
    report = {
        "programs": mine.programs,
        "values": count,
        "must_be_same": checked,
        "not_the_same": apart,
        "compared": partings.compared if other is not None else None,
        "different": partings.different if other is not None else None,
        "first_difference": _first(partings),
    }
    return Stepped(mine.results, None if theirs is None else theirs.results, report)


def _count_devices(module: Module, topology: tuple[int, int]) -> None:
    """Write into the header how many devices run: groups may say it alone."""
    replicas, partitions = topology
    if (module.replica_count, module.num_partitions) != topology:
        module.set_attribute("replica_count", str(replicas))
        module.set_attribute("num_partitions", str(partitions))


def _place(value: Value) -> dict[str, Any]:
    """Where a value is computed, in the module and in the program."""
    instruction = value.instruction
    place = program_places(instruction.computation.module).plain(instruction)
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "shape": instruction.shape.text_without_layout,
        "line": instruction.line or None,
        "iterations": [
            {"name": each.name, "iteration": each.iteration + 1} for each in value.path
        ],
        "op_name": place.op_name,
        "source": {"file": place.file, "line": place.line} if place.file else None,
    }


def _first(partings: Partings) -> dict[str, Any] | None:
    """The first value that parts."""
    found = partings.first
    if found is None or found.comparison.first_difference is None:
        return None
    leaf, (device, *index) = found.comparison.first_difference
    largest = found.comparison.max_abs_error
    return {
        **_place(found.value),
        "other_line": found.other.line or None,
        "leaf": leaf,
        "device": device,
        "index": index,
        "here": found.here[0],
        "there": found.here[1],
        # JSON has no infinity.
        "max_abs_error": largest if math.isfinite(largest) else None,
        "operands": found.operands,
    }
