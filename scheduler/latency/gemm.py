"""The matrix product of an instruction: dot, cuBLASLt call, Triton GEMM fusion.

    %fusion = bf16[64,128] fusion(...), kind=kCustom     -> Gemm(1, 64, 256, 128, ...)

Source: openxla/xla `matmul_interpolator.cc`, `cublas_cudnn.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, Final

from hlo_passes.ir.gpu_config import fusion_kind, gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.latency.matmul_table import Gemm

_CUBLAS_LT: Final = frozenset(
    f"__cublas$lt${name}"
    for name in ("matmul", "matmul$f8", "matmul$mx", "groupedMatmul")
)
_GROUPED: Final = "__cublas$lt$groupedMatmul"
_TRITON_GEMM: Final = frozenset(("__triton_gemm", "__triton_nested_gemm_fusion"))


def gemm_of(instruction: Instruction) -> Gemm | None:
    """The product that a GEMM instruction computes; None for anything else."""
    opcode = instruction.opcode
    if opcode == "dot":
        return _of_dot(instruction, instruction.shape)
    if opcode == "custom-call":
        target = instruction.attributes.get("custom_call_target", "").strip('"')
        return _of_custom_call(instruction) if target in _CUBLAS_LT else None
    if opcode == "fusion" and fusion_kind(instruction) in _TRITON_GEMM:
        dots = [i for i in _fused(instruction) if i.opcode == "dot"]
        return _of_dot(dots[0], instruction.shape) if len(dots) == 1 else None
    return None


def is_grouped_product(instruction: Instruction) -> bool:
    """Whether it is a library call that multiplies by the matrices that have rows."""
    if instruction.opcode != "custom-call":
        return False
    target = instruction.attributes.get("custom_call_target", "").strip('"')
    return target == _GROUPED


def _fused(fusion: Instruction) -> tuple[Instruction, ...]:
    return tuple(i for body in fusion.called_computations for i in body.instructions)


def _of_dot(dot: Instruction, result: Shape) -> Gemm:
    return _gemm(
        dot.operands[0].shape,
        dot.operands[1].shape,
        result,
        dot.integers("lhs_batch_dims"),
        dot.integers("lhs_contracting_dims"),
        dot.integers("rhs_batch_dims"),
        dot.integers("rhs_contracting_dims"),
    )


def _of_custom_call(call: Instruction) -> Gemm | None:
    numbers = _numbers(gpu_config(call))
    if numbers is None:
        return None

    def dims(name: str) -> tuple[int, ...]:
        return tuple(int(d) for d in numbers.get(name, ()))

    return _gemm(
        call.operands[0].shape,
        call.operands[1].shape,
        call.shape.elements[0] if call.shape.is_tuple else call.shape,
        dims("lhs_batch_dimensions"),
        dims("lhs_contracting_dimensions"),
        dims("rhs_batch_dimensions"),
        dims("rhs_contracting_dimensions"),
    )


def _numbers(view: Any) -> Mapping[str, Any] | None:
    """The dot's dimension numbers, for a plain or a grouped product."""
    for path in (
        ("gemm_backend_config",),
        ("grouped_gemm_backend_config", "gemm_backend_config"),
    ):
        found = view
        for name in (*path, "dot_dimension_numbers"):
            found = found.get(name, {}) if isinstance(found, dict) else {}
        if found:
            return found
    return None


def _gemm(
    lhs: Shape,
    rhs: Shape,
    result: Shape,
    lhs_batch: tuple[int, ...],
    lhs_contracted: tuple[int, ...],
    rhs_batch: tuple[int, ...],
    rhs_contracted: tuple[int, ...],
) -> Gemm:
    array = result.elements[0] if result.is_tuple else result
    return Gemm(
        batch=prod(lhs.dimensions[d] for d in lhs_batch),
        m=_free(lhs, (*lhs_batch, *lhs_contracted)),
        k=prod(lhs.dimensions[d] for d in lhs_contracted),
        n=_free(rhs, (*rhs_batch, *rhs_contracted)),
        lhs=lhs.element_type,
        rhs=rhs.element_type,
        out=array.element_type,
    )


def _free(shape: Shape, taken: Iterable[int]) -> int:
    used = frozenset(taken)
    return prod(size for d, size in enumerate(shape.dimensions) if d not in used)
