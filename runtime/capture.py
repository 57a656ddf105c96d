"""Turns a jitted function into an HLO module, at a stage of XLA's compilation.

    runtime.lower(jax.jit(f), *args)                              # partitioned
    runtime.lower(jax.jit(f), *args, stage="before-optimizations")
    runtime.lower(jax.jit(f), *args, stage="scheduled")

    runtime.lower(jax.jit(f), *args, target="h100_sxm", hosts=2)

Arguments are real arrays or `jax.ShapeDtypeStruct`s. With a target the function is
compiled for a GPU that this machine does not have, and the default stage is
`gpu-scheduled`: the result of XLA's GPU compiler, in the order of its scheduler.
"""

from __future__ import annotations

import pathlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.runtime import gpu_aot, jax_private
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.own_frames import leave_out_own_frames
from hlo_passes.text.reader import parse

STAGES: Final = ("before-optimizations", "partitioned", "scheduled", "gpu-scheduled")

#: XLA's pass after which a module is one device's program.
_PARTITIONER: Final = "spmd-partitioning"

#: XLA's passes after which a module is scheduled: its scheduler, and the pipeline after
#: it that calls `runtime.install`'s callbacks.
_SCHEDULER: Final = "latency-hiding-scheduler"
_TRANSFORMATION: Final = "apply-xla-transforms"
_BEHIND_SCHEDULER: Final = "post-scheduler-xla-transforms"

#: The names of the numbers of replicas and partitions in StableHLO and HLO text.
_COUNTS: Final = (
    ("num_replicas", "replica_count"),
    ("num_partitions", "num_partitions"),
)


def lower(
    function: Any,
    *args: Any,
    stage: str | None = None,
    target: str | None = None,
    topology: str | None = None,
    hosts: int | None = None,
    gpus_per_host: int | None = None,
    **kwargs: Any,
) -> Module:
    """Lower a jitted function.

    Args:
        function: a result of `jax.jit`, for emulated devices, for an abstract mesh, or
            for the devices of an absent GPU.
        args: positional arguments, real or abstract.
        stage: one of `STAGES`; None for `partitioned`, with a target `gpu-scheduled`.
        target: a GPU that this machine does not have, such as `h100_sxm`.
        topology: 'PxHxG', with a target; None for what the next two say.
        hosts: their number, with a target; None for as many as the function's devices
            need.
        gpus_per_host: None for as many as a host of the target has.
        kwargs: keyword arguments of the function.

    Raises:
        UsageError: U021 for an unknown stage or a function that is not jitted; U026
            for hosts or a topology that do not fit or come without a target; U225 for
            hosts that do not exist.
        NoGpuCompilerError: R007, a target without its plug-in.
        CompilationError: R004, XLA refused the function or wrote no such dump.
    """
    stage = stage or ("partitioned" if target is None else "gpu-scheduled")
    if stage not in STAGES:
        raise UsageError(
            f"unknown stage {stage!r}",
            code="U021",
            hint=f"one of {', '.join(STAGES)}",
        )
    if not hasattr(function, "lower"):
        raise UsageError(
            f"{function!r} is not a jitted function",
            code="U021",
            hint="wrap it in jax.jit",
        )
    given = {"topology": topology, "hosts": hosts, "gpus_per_host": gpus_per_host}
    given = {name: value for name, value in given.items() if value is not None}
    if given and target is None:
        name, value = next(iter(given.items()))
        raise UsageError(
            f"{name}={value} needs a target",
            code="U026",
            hint='target="h100_sxm"; emulated devices come from the jitted function',
        )
    leave_out_own_frames()
    if target is None:
        lowered = function.lower(*args, **kwargs)
        compilation = _Compilation(lowered, _name_of(function))
    else:
        on = Pricing(target=target, **given)
        compilation = _gpu_compilation(function, args, kwargs, on)
    filename = f"<{compilation.name}, {stage}>"
    if stage == "before-optimizations":
        return parse(_before_optimizations(compilation.lowered), filename=filename)
    if stage == "partitioned":
        return parse(_partitioned(compilation), filename=filename)
    text, _ = _final(compilation, stage)
    return parse(text, filename=filename)


def lower_to_the_end(
    function: Any, *args: Any, target: str, topology: str
) -> tuple[Module, str]:
    """Compile for an absent GPU; returns the module, and why XLA stopped.

    The reason is '' if XLA's back end finished; otherwise the module is the one that
    its scheduler left. Arguments and errors are those of `lower`.
    """
    on = Pricing(target=target, topology=topology)
    compilation = _gpu_compilation(function, args, {}, on)
    text, failure = _final(compilation, "gpu-scheduled")
    return parse(text, filename=f"<{compilation.name}, gpu-scheduled>"), failure


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", "function")


def _gpu_compilation(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    on: Pricing,
) -> _Compilation:
    if not hasattr(function, "trace"):
        raise UsageError(
            f"{_name_of(function)} cannot be traced for a target, as jax.pmap makes it",
            code="U021",
            hint="use jax.jit with jax.shard_map; without a target it can be lowered "
            "as it is",
        )
    gpu_aot.require_plug_in(on.target)
    lowered = function.trace(*args, **kwargs).lower(
        lowering_platforms=(gpu_aot.PLATFORM,)
    )
    count = jax_private.lowered_device_count(lowered)
    machine = gpu_aot.machine_to_compile_for(on, count)
    devices = gpu_aot.gpu_devices(on.target, machine)
    return _Compilation(lowered, _name_of(function), devices)


@dataclass(frozen=True, slots=True)
class _Compilation:
    """What is compiled: for its own devices, or for absent GPUs."""

    lowered: Any
    name: str
    gpu_devices: tuple[Any, ...] = ()

    def run(self, options: Mapping[str, Any]) -> None:
        """Compile; CompilationError R004 if XLA refuses it."""
        try:
            if self.gpu_devices:
                gpu_aot.compile_for(self.lowered, self.gpu_devices, options)
            else:
                self.lowered.compile(compiler_options=dict(options))
        except RuntimeError as problem:
            raise CompilationError(
                f"XLA cannot compile {self.name}: {str(problem).splitlines()[0]}"
            ) from problem


def _before_optimizations(lowered: Any) -> str:
    stablehlo = lowered.compiler_ir("stablehlo").operation.get_asm(
        enable_debug_info=True
    )
    text = jax_private.proto_to_text(jax_private.stablehlo_to_proto(stablehlo.encode()))
    # The counts belong to the compilation, not to the program: XLA writes them into
    # the header of its own dump, but the conversion does not.
    counts = ""
    for attribute, name in _COUNTS:
        match = re.search(rf"mhlo\.{attribute} = (\d+)", stablehlo)
        if match and match[1] != "1" and f", {name}=" not in text.partition("\n")[0]:
            counts += f", {name}={match[1]}"
    header, newline, rest = text.partition("\n")
    return f"{header}{counts}{newline}{rest}"


def _partitioned(compilation: _Compilation) -> str:
    """The module after the partitioner; for one partition, XLA's input."""
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        compilation.run(_dump_options(folder, _PARTITIONER))
        text = _dump_behind(pathlib.Path(folder), f"after_{_PARTITIONER}")
    return text if text is not None else _before_optimizations(compilation.lowered)


def _final(compilation: _Compilation, stage: str) -> tuple[str, str]:
    """The scheduled module, and why XLA stopped after it; '' if it did not stop."""
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        options = _dump_options(folder, f"{_SCHEDULER}|{_TRANSFORMATION}")
        if stage == "gpu-scheduled":
            options |= gpu_aot.GPU_OPTIONS
        failure: CompilationError | None = None
        try:
            compilation.run(options)
        except CompilationError as problem:
            # For an absent GPU, XLA may stop after the scheduler; its dump is complete
            # by then.
            failure = problem
        place = pathlib.Path(folder)
        text = _dump_behind(place, "after_optimizations.txt")
        if text is None and stage == "gpu-scheduled":
            text = _dump_behind(place, f"{_BEHIND_SCHEDULER}.after_{_TRANSFORMATION}")
            text = text or _dump_behind(place, f"after_{_SCHEDULER}")
    if text is not None:
        return text, failure.message if failure else ""
    raise failure or CompilationError(
        f"XLA wrote no scheduled dump of {compilation.name}"
    )


def _dump_options(folder: str, passes: str) -> dict[str, Any]:
    """XLA's flags that write modules to a folder: what text can say of them, in full.

    `passes` matches the passes after which a module is written.
    """
    options: dict[str, Any] = {
        "xla_dump_to": folder,
        "xla_dump_hlo_as_long_text": True,
        "xla_dump_large_constants": True,
        "xla_dump_hlo_pass_re": passes,
    }
    if jax_private.XLA.dumps_leave_out_elements:
        # Text that leaves out get-tuple-elements loses their control edges, and names
        # them as control predecessors of others all the same.
        options["xla_dump_compact_gte"] = False
    return options


def _dump_behind(folder: pathlib.Path, mark: str) -> str | None:
    """The largest dump whose name has the mark: the program, not a small helper."""
    found = [
        p
        for p in folder.iterdir()
        if mark in p.name
        and p.suffix == ".txt"
        and not re.search(r"buffer|memory", p.name)
    ]
    if not found:
        return None
    return max(found, key=lambda p: (p.stat().st_size, p.name)).read_text()
