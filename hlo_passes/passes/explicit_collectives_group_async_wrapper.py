"""Calls whose collectives are launched as one, made asynchronous.

Before:  %c = (f32[8], f32[8]) call(%x, %y), to_apply=%both,
                  frontend_attributes={_collectives_group=""}
After:   %s = ((f32[8], f32[8]), (f32[8], f32[8])) async-start(%x, %y),
              calls=%both.collectives_group,
              frontend_attributes={_collectives_group=""}
         %d = (f32[8], f32[8]) async-done(%s), frontend_attributes=...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.ir.gpu_config import has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.async_wrapping import (
    DESCRIPTION,
    copied_computation,
    replace_by_pair,
    started_and_awaited,
)
from hlo_passes.passes.base import Pass, PassContext, Report
from hlo_passes.passes.explicit_stream_annotation_async_wrapper import (
    GROUP_ANNOTATION,
    printed_release,
)
from hlo_passes.passes.gpu_backend_config import JaxRelease, set_force_earliest_schedule

#: Marks a call whose collectives are launched as one.
#: Source: openxla/xla `xla/side_effect_util.h`.
GROUP_MARK: Final = "_collectives_group"


@dataclass(frozen=True, slots=True)
class ExplicitCollectivesGroupAsyncWrapper(Pass):
    """Make every call with `_collectives_group` an asynchronous pair.

    The pair runs a copy of the called computation without `_scheduling_group_id`;
    start and done take over frontend attributes, metadata and backend config, and the
    done says that it is not forced early. The XLA of jax 0.10 hands on frontend
    attributes alone.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/explicit_collectives_group_async_wrapper.cc`.

    Attributes:
        jax_release: whose XLA is followed; `none`: the source named above.
    """

    name: ClassVar[str] = "explicit-collectives-group-async-wrapper"

    jax_release: JaxRelease | None = None

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Every computation, fusion bodies left out."""
        version = module.version
        graph = build_call_graph(module)
        for computation in graph.post_order:
            if graph.is_fusion_body(computation):
                continue
            for instruction in computation.instructions:
                if _is_group(instruction):
                    self._wrap(instruction)
                    report.count("groups-wrapped")
        return module.version != version

    def _wrap(self, call: Instruction) -> None:
        (callee,) = call.called_computations
        group = copied_computation(callee, "collectives_group", before=call.computation)
        for inner in group.instructions:
            marks = inner.frontend_attributes
            if GROUP_ANNOTATION in marks:
                inner.frontend_attributes = marks.without(GROUP_ANNOTATION)
        is_bare = self.jax_release == "0.10"
        described = () if is_bare else DESCRIPTION
        start, done = started_and_awaited(
            call, group, described=(*described, "frontend_attributes")
        )
        if not is_bare and has_gpu_config(done):
            printed = printed_release(self.jax_release)
            set_force_earliest_schedule(done, printed, value=False)
        replace_by_pair(call, start, done)


def _is_group(instruction: Instruction) -> bool:
    return (
        instruction.opcode == "call" and GROUP_MARK in instruction.frontend_attributes
    )
