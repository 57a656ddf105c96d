"""What every trace comes down to: an instruction ran on a device for so long.

Event(device="/device:GPU:0", module="jit_step", name="fusion.3", run="",
      begin_us=12.0, us=3.5)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.scheduler.estimators.base import MOST_US

#: How XLA names what a thunk launches, in NVTX ranges: `Thunk:#name=...,hlo_op=...#`.
#: Source: openxla/xla `xla/backends/gpu/runtime/annotation.cc`.
HLO_OP: Final = re.compile(r"[#,]hlo_op=([^,#]+)")
HLO_MODULE: Final = re.compile(r"[#,]hlo_module=([^,#]+)")
#: Tracks that XLA's profiler derives from others: their times would count twice.
DERIVED: Final = frozenset(
    {"XLA Ops", "XLA Modules", "XLA TraceMe", "Async XLA Ops", "Steps", "Launch Stats",
     "Framework Ops", "Framework Name Scope", "Source code"}
)  # fmt: skip
#: Parts of a module that run as one CUDA graph: names of all that is in them.
#: Source: openxla/xla `xla/backends/gpu/runtime/command_buffer_conversion_pass.cc`.
GRAPH: Final = re.compile(r"command_buffer(_\d+)?")
_HINT: Final = (
    "xplane.pb or trace.json.gz of jax.profiler.trace, or Nsight Systems' export: "
    "nsys export --type=sqlite, nsys stats --report=nvtx_gpu_proj_trace --format=csv"
)


@dataclass(frozen=True, slots=True)
class Event:
    """One kernel, or one operation of a CPU.

    Attributes:
        device: that ran it.
        module: name of the HLO module, '' where the trace does not say it.
        name: of the instruction; of a kernel, where the trace names no instruction.
        run: the execution of the module, '' where the trace does not say it.
        begin_us: when it began, on the clock of the trace.
        us: how long it took.
        is_kernel: whether the name is that of a kernel.
        kernel: the name of the kernel, '' where the trace does not say it.
    """

    device: str
    module: str
    name: str
    run: str
    begin_us: float
    us: float
    is_kernel: bool = False
    kernel: str = ""


def refuse(path: str, what: str, hint: str = _HINT) -> UsageError:
    """The error for a file that is no trace, or not one of the module."""
    return UsageError(f"{path}: {what}", code="U228", hint=hint)


def checked_us(path: str, value: Any, scale: float = 1.0) -> float:
    """A time from a file, us. Raises UsageError U228 if it is none."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(path, f"{str(value)[:40]!r} is not a time")
    us = float(value) * scale
    if not -MOST_US <= us <= MOST_US:
        raise refuse(path, f"{us:g} us is not a time")
    return us


def checked_duration(path: str, value: Any, scale: float = 1.0) -> float:
    """The same for a duration, which is not negative."""
    us = checked_us(path, value, scale)
    if us < 0.0:
        raise refuse(path, f"something took {us:g} us")
    return us
