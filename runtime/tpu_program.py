"""A program for absent TPUs, as a module at a stage, with the scheduler's own costs.

    compiled = compile_for_tpu("model.py:step", grid_to_compile_for("v5e", "2x4"))
    compiled.module("tpu-final")       what the chips would run
    compiled.log.statistics            what the compiler's scheduler says of it
    compiled.costs()                   its costs, for --costs

The stages after the partitioner are those of XLA:TPU:

    tpu-before-scheduler    fused, in the order that keeps memory low
    tpu-scheduled           the same in the order of the latency-hiding scheduler
    tpu-final               with prefetches to VMEM, and `estimated_cycles`
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.runtime import capture, jax_private, tpu_aot
from hlo_passes.runtime.capture import Compilation, require_traceable
from hlo_passes.runtime.devices import MAXIMUM_EMULATED, emulate
from hlo_passes.runtime.dump_folder import dump_folder
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.own_frames import leave_out_own_frames
from hlo_passes.runtime.stablehlo_program import read_program as read_stablehlo
from hlo_passes.runtime.tpu_aot import Grid
from hlo_passes.runtime.user_function import read_program
from hlo_passes.scheduler.tpu.chips import chip, chip_names
from hlo_passes.scheduler.tpu.costs import TpuCosts
from hlo_passes.scheduler.tpu.log import SchedulerLog, read_log
from hlo_passes.scheduler.tpu.settings import flag_of
from hlo_passes.text.reader import parse
from hlo_passes.whole_numbers import integer_of

BEFORE: Final = "tpu-before-scheduler"
SCHEDULED: Final = "tpu-scheduled"
FINAL: Final = "tpu-final"
#: Stages of XLA:TPU, and what its dumps of them have in their names.
TPU_STAGES: Final[Mapping[str, str]] = {
    BEFORE: ".before_latency-hiding-scheduler",
    SCHEDULED: ".after_latency-hiding-scheduler",
    FINAL: "after_optimizations.txt",
}
_SCHEDULER: Final = "latency-hiding-scheduler"


@dataclass(frozen=True)
class CompiledForTpu:
    """One compilation for absent TPUs.

    Attributes:
        name: of the program.
        grid: the chips.
        flags: of the compiler, by name.
        texts: modules as XLA printed them, by stage; a program without asynchronous
            operations has the last stage alone.
        said: what the library logged; '' where nobody asked.
        seconds: that the compilation took.
    """

    name: str
    grid: Grid
    flags: Mapping[str, Any]
    texts: Mapping[str, str]
    said: str
    seconds: float

    @cached_property
    def log(self) -> SchedulerLog:
        """What the scheduler said."""
        return read_log(self.said.splitlines())

    def module(self, stage: str) -> Module:
        """The module at a stage; CompilationError R004 if XLA wrote none."""
        text = self.texts.get(stage)
        if text is None and stage in (BEFORE, SCHEDULED):
            raise self._without_schedule("had nothing to do")
        if text is None:
            raise CompilationError(f"XLA wrote no dump of {self.name}")
        return parse(text, filename=f"<{self.name}, {stage}>")

    def _without_schedule(self, what: str) -> CompilationError:
        others = ", ".join(n for n in chip_names() if not chip(n).is_aggressive)
        return CompilationError(
            f"XLA:TPU's scheduler {what} in {self.name}: no operation is asynchronous",
            hint=f"--stage={FINAL} without --write-costs gives the module; all-gathers "
            f"are synchronous by default on {others}",
        )

    def costs(self) -> TpuCosts:
        """The costs and latencies of the scheduler; CompilationError R004 without."""
        log = self.log
        if not log.rounds:
            raise self._without_schedule("priced nothing")
        flags = ",".join(f"{name}={value}" for name, value in self.flags.items())
        return TpuCosts(
            self.grid.part.name,
            log.mhz or self.grid.part.tensorcore_mhz,
            log.node_cycles,
            log.latency_cycles,
            self.grid.text,
            log.memory_limit_bytes,
            flags,
            log.statistics,
            log.edge_cycles,
            self.grid.slices,
        )


def library_version() -> str:
    """Of libtpu."""
    return importlib.metadata.version("libtpu")


def compile_for_tpu(
    function: str,
    grid: Grid,
    *,
    arguments: str = "",
    flags: Sequence[str] = (),
    with_log: bool = False,
) -> CompiledForTpu:
    """Compile what a user names for absent TPUs.

    Args:
        function: FILE.py:FUNCTION, MODULE:FUNCTION or FILE.mlir.
        grid: the chips.
        arguments: of a function that is jitted itself.
        flags: of the compiler, 'name=value' each.
        with_log: whether the library logs its scheduler, at the first compilation of
            the process.

    Raises:
        UsageError: U025, U026, U251 for a flag without a value.
        NoTpuCompilerError: R007.
        CompilationError: R004, XLA refuses the program or a flag.
    """
    options = flags_of(flags)
    if with_log:
        tpu_aot.ask_for_log()
    program = tpu_program(function, grid, arguments)
    return compile_program(program, grid, options, with_log=with_log)


def compile_program(
    program: Compilation,
    grid: Grid,
    options: Mapping[str, Any],
    *,
    with_log: bool = False,
) -> CompiledForTpu:
    """Compile a program, perhaps once more; CompilationError R004.

    Args:
        program: from `tpu_program`.
        grid: the chips that it is for.
        options: flags of the compiler by name.
        with_log: whether to keep what the library logs, if it was asked to.
    """
    begun = time.perf_counter()
    with dump_folder(_SCHEDULER) as dump:
        with tpu_aot.scheduler_log() as log:
            program.run({**dump.options, **options})
        found = {s: dump.text_after(mark) for s, mark in TPU_STAGES.items()}
    # Only the executable's text has the compiler's estimates; its dump has none.
    if isinstance(program, _OfFunction) and program.made:
        found[FINAL] = jax_private.executable_text(program.made[-1])
    seconds = time.perf_counter() - begun
    texts = {stage: text for stage, text in found.items() if text is not None}
    said = log.text if with_log else ""
    return CompiledForTpu(program.name, grid, options, texts, said, seconds)


def flags_of(flags: Sequence[str]) -> dict[str, Any]:
    """Flags as the compiler takes them; UsageError U251 for one without a value."""
    found: dict[str, Any] = {}
    for each in flags:
        hint = "as in --flag=xla_tpu_scheduler_percent_shared_memory_limit=90"
        name, value = flag_of(each, option="--flag=", hint=hint)
        typed: Any = {"true": True, "false": False}.get(value.lower(), value)
        if (number := integer_of(value)) is not None:
            typed = number
        found[name] = typed
    return found


def tpu_program(function: str, grid: Grid, arguments: str = "") -> Compilation:
    """What a user names, for absent TPUs; errors as of `compile_for_tpu`."""
    from hlo_passes.runtime.lower_file import is_stablehlo

    leave_out_own_frames()
    if is_stablehlo(function, arguments):
        program = read_stablehlo(function)
        return program.on(tpu_aot.tpu_devices(grid), grid.text)
    devices = tpu_aot.tpu_devices(grid)
    # A jitted function may be for the devices of this machine: as many as TPUs.
    if len(devices) <= MAXIMUM_EMULATED:
        emulate(len(devices))
    jitted, values = read_program(function, devices, arguments)
    return _program_of(jitted, values, {}, devices, grid)


def _program_of(
    jitted: Any,
    values: Sequence[Any],
    named: Mapping[str, Any],
    devices: tuple[Any, ...],
    grid: Grid,
) -> Compilation:
    """A jitted function, for absent TPUs; UsageError U021 for one that is not."""
    require_traceable(jitted)
    traced = jitted.trace(*values, **named)
    lowered = traced.lower(lowering_platforms=(tpu_aot.PLATFORM,))
    name = getattr(jitted, "__name__", "function")
    return _OfFunction(lowered, name, devices, grid.text)


@dataclass(frozen=True, slots=True)
class _OfFunction:
    """A `capture.Compilation` of what JAX lowered, for absent TPUs."""

    lowered: Any
    name: str
    devices: tuple[Any, ...]
    machine: str
    made: list[Any] = field(default_factory=list)

    def run(self, options: Mapping[str, Any]) -> None:
        """Compile; CompilationError R004 if XLA refuses it."""
        try:
            executable = tpu_aot.compile_for(self.lowered, self.devices, options)
        except RuntimeError as problem:
            raise CompilationError(
                f"XLA:TPU cannot compile {self.name}: {str(problem).splitlines()[0]}"
            ) from problem
        self.made.append(executable)

    def stablehlo(self) -> str:
        """What XLA gets from JAX."""
        module = self.lowered.compiler_ir("stablehlo")
        return module.operation.get_asm(enable_debug_info=True)


def lower_for_tpu(
    function: str,
    grid: Grid,
    *,
    stage: str | None = None,
    arguments: str = "",
    flags: Sequence[str] = (),
) -> Module:
    """The module of a program at a stage; arguments and errors as of `compile_for_tpu`.

    Args:
        function: see there, as for the others.
        grid: the chips.
        stage: 'before-optimizations', 'partitioned' or one of `TPU_STAGES`; None for
            the last one.
        arguments: of a jitted function.
        flags: of the compiler.
    """
    stage = _known_stage(stage)
    options = flags_of(flags)
    return _module_at(tpu_program(function, grid, arguments), grid, stage, options)


def lower_jitted_for_tpu(
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    grid: Grid,
    stage: str | None = None,
) -> Module:
    """The module of a jitted function at a stage; errors as of `lower_for_tpu`.

    Args:
        function: a result of `jax.jit`, for as many devices as the grid has, or one.
        args: positional arguments.
        kwargs: keyword arguments.
        grid: the chips.
        stage: see `lower_for_tpu`.
    """
    stage = _known_stage(stage)
    devices = tpu_aot.tpu_devices(grid)
    program = _program_of(function, args, kwargs, devices, grid)
    return _module_at(program, grid, stage, {})


def _known_stage(stage: str | None) -> str:
    """A stage, the last one for None; UsageError U026."""
    stage = stage or FINAL
    known = ("before-optimizations", "partitioned", *TPU_STAGES)
    if stage not in known:
        raise UsageError(
            f"--stage={stage} is not of a compilation for TPUs",
            code="U026",
            hint=f"one of {', '.join(known)}",
        )
    return stage


def _module_at(
    program: Compilation, grid: Grid, stage: str, options: Mapping[str, Any]
) -> Module:
    if stage in TPU_STAGES:
        return compile_program(program, grid, options).module(stage)
    with tpu_aot.scheduler_log():
        return capture.module_at(_WithFlags(program, options), stage)


@dataclass(frozen=True, slots=True)
class _WithFlags:
    """A compilation with flags of the user's."""

    program: Compilation
    flags: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The program's."""
        return self.program.name

    @property
    def machine(self) -> str:
        """The program's."""
        return self.program.machine

    def stablehlo(self) -> str:
        """The program's."""
        return self.program.stablehlo()

    def run(self, options: Mapping[str, Any]) -> None:
        """Compile with the flags, too."""
        self.program.run({**options, **self.flags})
