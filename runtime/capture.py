"""A jitted function's compilation, and its HLO module at a stage of it.

    compilation = host_compilation(jax.jit(f), args, {})
    module_at(compilation, "partitioned")

    gpu_compilation(jax.jit(f), args, {}, Pricing(target="h100_sxm", hosts=2))

`lower_function.lower` is what users call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.runtime import gpu_aot, jax_private
from hlo_passes.runtime.dump_folder import dump_folder
from hlo_passes.runtime.executable import CompilationError
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


def require_jitted(function: Any) -> None:
    """UsageError U021 for a function that is not jitted."""
    if not hasattr(function, "lower"):
        raise UsageError(
            f"{function!r} is not a jitted function",
            code="U021",
            hint="wrap it in jax.jit",
        )


def require_traceable(function: Any) -> None:
    """UsageError U021 for a function that cannot be lowered for another machine."""
    require_jitted(function)
    if not hasattr(function, "trace"):
        raise UsageError(
            f"{_name_of(function)} cannot be traced for a target, as jax.pmap makes it",
            code="U021",
            hint="use jax.jit with jax.shard_map; without a target it can be lowered "
            "as it is",
        )


class Compilation(Protocol):
    """What XLA can compile, on its devices or for absent GPUs."""

    @property
    def name(self) -> str:
        """The program's name in messages."""
        ...

    @property
    def machine(self) -> str:
        """The absent GPUs as 'PxHxG'; '' for devices of this process."""
        ...

    def stablehlo(self) -> str:
        """XLA's input, as text with source locations."""
        ...

    def run(self, options: Mapping[str, Any]) -> None:
        """Compile with XLA's flags by name; CompilationError R004 if XLA refuses it."""
        ...


def module_at(compilation: Compilation, stage: str) -> Module:
    """The module of a compilation at one of `STAGES`; CompilationError R004."""
    if stage == "before-optimizations":
        text = _before_optimizations(compilation)
    elif stage == "partitioned":
        text = _partitioned(compilation)
    else:
        text, _ = _final(compilation, stage)
    return parse(text, filename=f"<{compilation.name}, {stage}>")


def module_at_the_end(compilation: Compilation) -> tuple[Module, str]:
    """Compile for absent GPUs; returns the module, and why XLA stopped.

    The reason is '' if XLA's back end finished; otherwise the module is the one that
    its scheduler left. CompilationError R004 if there is none.
    """
    text, failure = _final(compilation, "gpu-scheduled")
    return parse(text, filename=f"<{compilation.name}, gpu-scheduled>"), failure


def lower_to_the_end(
    function: Any, *args: Any, target: str, topology: str
) -> tuple[Module, str]:
    """`module_at_the_end` of a jitted function, as `lower_function.lower` takes it."""
    on = Pricing(target=target, topology=topology)
    return module_at_the_end(gpu_compilation(function, args, {}, on))


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", "function")


def host_compilation(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Compilation:
    """A jitted function for the devices that it was jitted for."""
    return _OfFunction(function.lower(*args, **kwargs), _name_of(function))


def gpu_compilation(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    on: Pricing,
    machine_of_one: str = "",
) -> Compilation:
    """A jitted function for absent GPUs; errors as of `lower_function.lower`.

    Args:
        function: a result of `jax.jit`.
        args: positional arguments.
        kwargs: keyword arguments.
        on: the GPUs; their number is that of the function where nobody says it.
        machine_of_one: 'PxHxG', where the first GPU gets a function for one device; ''
            for a machine with one GPU.
    """
    require_traceable(function)
    gpu_aot.require_plug_in(on.target)
    lowered = function.trace(*args, **kwargs).lower(
        lowering_platforms=(gpu_aot.PLATFORM,)
    )
    count = jax_private.lowered_device_count(lowered)
    machine = gpu_aot.machine_to_compile_for(on, count)
    if count == 1 and machine_of_one:
        machine = machine_of_one
    devices = gpu_aot.gpu_devices(on.target, machine)
    return _OfFunction(lowered, _name_of(function), devices, machine)


@dataclass(frozen=True, slots=True)
class _OfFunction:
    """A `Compilation` of what JAX lowered: for its own devices, or for absent GPUs."""

    lowered: Any
    name: str
    gpu_devices: tuple[Any, ...] = ()
    machine: str = ""

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

    def stablehlo(self) -> str:
        """What XLA gets from JAX."""
        module = self.lowered.compiler_ir("stablehlo")
        return module.operation.get_asm(enable_debug_info=True)


def _before_optimizations(compilation: Compilation) -> str:
    stablehlo = compilation.stablehlo()
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


def _partitioned(compilation: Compilation) -> str:
    """The module after the partitioner; for one partition, XLA's input."""
    with dump_folder(_PARTITIONER) as dump:
        failure: CompilationError | None = None
        try:
            compilation.run(dump.options)
        except CompilationError as problem:
            # It may be for a machine whose libraries are not here.
            failure = problem
        text = dump.text_after(f"after_{_PARTITIONER}")
    if text is None and failure is not None:
        raise failure
    return text if text is not None else _before_optimizations(compilation)


def _final(compilation: Compilation, stage: str) -> tuple[str, str]:
    """The scheduled module, and why XLA stopped after it; '' if it did not stop."""
    with dump_folder(f"{_SCHEDULER}|{_TRANSFORMATION}") as dump:
        options = dump.options
        if stage == "gpu-scheduled":
            options |= gpu_aot.GPU_OPTIONS
        failure: CompilationError | None = None
        try:
            compilation.run(options)
        except CompilationError as problem:
            # For an absent GPU, XLA may stop after the scheduler; its dump is complete
            # by then.
            failure = problem
        text = dump.text_after("after_optimizations.txt")
        if text is None and stage == "gpu-scheduled":
            text = dump.text_after(f"{_BEHIND_SCHEDULER}.after_{_TRANSFORMATION}")
            text = text or dump.text_after(f"after_{_SCHEDULER}")
    if text is not None:
        return text, failure.message if failure else ""
    raise failure or CompilationError(
        f"XLA wrote no scheduled dump of {compilation.name}"
    )
