"""Rewrites collectives of one kind, one after another.

    rewrite_each(module, "all-gather", _decompose, report, "decomposed")

For each that stays there is a remark: "not decomposed: %a is asynchronous".
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute


def rewrite_each(
    module: Module,
    opcode: str,
    rewrite: Callable[[Instruction], str],
    report: Report,
    done: str,
) -> bool:
    """Rewrite all instructions of an opcode; whether anything changed.

    Asynchronous ones stay, and so do those in fusions, with control edges and with
    attributes that XLA does not know.

    Args:
        module: its computations are visited in their order, each in post order.
        opcode: of a collective.
        rewrite: rewrites it, and returns ''; or why it does not.
        report: receives counts, and reasons as remarks.
        done: the participle for both, as 'decomposed'.
    """
    version = module.version
    graph = build_call_graph(module)
    for computation in module.computations:
        changed, place = False, ""
        if graph.is_async_body(computation):
            place = "is asynchronous"
        elif graph.is_fusion_body(computation):
            place = "is in a fusion"
        for collective in post_order(computation):
            if collective.opcode != opcode or collective.removed:
                continue
            name = collective.name
            reason = place or _obstacle(collective) or rewrite(collective)
            if reason:
                report.remark(f"not {done}: %{name} {reason}")
                continue
            report.count(f"{opcode}s-{done}")
            changed = True
        if changed:
            restore_text_order(computation)
    return module.version != version


def _obstacle(collective: Instruction) -> str:
    if has_control_edges(collective):
        return "has control edges"
    unknown = unknown_attribute(collective)
    return f"has the unknown attribute {unknown}" if unknown else ""
