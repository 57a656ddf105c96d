"""Emulated devices: request them before the JAX back end starts.

runtime.emulate(8)        eight CPU devices in this process, or a clear error

JAX is loaded only where a device is asked for: `hlo-passes run` counts devices here and
leaves JAX to its worker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final

from hlo_passes.analysis.devices import device_counts, named_devices
from hlo_passes.errors import HloError, UsageError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.ir.module import Module

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
    import jax

    from hlo_passes.runtime import jax_private

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

    Its header says, or the ids in its groups and pairs if both are 1 there.
    `device_count` overrides the partitions or replicas, whichever the module has.

    Raises:
        UsageError: U027, the groups or pairs name devices beyond `device_count`, or
            the groups leave some of them out, which XLA refuses.
    """
    if device_count is None:
        return device_counts(module)
    replicas, partitions = module.replica_count, module.num_partitions
    if device_count == replicas * partitions:
        return replicas, partitions
    named = named_devices(module)
    if named.devices > device_count:
        raise UsageError(
            f"{module.name} has collectives for device {named.devices - 1}, which is "
            f"not among {device_count} device{'s' * (device_count != 1)}",
            code="U027",
            hint=f"--devices={named.devices} or more, or leave it out: the module says "
            "how many",
        )
    has_partitions = partitions > 1 or (
        replicas == named.replicas == 1 and named.has_channel
    )
    topology = (1, device_count) if has_partitions else (device_count, 1)
    if device_count <= MAXIMUM_EMULATED:  # more are refused when they are asked for
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
            taking_part = participants_of(instruction, machine).group_numbers
            if taking_part.keys() != set(range(machine.devices)):
                raise UsageError(
                    f"the groups of %{instruction.name} do not cover all of "
                    f"{machine.devices} devices",
                    code="U027",
                    location=instruction.location,
                    hint="leave out --devices: the module says how many",
                )


def devices_for(count: int) -> Sequence[Any]:
    """The first `count` devices of the job.

    Raises:
        DeviceCountError: R002, there are fewer.
    """
    import jax

    devices = jax.devices("cpu")
    if len(devices) < count:
        raise DeviceCountError(
            f"the module asks for {count} devices, but JAX has {len(devices)} CPU "
            "devices",
            hint=f"call runtime.emulate({count}) before the first use of JAX",
        )
    return devices[:count]
