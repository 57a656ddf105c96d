"""Says which collectives no work hides, and how much memory combining may take.

Before:  HloModule m, num_partitions=16
           %a = f32[16] all-gather(%x), ...                  (nothing to hide it)
           %b = f32[16] all-gather(%y), ...                  (hidden by a product)
After:   HloModule m, num_partitions=16,
                 frontend_attributes={suggested_combiner_threshold="80695814322"}
           %a = f32[16] all-gather(%x), frontend_attributes={sync_collective="true"}
           %b = f32[16] all-gather(%y), ...
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.ir.async_form import is_collective, is_done, is_generic
from hlo_passes.ir.gpu_config import is_marked_sync
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import parse_frontend_attributes
from hlo_passes.ir.module import Module
from hlo_passes.passes.combining.gpu_combining import (
    SUGGESTED_THRESHOLD,
    SYNC_COLLECTIVE,
)
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.scheduler.estimators.choice import require_priced
from hlo_passes.scheduler.hardware.machine import machine_of
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import device_count_of
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.memory.base_order import base_order

#: Frontend attribute by which a collective of the trial is found again.
_ID: Final = "collective_id"
_MODULE_ATTRIBUTES: Final = "frontend_attributes"
#: Older GPUs are left alone.
_AMPERE: Final = 8
#: Passes of the trial before and after the order that needs the least memory.
_BEFORE_ORDER: Final = ("async-collective-creator", "async-collective-annotator")
_PREPARATION: Final = "latency-hiding-scheduler-preparation"
_LATENCY_HIDING: Final = (
    "legalize-scheduling-annotations",
    "scheduler-memory-fencing",
    "latency-hiding-scheduler",
)
_AFTER_ORDER: Final = "gpu-convert-async-collectives-to-sync"


@dataclass(frozen=True, slots=True)
class CollectiveCombinerAnnotator(LatencyHidingScheduler):
    """Mark collectives that no work hides, and suggest a threshold to the combiners.

    `collective-combiner-annotator` schedules a copy of the module. It makes the
    collectives of the copy asynchronous, gives the copy the order that needs the least
    memory, and then the order of `latency-hiding-scheduler`. If a collective has no
    work between its start and done, the pass marks it `sync_collective` in the module
    itself. The pass also writes the module's `suggested_combiner_threshold`:
    memory-limit-slop-factor percent of the GPU's memory, minus what the order of least
    memory needs. The combiners then combine marked collectives up to that threshold,
    and all others as before.

    A module stays as it is if one NVLink domain holds its devices (but not in 0.10.2),
    if the GPU is older than Ampere, if the module is scheduled, or if no memory is
    left. XLA runs the pass
    only with `xla_gpu_experimental_enable_heuristic_collective_combining`.

    The trial takes the options of its passes: all options of
    `latency-hiding-scheduler`, and the four that come first below.

    Requires: an unscheduled module.
    Complexity: that of `latency-hiding-scheduler`.
    Source: openxla/xla `xla/backends/gpu/transforms/collectives/`
    `collective_combiner_annotator.cc`, `gpu_collective_combiner_utils.cc`;
    `xla/service/gpu/gpu_hlo_schedule.cc` (ScheduleGpuModule).

    Attributes:
        enable_latency_hiding_scheduler: if false, the order of least memory decides
            which collectives no work hides.
        disable_async_collectives: kinds that run synchronously, separated by blanks, as
            in `async-collective-annotator`.
        scheduler_memory_fencing_threshold_bytes: fence buffers of at least this size;
            0: a hundredth of the memory limit; below 0: none.
        scheduler_memory_fencing_slack_windows: by how many windows readers may still be
            delayed.
    """

    name: ClassVar[str] = "collective-combiner-annotator"
    needs_collectives: ClassVar[bool] = False
    checked_by: ClassVar[tuple[str, ...]] = ()

    enable_latency_hiding_scheduler: bool = True
    disable_async_collectives: tuple[str, ...] = ()
    scheduler_memory_fencing_threshold_bytes: int = -1
    scheduler_memory_fencing_slack_windows: int = 1

    def __post_init__(self) -> None:
        """Refuse what a pass of the trial refuses (U013)."""
        LatencyHidingScheduler.__post_init__(self)
        for name in (*_BEFORE_ORDER, *_LATENCY_HIDING):
            self._trial_options(name)

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Schedule a copy and write what it shows into the module.

        Raises WrongStateError S017, S018 for a module that no GPU can run.
        """
        require_priced(module, self.pricing(context))
        reason = self._reason_to_leave(module, context)
        if reason:
            report.remark(f"not annotated: {reason}")
            return False
        peak_bytes, unhidden = self._trial(module, context)
        available = self._available_bytes(context)
        report.details["combiner-annotator"] = {
            "available_bytes": available,
            "peak_bytes": peak_bytes,
        }
        if peak_bytes >= available:
            report.remark(
                f"not annotated: the module needs {peak_bytes} bytes of the "
                f"{available} that it may fill"
            )
            return False
        version = module.version
        written = module.attributes.get(_MODULE_ATTRIBUTES, "{}")
        suggested = parse_frontend_attributes(written).with_value(
            SUGGESTED_THRESHOLD, str(available - peak_bytes)
        )
        module.set_attribute(_MODULE_ATTRIBUTES, suggested.to_text())
        for collective in _collectives(module):
            if collective.name not in unhidden:
                report.remark(f"not marked: work hides %{collective.name}")
                continue
            collective.frontend_attributes = collective.frontend_attributes.with_value(
                SYNC_COLLECTIVE, "true"
            )
            report.count("collectives-marked")
        return module.version != version

    def _reason_to_leave(self, module: Module, context: PassContext) -> str:
        if module.is_scheduled:
            return "the module is scheduled"
        on = self.pricing(context)
        part = target(on.target)
        if part.capability[0] < _AMPERE:
            return f"{part.spec} is older than Ampere"
        if context.release_for(module, self.xla).annotates_in_one_domain:
            return ""
        devices = device_count_of(module)
        joined = machine_of(module, on).partition_size
        if devices <= joined:
            return f"one NVLink domain of {joined} holds the module's devices"
        return ""

    def _available_bytes(self, context: PassContext) -> int:
        """What the module may fill; nothing is kept back but for the slop factor."""
        memory_bytes = self.device_memory_bytes
        if memory_bytes is None:
            memory_bytes = target(self.pricing(context).target).memory_bytes
        return memory_bytes * self.memory_limit_slop_factor // 100

    def _trial(self, module: Module, context: PassContext) -> tuple[int, set[str]]:
        """Least bytes that the module needs, and names of collectives without work."""
        release = context.release_for(module, self.xla)
        settled = dataclasses.replace(self, xla=release.name)
        trial = module.clone()
        for collective in _collectives(trial):
            collective.frontend_attributes = collective.frontend_attributes.with_value(
                _ID, collective.name
            )
        # Make collectives asynchronous.
        preparation = (_PREPARATION,) if self.enable_pipelined_p2p else ()
        settled._run(trial, context, (*_BEFORE_ORDER, *preparation))
        # Give the module the order that needs the least memory: its peak counts.
        found = base_order(trial, progress=context.progress, release=release)
        for computation, order in found.orders.items():
            computation.set_order(order)
        trial.set_attribute("is_scheduled", "true")
        # Hide latency, and see what is not hidden.
        if self.enable_latency_hiding_scheduler:
            settled._run(trial, context, _LATENCY_HIDING)
        settled._run(trial, context, (_AFTER_ORDER,))
        unhidden = {
            i.frontend_attributes.get(_ID, "")
            for c in trial.computations
            for i in c.instructions
            if is_collective(i) and is_marked_sync(i)
        }
        return found.minimum_bytes, unhidden

    def _run(self, trial: Module, context: PassContext, names: tuple[str, ...]) -> None:
        for name in names:
            each = find_pass(name)(**self._trial_options(name))
            each.run(trial, context, Report())

    def _trial_options(self, name: str) -> dict[str, object]:
        """This pass's options that a pass of the trial has too."""
        kind = find_pass(name)
        options = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(kind)
            if f.init and hasattr(self, f.name)
        }
        kind(**options)
        return options


def _collectives(module: Module) -> Iterator[Instruction]:
    """All collectives and their own starts, fusion and wrapped bodies included."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if is_generic(instruction) or is_done(instruction):
                continue
            if is_collective(instruction):
                yield instruction
