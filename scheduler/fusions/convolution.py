"""Multiply-adds of a convolution that do not touch padding.

Source: openxla/xla `hlo_cost_analysis.cc`, GetConvolutionFlops (Aug 2026).
"""

from __future__ import annotations

from math import prod

from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.windows import DimLabels, Window, WindowDimension


def valid_multiply_adds(
    lhs: Shape,
    rhs: Shape,
    result: Shape,
    window: Window,
    labels: DimLabels,
    batch_group_count: int,
) -> int:
    """Multiply-adds of kernel and input elements that both exist.

    Args:
        lhs: the input.
        rhs: the kernel.
        result: of the convolution.
        window: over the spatial dimensions; none means a single position.
        labels: roles of the dimensions.
        batch_group_count: groups of the batch.
    """
    features = rhs.dimensions[labels.rhs.index("i")]
    outputs = result.dimensions[labels.out.index("f")]
    batch = lhs.dimensions[labels.lhs.index("b")] // max(1, batch_group_count)
    spatial = prod(
        _valid_positions(
            dimension,
            lhs.dimensions[labels.lhs.index(str(k))],
            rhs.dimensions[labels.rhs.index(str(k))],
            result.dimensions[labels.out.index(str(k))],
        )
        for k, dimension in enumerate(window.dimensions)
    )
    return features * outputs * batch * spatial


def _valid_positions(
    dimension: WindowDimension, inputs: int, kernel: int, outputs: int
) -> int:
    """Pairs of kernel and output positions that meet an input element."""
    dilated = (inputs - 1) * dimension.base_dilation + 1
    total = 0
    for k in range(kernel):
        offset = k * dimension.window_dilation - dimension.padding_low
        if dimension.base_dilation > 1:
            positions = (o * dimension.stride + offset for o in range(outputs))
            total += sum(
                0 <= p < dilated and p % dimension.base_dilation == 0 for p in positions
            )
            continue
        # For an undilated input, the positions that meet it are neighbors.
        first = max(0, -(offset // dimension.stride))
        last = min(outputs - 1, (inputs - 1 - offset) // dimension.stride)
        total += max(0, last - first + 1)
    return total
