"""Emulated devices: request them before the JAX back end starts.

runtime.emulate(8)        eight CPU devices in this process, or a clear error
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final

import jax

from hlo_passes.errors import HloError, UsageError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.ir.module import Module
from hlo_passes.runtime import jax_private

_COUNT_FLAG: Final = "--xla_force_host_platform_device_count"
#: XLA starts this many emulated devices in seconds; four times as many take minutes.
MAXIMUM_EMULATED: Final = 4096


class RuntimeHostError(HloError):
    """The host cannot do what a run needs (codes R...)."""

    default_code = "R000"
    exit_code = ExitCode.CANNOT_RUN


class DeviceCountError(RuntimeHostError):
    """There are fewer devices than needed, and it is too late to add more."""

    default_code = "R002"


def device_count_flag(count: int) -> str:
    """The XLA flag for `count` host devices."""
    return f"{_COUNT_FLAG}={count}"


def without_device_count(flags: str) -> str:
    """The XLA flags except the one that sets the number of host devices."""
    return re.sub(rf"{_COUNT_FLAG}=\S*\s*", "", flags).strip()


def emulate(count: int) -> None:
    """Give this process `count` emulated CPU devices.

    Call it before anything starts a JAX back end (the first computation,
    `jax.devices()`). A second call is allowed while there are enough devices.

    Raises:
        DeviceCountError: R002, a back end runs with fewer devices, or these are more
            than `MAXIMUM_EMULATED`.
        ValueError: `count` is less than one.
    """
    if count < 1:
        msg = f"emulate({count}): a host has at least one device"
        raise ValueError(msg)
    if count > MAXIMUM_EMULATED:
        raise DeviceCountError(
            f"{count} emulated devices are more than one host can start",
            hint=f"at most {MAXIMUM_EMULATED}",
        )
    if jax_private.backend_is_up():
        have = len(jax.local_devices(backend="cpu"))
        if have >= count:
            return
        raise DeviceCountError(
            f"emulate({count}) comes too late: a JAX back end runs with {have} CPU "
            f"device{'s' * (have != 1)}",
            hint="call runtime.emulate before the first use of JAX, or start Python "
            f"with XLA_FLAGS={device_count_flag(count)}",
        )
    flags = without_device_count(os.environ.get("XLA_FLAGS", ""))
    os.environ["XLA_FLAGS"] = f"{flags} {device_count_flag(count)}".strip()
    jax.config.update("jax_platforms", "cpu")


def topology_of(module: Module, *, device_count: int | None = None) -> tuple[int, int]:
    """(replicas, partitions) that a module asks for.

    Its header says; if both are 1, the largest id in its groups and pairs + 1 is the
    number of partitions if its collectives carry channel ids, otherwise of replicas.
    `device_count` overrides the partitions or replicas, whichever the module has.

    Raises:
        UsageError: U027, the groups or pairs name devices beyond `device_count`, or
            the groups leave some of them out, which XLA refuses.
    """
    replicas, partitions = module.replica_count, module.num_partitions
    if device_count is None and replicas * partitions > 1:
        return replicas, partitions
    if device_count == replicas * partitions:
        return replicas, partitions
    largest, has_channel = _largest_id(module)
    if device_count is not None and largest >= device_count:
        raise UsageError(
            f"{module.name} has collectives for device {largest}, which is not among "
            f"{device_count} device{'s' * (device_count != 1)}",
            code="U027",
            hint=f"--devices={largest + 1} or more, or leave it out: the module says "
            "how many",
        )
    count = device_count if device_count is not None else largest + 1
    in_partitions = partitions > 1 or (replicas == 1 and has_channel)
    topology = (1, count) if in_partitions else (count, 1)
    if device_count is not None:
        _require_everybody(module, *topology)
    return topology


def _require_everybody(module: Module, replicas: int, partitions: int) -> None:
    """Refuse groups that do not cover all devices, as XLA does.

    Raises:
        UsageError: U027.
    """
    from hlo_passes.scheduler.checker.participants import Machine, participants_of

    machine = Machine(replicas, partitions)
    for computation in module.computations:
        for instruction in computation.instructions:
            if "replica_groups" not in instruction.attributes:
                continue
            taking_part = participants_of(instruction, machine).met_in_group
            if taking_part.keys() != set(range(machine.devices)):
                raise UsageError(
                    f"the groups of %{instruction.name} do not cover all of "
                    f"{machine.devices} devices",
                    code="U027",
                    location=instruction.location,
                    hint="leave out --devices: the module says how many",
                )


def _largest_id(module: Module) -> tuple[int, bool]:
    """The largest id in groups and pairs, and whether any of them has a channel."""
    largest, has_channel = 0, False
    for computation in module.computations:
        for instruction in computation.instructions:
            attributes = instruction.attributes
            if not attributes.keys() & {"replica_groups", "source_target_pairs"}:
                continue
            has_channel = has_channel or "channel_id" in attributes
            groups = instruction.replica_groups
            pairs = instruction.source_target_pairs
            ids = [i for g in (groups.groups if groups else ()) for i in g]
            ids += [i for p in (pairs.pairs if pairs else ()) for i in p]
            largest = max(largest, *ids, 0)
    return largest, has_channel


def devices_for(count: int) -> Sequence[Any]:
    """The first `count` devices of the job.

    Raises:
        DeviceCountError: R002, there are fewer.
    """
    devices = jax.devices("cpu")
    if len(devices) < count:
        raise DeviceCountError(
            f"the module asks for {count} devices, but JAX has {len(devices)} CPU "
            "devices",
            hint=f"call runtime.emulate({count}) before the first use of JAX",
        )
    return devices[:count]
