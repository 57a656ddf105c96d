"""Runs HLO modules on emulated devices, and compares what they compute.

runtime.emulate(8)
module = runtime.lower(jax.jit(f), *args)
outputs = runtime.load(module)(*inputs)
runtime.compare(module, rewritten).matches
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from hlo_passes.runtime.assertions import assert_exposed_below, assert_step_within
    from hlo_passes.runtime.comparison import (
        Comparison,
        Difference,
        NumericsMismatchError,
        SignatureError,
        Tolerance,
        compare,
        compare_outputs,
    )
    from hlo_passes.runtime.devices import DeviceCountError, RuntimeHostError, emulate
    from hlo_passes.runtime.executable import CompilationError, Executable, load
    from hlo_passes.runtime.installation.environment import install_from_environment
    from hlo_passes.runtime.installation.install import Installation, install
    from hlo_passes.runtime.jit_with_passes import jit
    from hlo_passes.runtime.lower_function import lower
    from hlo_passes.runtime.partitioning import PartitionedProgram, partition

__all__ = [
    "Comparison",
    "CompilationError",
    "DeviceCountError",
    "Difference",
    "Executable",
    "Installation",
    "NumericsMismatchError",
    "PartitionedProgram",
    "RuntimeHostError",
    "SignatureError",
    "Tolerance",
    "assert_exposed_below",
    "assert_step_within",
    "compare",
    "compare_outputs",
    "emulate",
    "install",
    "install_from_environment",
    "jit",
    "load",
    "lower",
    "partition",
]

#: Where each public name is defined. It is imported when it is first asked for, so that
#: a command that needs one part of the package does not load JAX for all of it.
_DEFINED_IN: typing.Final = {
    name: module
    for module, names in {
        "assertions": "assert_exposed_below assert_step_within",
        "comparison": "Comparison Difference NumericsMismatchError SignatureError "
        "Tolerance compare compare_outputs",
        "devices": "DeviceCountError RuntimeHostError emulate",
        "executable": "CompilationError Executable load",
        "installation.environment": "install_from_environment",
        "installation.install": "Installation install",
        "jit_with_passes": "jit",
        "lower_function": "lower",
        "partitioning": "PartitionedProgram partition",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> typing.Any:
    """A public name, on its first use."""
    if name not in _DEFINED_IN:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted({*globals(), *__all__})
