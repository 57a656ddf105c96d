"""Marks in every asynchronous collective whether it must run synchronously.

Before:  %s = f32[8] all-reduce-start(%x), to_apply=%add
After:   %s = f32[8] all-reduce-start(%x), to_apply=%add,
              backend_config={..."collective_backend_config":{"is_sync":false,...}...}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.errors import PipelineSpecError
from hlo_passes.ir.async_form import is_collective, is_start, work_of
from hlo_passes.ir.gpu_config import has_gpu_config
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import SYNC_COLLECTIVES
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.gpu_backend_config import set_collective_fields

#: Names of the flag's kinds, XLA's spelling: 'ALLREDUCE' for all-reduce.
KINDS: Final = {kind.replace("-", "").upper(): kind for kind in SYNC_COLLECTIVES}
ALL_KINDS: Final = "ALLCOLLECTIVES"


@dataclass(frozen=True, slots=True)
class AsyncCollectiveAnnotator(Pass):
    """Record in each collective's start whether it must run synchronously (`is_sync`).

    The pass writes the field `is_sync` into the backend config of every start of a
    collective. The field is true for the kinds that `disable-async-collectives` names,
    and false for all others. The pass skips a start whose backend config is not JSON.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/async_collective_annotator.cc`.

    Attributes:
        disable_async_collectives: the kinds of collectives that run synchronously,
            separated by spaces: ALLREDUCE, ALLGATHER, REDUCESCATTER,
            COLLECTIVEBROADCAST, ALLTOALL, COLLECTIVEPERMUTE, RAGGEDALLTOALL, or
            ALLCOLLECTIVES for all of them.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "async-collective-annotator"
    needs_collectives: ClassVar[bool] = True

    disable_async_collectives: tuple[str, ...] = ()
    xla: str = ""

    def __post_init__(self) -> None:
        """Refuse kinds that do not exist (U013)."""
        for kind in self.disable_async_collectives:
            if kind != ALL_KINDS and kind not in KINDS:
                raise PipelineSpecError(
                    f"{self.name}: unknown collective {kind}",
                    code="U013",
                    hint=f"expected {ALL_KINDS} or some of {', '.join(sorted(KINDS))}",
                )

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each computation except fusion bodies."""
        version = module.version
        release = context.release_for(module, self.xla)
        synchronous = {
            opcode
            for kind, opcode in KINDS.items()
            if kind in self.disable_async_collectives
            or ALL_KINDS in self.disable_async_collectives
        }
        for computation in computations_post_order(module, fusions=False):
            for instruction in computation.instructions:
                if not (is_start(instruction) and is_collective(instruction)):
                    continue
                if not has_gpu_config(instruction):
                    report.remark(
                        f"not annotated: the backend config of %{instruction.name} "
                        "is not JSON"
                    )
                    continue
                is_sync = work_of(instruction) in synchronous
                set_collective_fields(instruction, release, is_sync=is_sync)
                report.count("starts-annotated")
        return module.version != version
