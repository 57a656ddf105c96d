"""The memory scheduler's order, from which latency hiding starts.

    three orders of the whole module       list, depth first, post order
    each adjusted, each simulated          the one that needs the least memory wins;
                                           of equal ones, the first

Source: openxla/xla `hlo/transforms/simplifiers/hlo_memory_scheduler.cc`,
`xla/service/gpu/gpu_hlo_schedule.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_passes.analysis.followed_release import followed_release
from hlo_passes.analysis.post_order import post_order
from hlo_passes.scheduler.memory.buffer_table import ordered_blocks
from hlo_passes.scheduler.memory.buffers import Buffers, build_buffers
from hlo_passes.scheduler.memory.dataflow import build_points_to
from hlo_passes.scheduler.memory.depth_first_order import depth_first_order
from hlo_passes.scheduler.memory.heap_simulation import HeapSimulation
from hlo_passes.scheduler.memory.list_order import list_order
from hlo_passes.scheduler.memory.order_adjustments import adjusted
from hlo_passes.scheduler.memory.value_sizes import ValueSizes

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module
    from hlo_passes.xla_release import XlaRelease

Order = list["Instruction"]


def _post_order(computation: Computation, sizes: ValueSizes) -> Order:
    del sizes
    return list(post_order(computation))


#: The schedulers by name; of equal ones the first wins.
SCHEDULERS: Final[dict[str, Callable[[Computation, ValueSizes], Order]]] = {
    "list": list_order,
    "dfs": depth_first_order,
    "post-order": _post_order,
}

#: From this many instructions on, the three orders take about a second together.
LARGE_MODULE: Final = 10_000


@dataclass(frozen=True, slots=True)
class BaseOrder:
    """Orders of all computations that get a schedule.

    Attributes:
        scheduler: 'list', 'dfs' or 'post-order'.
        orders: by computation, callees first.
        minimum_bytes: the least that the module needs in these orders, including its
            entry's parameters.
        considered_bytes: the same for each scheduler.
    """

    scheduler: str
    orders: dict[Computation, Order]
    minimum_bytes: int
    considered_bytes: dict[str, int]


def base_order(
    module: Module,
    *,
    scheduler: str = "",
    buffers: Buffers | None = None,
    progress: Callable[[str], None] | None = None,
    release: XlaRelease | None = None,
) -> BaseOrder:
    """The order that XLA's GPU back end gives a module before latency hiding.

    Args:
        module: scheduled or not; its orders break ties, as XLA's lists do.
        scheduler: a name of `SCHEDULERS`, '' for the best one.
        buffers: those of the module, if they are known already.
        progress: called with one line per scheduler for a large module.
        release: the release of XLA to follow; None for what the module says.
    """
    release = release or followed_release(module)
    buffers = buffers if buffers is not None else build_buffers(module)
    sizes = ValueSizes(buffers.flow)
    names = [scheduler] if scheduler else list(SCHEDULERS)
    found: dict[str, dict[Computation, Order]] = {}
    needed: dict[str, int] = {}
    is_large = len(buffers.flow.reached.instructions) >= LARGE_MODULE
    for name in names:
        if progress is not None and is_large:
            progress(f"memory scheduler: {name} ({len(found) + 1} of {len(names)})")
        points_to = name == "list" and not release.lists_by_dataflow
        orders = _orders(buffers, _pointing(buffers) if points_to else sizes, name)
        blocks = ordered_blocks(buffers.flow.reached, orders)
        found[name] = orders
        needed[name] = HeapSimulation(
            buffers,
            blocks,
            sizes.bytes_of,
            counts_once=release.counts_handover_once,
        ).minimum_bytes
    if progress is not None and is_large:
        progress("")
    best = min(names, key=needed.__getitem__)
    return BaseOrder(best, found[best], needed[best], needed)


def _pointing(buffers: Buffers) -> ValueSizes:
    """Sizes of what the older analysis takes for values."""
    return ValueSizes(build_points_to(buffers.flow.reached))


def _orders(buffers: Buffers, sizes: ValueSizes, name: str) -> dict[Computation, Order]:
    reached = buffers.flow.reached
    make = SCHEDULERS[name]
    return {
        computation: adjusted(make(computation, sizes))
        for computation in reached.computations
        if reached.runs_on(computation)
    }
