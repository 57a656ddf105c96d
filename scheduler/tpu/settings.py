"""The settings of XLA:TPU's scheduler: a row per chip, changed by the compiler's flags.

    tpu_settings("v5e")                                      the chip's defaults
    tpu_settings("v5e", "xla_max_concurrent_async_all_gathers=3")

XLA:TPU's scheduler is the open one with settings of its own. They were found by making
decisions agree with the log of compilations for v4, v5e, v5p and v6e (docs/tpu.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hlo_passes.errors import UsageError, nearest
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.tpu.chips import chip
from hlo_passes.whole_numbers import whole_number

#: What all chips have, beside XLA's bare defaults.
_EVERYWHERE: Final[dict[str, Any]] = {
    "flavour": "tpu",
    "collective_permute_overlap_limit": 5,
    "copy_overlap_limit": 5,
    "depth_based_memory_pressure_reduction": True,
    "rerun": 1,
}
#: The compiler's flags, and the setting that each of them is.
FLAGS: Final[dict[str, str]] = {
    "xla_max_concurrent_async_collective_permutes": "collective_permute_overlap_limit",
    "xla_max_concurrent_async_all_gathers": "all_gather_overlap_limit",
    "xla_max_concurrent_host_copy": "copy_overlap_limit",
    "xla_tpu_use_aggressive_scheduling": "aggressive_scheduling_policies",
    "xla_lhs_prioritize_async_depth_over_stall": "prioritize_async_depth_over_stall",
    "xla_lhs_enable_release_start_policy": "enable_release_start_policy",
    "xla_tpu_enable_depth_memory_pressure_reduction": (
        "depth_based_memory_pressure_reduction"
    ),
    "xla_latency_hiding_scheduler_rerun": "rerun",
    "xla_latency_hiding_scheduler_resource_serializing": "resource_serializing",
}
#: Without asynchronous collectives in fusions v5e is not aggressive, as no other chip.
_FUSION_FLAG: Final = "xla_tpu_enable_async_collective_fusion"
_YES: Final = ("true", "enabled", "1")
_NO: Final = ("false", "disabled", "0")


def tpu_settings(name: str, flags: str = "", **changes: Any) -> SchedulerSettings:
    """The settings of a chip's scheduler.

    Args:
        name: of the chip, as 'v5e'.
        flags: of the compiler, `name=value,...`; those that are no settings of the
            scheduler are left aside.
        changes: settings by name, which come last.

    Raises UsageError U250 for an unknown chip, U251 for a flag that is none.
    """
    part = chip(name)
    values: dict[str, Any] = {**_EVERYWHERE, "chip": name}
    values["aggressive_scheduling_policies"] = part.is_aggressive
    values |= _of_flags(flags)
    return SchedulerSettings.generic(**(values | changes))


def _of_flags(flags: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in _given(flags):
        if name == _FUSION_FLAG and value.lower() in _NO:
            found.setdefault("aggressive_scheduling_policies", False)
        field = FLAGS.get(name)
        said = _value(name, value) if field else None
        if field and said is not None:
            found[field] = said
    return found


def _given(flags: str) -> Iterator[tuple[str, str]]:
    for each in filter(None, (part.strip() for part in flags.split(","))):
        name, equals, value = each.removeprefix("--").partition("=")
        if not equals or not name.startswith("xla_"):
            raise UsageError(
                f"{each} is not a flag of XLA:TPU",
                code="U251",
                hint=nearest(name, (*FLAGS, _FUSION_FLAG)) or "write name=value,...",
            )
        yield name, value


def _value(name: str, value: str) -> bool | int | None:
    """A flag's value; None for AUTO, which leaves the chip's own."""
    small = value.lower()
    is_number = "max_concurrent" in name or name.endswith("_rerun")
    if is_number and (number := whole_number(value)) is not None:
        return number
    if not is_number and small in (*_YES, *_NO):
        return small in _YES
    if small == "auto":
        return None
    raise UsageError(
        f"{name}={value} is not {'a number' if is_number else 'true or false'}",
        code="U251",
    )
