"""Flops and bytes of a fusion, as XLA:GPU's cost analysis counts them.

    util(x)    how many times the fusion computes x, 1 for a result
    bytes(p)   size of parameter p times util(p): more than its size if it is read again

Every property is a 32-bit float in XLA; the sums here are rounded at the same places.
Source: openxla/xla `hlo_cost_analysis.cc`, `gpu_hlo_cost_analysis.cc` (Aug 2026).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.windows import Window, parse_dim_labels, parse_window
from hlo_passes.scheduler.fusions.convolution import valid_multiply_adds
from hlo_passes.scheduler.fusions.fused_graph import (
    FusedGraph,
    dimensions_of,
    is_elementwise,
)
from hlo_passes.scheduler.latency.collectives import leaf_bytes, operand_bytes
from hlo_passes.scheduler.latency.data_tables import DEFAULT_OP_CYCLES
from hlo_passes.scheduler.latency.durations import round_half_away
from hlo_passes.whole_numbers import number_of_digits

_F32 = np.float32

#: Element accesses of one concatenated element, and of one in a warp that two
#: operands share. Source: openxla/xla `gpu_hlo_cost_analysis.cc`, HandleConcatenate.
_CONCATENATE_FLOPS: Final = 6
_DIVERGENT_CONCATENATE_FLOPS: Final = 400
_CONCATENATE_ALIGNMENT: Final = 32
_FMA_FLOPS: Final = 2

OpCycles = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class FusionCost:
    """The work of a fusion.

    Attributes:
        flops: cycles of all operations together.
        operand_bytes: read per operand.
        result_bytes: written.
    """

    flops: int
    operand_bytes: tuple[int, ...]
    result_bytes: int


def analyze_fusion(graph: FusedGraph, cycles: OpCycles) -> FusionCost:
    """Flops and bytes of a fused computation."""
    order = list(reversed(graph.instructions))
    # The elementwise roots to whose elements an instruction contributes.
    uses: dict[Instruction, dict[Instruction, None]] = {i: {} for i in order}
    root_utilization: dict[Instruction, np.float32] = {i: _F32(0) for i in order}
    utilization: dict[Instruction, np.float32] = {}
    uses[graph.root][graph.root] = None
    root_utilization[graph.root] = _F32(1)
    updated_in_place = {r for r in graph.roots if r.opcode == "dynamic-update-slice"}
    flops = _F32(0)
    for instruction in order:
        # An instruction is computed as often as its elementwise roots use it.
        own = _F32(0)
        for root in uses[instruction]:
            own += root_utilization[root]
        utilization[instruction] = own
        flops += own * _F32(flops_of(instruction, cycles))
        passes_through = _passes_elements_through(instruction)
        # Pass that use on to the operands.
        for index, operand in enumerate(instruction.operands):
            if passes_through:
                uses[operand].update(uses[instruction])
                continue
            uses[operand][operand] = None
            # What is not elementwise reads a share of its operand, in whole elements.
            elements = operand.shape.element_count
            share = own * _F32(
                operand_utilization(
                    instruction, index, in_place=instruction in updated_in_place
                )
            )
            if elements:
                whole = math.ceil(_F32(share * _F32(elements)))
                share = _F32(_F32(whole) / _F32(elements))
            else:
                share = _F32(0)
            root_utilization[operand] += share
    return FusionCost(
        int(flops),
        tuple(_read_bytes(p, utilization) for p in graph.parameters),
        int(_F32(sum(_written_bytes(root) for root in graph.roots))),
    )


def _passes_elements_through(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    if opcode in ("tuple", "get-tuple-element") or is_elementwise(instruction):
        return True
    if opcode != "bitcast":
        return False
    operand, result = instruction.operands[0].shape, instruction.shape
    return (
        operand.dimensions == result.dimensions
        and operand.layout is not None
        and result.layout is not None
        and operand.layout.minor_to_major == result.layout.minor_to_major
    )


def _read_bytes(
    parameter: Instruction, utilization: Mapping[Instruction, np.float32]
) -> int:
    def read(instruction: Instruction) -> int:
        size = _F32(operand_bytes(instruction.shape))
        return round_half_away(float(size * utilization.get(instruction, _F32(0))))

    if not parameter.shape.is_tuple:
        return int(_F32(read(parameter)))
    elements = [u for u in parameter.users if u.opcode == "get-tuple-element"]
    return int(_F32(sum(_read_bytes(e, utilization) for e in elements)))


def _written_bytes(root: Instruction) -> int:
    if root.opcode == "dynamic-update-slice":
        return leaf_bytes(root.operands[1].shape)
    return leaf_bytes(root.shape)


def operand_utilization(
    instruction: Instruction, index: int, *, in_place: bool = False
) -> float:
    """How many times an element of an operand is used per result, on average."""
    opcode = instruction.opcode
    if opcode in ("broadcast", "slice", "dynamic-slice", "gather"):
        if index:
            return 1.0
        elements = instruction.operands[0].shape.element_count
        return instruction.shape.element_count / elements if elements else 0.0
    if opcode == "dynamic-update-slice" and index == 0:
        if in_place:
            return 0.0
        total = instruction.shape.element_count
        updated = instruction.operands[1].shape.element_count
        return (total - updated) / total if total else 0.0
    if opcode == "reduce" and index >= len(instruction.operands) // 2:
        return float(_first(instruction.shape).element_count)
    if opcode == "reduce-window" and index == 0:
        window, _ = _reduce_window_counts(instruction)
        elements = instruction.operands[0].shape.element_count
        results = _first(instruction.shape).element_count
        return results * window / elements if elements else 0.0
    return 1.0


def flops_of(instruction: Instruction, cycles: OpCycles) -> float:
    """Flops of an instruction outside of any fusion."""
    opcode = instruction.opcode
    if is_elementwise(instruction) and opcode not in ("copy", "map"):
        per_element = cycles.get(
            (opcode, instruction.shape.element_type), DEFAULT_OP_CYCLES
        )
        return float(_F32(per_element * instruction.shape.element_count))
    handler = _FLOPS.get(opcode)
    return float(_F32(handler(instruction, cycles))) if handler else 0.0


def _body_flops(body: Computation, cycles: OpCycles) -> float:
    total = _F32(0)
    for instruction in body.instructions:
        total += _F32(flops_of(instruction, cycles))
    return float(total)


def _first(shape: Shape) -> Shape:
    return shape.elements[0] if shape.is_tuple else shape


def _reduce_flops(reduce: Instruction, cycles: OpCycles) -> float:
    inputs = reduce.operands[0].shape.element_count
    count = inputs - _first(reduce.shape).element_count
    return _body_flops(reduce.called_computations[0], cycles) * count


def _reduce_window_flops(instruction: Instruction, cycles: OpCycles) -> float:
    _, count = _reduce_window_counts(instruction)
    return _body_flops(instruction.called_computations[0], cycles) * count


def _reduce_window_counts(instruction: Instruction) -> tuple[int, int]:
    """(window elements, reductions); a padded whole-dimension window counts once."""
    window = parse_window(instruction.attributes.get("window", "{}"))
    result = _first(instruction.shape)
    elements = prod(d.size for d in window.dimensions)
    outputs = result.element_count
    whole = _whole_dimension(window, result, instruction)
    if whole is None:
        return elements, (elements - 1) * outputs
    size = result.dimensions[whole]
    return size, outputs // size + size - 1


def _whole_dimension(
    window: Window, result: Shape, instruction: Instruction
) -> int | None:
    """The dimension that a window reduces whole and broadcasts back, if any."""
    sized = [d for d in window.dimensions if d.size != 1]
    padded = [d for d in window.dimensions if d.padding_low or d.padding_high]
    if len(sized) != 1 or len(padded) != 1 or instruction.shape.is_tuple:
        return None
    dimension = sized[0]
    low = dimension.padding_low
    if not low or low != dimension.padding_high or dimension.size != 2 * low + 1:
        return None
    at = window.dimensions.index(dimension)
    return at if low == result.dimensions[at] - 1 else None


def _concatenate_flops(concatenate: Instruction, _: OpCycles) -> float:
    (dimension,) = dimensions_of(concatenate)
    first = concatenate.operands[0].shape.dimensions[dimension]
    aligned = not dimension or not first % _CONCATENATE_ALIGNMENT
    per_element = _CONCATENATE_FLOPS if aligned else _DIVERGENT_CONCATENATE_FLOPS
    return per_element * concatenate.shape.element_count


def _dot_flops(dot: Instruction, _: OpCycles) -> float:
    contracted = dot.integers("lhs_contracting_dims")
    lhs = dot.operands[0].shape
    width = prod(lhs.dimensions[d] for d in contracted)
    return _FMA_FLOPS * dot.shape.element_count * width


def _convolution_flops(convolution: Instruction, _: OpCycles) -> float:
    labels = convolution.attributes.get("dim_labels", "")
    return _FMA_FLOPS * valid_multiply_adds(
        convolution.operands[0].shape,
        convolution.operands[1].shape,
        convolution.shape,
        parse_window(convolution.attributes.get("window", "{}")),
        parse_dim_labels(labels),
        number_of_digits(convolution.attributes.get("batch_group_count", "1")),
    )


def _sort_flops(sort: Instruction, _: OpCycles) -> float:
    elements = sort.operands[0].shape.element_count
    return elements * max(0, (elements - 1).bit_length())


def _map_flops(instruction: Instruction, cycles: OpCycles) -> float:
    body = instruction.called_computations[0]
    return _body_flops(body, cycles) * instruction.shape.element_count


def _scatter_flops(scatter: Instruction, cycles: OpCycles) -> float:
    updates = scatter.operands[-1].shape.element_count
    return _body_flops(scatter.called_computations[0], cycles) * updates


def _select_and_scatter_flops(instruction: Instruction, cycles: OpCycles) -> float:
    select, scatter = instruction.called_computations
    window = parse_window(instruction.attributes.get("window", "{}"))
    sources = instruction.operands[1].shape.element_count
    compared = prod(d.size for d in window.dimensions) - 1
    return (
        _body_flops(select, cycles) * sources * compared
        + _body_flops(scatter, cycles) * sources
    )


_FLOPS: Final = {
    "reduce": _reduce_flops,
    "reduce-window": _reduce_window_flops,
    "concatenate": _concatenate_flops,
    "dot": _dot_flops,
    "convolution": _convolution_flops,
    "sort": _sort_flops,
    "map": _map_flops,
    "scatter": _scatter_flops,
    "select-and-scatter": _select_and_scatter_flops,
}
