"""Records which memory the buffers of permutes and all-gathers must lie in.

    Before:  %p = f32[8] collective-permute(%x), source_target_pairs={{0,1},{1,0}}
    After:   %p = ..., backend_config={"collective_backend_config":{...
                 "collectives_mode":"COLLECTIVES_SYMMETRIC_MEMORY",...}...}

`COLLECTIVES_PEER_MEMORY` means that devices read each other's buffers.
`COLLECTIVES_SYMMETRIC_MEMORY` means that all devices register their buffers first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from hlo_passes.ir.async_form import begun_collective
from hlo_passes.ir.gpu_config import has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.gpu_backend_config import set_collective_fields

#: Where buffers lie.
Memory = Literal["private", "peer", "symmetric"]
#: The value of `collectives_mode`; private memory is not noted.
_MODES: Final = {
    "peer": "COLLECTIVES_PEER_MEMORY",
    "symmetric": "COLLECTIVES_SYMMETRIC_MEMORY",
}


@dataclass(frozen=True, slots=True)
class CollectiveBackendAssigner(Pass):
    """Write the memory mode of permutes and all-gathers into their backend config.

    Every collective-permute and all-gather in the module receives its mode, including
    the starts of asynchronous ones and the collectives that an `async-start` wraps. XLA
    runs the pass after the combiners: they drop what a backend config says about a
    single collective. With the default options, the pass does nothing.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/collective_backend_assigner.cc`.

    Attributes:
        collective_permute_mode: where buffers of collective-permutes lie: `private`,
            `peer` or `symmetric`; nothing is written for `private`.
        all_gather_mode: where buffers of all-gathers lie: `private`, `peer` or
            `symmetric`; nothing is written for `private`.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "collective-backend-assigner"
    needs_collectives: ClassVar[bool] = True

    collective_permute_mode: Memory = "private"
    all_gather_mode: Memory = "private"
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every instruction."""
        modes = {
            "collective-permute": _MODES.get(self.collective_permute_mode),
            "all-gather": _MODES.get(self.all_gather_mode),
        }
        if not any(modes.values()):
            report.remark("nothing assigned: both modes are private")
            return False
        version, release = module.version, context.release_for(module, self.xla)
        for computation in module.computations:
            for instruction in computation.instructions:
                mode = modes.get(_kind(instruction))
                if mode is None:
                    continue
                if not has_gpu_config(instruction):
                    report.remark(
                        f"not assigned: %{instruction.name} has a backend config of "
                        "another back end"
                    )
                    continue
                set_collective_fields(instruction, release, collectives_mode=mode)
                report.count("collectives-assigned")
        return module.version != version


def _kind(instruction: Instruction) -> str:
    """'all-gather' for it and its native start; '' for what begins no collective."""
    return begun_collective(instruction.opcode)
