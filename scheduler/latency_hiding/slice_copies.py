"""Fusions that only copy a slice, which XLA runs as a memory copy of the GPU.

    fused (p: f32[8,64], i: s32[]) -> f32[1,64] {
      ROOT ds = f32[1,64] dynamic-slice(p, i, zero), ..., backend_config={
                "dynamic_slice_config":{...}}       one contiguous region
    }

Source: openxla/xla `xla/backends/gpu/transforms/dynamic_slice_copy.cc` (Aug 2026).
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.async_form import is_fusion
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import fusion_config, gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.windows import parse_slice
from hlo_passes.scheduler.fusions.fused_graph import minor_to_major
from hlo_passes.scheduler.latency.collectives import array_bytes

_SEE_THROUGH: Final = ("bitcast", "reshape")
_SLICING: Final = ("slice", "dynamic-slice", "dynamic-update-slice")
_NO_OPS: Final = frozenset("parameter constant bitcast get-tuple-element tuple".split())
_CONFIG: Final = "dynamic_slice_config"
_COPY_FUSION: Final = "dynamic_slice_fusion"


def is_slice_copy(fusion: Instruction) -> bool:
    """Whether a fusion copies one contiguous slice, or wraps such a copy."""
    if not is_fusion(fusion):
        return False
    if not fusion.called_computations:
        return False
    body = fusion.called_computations[0]
    if fusion.attributes.get("kind") == "kCustom":
        return _is_copy_with_slices(fusion, body)
    root = _see_through(body.root)
    if root.opcode not in ("dynamic-slice", "dynamic-update-slice"):
        return False
    if not _has_config(root) or not all(map(_is_compatible, body.instructions)):
        return False
    copied = body.root if root.opcode == "dynamic-slice" else root.operands[1]
    if copied.shape.is_tuple or not _comes_from_parameter(copied):
        return False
    return (
        root.opcode == "dynamic-slice"
        or _see_bitcasts(root.operands[0]).opcode == "parameter"
    )


def _is_copy_with_slices(fusion: Instruction, body: Computation) -> bool:
    """A custom fusion around a copy whose operand and result are slices."""
    custom = fusion_config(fusion).get("custom_fusion_config")
    if not isinstance(custom, dict) or custom.get("name") != _COPY_FUSION:
        return False
    offsets = _offset_instructions(body)
    for instruction in body.instructions:
        if (
            instruction not in offsets
            and instruction.opcode not in _NO_OPS
            and instruction.opcode not in _SLICING
        ):
            return instruction.opcode == "copy"
    return False


def _offset_instructions(body: Computation) -> dict[Instruction, None]:
    """Instructions that only compute where slices start."""
    work: list[Instruction] = []
    for instruction in body.instructions:
        if instruction.opcode == "dynamic-slice":
            work += instruction.operands[1:]
        elif instruction.opcode == "dynamic-update-slice":
            work += instruction.operands[2:]
    found: dict[Instruction, None] = {}
    while work:
        current = _see_bitcasts(work.pop())
        if current not in found:
            found[current] = None
            work += current.operands
    return found


def _has_config(instruction: Instruction) -> bool:
    return _CONFIG in gpu_config(instruction)


def _is_compatible(instruction: Instruction) -> bool:
    if instruction.opcode == "slice":
        return _is_contiguous(instruction.operands[0].shape, instruction)
    return instruction.opcode not in _SLICING or _has_config(instruction)


def _is_contiguous(whole: Shape, part: Instruction) -> bool:
    """Whether a static slice is one region of memory."""
    shape, is_sliced = part.shape, False
    strides = _strides(part)
    for d in minor_to_major(whole):
        if is_sliced and shape.dimensions[d] != 1:
            return False
        if shape.dimensions[d] < whole.dimensions[d]:
            if strides[d] != 1 and shape.dimensions[d] > 1:
                return False
            is_sliced = True
    return True


def _strides(part: Instruction) -> list[int]:
    """Steps of `slice={[0:4:2], [1:3]}`, 1 where none is written."""
    ranges = parse_slice(part.attributes.get("slice", "{}")).dimensions
    return [stride for _, _, stride in ranges]


def _comes_from_parameter(copied: Instruction) -> bool:
    """Whether a copied value is a slice, or all, of a parameter of the fusion."""
    source, part = _see_bitcasts(copied), copied.shape
    is_sliced = source.opcode in ("dynamic-slice", "slice")
    if is_sliced:
        part = source.shape
        is_sliced = source.opcode == "slice" or _has_config(source)
        source = source.operands[0]
    source = _see_bitcasts(source)
    if source.opcode != "parameter":
        return False
    return is_sliced or array_bytes(part) == array_bytes(source.shape)


def _see_through(instruction: Instruction) -> Instruction:
    while instruction.opcode in _SEE_THROUGH:
        instruction = instruction.operands[0]
    return instruction


def _see_bitcasts(instruction: Instruction) -> Instruction:
    while instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction
