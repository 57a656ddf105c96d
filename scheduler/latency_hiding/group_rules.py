"""Rules inside a scheduling group; no other rule applies there.

Source: openxla/xla `latency_hiding_scheduler.cc`, AnnotationReadySetLt (Aug 2026).
"""

from __future__ import annotations

from typing import Final

from hlo_passes.scheduler.latency_hiding import attributes as attr
from hlo_passes.scheduler.latency_hiding.rule import Rule, by_number
from hlo_passes.scheduler.latency_hiding.state import SchedulingState


def _keeps_order(state: SchedulingState, n: int) -> bool:
    return attr.frontend(state.graph.instructions[n], attr.KEEP_ORDER) == "true"


def _original_order(state: SchedulingState, a: int, b: int) -> int:
    if not (_keeps_order(state, a) and _keeps_order(state, b)):
        return 0
    return 1 if a > b else -1


#: In XLA's order.
GROUP_RULES: Final = (
    Rule(
        "group-original-order", "kOriginalSequenceOrder",
        "the later one in the given order, if both ask for it",
        _original_order, lambda s, n: n,
    ),
    by_number(
        "group-done", "kAnnotatedAsyncDone", "what occupies a resource",
        lambda s, n: s.graph.occupies[n],
    ),
    by_number(
        "group-not-start", "kAnnotatedNotAsyncStart", "what releases no resource",
        lambda s, n: s.graph.releases[n], smaller=True,
    ),
    Rule(
        "group-last", "kAnnotatedNoReason", "the later candidate of equals",
        lambda s, a, b: 1, lambda s, n: None,
    ),
)  # fmt: skip
