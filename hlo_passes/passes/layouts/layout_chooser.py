"""Chooses layouts so that few bytes are copied between them.

Before:  %x = f32[8,4]{1,0} parameter(0)
         %t = f32[4,8]{1,0} transpose(%x), dimensions={1,0}          moves 128 bytes
         %n = f32[4,8]{1,0} negate(%t)
         %u = f32[8,4]{1,0} transpose(%n), dimensions={1,0}          moves 128 bytes
After:   %t = f32[4,8]{0,1} transpose(%x), dimensions={1,0}          moves nothing
         %n = f32[4,8]{0,1} negate(%t)
         %u = f32[8,4]{1,0} transpose(%n), dimensions={1,0}          moves nothing
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import ComputationPass, PassContext, Report
from hlo_passes.passes.layouts.problem import Chosen, Group, Part, parts_of
from hlo_passes.passes.layouts.rewrite import rewrite
from hlo_passes.passes.layouts.solving import Solution, solve


@dataclass(frozen=True, slots=True)
class LayoutChooser(ComputationPass):
    """Choose layouts so that copies and transposes move fewer bytes.

    This pass belongs to this project, not to XLA. XLA's layout assignment does not
    minimize anything.

    The pass counts two things: the bytes that a `copy`, `transpose` or `reshape` writes
    in another order than it reads, and the bytes of copies that XLA would have to add.
    If two ends of a computation need different layouts, the pass makes one copy where
    the array is smallest.

    Parameters, roots, dots, convolutions, fusions, calls, custom calls, tuples, starts
    and dones keep their layouts. So does every array with tiles, a memory space or a
    dynamic size. An elementwise instruction has one layout for its operands and its
    result. So does a collective; the dimension that it gathers, scatters or splits is
    the slowest one, as XLA's GPU and CPU compilers require. A transpose that moves
    nothing stays a `transpose`, which is also valid before XLA's layout assignment.
    Later, XLA turns it into a `bitcast`.

    The pass solves each part of a computation on its own; the layouts in a part depend
    on each other. The result is the best of all layouts if the tables of the part fit
    into `exact-limit`, or if every instruction has two layouts to choose from. (If an
    instruction has more than 24 possible layouts, the pass does not try all of them and
    does not call the result best.) Otherwise, the pass improves the given layouts with
    cuts. Statistics and remarks say which of the two happened. Parts that the pass
    cannot improve stay as they are. Loop bodies count as if they ran once. The pass
    leaves a scheduled module alone, because its copies also keep values from
    overwriting each other.

    Requires: a module before copy insertion.
    Ensures: no more bytes are moved than before; values are the same.
    Complexity: linear in instructions if few layouts depend on each other; at most
        `exact-limit` table entries and 24 minimum cuts for each part.

    Attributes:
        exact_limit: the most table entries for one part; 0: use only cuts, without a
            proof that the result is best.
    """

    name: ClassVar[str] = "layout-chooser"

    exact_limit: int = 1 << 25

    def __post_init__(self) -> None:
        """Refuse a limit below 0."""
        if self.exact_limit < 0:
            msg = "exact-limit must be 0 or more"
            raise ValueError(msg)

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit computations; say what is moved in all of them."""
        if module.is_scheduled:
            report.remark(
                "not changed: the module is scheduled; its copies also keep values "
                "from overwriting each other"
            )
            return False
        changed = super(LayoutChooser, self).run(module, context, report)
        if "bytes-moved-before" not in report.statistics:
            report.remark("not changed: nothing moves that another layout could keep")
        return changed

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        """Solve every part in which something moves, and rewrite those that gain."""
        groups: list[Group] = []
        chosen: Chosen = {}
        for part in parts_of(computation):
            moved = part.given_bytes()
            if not moved:
                continue
            solution = solve(part, self.exact_limit)
            report.count("bytes-moved-before", moved)
            report.count("bytes-moved-after", min(moved, solution.copied_bytes))
            report.count("parts-solved-exactly", solution.is_exact)
            report.count("parts-improved-by-cuts", not solution.is_exact)
            if solution.copied_bytes < moved:
                groups += part.groups
                chosen |= solution.chosen
            else:
                report.remark(_unchanged(part, moved, solution))
        if groups:
            rewrite(computation, groups, chosen, report)


def _unchanged(part: Part, moved: int, solution: Solution) -> str:
    """Why a part stays as it is."""
    (first, *others) = part.moving_arrays()
    also = f" and {len(others)} more" if others else ""
    bound = (
        "no layouts need fewer"
        if solution.is_exact
        else "no layouts were found that need fewer"
    )
    return f"not changed: %{first.name}{also}: {moved} bytes move, {bound}"
