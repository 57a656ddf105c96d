"""Runs our passes inside XLA's GPU compilation, and compares with XLA alone.

    alone = compile_alone("model.py:step", Pricing(hosts=2))
    both = hand_over(alone, passes="latency-hiding-scheduler")
    both.xla, both.ours        both modules as they left XLA's HLO passes
    both.stops                 '' if XLA's back end finished, in both cases

From jax 0.12 on XLA also calls registered transformations in a compilation for an
absent GPU. At `post-scheduler` the module is scheduled: a pass that only reorders
replaces XLA's schedule with its own, and all later passes work on that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import jax

from hlo_passes.errors import PassError, UsageError
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.plurals import counted
from hlo_passes.pricing import Pricing
from hlo_passes.runtime import capture, gpu_aot, jax_private
from hlo_passes.runtime.capture import Compilation
from hlo_passes.runtime.gpu_aot import NoGpuCompilerError
from hlo_passes.runtime.installation.install import Installation, install
from hlo_passes.runtime.lower_file import gpu_program
from hlo_passes.xla_release import RELEASES

#: XLA's words if its verifier refuses the result of a callback.
_IN_TRANSFORMATION: Final = "during context [apply-xla-transforms"


class RefusedError(PassError):
    """XLA's verifier or back end refuses a module that passes changed."""

    default_code = "E040"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A program compiled twice: by XLA alone, and with passes inside.

    Attributes:
        xla: as XLA scheduled it, at the end of its HLO passes.
        ours: the same with the passes inside.
        stops: why the back end stops after the schedule, with and without the passes
            (no ptxas, a custom call that is not registered), '' if it does not.
        changed: modules that the passes changed.
        moved: how many of the common instructions are in another place.
        common: instructions that both have.
    """

    xla: Module
    ours: Module
    stops: str
    changed: int
    moved: int
    common: int


def require_transformations() -> None:
    """NoGpuCompilerError R007 if XLA calls no passes in a GPU's compilation."""
    if not jax_private.XLA.calls_back_without_gpus:
        first = next(r for r in RELEASES if r.calls_back_without_gpus)
        raise NoGpuCompilerError(
            f"jax {jax.__version__} cannot run passes inside a compilation for a GPU "
            "that this machine does not have",
            hint=f"jax {first} does; without passes: hlo-passes lower --target, then "
            "hlo-passes opt",
        )


def install_for_gpu(passes: str, *, stage: str, on: Pricing) -> Installation:
    """Install passes in every compilation for GPUs that has communication.

    Args:
        passes: a pipeline's text.
        stage: `pre-scheduler` or `post-scheduler`.
        on: the machine and the costs that the passes use.

    Raises:
        NoGpuCompilerError: R007, this jax has no such stage.
        HloError: as `runtime.install`.
    """
    require_transformations()
    gpu_aot.require_plug_in(on.target)
    return install(
        passes,
        stage=stage,
        platforms=gpu_aot.PLATFORM,
        multiprocess="off",
        context=PassContext(on),
    )


@dataclass(frozen=True, slots=True)
class Alone:
    """A program that XLA compiled alone, to compare compilations with passes with.

    Attributes:
        function: FILE.py:FUNCTION, MODULE:FUNCTION or FILE.mlir.
        on: the absent GPUs and their costs.
        program: it, for these GPUs.
        module: as XLA scheduled it.
        stops: as in `HandedOver`.
    """

    function: str
    on: Pricing
    program: Compilation
    module: Module
    stops: str


def compile_alone(function: str, on: Pricing, arguments: str = "") -> Alone:
    """Compile what a user names without passes, for the machine of a pricing.

    Arguments and errors are those of `lower_file`; NoGpuCompilerError R007 before jax
    0.12. The result is priced on the machine that it was compiled for.
    """
    require_transformations()
    program = gpu_program(function, on, arguments)
    on = replace(on, topology=program.machine)
    module, stops = capture.module_at_the_end(program)
    return Alone(function, on, program, module, stops)


def hand_over(
    alone: Alone, *, passes: str, stage: str = "post-scheduler"
) -> HandedOver:
    """Compile a program again, with passes inside that price on the same.

    Args:
        alone: from `compile_alone`.
        passes: a pipeline's text.
        stage: `pre-scheduler` or `post-scheduler`.

    Raises:
        HloError: as `runtime.install` and the passes.
        RefusedError: E040, XLA refuses the result of the passes.
        UsageError: U028, the program has nothing for these passes.
    """
    with install_for_gpu(passes, stage=stage, on=alone.on) as installed:
        ours, refusal = _with_passes(alone.program, installed)
    if not installed.fired:
        raise UsageError(
            f"the passes ran in none of {counted(installed.seen, 'module')} of "
            f"{alone.function}",
            code="U028",
            hint="they look for communication, but the program has none",
        )
    if refusal and refusal != alone.stops:
        raise RefusedError(
            f"XLA's GPU compiler refuses the result of the passes: {refusal}",
            hint="without them it "
            + (f"stops at: {alone.stops}" if alone.stops else "compiles"),
        )
    moved, common = _moved(alone.module, ours)
    return HandedOver(alone.module, ours, alone.stops, installed.changed, moved, common)


def lower_with_passes(
    function: str, *, passes: str, stage: str, on: Pricing, arguments: str = ""
) -> Module:
    """The module of what a user names, scheduled by XLA's GPU compiler with passes.

    Arguments and errors are those of `compile_alone` and `hand_over`.
    """
    require_transformations()
    program = gpu_program(function, on, arguments)
    on = replace(on, topology=program.machine)
    with install_for_gpu(passes, stage=stage, on=on) as installed:
        module, refusal = _with_passes(program, installed)
    if _IN_TRANSFORMATION in refusal:
        raise RefusedError(f"XLA refuses the result of the passes: {refusal}")
    return module


def _with_passes(program: Compilation, installed: Installation) -> tuple[Module, str]:
    """The module, and why XLA refuses it; errors of a pass are raised."""
    try:
        return capture.module_at_the_end(program)
    finally:
        # XLA stops if a pass fails, and leaves the dump from before.
        for failure in installed.failures:
            raise failure from None


def _moved(before: Module, after: Module) -> tuple[int, int]:
    """(common instructions in another place, common instructions)."""
    moved = total = 0
    for computation in after.computations:
        other = before.computation(computation.name)
        if other is None:
            continue
        old = [i.name for i in other.instructions]
        new = [i.name for i in computation.instructions]
        common = set(old) & set(new)
        old, new = ([n for n in names if n in common] for names in (old, new))
        total += len(common)
        moved += sum(one != two for one, two in zip(old, new, strict=True))
    return moved, total
