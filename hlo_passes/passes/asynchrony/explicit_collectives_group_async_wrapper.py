"""Makes calls asynchronous if their collectives are launched as one.

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
from hlo_passes.passes.asynchrony.async_wrapping import (
    DESCRIPTION,
    copied_computation,
    replace_by_pair,
    started_and_awaited,
)
from hlo_passes.passes.asynchrony.explicit_stream_annotation_async_wrapper import (
    GROUP_ANNOTATION,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.gpu_backend_config import set_force_earliest_schedule
from hlo_passes.xla_release import XlaRelease

#: Marks a call whose collectives are launched as one.
#: Source: openxla/xla `xla/side_effect_util.h`.
GROUP_MARK: Final = "_collectives_group"


@dataclass(frozen=True, slots=True)
class ExplicitCollectivesGroupAsyncWrapper(Pass):
    """Turn every call marked `_collectives_group` into an asynchronous pair.

    The mark is a frontend attribute of a call whose collectives are launched as one.
    The pair runs a copy of the called computation; the instructions of the copy have no
    `_scheduling_group_id`. Start and done copy the call's frontend attributes, metadata
    and backend config, and the done says that it is not forced early
    (`force_earliest_schedule`). XLA 0.10.2 copies only the frontend attributes.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/explicit_collectives_group_async_wrapper.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "explicit-collectives-group-async-wrapper"

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every computation except fusion bodies."""
        version = module.version
        release = context.release_for(module, self.xla)
        graph = build_call_graph(module)
        for computation in graph.post_order:
            if graph.is_fusion_body(computation):
                continue
            for instruction in computation.instructions:
                if _is_group(instruction):
                    _wrap(instruction, release)
                    report.count("groups-wrapped")
        return module.version != version


def _wrap(call: Instruction, release: XlaRelease) -> None:
    (callee,) = call.called_computations
    group = copied_computation(callee, "collectives_group", before=call.computation)
    for inner in group.instructions:
        marks = inner.frontend_attributes
        if GROUP_ANNOTATION in marks:
            inner.frontend_attributes = marks.without(GROUP_ANNOTATION)
    described = DESCRIPTION if release.groups_keep_description else ()
    start, done = started_and_awaited(
        call, group, described=(*described, "frontend_attributes")
    )
    if release.groups_keep_description and has_gpu_config(done):
        set_force_earliest_schedule(done, release, value=False)
    replace_by_pair(call, start, done)


def _is_group(instruction: Instruction) -> bool:
    return (
        instruction.opcode == "call" and GROUP_MARK in instruction.frontend_attributes
    )
