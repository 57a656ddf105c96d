"""Runs HLO modules on emulated devices, and compares what they compute.

runtime.emulate(8)
module = runtime.lower(jax.jit(f), *args)
outputs = runtime.load(module)(*inputs)
runtime.compare(module, rewritten).matches
"""

from __future__ import annotations

from hlo_passes.runtime.assertions import assert_exposed_below, assert_step_within
from hlo_passes.runtime.capture import lower
from hlo_passes.runtime.compare import (
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

__all__ = [
    "Comparison",
    "CompilationError",
    "DeviceCountError",
    "Difference",
    "Executable",
    "Installation",
    "NumericsMismatchError",
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
]
