"""Windows over dimensions, and convolution.

    f32[1,14,14,64] convolution(f32[1,28,28,3], f32[3,3,3,64]),
        window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f

Source: openxla/xla `xla/service/shape_inference.cc`, `xla/window_util.cc`.
"""

from __future__ import annotations

from hlo_passes.ir.shape_inference.compare import higher_precision
from hlo_passes.ir.shape_inference.query import Query
from hlo_passes.ir.shapes import UNBOUNDED, Shape, intern
from hlo_passes.ir.windows import (
    DimLabels,
    WindowDimension,
    parse_dim_labels,
    parse_window,
)


def output_size(window: WindowDimension, base: int) -> int:
    """Positions of one dimension of a window over `base` elements."""
    if base == UNBOUNDED:
        return UNBOUNDED
    padded = (
        window.padding_low + window.padding_high + _dilated(base, window.base_dilation)
    )
    size = _dilated(window.size, window.window_dilation)
    if padded <= 0 or size > padded:
        return 0
    return (padded - size) // window.stride + 1


def _dilated(bound: int, dilation: int) -> int:
    return (bound - 1) * dilation + 1 if bound else 0


def read_window(query: Query) -> tuple[WindowDimension, ...]:
    """The dimensions that window={..} spells; () without a window."""
    text = query.attributes.get("window", "{}")
    dimensions = parse_window(text).dimensions
    for d in dimensions:
        if min(d.size, d.stride, d.base_dilation, d.window_dilation) < 1:
            query.fail(f"window={text} has a size, stride or dilation below 1")
    return dimensions


def windowed_sizes(
    query: Query, sizes: tuple[int, ...], window: tuple[WindowDimension, ...]
) -> tuple[int, ...]:
    """The sizes of the result when the window slides over an array."""
    if len(window) != len(sizes):
        query.fail(f"a window of rank {len(window)} over {len(sizes)} dimensions")
    return tuple(output_size(w, s) for w, s in zip(window, sizes, strict=True))


def _read_labels(query: Query) -> DimLabels:
    """dim_labels={..}, which must name each dimension once."""
    labels = parse_dim_labels(query.text("dim_labels"))
    for part, letters in ((labels.lhs, "bf"), (labels.rhs, "io"), (labels.out, "bf")):
        if len(part) != labels.spatial_rank + 2 or not set(letters) <= set(part):
            query.fail(f"dim_labels={labels.to_text()} does not name each dimension")
    return labels


def convolution(query: Query) -> Shape:
    """(input, kernel): batch, kernel output features, window positions."""
    lhs, kernel = query.array(0), query.operand(1)
    rhs = kernel.elements[0] if kernel.is_tuple and kernel.elements else query.array(1)
    labels, window = _read_labels(query), read_window(query)
    if lhs.rank != labels.spatial_rank + 2 or rhs.rank != lhs.rank:
        query.fail(f"dim_labels do not fit {lhs} and {rhs}")
    if len(window) != labels.spatial_rank:
        query.fail(
            f"a window of rank {len(window)} for {labels.spatial_rank} dimensions"
        )
    groups = query.integer("feature_group_count", 1)
    batches = query.integer("batch_group_count", 1)
    batch = lhs.dimensions[labels.lhs.index("b")]
    features = rhs.dimensions[labels.rhs.index("o")]
    if min(groups, batches) < 1 or min(groups, batches) > 1:
        query.fail(f"feature groups {groups} and batch groups {batches} cannot be")
    if features % batches or features % groups or batch % batches:
        query.fail("groups do not divide features or batch")
    kind = query.attributes.get("convolution_kind", "fprop")
    if kind in ("fprop", "unset"):
        _check_forward(query, labels, window, lhs, rhs, groups)
    elif query.declared is not None:
        return query.declared
    sizes = [0] * lhs.rank
    sizes[labels.out.index("b")] = batch // batches
    sizes[labels.out.index("f")] = features
    for k, dimension in enumerate(window):
        base = lhs.dimensions[labels.lhs.index(str(k))]
        sizes[labels.out.index(str(k))] = output_size(dimension, base)
    if query.declared is not None and query.declared.is_array:
        element = query.declared.element_type
    else:
        element = higher_precision(lhs.element_type, rhs.element_type)
    return intern(Shape(element, tuple(sizes)))


def _check_forward(
    query: Query,
    labels: DimLabels,
    window: tuple[WindowDimension, ...],
    lhs: Shape,
    rhs: Shape,
    groups: int,
) -> None:
    features = lhs.dimensions[labels.lhs.index("f")]
    inner = rhs.dimensions[labels.rhs.index("i")]
    sparse = "sparsity_config" in query.attributes
    if not sparse and (features % groups or features // groups != inner):
        query.fail(
            f"{features} input features in {groups} groups, the kernel takes {inner}"
        )
    for k, dimension in enumerate(window):
        if rhs.dimensions[labels.rhs.index(str(k))] != dimension.size:
            query.fail(f"the window does not have the size of {rhs}")
