"""Makes asynchronous collectives of chosen kinds synchronous, before scheduling.

Before:  %s = (f32[8], f32[16]) all-gather-start(%x), dimensions={0}
         %n = f32[8] negate(%y)
         %c = () custom-call(%s, %n), custom_call_target="control_dep"
         %d = f32[16] all-gather-done(%s)
After:   %n = f32[8] negate(%y)
         %d = f32[16] all-gather(%x), dimensions={0},
                    frontend_attributes={async_collective_name="s"}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.async_form import is_collective, is_done, is_start, work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.asynchrony.convert_async_collectives_to_sync import (
    has_sync_form,
    replace_by_sync,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report

#: Target of a custom-call whose operands only order each other.
_ORDERS: Final = '"control_dep"'


@dataclass(frozen=True, slots=True)
class AsyncCollectiveReplacer(Pass):
    """Replace the start and done of the chosen collectives with the plain collective.

    The pass replaces a pair even if work lies between its start and its done;
    `convert-async-collectives-to-sync` does not. The plain collective takes the done's
    place. It has the metadata, backend config and control predecessors of the start,
    and the frontend attributes and control successors of the done. The pass also
    removes custom calls with the target `control_dep` that read the start or the done.

    If anything else besides the done reads the start, XLA fails to compile. This pass
    leaves such a pair alone.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/hlo/transforms/collectives/async_collective_replacer.cc`;
    XLA's GPU pipeline does not run it, and XLA's default is to replace no kind.

    Attributes:
        convert_all_reduce: replace all-reduces.
        convert_all_gather: replace all-gathers.
        convert_collective_broadcast: replace collective-broadcasts.
        convert_collective_permute: replace collective-permutes.
        convert_all_to_all: replace all-to-alls.
        convert_reduce_scatter: replace reduce-scatters.
    """

    name: ClassVar[str] = "async-collective-replacer"
    needs_collectives: ClassVar[bool] = True

    convert_all_reduce: bool = True
    convert_all_gather: bool = True
    convert_collective_broadcast: bool = True
    convert_collective_permute: bool = True
    convert_all_to_all: bool = True
    convert_reduce_scatter: bool = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all computations but fusions."""
        version = module.version
        chosen = {
            name.removeprefix("convert-")
            for name, value in self.describe_options().items()
            if value
        }
        for computation in computations_post_order(module, fusions=False):
            for start in post_order(computation):
                if not is_start(start) or not is_collective(start):
                    continue
                if work_of(start) not in chosen:
                    report.remark(
                        f"not replaced: {work_of(start)} is not chosen: %{start.name}"
                    )
                    continue
                self._replace(start, report)
        return module.version != version

    def _replace(self, start: Instruction, report: Report) -> None:
        computation = start.computation
        dones = [user for user in start.users if not _only_orders(user)]
        if len(dones) != 1 or not is_done(dones[0]):
            report.remark(f"not replaced: %{start.name} is not read by its done alone")
            return
        (done,) = dones
        ordering = {
            user for half in (start, done) for user in half.users if _only_orders(user)
        }
        if not has_sync_form(start, report, besides=ordering):
            return
        for call in ordering:
            computation.remove(call)
        named = done.frontend_attributes.with_value("async_collective_name", start.name)
        replace_by_sync(start, done, named)
        report.count("pairs-replaced")


def _only_orders(user: Instruction) -> bool:
    """Whether it is a custom-call that nothing reads and that only orders."""
    return (
        user.opcode == "custom-call"
        and user.attributes.get("custom_call_target") == _ORDERS
        and not user.user_count
        and not user.is_root
    )
