"""GPUs that this machine does not have: their devices, and XLA's GPU compiler for them.

    devices = gpu_devices("h100_sxm", "2x1x8")     # sixteen; nothing runs on them
    compile_for(jitted.trace(x).lower(lowering_platforms=("cuda",)), devices, {})

JAX's CUDA plug-in compiles ahead of time for a GPU from its description
(scheduler/data/gpu_targets). No GPU and no CUDA library is needed; the extra `gpu-aot`
installs the plug-in without them.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax

from hlo_passes.errors import UsageError
from hlo_passes.pricing import Pricing, parse_topology
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.devices import RuntimeHostError
from hlo_passes.scheduler.hardware.machine import machine_for, require_agreement
from hlo_passes.scheduler.hardware.target import target_text
from hlo_passes.scheduler.hardware.topology import Topology

PLATFORM: Final = "cuda"
_PACKAGES: Final = ("jax-cuda12-plugin", "jax-cuda12-pjrt")
_INSTALL: Final = (
    "pip install --no-deps "
    + " ".join(f"{name}=={importlib.metadata.version('jaxlib')}" for name in _PACKAGES)
    + "; no GPU and no CUDA library is needed"
)

#: Nothing can be measured on an absent GPU; collectives should overlap.
GPU_OPTIONS: Final[Mapping[str, Any]] = {
    "xla_gpu_autotune_level": 0,
    "xla_gpu_enable_latency_hiding_scheduler": True,
}


#: More GPUs than any cluster has.
MAXIMUM_DEVICES: Final = 1_000_000


class NoGpuCompilerError(RuntimeHostError):
    """The deviceless GPU compiler is not installed, or does not know the target."""

    default_code = "R007"


#: Devices of a machine that nobody described.
DEFAULT_DEVICES: Final = 8


def machine_to_compile_for(on: Pricing, devices: int = DEFAULT_DEVICES) -> str:
    """The machine as 'PxHxG': what a user named, else the smallest for the devices.

    Raises:
        UsageError: U026 for a malformed topology or more than `MAXIMUM_DEVICES`, U225
            for hosts that do not exist.
    """
    if on.topology_text:
        parse_topology(on.topology_text, code="U026")
    machine = machine_for(on, on.devices or devices)
    require_devices_for_xla(machine.device_count, machine.to_text())
    return machine.to_text()


def emulated_devices(on: Pricing) -> int:
    """How many devices of emulated hosts a user asks for, eight on each host.

    Raises UsageError as `machine_to_compile_for`; emulated hosts have any size.
    """
    count = (on.hosts or 1) * (on.gpus_per_host or DEFAULT_DEVICES)
    if on.topology_text:
        topology = Topology(*parse_topology(on.topology_text, code="U026"))
        require_agreement(topology, on)
        count = topology.device_count
    require_devices_for_xla(count, on.topology_text or f"{on.hosts} hosts")
    return count


def require_devices_for_xla(count: int, machine: str) -> None:
    """UsageError U026 for more than `MAXIMUM_DEVICES`."""
    if count > MAXIMUM_DEVICES:
        raise UsageError(
            f"{machine} has {count} devices",
            code="U026",
            hint=f"at most {MAXIMUM_DEVICES}: XLA keeps an object for each",
        )


def gpu_devices(target: str, topology: str) -> tuple[Any, ...]:
    """Devices of an absent GPU, to compile for.

    Args:
        target: a name of scheduler/data/gpu_targets, or a file.
        topology: 'PxHxG'.

    Raises:
        UsageError: unknown target, malformed topology, hosts that do not exist.
        NoGpuCompilerError: R007, no plug-in, or one that refuses the target.
    """
    from jax.experimental import topologies

    topology = machine_to_compile_for(Pricing(target=target, topology=topology))
    description = target_text(target)
    require_plug_in(target)
    try:
        described = topologies.get_topology_desc(
            platform=PLATFORM, target_config=description, topology=topology
        )
    except (RuntimeError, ValueError, NotImplementedError) as problem:
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise NoGpuCompilerError(
            f"JAX's CUDA plug-in does not compile for --target={target}: {first}",
            hint=_INSTALL,
        ) from problem
    return tuple(described.devices)


def require_plug_in(target: str) -> None:
    """Check that the plug-in is installed, and keep JAX from using it as a GPU.

    Call it before anything is traced. Raises NoGpuCompilerError R007 unless the
    plug-in is installed in jaxlib's release.
    """
    # The host's own back end is the CPU: with any other setting the plug-in looks
    # for CUDA libraries, which are not needed here.
    jax.config.update("jax_platforms", "cpu")
    own = importlib.metadata.version("jaxlib")
    for name in _PACKAGES:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError as problem:
            raise NoGpuCompilerError(
                f"the compiler for --target={target} is missing: "
                f"{name} is not installed",
                hint=_INSTALL,
            ) from problem
        if version != own:
            raise NoGpuCompilerError(
                f"{name} {version} does not match jaxlib {own}",
                hint=_INSTALL,
            )


def compile_for(
    lowered: Any, devices: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """Compile a lowered function for absent GPUs.

    Only the number of devices that the function was jitted for counts: emulated
    ones, an abstract mesh, or the GPUs themselves. A function for one device is
    compiled for the first.

    Args:
        lowered: from `jitted.trace(...).lower(lowering_platforms=("cuda",))`.
        devices: from `gpu_devices`.
        options: XLA's flags by name.

    Raises:
        UsageError: U026, the function is for another number of devices.
        RuntimeError: XLA refuses it.
    """
    taken = devices_taken(
        lowered, devices, "use --hosts and --gpus-per-host with a product of {count}"
    )
    jax_private.compile_ahead(lowered, taken, options)


def devices_taken(lowered: Any, devices: Sequence[Any], hint: str) -> Sequence[Any]:
    """The absent devices that a function is compiled for: all, or the first alone.

    Raises UsageError U026 if it is for another number, with a hint that may name it as
    `{count}`.
    """
    count = jax_private.lowered_device_count(lowered)
    if count not in (1, len(devices)):
        raise UsageError(
            f"the function is for {count} devices, but the topology has {len(devices)}",
            code="U026",
            hint=hint.format(count=count),
        )
    return devices[:count]
