"""How much a module computes, as a lower bound, before anything runs.

operations_at_least(module)                     additions and multiplications
cpu_seconds_at_least(module, device_count)      on all emulated devices of this machine
"""

from __future__ import annotations

import math
import os
from typing import Final

from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir import opcodes
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module

#: More than XLA's CPU back end reaches on one core, dots in f32 included.
_OPERATIONS_PER_CORE_SECOND: Final = 1e11


def operations_at_least(module: Module) -> int:
    """Arithmetic operations of one device's program.

    Only dots and what works element by element count; a loop whose trip count nobody
    knows counts once, of the branches of a conditional the largest.
    """
    counts: dict[Computation, int] = {}
    trips = TripCounts(module)
    for computation in module.computations:
        counts[computation] = sum(
            _operations(i, counts, trips) for i in computation.instructions
        )
    return counts[module.entry]


def cpu_seconds_at_least(module: Module, device_count: int) -> float:
    """Seconds that the program takes on this machine's cores, and rather more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    rate = _OPERATIONS_PER_CORE_SECOND * max(cores, 1)
    return operations_at_least(module) * device_count / rate


def _operations(
    instruction: Instruction, counts: dict[Computation, int], trips: TripCounts
) -> int:
    opcode = instruction.opcode
    if opcode == "dot":
        return 2 * instruction.shape.element_count * _contracted(instruction)
    facts = opcodes.facts(opcode)
    if facts.is_elementwise:
        return instruction.shape.element_count
    called = [counts.get(c, 0) for c in instruction.called_computations]
    if opcode == "while":
        return sum(called) * trips.or_once(instruction)
    if facts.calls in ("control-flow", "fused", "async"):
        return max(called, default=0)
    return 0


def _contracted(dot: Instruction) -> int:
    """Elements of the left operand that go into one element of the result."""
    dimensions = dot.operands[0].shape.dimensions
    places = dot.integers("lhs_contracting_dims")
    return math.prod(dimensions[k] for k in places if k < len(dimensions))
