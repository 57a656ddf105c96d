"""Kernels that memory bandwidth limits: they do not hide copies inside the GPU.

Source: openxla/xla `gpu_latency_hiding_scheduler.cc` (Aug 2026).
"""

from __future__ import annotations

import math
from typing import Final

from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.gpu_config import fusion_kind, gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import MATRIX_PRODUCTS, facts
from hlo_passes.scheduler.estimators.base import is_nop
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker

#: cuBLAS and cublasLt GEMMs, cuDNN convolutions (not its reordering of filters).
_LIBRARY_CALLS: Final = ("__cublas$gemm", "__cublas$lt$matmul", "__cudnn$conv")
_REORDERING: Final = "__cudnn$convReorder"
_CUDNN_FUSION: Final = "__cudnn$fusion"


def is_memory_bound(instruction: Instruction, tracker: AsyncTracker) -> bool:
    """Whether memory bandwidth limits it; by the compiler's own times if known."""
    known = _by_noted_times(instruction)
    if known is not None:
        return known
    opcode = instruction.opcode
    if is_nop(instruction) or runs_callees(instruction) or opcode in MATRIX_PRODUCTS:
        return False
    if facts(opcode).half and (
        tracker.is_supported_start(instruction)
        or tracker.is_supported_done(instruction)
    ):
        return False
    if opcode == "fusion":
        return not _holds_matmul(instruction)
    if opcode == "custom-call":
        target = instruction.attributes.get("custom_call_target", "").strip('"')
        return target.startswith(_REORDERING) or not target.startswith(_LIBRARY_CALLS)
    return True


def _by_noted_times(instruction: Instruction) -> bool | None:
    for cost in gpu_config(instruction).get("reification_cost", ()):
        compute = float(cost.get("compute_time_us", 0.0))
        memory = float(cost.get("memory_access_time_us", 0.0))
        if not (math.isfinite(compute) and math.isfinite(memory)):
            continue
        if compute < 0 or memory < 0 or (compute == 0 and memory == 0):
            continue
        return memory > compute
    return None


def _holds_matmul(fusion: Instruction) -> bool:
    is_custom = fusion.attributes.get("kind") == "kCustom"
    if is_custom and fusion_kind(fusion) == _CUDNN_FUSION:
        return True
    return any(
        inner.opcode in MATRIX_PRODUCTS
        for body in fusion.called_computations
        for inner in body.instructions
    )
