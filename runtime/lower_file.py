"""Turns FILE.py:FUNCTION into a module, for `hlo-passes lower`.

    def step(devices):                       # in model.py
        mesh = jax.sharding.Mesh(devices, ("x",))
        ...
        return jax.jit(f), (abstract_x, abstract_y)

The function receives the devices and returns (jitted function, arguments).
"""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hlo_passes.errors import HloError, UsageError, nearest
from hlo_passes.files import require_file
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.capture import lower
from hlo_passes.runtime.devices import devices_for, emulate
from hlo_passes.runtime.gpu_aot import (
    emulated_devices,
    gpu_devices,
    machine_to_compile_for,
)
from hlo_passes.runtime.own_frames import leave_out_frames_of_the_command


class UserFunctionError(UsageError):
    """The file or function given to `lower` does not do what it must."""

    default_code = "U025"


class _Guarded:
    """A jitted or traced function; errors in tracing and lowering are the user's."""

    def __init__(self, jitted: Any, function: str) -> None:
        self._jitted = jitted
        self._function = function
        self.__name__ = getattr(jitted, "__name__", "function")

    def lower(self, *arguments: Any, **options: Any) -> Any:
        """Lower the jitted function; UserFunctionError U025 if that raises."""
        return self._guarded(self._jitted.lower, *arguments, **options)

    def trace(self, *arguments: Any) -> _Guarded:
        """Trace the jitted function; UserFunctionError U025 if that raises."""
        if not hasattr(self._jitted, "trace"):
            raise UserFunctionError(
                f"{self._function} returns a function that cannot be traced for a "
                "target, as jax.pmap makes it",
                hint="use jax.jit with jax.shard_map; without --target it can be "
                "lowered as it is",
            )
        traced = self._guarded(self._jitted.trace, *arguments)
        return _Guarded(traced, self._function)

    def _guarded(
        self, step: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        try:
            return step(*arguments, **options)
        except Exception as problem:
            # The user's code runs here: it may raise anything.
            first = (str(problem).splitlines() or [""])[0]
            raise UserFunctionError(
                f"{self._function} cannot be traced: {type(problem).__name__}: {first}",
                hint="the arguments it returns must be those the function takes",
            ) from problem


def lower_file(
    function: str,
    *,
    stage: str | None,
    target: str | None,
    topology: str = "",
    hosts: int | None = None,
    gpus_per_host: int | None = None,
) -> Module:
    """Lower FILE.py:FUNCTION.

    Args:
        function: path and name.
        stage: as for `runtime.lower`; None for the default.
        target: a GPU, None for emulated host devices.
        topology: 'PxHxG': its product is the number of devices; '' for what the next
            two say.
        hosts: their number; None for as many as eight devices need.
        gpus_per_host: None for as many as a host of the target has; of emulated hosts
            eight.

    Raises:
        UserFunctionError: U025, the function is missing or does not do its part.
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
        count = emulated_devices(on)
        emulate(count)
        devices: Sequence[Any] = devices_for(count)
    else:
        topology = machine_to_compile_for(replace(on, target=target))
        devices = gpu_devices(target, topology)
    jitted, arguments = read_program(function, devices)
    machine = None if target is None else topology
    return lower(jitted, *arguments, stage=stage, target=target, topology=machine)


def read_program(function: str, devices: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The jitted function and its arguments that FILE.py:FUNCTION returns for devices.

    Raises UserFunctionError U025 as `lower_file`.
    """
    leave_out_frames_of_the_command()
    jitted, arguments = _call(function, np.array(devices))
    return (
        _Guarded(jitted, function) if hasattr(jitted, "lower") else jitted
    ), arguments


def _call(function: str, devices: np.ndarray) -> tuple[Any, tuple[Any, ...]]:
    # Find the file.
    path, colon, name = function.rpartition(":")
    if not colon or not name.isidentifier():
        raise UserFunctionError(
            f"{function} is not of the form FILE.py:FUNCTION", hint="model.py:step"
        )
    require_file(path)
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UserFunctionError(
            f"{path} is not a Python file", hint="its name ends in .py"
        )
    # Run the file with its folder on the path, and call the function.
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
        made = getattr(module, name, None)
        result = made(devices) if callable(made) else None
    except HloError:
        raise
    except (Exception, SystemExit) as problem:
        raise UserFunctionError(
            f"{function} raises {type(problem).__name__}: {problem}"
        ) from problem
    finally:
        sys.path.pop(0)
    # Check what the function returned.
    if made is None:
        functions = [n for n, found in vars(module).items() if callable(found)]
        raise UserFunctionError(
            f"{path} has no function {name}", hint=nearest(name, functions)
        )
    if not (isinstance(result, tuple) and len(result) == 2):
        raise UserFunctionError(
            f"{function} must return (jitted function, arguments)",
            hint="it is called with the devices",
        )
    jitted, arguments = result
    if not isinstance(arguments, tuple | list):
        raise UserFunctionError(
            f"{function} returns {type(arguments).__name__} as the arguments",
            hint="return a tuple of them: return jitted, (x,)",
        )
    return jitted, tuple(arguments)
