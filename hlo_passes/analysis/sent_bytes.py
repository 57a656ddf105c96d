"""Bytes that a device sends in collectives, in one run of a module.

    all-gather, reduce-scatter, all-to-all    (n - 1) / n of the larger side
    all-reduce                                twice that: scattered sums, then gathered
    collective-permute                        the array, unless nobody sends

n is the number of members of a group. This is the least that any algorithm without
copies in the network sends from the busiest device; what is sent to oneself is free.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from hlo_passes.analysis.devices import members_of_each_group
from hlo_passes.analysis.executions import executions
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir.async_form import is_done, work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import SYNC_COLLECTIVES
from hlo_passes.ir.shapes import Shape

#: How often the larger side passes over a device's links, without the factor above.
_PASSES: Final = {
    "all-gather": 1,
    "reduce-scatter": 1,
    "all-to-all": 1,
    "all-reduce": 2,
}
_RAGGED: Final = "ragged-all-to-all"


def gathered_bytes(size_bytes: int, members: int) -> Fraction:
    """What each member sends so that all have an array of which each has a part."""
    return Fraction(size_bytes * (members - 1), members)


def summed_bytes(size_bytes: int, members: int) -> Fraction:
    """What each member sends so that all have the sum of their arrays."""
    return 2 * gathered_bytes(size_bytes, members)


def sent_bytes(module: Module) -> int:
    """Bytes that a device sends in one run, rounded down.

    Loops count as often as they run, once where nobody knows; every branch counts.
    Only a partitioned module has collectives.
    """
    total = Fraction(0)
    for computation, runs in executions(TripCounts(module)).items():
        for instruction in computation.instructions:
            total += runs * sent_by(instruction)
    return int(total)


def sent_by(instruction: Instruction) -> Fraction:
    """Bytes that a device sends in one collective; 0 for other instructions."""
    passing = passing_bytes(instruction)
    if work_of(instruction) == "collective-permute":
        return Fraction(passing)
    return gathered_bytes(passing, _members(instruction))


def passing_bytes(instruction: Instruction) -> int:
    """The larger side of a collective, as often as it passes over a device's links.

    A device's own part counts, too, unlike in `sent_by`. 0 for other instructions, for
    dones, and for a permute in which nobody sends.
    """
    kind = work_of(instruction)
    if kind not in SYNC_COLLECTIVES or is_done(instruction):
        return 0
    # A ragged all-to-all also takes its output, and sizes and offsets of both.
    sides = instruction.operands[:1] if kind == _RAGGED else instruction.operands
    given = sum(_bytes(operand.shape) for operand in sides)
    if kind == "collective-permute":
        pairs = instruction.source_target_pairs
        sends = pairs is not None and any(a != b for a, b in pairs)
        return given if sends else 0
    size = given * _members(instruction) if kind == "all-gather" else given
    return _PASSES.get(kind, 1) * size


def _members(collective: Instruction) -> int:
    """Of a group; groups of several sizes, and unwritten ones, count as all devices."""
    module = collective.computation.module
    return members_of_each_group(collective, module) or (
        module.replica_count * module.num_partitions
    )


def _bytes(shape: Shape) -> int:
    return sum(leaf.byte_size for _, leaf in shape.leaves() if leaf.is_array)
