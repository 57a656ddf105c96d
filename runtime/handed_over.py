"""Our passes inside XLA's GPU compilation, beside the compilation without them.

    alone = compile_alone("model.py:step", target="h100_sxm", topology="1x2x8")
    both = hand_over(alone, passes="latency-hiding-scheduler")
    both.xla, both.ours        as they left XLA's HLO passes
    both.stops                 '' where XLA's back end came to its end, either way

From jax 0.12 on XLA calls registered transformations in a compilation for a GPU that is
not there, too. At `post-scheduler` the module is scheduled: a pass that only reorders
replaces XLA's schedule by its own, and everything behind it works on that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jax

from hlo_passes.errors import PassError, UsageError
from hlo_passes.ir.module import Module
from hlo_passes.passes.base import PassContext
from hlo_passes.runtime import capture, gpu_aot, jax_private
from hlo_passes.runtime.gpu_aot import NoGpuCompilerError
from hlo_passes.runtime.installation.install import Installation, install
from hlo_passes.runtime.lower_file import read_program
from hlo_passes.xla_release import RELEASES

#: XLA's words where its verifier refuses the result of a callback.
_IN_TRANSFORMATION: Final = "during context [apply-xla-transforms"


class RefusedError(PassError):
    """XLA's verifier or GPU back end refuses a module that passes changed."""

    default_code = "E040"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A program compiled twice: by XLA alone, and with passes inside.

    Attributes:
        xla: as XLA scheduled it, at the end of its HLO passes.
        ours: the same with the passes inside.
        stops: why the back end stops behind the schedule, with and without the passes
            (no ptxas, a custom call that is not registered), '' where it does not.
        changed: modules that the passes changed.
        moved: instructions at another place among those common to both.
        common: instructions that both have.
    """

    xla: Module
    ours: Module
    stops: str
    changed: int
    moved: int
    common: int


def require_transformations() -> None:
    """NoGpuCompilerError R007 where XLA calls no passes in a GPU's compilation."""
    if not jax_private.XLA.calls_back_without_gpus:
        first = next(r for r in RELEASES if r.calls_back_without_gpus)
        raise NoGpuCompilerError(
            f"jax {jax.__version__} runs no passes inside a compilation for a GPU that "
            "is not there",
            hint=f"jax {first} does; without passes: hlo-passes lower --target, then "
            "hlo-passes opt",
        )


def install_for_gpu(
    passes: str, *, stage: str, target: str, topology: str, costs: str = ""
) -> Installation:
    """The passes in every compilation for GPUs that holds communication.

    Raises:
        NoGpuCompilerError: R007, this jax has no such stage.
        HloError: as `runtime.install`.
    """
    require_transformations()
    gpu_aot.require_plug_in(target)
    return install(
        passes,
        stage=stage,
        platforms=gpu_aot.PLATFORM,
        multiprocess="off",
        context=PassContext(target=target, topology=topology, costs=costs),
    )


@dataclass(frozen=True, slots=True)
class Alone:
    """A program that XLA compiled alone: what compilations with passes stand beside.

    Attributes:
        function: FILE.py:FUNCTION.
        target: a GPU that is not there.
        topology: 'PxHxG'.
        jitted: the function, and its arguments.
        module: as XLA scheduled it.
        stops: as of `HandedOver`.
    """

    function: str
    target: str
    topology: str
    jitted: tuple[Any, tuple[Any, ...]]
    module: Module
    stops: str


def compile_alone(function: str, *, target: str, topology: str) -> Alone:
    """Compile FILE.py:FUNCTION without passes.

    Raises HloError as `runtime.lower`; NoGpuCompilerError R007 before jax 0.12.
    """
    require_transformations()
    jitted, arguments = read_program(function, gpu_aot.gpu_devices(target, topology))
    module, stops = capture.lower_to_the_end(
        jitted, *arguments, target=target, topology=topology
    )
    return Alone(function, target, topology, (jitted, arguments), module, stops)


def hand_over(
    alone: Alone, *, passes: str, stage: str = "post-scheduler", costs: str = ""
) -> HandedOver:
    """Compile a program once more, with passes inside.

    Args:
        alone: of `compile_alone`.
        passes: a pipeline's text.
        stage: `pre-scheduler` or `post-scheduler`.
        costs: a table for the scheduler, in place of its estimator.

    Raises:
        HloError: as `runtime.install` and the passes.
        RefusedError: E040, XLA does not take what the passes made.
        UsageError: U028, there was nothing in the program for these passes.
    """
    target, topology = alone.target, alone.topology
    jitted, arguments = alone.jitted
    with install_for_gpu(
        passes, stage=stage, target=target, topology=topology, costs=costs
    ) as installed:
        ours, refusal = _with_passes(jitted, arguments, target, topology, installed)
    if not installed.fired:
        raise UsageError(
            f"the passes ran in none of the {installed.seen} modules of "
            f"{alone.function}",
            code="U028",
            hint="they look for communication, and the program has none",
        )
    if refusal and refusal != alone.stops:
        raise RefusedError(
            f"XLA's GPU compiler does not take what the passes made: {refusal}",
            hint="without them it "
            + (f"stops at: {alone.stops}" if alone.stops else "compiles"),
        )
    moved, common = _moved(alone.module, ours)
    return HandedOver(alone.module, ours, alone.stops, installed.changed, moved, common)


def lower_with_passes(
    function: str,
    *,
    passes: str,
    stage: str,
    target: str,
    topology: str,
) -> Module:
    """FILE.py:FUNCTION as XLA's GPU compiler schedules it with passes inside.

    Arguments and errors are those of `compile_alone` and `hand_over`.
    """
    require_transformations()
    jitted, arguments = read_program(function, gpu_aot.gpu_devices(target, topology))
    with install_for_gpu(
        passes, stage=stage, target=target, topology=topology
    ) as installed:
        module, refusal = _with_passes(jitted, arguments, target, topology, installed)
    if _IN_TRANSFORMATION in refusal:
        raise RefusedError(f"XLA does not take what the passes made: {refusal}")
    return module


def _with_passes(
    jitted: Any,
    arguments: tuple[Any, ...],
    target: str,
    topology: str,
    installed: Installation,
) -> tuple[Module, str]:
    """The module and what XLA has against it; what a pass has to say is raised."""
    try:
        return capture.lower_to_the_end(
            jitted, *arguments, target=target, topology=topology
        )
    finally:
        # XLA stops where a pass fails, and leaves the dump of before.
        for failure in installed.failures:
            raise failure from None


def _moved(before: Module, after: Module) -> tuple[int, int]:
    """(instructions of both at another place among them, instructions of both)."""
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
