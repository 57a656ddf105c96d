"""Compiles a program for absent TPUs as far as its schedule, with the log of it.

    found = compile_to_tpu_schedule(program, grid, {"xla_tpu_...": True})
    found.module, found.costs        text of the scheduled module, and its costs
    found = compile_to_the_end(program, grid, {})
    found.needed_bytes               what the executable takes of a device

XLA:TPU's scheduler prices and logs only computations with something asynchronous, and a
program without any has no statistic at all. So on the way to the schedule each other
computation gets a permute of one number from a device to itself: it costs three cycles,
moves nothing between devices, and makes the scheduler tell what the computation costs.
What follows the schedule (tiles, memory spaces, code) takes most of a compilation and
changes no price of the log: it is left out, by handing XLA:TPU a module that cannot be
read. `compile_to_the_end` does neither.

Right before its scheduler XLA:TPU makes some pairs synchronous. Where a computation has
no price because of that, the program is compiled once more, with a permute there, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from hlo_passes.errors import HloError
from hlo_passes.ir.async_form import is_start
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.proto import module_from_proto, module_to_proto
from hlo_passes.proto_worker import run_task
from hlo_passes.runtime import jax_private, tpu_aot
from hlo_passes.runtime.capture import Compilation
from hlo_passes.runtime.dump_folder import dump_folder
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.installation.for_tpu import require_schedule
from hlo_passes.runtime.installation.install import Registrations
from hlo_passes.runtime.tpu_aot import Grid
from hlo_passes.runtime.tpu_program import (
    FINAL,
    SCHEDULED,
    TPU_STAGES,
    CompiledForTpu,
    compile_program,
)
from hlo_passes.scheduler.estimators.tpu_final import TPU_FINAL
from hlo_passes.scheduler.simulation.simulate import simulate
from hlo_passes.text.reader import parse

#: What names the instructions that are added begin with.
ADDED: Final = "hlo_passes_price_probe"
_PRE: Final = "pre-scheduler"
_POST: Final = "post-scheduler"
_NO_MODULE: Final = b"\xff no module"
_SHAPES: Final = """HloModule shapes
ENTRY %shapes {
  %a = s32[1]{0:T(128)} parameter(0)
  ROOT %b = (s32[1]{0:T(128)}, s32[1]{0:T(128)}, u32[]{:S(2)}, /*index=3*/u32[]{:S(2)})
    parameter(1)
}
"""


@dataclass(frozen=True, slots=True)
class TpuSchedule:
    """What XLA:TPU made of a program.

    Attributes:
        module: text of the scheduled module, before later passes cut and tile it; ''
            where the compiler's scheduler had nothing to do.
        costs: of the compiler's scheduler, as `TpuCosts.to_json` has them; {} without.
        seconds: that it took.
        needed_bytes: of a device's memory; 0 where the compilation stopped before.
        final_work_us: of what is computed, by the estimates of the compiler's last
            module; 0 where the compilation stopped before, or that has none.
    """

    module: str
    costs: dict[str, Any]
    seconds: float
    needed_bytes: int = 0
    final_work_us: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def compile_to_tpu_schedule(
    program: Compilation, grid: Grid, options: Mapping[str, Any]
) -> TpuSchedule:
    """Compile with flags by name as far as the schedule.

    The library was asked for its log before it was loaded (`tpu_aot.ask_for_log`).

    Raises CompilationError R004 if XLA refuses the program or a flag.
    """
    found = _compile_to_tpu_schedule(program, grid, options, frozenset())
    if missing := unpriced(found.module, found.costs):
        again = _compile_to_tpu_schedule(program, grid, options, missing)
        return dataclasses.replace(again, seconds=found.seconds + again.seconds)
    return found


def _compile_to_tpu_schedule(
    program: Compilation,
    grid: Grid,
    options: Mapping[str, Any],
    also: Collection[str],
) -> TpuSchedule:
    """The same, with permutes also in the computations that are named."""
    begun = time.perf_counter()
    failure: CompilationError | None = None
    with (
        dump_folder("latency-hiding-scheduler") as dump,
        tpu_aot.scheduler_log() as log,
        _only_to_the_schedule(also) as stopped,
    ):
        try:
            program.run({**dump.options, **options})
        except CompilationError as problem:
            failure = problem
        module = dump.text_after(TPU_STAGES[SCHEDULED])
    if failure is not None and not stopped:
        raise failure
    seconds = time.perf_counter() - begun
    compiled = CompiledForTpu(program.name, grid, options, {}, log.text, seconds)
    costs = compiled.costs().to_json() if compiled.log.rounds else {}
    return TpuSchedule(without_probes(module or ""), costs, seconds)


def compile_to_the_end(
    program: Compilation, grid: Grid, options: Mapping[str, Any]
) -> TpuSchedule:
    """Compile as a user does, with flags by name; CompilationError R004."""
    compiled = compile_program(program, grid, options, with_log=True)
    costs = compiled.costs().to_json() if compiled.log.rounds else {}
    made = getattr(program, "made", ())
    needed = jax_private.needed_bytes(made[-1]) if made else 0
    module = compiled.texts.get(SCHEDULED, "")
    work = _final_work_us(compiled)
    return TpuSchedule(module, costs, compiled.seconds, needed, work)


def _final_work_us(compiled: CompiledForTpu) -> float:
    """What is computed, as `estimated_cycles` have it; 0 without them."""
    on = Pricing(target=compiled.grid.part.name, estimator=TPU_FINAL)
    try:
        return simulate(compiled.module(FINAL), on).compute_us
    except HloError:
        return 0.0


@contextlib.contextmanager
def _only_to_the_schedule(also: Collection[str]) -> Iterator[list[bool]]:
    """Compilations price everything and end after the scheduler; one entry for each."""
    stopped: list[bool] = []

    def stop(data: bytes) -> bytes:
        del data
        stopped.append(True)
        return _NO_MODULE

    before, after = Registrations(_PRE), Registrations(_POST)
    try:
        before.add(tpu_aot.PLATFORM, partial(_with_probes, also))
        after.add(tpu_aot.PLATFORM, stop)
        yield stopped
    finally:
        before.clear()
        after.clear()


def _with_probes(also: Collection[str], data: bytes) -> bytes | None:
    """A module's proto in which every computation that runs is priced."""
    module = module_from_proto(
        data, filename="<compiled by XLA:TPU>", large_constants=False, run=run_task
    )
    if not add_probes(module, also):
        return None
    return require_schedule(module_to_proto(module, run=run_task), _PRE)


def add_probes(module: Module, also: Collection[str] = ()) -> int:
    """Give each computation without anything asynchronous a permute; how many got one.

    Args:
        module: to change.
        also: names of computations that get one whatever they have.

    Complexity: linear in instructions.
    """
    asks = [
        each
        for each in scheduled_computations(module)
        if _takes_time(each)
        and (each.name in also or not any(map(is_start, each.instructions)))
    ]
    for computation in asks:
        _add_probe(computation)
    return len(asks)


def without_probes(text: str) -> str:
    """A module's text as it would be without what was added to price it."""
    if ADDED not in text:
        return text
    module = parse(text)
    for computation in scheduled_computations(module):
        for each in reversed(computation.instructions):
            if each.name.startswith(ADDED):
                computation.remove(each)
    return module.to_text()


def unpriced(text: str, costs: Mapping[str, Any]) -> frozenset[str]:
    """Computations of a scheduled module that the compiler's statistic lacks."""
    if not text:
        return frozenset()
    after = costs.get("statistics", {}).get("after", {})
    return frozenset(
        each.name
        for each in scheduled_computations(parse(text))
        if _takes_time(each) and each.name not in after
    )


def _takes_time(computation: Computation) -> bool:
    """Whether it is more than a loop's condition, or a body that does nothing."""
    root = computation.root
    return root is not None and not (
        root.opcode == "parameter" or root.shape.element_type == "pred"
    )


def _add_probe(computation: Computation) -> None:
    number, pair = (each.shape for each in parse(_SHAPES).entry.instructions)
    root = computation.root
    assert root is not None, "it has a price to ask for"
    first = computation.instructions[0]
    sent = computation.new("constant", number, name=ADDED, literal="{0}", before=first)
    start = computation.new(
        "collective-permute-start",
        pair,
        [sent],
        {"channel_id": "1", "source_target_pairs": "{{0,0}}"},
        name=f"{ADDED}-start",
        after=sent,
    )
    done = computation.new(
        "collective-permute-done", number, [start], name=f"{ADDED}-done", before=root
    )
    computation.add_control_edge(done, root)
