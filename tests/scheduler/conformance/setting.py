"""From a recording to what our scheduler is given: module, estimator, settings."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import hlo_passes
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler import EstimatorStack, make_estimator
from hlo_passes.scheduler import target as read_target
from hlo_passes.scheduler.hardware.target import target_text
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    as_scheduled_by_xla,
)
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.memory.memory_limit import (
    DEFAULT_SLOP_PERCENT,
    scheduler_memory_limit_bytes,
)
from hlo_passes.xla_release import xla_release
from tests.scheduler.conformance.recordings import PROFILE_FILE, Recording

#: Flag without its prefixes -> setting that it is.
_NUMBERS = ("parallel_collective_overlap_limit", "parallel_async_compute_limit")
_SWITCHES = (
    "collective_start_as_early_as_possible",
    "enable_collective_multi_streaming",
    "enable_selective_memcpy_overlap",
    "enable_pipelined_p2p",
)
_COSTLY = "enable_approx_costly_collectives"
_PIPELINE = "pipeline_parallelism_opt_level"
_SLOP = "memory_limit_slop_factor"
_PROFILE = "pgle_profile_file_or_directory_path"
_ANALYTICAL = "enable_analytical_sol_latency_estimator"


@dataclass(frozen=True)
class Setting:
    """What `schedule_module` is given.

    Attributes:
        module: as XLA had it before its scheduler.
        estimator: of costs and latencies.
        settings: as the recorded flags set them.
        estimator_name: for messages.
    """

    module: hlo_passes.Module
    estimator: EstimatorStack
    settings: SchedulerSettings
    estimator_name: str


def setting_of(recording: Recording, *, estimator_name: str = "") -> Setting:
    """Read a recording.

    Args:
        recording: of XLA.
        estimator_name: the estimator; by default the profile that XLA was given, else
            XLA's own costs where its analytical estimator answered, else
            `gpu-approximate`.
    """
    module = hlo_passes.parse(recording.before, filename=recording.name)
    flags = {
        name.removeprefix("xla_gpu_").removeprefix("experimental_"): value
        for name, value in recording.flags.items()
    }
    analytical = flags.pop(_ANALYTICAL, "true") == "true"
    flags.pop(_PROFILE, None)
    if PROFILE_FILE in recording.texts:
        name = "profile"
    elif not analytical:
        name = "gpu-approximate"
    elif not estimator_name:
        name = "table" if recording.is_priced else "gpu-approximate"
    else:
        name = estimator_name
    with _files(recording) as (target, costs, profile):
        estimator = make_estimator(
            name,
            Pricing(
                target=target,
                topology=recording.topology,
                costs=costs if name == "table" else "",
                profile=profile if name == "profile" else "",
                xla=xla_release(recording.release).name,
            ),
        )
        costly = flags.pop(_COSTLY, "false") == "true"
        estimator = as_scheduled_by_xla(estimator, costly_collectives=costly)
        limit = scheduler_memory_limit_bytes(
            module,
            read_target(target).memory_bytes,
            slop_percent=int(flags.pop(_SLOP, DEFAULT_SLOP_PERCENT)),
        )
    changes: dict[str, Any] = {f: int(flags.pop(f)) for f in _NUMBERS if f in flags}
    changes |= {f: flags.pop(f) == "true" for f in _SWITCHES if f in flags}
    if _PIPELINE in flags:
        changes[_PIPELINE] = flags.pop(_PIPELINE).removeprefix(f"{_PIPELINE.upper()}_")
    settings = SchedulerSettings(
        xla=recording.release, memory_limit_bytes=limit, **changes
    )
    return Setting(module, estimator, settings, name)


@contextlib.contextmanager
def pricing_of(recording: Recording) -> Iterator[Pricing]:
    """The machine and the costs of a recording, as a user names them.

    Its profile, else XLA's own costs where the analytical estimator answered, else the
    estimator that XLA falls back to.
    """
    with _files(recording) as (target, costs, profile):
        has_profile = PROFILE_FILE in recording.texts
        has_costs = recording.is_priced and not has_profile
        yield Pricing(
            target=target,
            topology=recording.topology,
            estimator="" if has_profile or has_costs else "gpu-approximate",
            costs=costs if has_costs else "",
            profile=profile if has_profile else "",
            xla=xla_release(recording.release).name,
        )


@contextlib.contextmanager
def _files(recording: Recording) -> Iterator[tuple[str, str, str]]:
    """(target, costs, profile): files where the recording has its own."""
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        place = pathlib.Path(folder)
        target = recording.target
        memory = recording.device_memory_bytes
        if memory is not None:
            text = re.sub(
                r"device_memory_size: \d+",
                f"device_memory_size: {memory}",
                target_text(target),
            )
            target = str(place / "target.txtpb")
            (place / "target.txtpb").write_text(text)
        costs = json.loads(recording.texts.get("costs.json", "{}"))
        (place / "costs.json").write_text(json.dumps(costs))
        (place / PROFILE_FILE).write_text(recording.texts.get(PROFILE_FILE, ""))
        yield target, str(place / "costs.json"), str(place / PROFILE_FILE)
