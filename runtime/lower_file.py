"""Turns what a user names into a module, for `hlo-passes lower` and `compile`.

    model.py:step, training.model:step      a function (see `user_function`)
    step.mlir                               StableHLO (see `stablehlo_program`)

Without a target it is compiled for emulated devices, with one for that GPU's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.module_form import STABLEHLO, form_of
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.capture import (
    Compilation,
    gpu_compilation,
    host_compilation,
    module_at,
    require_jitted,
)
from hlo_passes.runtime.devices import MAXIMUM_EMULATED, devices_for, emulate
from hlo_passes.runtime.gpu_aot import (
    emulated_devices,
    gpu_devices,
    machine_to_compile_for,
)
from hlo_passes.runtime.stablehlo_program import other_devices
from hlo_passes.runtime.stablehlo_program import read_program as read_stablehlo
from hlo_passes.runtime.user_function import read_program


def lower_file(
    function: str,
    *,
    stage: str | None,
    target: str | None,
    topology: str = "",
    hosts: int | None = None,
    gpus_per_host: int | None = None,
    arguments: str = "",
) -> Module:
    """Lower FILE.py:FUNCTION, MODULE:FUNCTION or FILE.mlir.

    Args:
        function: path and name, or the path of StableHLO.
        stage: as for `runtime.lower`; None for the default.
        target: a GPU, None for emulated host devices.
        topology: 'PxHxG': its product is the number of devices; '' for what the next
            two say.
        hosts: their number; None for as many as eight devices need, or StableHLO's own.
        gpus_per_host: None for as many as a host of the target has; of emulated hosts
            eight.
        arguments: of a function that is jitted itself, as `user_function` reads them.

    Raises:
        UserFunctionError: U025, the function is missing or does not do its part.
        ParseError: it is not StableHLO.
        NoGpuCompilerError: R007.
    """
    on = Pricing(topology=topology, hosts=hosts, gpus_per_host=gpus_per_host)
    if target is None:
        if stage == "gpu-scheduled":
            raise UsageError(
                "--stage=gpu-scheduled needs a --target",
                code="U026",
                hint="for example --target=h100_sxm",
            )
        compilation = _host_program(function, on, arguments)
    else:
        on = replace(on, target=target)
        compilation = gpu_program(function, on, arguments)
    default = "partitioned" if target is None else "gpu-scheduled"
    return module_at(compilation, stage or default)


def gpu_program(function: str, on: Pricing, arguments: str = "") -> Compilation:
    """What a user names, for absent GPUs; arguments and errors as of `lower_file`."""
    if is_stablehlo(function, arguments):
        program = read_stablehlo(function)
        machine = machine_to_compile_for(on, program.device_count)
        devices = gpu_devices(on.target, machine)
        return program.on(devices, machine)
    machine = machine_to_compile_for(on)
    # A jitted function may be for the devices of this machine: as many as GPUs.
    count = emulated_devices(Pricing(topology=machine))
    if count <= MAXIMUM_EMULATED:
        emulate(count)
    devices = gpu_devices(on.target, machine)
    jitted, values = read_program(function, devices, arguments)
    require_jitted(jitted)
    return gpu_compilation(jitted, values, {}, on, machine_of_one=machine)


def _host_program(function: str, on: Pricing, arguments: str) -> Compilation:
    if is_stablehlo(function, arguments):
        program = read_stablehlo(function)
        count = program.device_count
        asked = on.topology_text or on.hosts or on.gpus_per_host
        if asked and emulated_devices(on) != count:
            raise other_devices(program, emulated_devices(on))
        emulate(count)
        return program.on(devices_for(count))
    count = emulated_devices(on)
    emulate(count)
    devices: Sequence[Any] = devices_for(count)
    jitted, values = read_program(function, devices, arguments)
    require_jitted(jitted)
    return host_compilation(jitted, values, {})


def is_stablehlo(function: str, arguments: str = "") -> bool:
    """Whether a user names StableHLO; UsageError U025 if it is given arguments."""
    if form_of(function) != STABLEHLO:
        return False
    if arguments:
        raise UsageError(
            f"--args={arguments} is for a jitted function",
            code="U025",
            hint="StableHLO has the shapes of its parameters",
        )
    return True
