"""The settings of XLA:TPU's scheduler: a row per chip, changed by the compiler's flags.

    tpu_settings("v5e")                                      the chip's defaults
    tpu_settings("v5e", "xla_max_concurrent_async_all_gathers=3")

XLA:TPU's scheduler is the open one with settings of its own. They were found by making
decisions agree with the log of compilations for all chips of the table (docs/tpu.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hlo_passes.errors import UsageError, nearest
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.tpu.chips import Chip, chip
from hlo_passes.whole_numbers import whole_number

#: What all chips have, beside XLA's bare defaults.
_EVERYWHERE: Final[dict[str, Any]] = {
    "flavour": "tpu",
    "collective_permute_overlap_limit": 5,
    "copy_overlap_limit": 5,
    "depth_based_memory_pressure_reduction": True,
    "rerun": 1,
    "schedule_send_recvs": True,
    # Transfers between slices: sends in flight, and recvs.
    "send_recv_host_overlap_limit": 32,
}
#: The compiler's flags, and the setting that each of them is.
FLAGS: Final[dict[str, str]] = {
    "xla_max_concurrent_async_collective_permutes": "collective_permute_overlap_limit",
    "xla_max_concurrent_async_all_gathers": "all_gather_overlap_limit",
    "xla_max_concurrent_async_all_reduces": "all_reduce_overlap_limit",
    "xla_max_concurrent_async_reduce_scatters": "reduce_scatter_overlap_limit",
    "xla_max_concurrent_host_copy": "copy_overlap_limit",
    "xla_tpu_enable_sparse_core_offload_queuing_in_lhs": "sparse_core_queue",
    "xla_tpu_use_aggressive_scheduling": "aggressive_scheduling_policies",
    "xla_lhs_prioritize_async_depth_over_stall": "prioritize_async_depth_over_stall",
    "xla_lhs_enable_release_start_policy": "enable_release_start_policy",
    "xla_tpu_enable_depth_memory_pressure_reduction": (
        "depth_based_memory_pressure_reduction"
    ),
    "xla_latency_hiding_scheduler_rerun": "rerun",
    "xla_latency_hiding_scheduler_resource_serializing": "resource_serializing",
}
#: A chip is aggressive if its all-gathers are asynchronous: those of v5e by fusions,
#: those of other chips by calls on SparseCores. With several slices any chip is.
_FUSION_FLAG: Final = "xla_tpu_enable_async_collective_fusion"
_CALLS_FLAG: Final = "xla_tpu_enable_sparse_core_collective_offload_all_gather"
#: Flags of the limit of calls on one SparseCore: with a queue, and without one.
_QUEUE_LIMIT_FLAG: Final = "xla_tpu_sparse_core_offload_queuing_overlap_limit"
_CONCURRENT_FLAG: Final = "xla_tpu_enable_concurrent_sparse_core_offloading"
_OTHERS: Final = (_FUSION_FLAG, _CALLS_FLAG, _QUEUE_LIMIT_FLAG, _CONCURRENT_FLAG)
_KNOWN: Final = (*FLAGS, *_OTHERS)
#: Calls in flight on one SparseCore where some may be, and where they may not.
_CONCURRENT_CALLS: Final = 2
_SINGLE_CALL: Final = 1
_YES: Final = ("true", "enabled", "1")
_NO: Final = ("false", "disabled", "0")


def tpu_settings(
    name: str, flags: str = "", slices: int = 1, **changes: Any
) -> SchedulerSettings:
    """The settings of a chip's scheduler.

    Args:
        name: of the chip, as 'v5e'.
        flags: of the compiler, `name=value,...`; those that are no settings of the
            scheduler are left aside.
        slices: grids of chips that run the program.
        changes: settings by name, which come last.

    Raises UsageError U250 for an unknown chip, U251 for a flag that is none.
    """
    part = chip(name)
    values: dict[str, Any] = {**_EVERYWHERE, "chip": name}
    said = {name: _value(name, value) for name, value in _given(flags)}
    is_aggressive, queues = part.is_aggressive, part.queues_calls
    if (by_calls := said.get(_CALLS_FLAG)) is not None:
        is_aggressive = bool(by_calls)
    if said.get(_FUSION_FLAG) is False:
        is_aggressive = False
    is_aggressive = is_aggressive or slices > 1
    values["aggressive_scheduling_policies"] = is_aggressive
    values["sparse_core_queue"] = queues
    values |= {
        field: said[flag] for flag, field in FLAGS.items() if said.get(flag) is not None
    }
    values["sparse_core_overlap_limit"] = (
        said.get(_QUEUE_LIMIT_FLAG)
        if values["sparse_core_queue"]
        else _calls_at_once(part, said.get(_CONCURRENT_FLAG))
    )
    return SchedulerSettings.generic(**(values | changes))


def require_settings(flags: str) -> None:
    """UsageError U251 for a flag that is none of the scheduler's settings."""
    for name, value in _given(flags):
        if name not in _KNOWN:
            compiled = "flags of the compilation itself are in the costs file already"
            raise UsageError(
                f"{name}={value} is no setting of XLA:TPU's scheduler",
                code="U251",
                hint=f"{nearest(name, _KNOWN)} {compiled}".strip(),
            )


def _calls_at_once(part: Chip, are_concurrent: bool | int | None) -> int:
    """Calls in flight on one SparseCore, without a queue."""
    if are_concurrent is None:
        return part.sparsecore_calls
    return _CONCURRENT_CALLS if are_concurrent else _SINGLE_CALL


def flag_of(text: str, *, option: str = "", hint: str = "") -> tuple[str, str]:
    """Name and value of a flag as it is written.

    Args:
        text: 'name=value', perhaps after '--'.
        option: what the user wrote before it, for the message.
        hint: of the UsageError U251 for a text that is no flag, or has no value.
    """
    name, equals, value = text.removeprefix("--").partition("=")
    is_flag = name.startswith("xla_")
    if equals and is_flag:
        return name, value
    wrong = "needs =VALUE" if is_flag else "is not a flag of XLA:TPU"
    raise UsageError(f"{option}{text} {wrong}", code="U251", hint=hint)


def _given(flags: str) -> Iterator[tuple[str, str]]:
    for each in filter(None, (part.strip() for part in flags.split(","))):
        name = each.removeprefix("--").partition("=")[0]
        yield flag_of(each, hint=nearest(name, _KNOWN) or "write name=value,...")


def _value(name: str, value: str) -> bool | int | None:
    """A flag's value; None for AUTO, which leaves the chip's own, and for others."""
    if name not in _KNOWN:
        return None
    small = value.lower()
    is_number = "max_concurrent" in name or name.endswith(("_rerun", "_limit"))
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
