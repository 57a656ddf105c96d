"""Measured collectives of a module as rows for `calibrate`.

    measurements_of(module, measured, machine)    (Measurement("all-gather", ...),)

Only collectives across NVLink domains have rows: the constants that are fitted describe
the network.
"""

from __future__ import annotations

from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import done_of, half, is_transfer, work_of
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.calibration import KINDS, LEAST_US, Measurement
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.measured.events import refuse
from hlo_passes.scheduler.measured.trace import Measured
from hlo_passes.scheduler.passes.device_groups import DeviceGroups
from hlo_passes.scheduler.simulation.rows import message_bytes


def measurements_of(
    module: Module, measured: Measured, machine: Topology
) -> tuple[Measurement, ...]:
    """Rows of the collectives that cross domains, in text order.

    Raises UsageError U228 if none does.
    """
    groups = DeviceGroups(module)
    found = []
    for computation in scheduled_computations(module):
        for instruction in computation.instructions:
            us = measured.us.get(instruction.name, 0.0)
            if us >= LEAST_US and work_of(instruction) in KINDS:
                row = _measurement(instruction, us, groups, machine)
                if row is not None:
                    found.append(row)
    if not found:
        raise refuse(
            measured.path,
            f"no collective of {module.name} that it measured crosses an NVLink domain "
            f"of {machine.to_text()}",
            "name the machine: --hosts=2",
        )
    return tuple(found)


def _measurement(
    instruction: Instruction, us: float, groups: DeviceGroups, machine: Topology
) -> Measurement | None:
    """The row of one collective; None for a done, and inside of one domain."""
    kind = work_of(instruction)
    role = half(instruction)
    if role not in ("", "start") or is_transfer(instruction):
        return None
    if instruction.opcode in opcodes.SYNC_COLLECTIVES:
        members = groups.of(instruction, kind)
    else:
        members = groups.of_start(instruction)
    size = max(1, machine.partition_size)
    domains = max(
        (len({d // size for d in group}) for group in members or ()), default=0
    )
    devices = max((len(group) for group in members or ()), default=0)
    if members is None:
        devices, domains = machine.device_count, machine.partitions
    if domains < 2 or devices < 2:
        return None
    done = done_of(instruction) if role == "start" else None
    return Measurement(kind, message_bytes(instruction, done), us, devices, domains)
