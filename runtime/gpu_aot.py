"""GPUs that this machine does not have: their devices, and XLA's GPU compiler for them.

    devices = gpu_devices("h100_sxm", "1x2x8")     # sixteen; nothing runs on them
    compile_for(jitted.trace(x).lower(lowering_platforms=("cuda",)), devices, {})

JAX's CUDA plug-in compiles ahead of time for a GPU from its description
(scheduler/data/gpu_targets). No GPU and no CUDA library is needed; the extra `gpu-aot`
installs the plug-in without them.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax

from hlo_passes.errors import UsageError
from hlo_passes.pricing import parse_topology
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.devices import RuntimeHostError
from hlo_passes.scheduler.hardware.target import target_text

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


def device_count(topology: str) -> int:
    """Devices of 'PxHxG': partitions x hosts per partition x GPUs per host.

    Raises UsageError U026 for another form, or more than `MAXIMUM_DEVICES`.
    """
    count = math.prod(parse_topology(topology, code="U026"))
    if count > MAXIMUM_DEVICES:
        raise UsageError(
            f"--topology={topology} has {count} devices",
            code="U026",
            hint=f"at most {MAXIMUM_DEVICES}: XLA keeps an object for each",
        )
    return count


def gpu_devices(target: str, topology: str) -> tuple[Any, ...]:
    """Devices of an absent GPU, to compile for.

    Args:
        target: a name of scheduler/data/gpu_targets, or a file.
        topology: 'PxHxG'.

    Raises:
        UsageError: unknown target, or malformed topology.
        NoGpuCompilerError: R007, no plug-in, or one that refuses the target.
    """
    from jax.experimental import topologies

    device_count(topology)
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
    count = jax_private.lowered_device_count(lowered)
    if count not in (1, len(devices)):
        raise UsageError(
            f"the function is for {count} devices, but the topology has {len(devices)}",
            code="U026",
            hint=f"for example --topology=1x1x{count}",
        )
    jax_private.compile_ahead(lowered, devices[:count], options)
