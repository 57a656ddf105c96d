"""The marks that XLA's back ends leave in the modules that they compile.

    HloModule m, ..., frontend_attributes={fingerprint_before_lhs="..."}          GPU
    fusion(...), backend_config={"operation_queue_id":"0",...}                    GPU
    fusion(...), backend_config={"outer_dimension_partitions":[],...}             CPU
    f32[8,128]{1,0:T(8,128)}                                                      TPU
    custom-call(...), custom_call_target="AsyncCollectiveStart"                   TPU
    %c (p: f32[8]) -> f32[8] {...}, execution_thread="sparsecore"                 TPU

No mark is no answer: XLA's CPU compiler leaves none in small programs. What JAX itself
writes for one kind of machine (a kernel in Triton, say) counts too.

Source: openxla/xla `xla/service/gpu/gpu_hlo_schedule.cc`,
`xla/service/gpu/backend_configs.proto`, `xla/service/cpu/backend_config.proto`; dumps
of jaxlib 0.10.2 and 0.12.0.1 for CPUs and GPUs, and of libtpu 0.0.52.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from hlo_passes.analysis.partitioning import custom_call_target
from hlo_passes.ir.gpu_config import gpu_config, has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module

BackEnd = Literal["gpu", "cpu", "tpu"]

#: In the header's frontend attributes: XLA's GPU compiler has scheduled the module.
_SCHEDULED_BY_XLA: Final = "fingerprint_before_lhs"
#: In a layout: tiles, which only TPUs have.
_TILES: Final = ":T("
#: Fields of backend configs that one back end alone writes.
_FIELDS: Final[dict[str, BackEnd]] = {
    "operation_queue_id": "gpu",
    "force_earliest_schedule": "gpu",
    "reification_cost": "gpu",
    "collective_backend_config": "gpu",
    "fusion_backend_config": "gpu",
    "outer_dimension_partitions": "cpu",
    "fusion_config": "cpu",
    "llvm_kernel_options": "cpu",
    "flag_configs": "tpu",
    "scoped_memory_configs": "tpu",
    "used_scoped_memory_configs": "tpu",
    "estimated_cycles": "tpu",
}
#: The same by the first letters of a custom call's target.
_TARGETS: Final[dict[str, BackEnd]] = {
    "__gpu$": "gpu",
    "__cublas$": "gpu",
    "__cudnn$": "gpu",
    "__cub$": "gpu",
    "__cusolver$": "gpu",
    "__triton": "gpu",
    "__onednn$": "cpu",
    "__cpu$": "cpu",
    "tpu_custom_call": "tpu",
    "AsyncCollectiveStart": "tpu",
    "AsyncCollectiveDone": "tpu",
    "ConcatBitcast": "tpu",
}
_TARGET_PREFIXES: Final = tuple(_TARGETS)
#: Threads that only one back end has.
_THREADS: Final[dict[str, BackEnd]] = {"sparsecore": "tpu"}
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class BackEndMark:
    """What shows which machine a module is for.

    Attributes:
        back_end: the machine.
        what: the mark, as in 'the header has fingerprint_before_lhs'.
    """

    back_end: BackEnd
    what: str


def scheduled_by_xla(module: Module) -> bool:
    """Whether XLA's GPU compiler has scheduled a module: its header says so."""
    text = module.attributes.get("frontend_attributes", "")
    return module.is_scheduled and _SCHEDULED_BY_XLA in text


def back_end_mark(module: Module) -> BackEndMark | None:
    """The first mark of a back end; None without one.

    Complexity: linear in instructions up to the first mark.
    """
    if scheduled_by_xla(module):
        return BackEndMark("gpu", f"the header has {_SCHEDULED_BY_XLA}")
    if _TILES in module.attributes.get("entry_computation_layout", ""):
        return BackEndMark("tpu", "the entry's layout has tiles")
    for computation in module.computations:
        if back_end := _THREADS.get(computation.execution_thread):
            thread = f"%{computation.name} runs on the thread "
            return BackEndMark(back_end, thread + computation.execution_thread)
        for instruction in computation.instructions:
            if found := _mark_of(instruction):
                return found
    for instruction in module.entry.instructions:
        if _TILES in instruction.shape.text:
            return BackEndMark("tpu", f"the layout of %{instruction.name} has tiles")
    return None


def _mark_of(instruction: Instruction) -> BackEndMark | None:
    if instruction.opcode == "custom-call":
        # The config of a custom call has any form: only its target counts.
        target = custom_call_target(instruction)
        if not target.startswith(_TARGET_PREFIXES):
            return None
        start = next(each for each in _TARGET_PREFIXES if target.startswith(each))
        return BackEndMark(_TARGETS[start], f"%{instruction.name} calls {target}")
    if not instruction.mentions("backend_config"):
        return None
    for name in _config_fields(instruction):
        if back_end := _FIELDS.get(name):
            return BackEndMark(
                back_end, f"the backend config of %{instruction.name} has {name}"
            )
    return None


def _config_fields(instruction: Instruction) -> Iterable[str]:
    """The fields of a backend config; if it is not JSON, all words in it."""
    if has_gpu_config(instruction):
        return gpu_config(instruction)
    return _WORD.findall(instruction.attributes["backend_config"])
