"""Installs passes inside XLA's own compilations.

    with runtime.install("collective-permute-combiner") as installed:
        jitted(x)
    installed.fired, installed.reports

XLA passes its module to us in the middle of a compilation, as a serialized proto, and
receives another one: before its scheduler or after it.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final

from hlo_passes.errors import HloError, UsageError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.passes.framework.base import Pass, PassContext
from hlo_passes.passes.framework.pipeline import FixedPoint, Pipeline
from hlo_passes.proto import module_from_proto, module_to_proto
from hlo_passes.proto_worker import run_task
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.devices import RuntimeHostError
from hlo_passes.runtime.installation import compiled_caches
from hlo_passes.runtime.installation.fingerprint import fingerprint
from hlo_passes.runtime.installation.for_cpu import bring_to_cpu
from hlo_passes.runtime.installation.for_gpu import require_for_gpu
from hlo_passes.runtime.installation.for_tpu import (
    bring_to_tpu,
    orders_of,
    require_schedule,
)
from hlo_passes.runtime.installation.module_filter import ModuleFacts
from hlo_passes.runtime.installation.options import InstallOptions
from hlo_passes.runtime.installation.report import ModuleReport
from hlo_passes.runtime.many_hosts import Agreement
from hlo_passes.scheduler.estimators.profile import read_profile
from hlo_passes.scheduler.estimators.table import read_costs
from hlo_passes.scheduler.hardware.machine import machine_named
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.options import LatencyOptions
from hlo_passes.scheduler.tpu.costs import tpu_costs

#: An installation keeps this many reports, the latest ones.
MAXIMUM_REPORTS: Final = 1000

#: Passes that may undo the copies of XLA's copy insertion: on CPUs and TPUs both
#: stages come after it, on GPUs `post-scheduler` does.
_IN_FRONT_OF_COPIES: Final = ("hlo-cse", "layout-chooser", "scratch-budget-fusion")
_COPIES_COME_FIRST: Final = frozenset(["cpu", "tpu"])

_numbers = itertools.count(1)
_log = logging.getLogger("hlo_passes.runtime")


class PlatformError(RuntimeHostError):
    """The platform does not exist in this process."""

    default_code = "R008"


class Registrations:
    """Callbacks that XLA calls at one stage, until they are cleared.

    Attributes:
        stage: "pre-scheduler" or "post-scheduler".
    """

    def __init__(self, stage: str) -> None:
        """Start without callbacks."""
        self.stage = stage
        self._made: list[tuple[str, str]] = []

    def add(self, platform: str, callback: Callable[[bytes], bytes | None]) -> None:
        """Register a callback for a platform; R008 if the platform does not exist."""
        name = f"hlo-passes-{next(_numbers)}"
        try:
            if platform == "tpu" and jax_private.XLA.calls_back_without_tpus:
                jax_private.load_tpu_library()
            jax_private.register_transformation(
                callback, name=name, stage=self.stage, platform=platform
            )
        except ValueError as problem:
            self.clear()
            raise PlatformError(
                f"jax cannot compile for {platform!r} here: {problem}",
                hint='"cpu" always exists; a GPU needs its plug-in, a TPU libtpu, '
                "and both jax 0.12",
            ) from problem
        self._made.append((name, platform))

    def clear(self) -> None:
        """Unregister the callbacks."""
        made, self._made = self._made, []
        for name, platform in made:
            jax_private.clear_transformation(
                name=name, stage=self.stage, platform=platform
            )


class Installation:
    """Passes that run inside XLA's compilations, until they are removed.

    Attributes:
        pipeline: the passes.
        stage: "pre-scheduler" or "post-scheduler".
        platforms: that XLA compiles for.
        fingerprint: 64 hexadecimal digits, the same for the same passes everywhere.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        options: InstallOptions,
    ) -> None:
        """Nothing is registered yet; see `install`."""
        self.pipeline = pipeline
        self.stage = options.stage
        self.platforms = options.platform_names
        self._filter = options.module_filter
        self.fingerprint = fingerprint(
            pipeline,
            options.stage,
            options.on_error,
            options.multiprocess,
            self._filter.modules,
            self._filter.min_instructions,
            self._filter.max_instructions,
            self._filter.needs_collectives,
        )
        self._on_error = options.on_error
        self._passed_through: set[str] = set()
        names = ",".join(each.name for each in pipeline.passes)
        self._agreement = Agreement(options.multiprocess, names)
        self._lock = threading.Lock()
        self._endings: list[Callable[[], None]] = []
        self._reports: deque[ModuleReport] = deque(maxlen=MAXIMUM_REPORTS)
        self._seen = self._fired = self._changed = 0
        self._warned = False

    # -- results ------------------------------------------------------

    @property
    def seen(self) -> int:
        """Modules that XLA compiled for the platforms, including JAX's small ones."""
        return self._seen

    @property
    def fired(self) -> int:
        """Modules in which the passes ran."""
        return self._fired

    @property
    def changed(self) -> int:
        """Modules that the passes changed."""
        return self._changed

    @property
    def reports(self) -> tuple[ModuleReport, ...]:
        """Reports of modules in which the passes ran or failed, the latest thousand."""
        with self._lock:
            return tuple(self._reports)

    @property
    def failures(self) -> tuple[HloError, ...]:
        """The errors among the reports."""
        return tuple(r.error for r in self.reports if r.error is not None)

    # -- beginning and end --------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether it is still installed."""
        return bool(self._endings)

    def register(self) -> None:
        """Register with XLA for every module; R008 for a missing platform."""
        registrations = Registrations(self.stage)
        for platform in self.platforms:
            registrations.add(platform, partial(self.transformed, platform))
        self.on_removal(registrations.clear)
        compiled_caches.enter(self.fingerprint)
        self.on_removal(partial(compiled_caches.leave, self.fingerprint))
        self.withhold_failures()

    def withhold_failures(self) -> None:
        """Keep programs compiled without the passes off the disk, until removal."""
        if self._on_error == "pass-through":
            compiled_caches.withhold(self._passed_through)
            self.on_removal(partial(compiled_caches.release, self._passed_through))

    def on_removal(self, ending: Callable[[], None]) -> None:
        """Call something at removal, after what was added before."""
        self._endings.append(ending)

    def remove(self) -> None:
        """Remove the passes; a second call does nothing."""
        with self._lock:
            endings, self._endings = self._endings, []
        for ending in endings:
            ending()

    def __enter__(self) -> Installation:
        """The installation itself, which is already active; U060 if it was removed."""
        if not self.active:
            raise UsageError(
                f"{self!r} was removed",
                code="U060",
                hint="call runtime.install(...) for another one",
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove it."""
        self.remove()

    def __repr__(self) -> str:
        """<installation of a,b at stage: n fired>."""
        passes = ",".join(p.name for p in self.pipeline.passes)
        return f"<installation of {passes} at {self.stage}: {self._fired} fired>"

    # -- inside a compilation -----------------------------------------------

    def transformed(self, platform: str, data: bytes) -> bytes | None:
        """Called by XLA: a module's proto -> another, or None for no change."""
        facts = ModuleFacts(data)
        with self._lock:
            self._seen += 1
        # Run the passes, unless the filter leaves this module out.
        started = time.perf_counter()
        run = _ModuleRun(self.pipeline, platform, self.stage, data)
        error: HloError | None = None
        changed = None
        try:
            if self._filter.why_not(facts):
                return None
            place = f"{platform}/{self.stage}"
            with garbage_collection_paused():
                changed = self._agreement.run(facts.name, place, data, run)
        except HloError as problem:
            error = problem
        # Report what happened.
        report = ModuleReport(
            facts.name,
            platform,
            self.stage,
            time.perf_counter() - started,
            changed is not None,
            run.result,
            error,
            run.kept,
        )
        with self._lock:
            self._reports.append(report)
            self._fired += error is None
            self._changed += changed is not None
        # Fail, or warn and leave the module unchanged.
        if error is not None:
            if self._on_error == "fail":
                raise error.with_traceback(None) from None
            self._passed_through.add(facts.name)
            _log.warning("%s stays unchanged: %s", facts.name, error)
        if changed is not None and facts.has_aliases:
            self._warn_of_lost_donation(facts.name)
        return changed

    def _warn_of_lost_donation(self, module: str) -> None:
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned and not jax_private.keeps_donation():
            _log.warning(
                "%s: this release of jaxlib forgets donated buffers if passes "
                "change a module; results are correct, but need additional memory",
                module,
            )


class _ModuleRun:
    """One run of the passes on one module; a call returns the new proto or None."""

    def __init__(
        self, pipeline: Pipeline, platform: str, stage: str, data: bytes
    ) -> None:
        self.pipeline, self.platform, self.stage = pipeline, platform, stage
        self.data = data
        self.result = None
        self.kept: tuple[str, ...] = ()

    def __call__(self) -> bytes | None:
        module = module_from_proto(
            self.data,
            filename="<compiled by XLA>",
            large_constants=False,
            run=run_task,
        )
        was_scheduled = module.is_scheduled
        came = orders_of(module) if self.platform == "tpu" else {}
        result = self.pipeline.run(module)
        changed = self.data
        if result.changed and self.platform == "tpu":
            names = [each.name for each in result.passes if each.changed]
            self.kept = bring_to_tpu(module, self.stage, came, names)
            # Beside the module, look at the bytes: XLA would die of them.
            changed = module_to_proto(module, run=run_task)
            require_schedule(changed, self.stage)
        elif result.changed:
            if self.platform == "cpu":
                bring_to_cpu(module)
            elif not was_scheduled:
                require_for_gpu(module)
            if not was_scheduled:
                # XLA continues to change the module, and aborts over a schedule that it
                # did not make; it makes its own anyway.
                module.set_attribute("is_scheduled", None)
            changed = module_to_proto(module, run=run_task)
        self.result = result
        return None if changed == self.data else changed


def install(
    pipeline: str | Pipeline,
    *,
    stage: str = "pre-scheduler",
    platforms: str | Sequence[str] = "cpu",
    modules: str | Callable[[ModuleFacts], bool] | None = None,
    min_instructions: int = 0,
    max_instructions: int | None = None,
    has_collectives: bool | None = None,
    on_error: str = "fail",
    multiprocess: str = "check",
    context: PassContext | None = None,
) -> Installation:
    """Run passes inside XLA's compilations from now on.

    The installation is active at once; as a context manager it is removed at the end of
    the block, otherwise by `.remove()`. Programs that JAX compiled before, in memory or
    on disk, are not used while it lasts, and its own programs are not used after it;
    objects that a user holds (`lower().compile()`) do not change. Several installations
    run in the order in which they were made.

    Args:
        pipeline: as text, or built.
        stage: "pre-scheduler" (combining) or "post-scheduler" (scheduling).
        platforms: "cpu", "cuda", "tpu" (the last two from jax 0.12 on also for absent
            GPUs and TPUs).
        modules: a regular expression to search in the module's name (`jit_` and the
            function's), or a function of `ModuleFacts`; None for every module.
        min_instructions: smaller modules are left alone.
        max_instructions: larger modules are left alone; None for no limit.
        has_collectives: True skips modules without communication, False does not; None
            asks the passes (`Pass.needs_collectives`).
        on_error: "fail" makes the compilation fail with the passes' message,
            "pass-through" compiles the module as it was and logs a warning.
        multiprocess: "check" compares what the processes of a job made of a module,
            "rank0" lets the first process make it for all, "off" does neither.
        context: target, hosts and costs, for a pipeline given as text.

    Raises:
        PipelineSpecError: U010-U014, the pipeline's text.
        UsageError: U060, an invalid argument; U061, a pass that
            is not sound at this stage; U200, U202 or U001, a target, topology or costs
            that does not exist; U225, hosts that do not.
        PlatformError: R008, no such platform.
    """
    options = InstallOptions(
        stage=stage,
        platforms=platforms,
        modules=modules,
        min_instructions=min_instructions,
        max_instructions=max_instructions,
        has_collectives=has_collectives,
        on_error=on_error,
        multiprocess=multiprocess,
        context=context,
    )
    installation = prepare(pipeline, options)
    installation.register()
    return installation


def prepare(pipeline: str | Pipeline, options: InstallOptions) -> Installation:
    """An installation that is not registered; arguments and errors as for `install`."""
    options.check_values()
    # Read the pipeline.
    if isinstance(pipeline, str):
        pipeline = Pipeline.parse(pipeline, options.context)
    elif options.context is not None:
        raise UsageError(
            "context= for a pipeline that has one",
            code="U060",
            hint="give it to Pipeline.parse",
        )
    _require_resolved(pipeline.context)
    # Check the passes for this stage, and ask them what they need.
    passes = tuple(_flattened(pipeline.passes))
    _require_sound(passes, options.stage, options.platform_names)
    if options.has_collectives is None:
        asked = all(p.needs_collectives for p in passes)
        options = dataclasses.replace(options, has_collectives=asked)
    return Installation(pipeline, options)


def _read_costs_of_any(path: str) -> None:
    """Read costs in microseconds, or those of a TPU in cycles; U001, U206."""
    if tpu_costs(path) is None:
        read_costs(path)


#: What reads a field of `Pricing`, for its errors' sake.
_READERS: Final[dict[str, Callable[[str], object]]] = {
    "target": target,
    "topology": Topology.parse,
    "costs": _read_costs_of_any,
    "profile": read_profile,
    "options": LatencyOptions.parse,
}
#: The fields of `Pricing` that name a machine.
_MACHINE: Final = ("topology", "hosts", "gpus_per_host")


def _require_resolved(context: PassContext) -> None:
    """Refuse early what would make the passes fail in the middle of a compilation."""
    for name, read in _READERS.items():
        value = getattr(context.pricing, name)
        if value and isinstance(value, str):
            try:
                read(value)
            except HloError as problem:
                problem.message = f"{name}: {problem.message}"
                raise
    try:
        machine_named(context.pricing)
    except HloError as problem:
        named = [n for n in _MACHINE if getattr(context.pricing, n) not in (None, "")]
        problem.message = f"{', '.join(named)}: {problem.message}"
        raise


def _flattened(passes: Sequence[Pass]) -> list[Pass]:
    found: list[Pass] = []
    for each in passes:
        found += _flattened(each.passes) if isinstance(each, FixedPoint) else [each]
    return found


def _require_sound(
    passes: Sequence[Pass], stage: str, platforms: Sequence[str]
) -> None:
    if stage == "pre-scheduler" and _COPIES_COME_FIRST.isdisjoint(platforms):
        return
    for each in passes:
        if each.name in _IN_FRONT_OF_COPIES:
            raise UsageError(
                f"{each.name} may merge or drop copies that XLA made, and so let one "
                f"value overwrite another: XLA's copy insertion comes before {stage}",
                code="U061",
                hint="leave it out, or run it with `hlo-passes opt`",
            )
