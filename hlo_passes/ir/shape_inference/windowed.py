"""Windows over dimensions, and convolution.

    f32[1,14,14,64] convolution(f32[1,28,28,3], f32[3,3,3,64]),
        window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f

Source: openxla/xla `xla/service/shape_inference.cc`, `xla/window_util.cc`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hlo_passes.ir.shape_inference.compare import higher_precision
from hlo_passes.ir.shape_inference.query import Query
from hlo_passes.ir.shapes import UNBOUNDED, Shape, intern

_FIELD = re.compile(r"([a-z_]+)=(-?\d+(?:_-?\d+)?(?:x-?\d+(?:_-?\d+)?)*)")
_LABELS = re.compile(r"([\dbf?]+)_([\dio?]+)->([\dbf?]+)")
_FIELDS = frozenset("size stride pad lhs_dilate rhs_dilate rhs_reversal".split())


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window; sizes in elements."""

    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1

    def output_size(self, base: int) -> int:
        """Positions of the window over a dimension of `base` elements."""
        if base == UNBOUNDED:
            return UNBOUNDED
        padded = self.low + self.high + _dilated(base, self.base_dilation)
        window = _dilated(self.size, self.window_dilation)
        if padded <= 0 or window > padded:
            return 0
        return (padded - window) // self.stride + 1


def _dilated(bound: int, dilation: int) -> int:
    return (bound - 1) * dilation + 1 if bound else 0


def read_window(query: Query) -> tuple[WindowDimension, ...]:
    """The dimensions that window={..} spells; () where there is no window."""
    text = query.attributes.get("window", "{}").strip("{} ")
    fields: dict[str, list[str]] = {}
    for part in text.split():
        match = _FIELD.fullmatch(part)
        if not match or match[1] not in _FIELDS or match[1] in fields:
            query.fail(f"cannot read window={{{text}}}")
        fields[match[1]] = match[2].split("x")
    count = len(fields.get("size", ()))
    if any(len(values) != count for values in fields.values()):
        query.fail(f"window={{{text}}} is not of one rank")

    def values(name: str, default: int) -> list[int]:
        return list(map(int, fields.get(name, [str(default)] * count)))

    pads = [p.split("_") for p in fields.get("pad", ["0_0"] * count)]
    dimensions = tuple(
        WindowDimension(size, stride, int(pad[0]), int(pad[-1]), base, window)
        for size, stride, pad, base, window in zip(
            values("size", 1), values("stride", 1), pads,
            values("lhs_dilate", 1), values("rhs_dilate", 1), strict=True,
        )
    )  # fmt: skip
    for d in dimensions:
        if min(d.size, d.stride, d.base_dilation, d.window_dilation) < 1:
            query.fail(f"window={{{text}}} has a size, stride or dilation below 1")
    return dimensions


def windowed_sizes(
    query: Query, sizes: tuple[int, ...], window: tuple[WindowDimension, ...]
) -> tuple[int, ...]:
    """Sizes that are left when the window slides over an array."""
    if len(window) != len(sizes):
        query.fail(f"a window of rank {len(window)} over {len(sizes)} dimensions")
    return tuple(w.output_size(s) for w, s in zip(window, sizes, strict=True))


@dataclass(frozen=True, slots=True)
class _Labels:
    """Where batch, feature and spatial dimensions stand in input, kernel, output."""

    input: dict[str, int]
    kernel: dict[str, int]
    output: dict[str, int]
    spatial: int


def _read_labels(query: Query) -> _Labels:
    text = query.text("dim_labels")
    match = _LABELS.fullmatch(text)
    if not match:
        query.fail(f"cannot read dim_labels={text}")
    places = [{c: k for k, c in enumerate(part)} for part in match.groups()]
    rank = len(match[1])
    digits = [str(k) for k in range(rank - 2)]
    for place, part, letters in zip(
        places, match.groups(), ("bf", "io", "bf"), strict=True
    ):
        if len(part) != rank or set(place) != {*letters, *digits}:
            query.fail(f"dim_labels={text} does not name each dimension once")
    return _Labels(places[0], places[1], places[2], rank - 2)


def convolution(query: Query) -> Shape:
    """(input, kernel): batch, kernel output features, window positions."""
    lhs, kernel = query.array(0), query.operand(1)
    rhs = kernel.elements[0] if kernel.is_tuple and kernel.elements else query.array(1)
    labels, window = _read_labels(query), read_window(query)
    if lhs.rank != labels.spatial + 2 or rhs.rank != lhs.rank:
        query.fail(f"dim_labels do not fit {lhs} and {rhs}")
    if len(window) != labels.spatial:
        query.fail(f"a window of rank {len(window)} for {labels.spatial} dimensions")
    groups = query.integer("feature_group_count", 1)
    batches = query.integer("batch_group_count", 1)
    batch = lhs.dimensions[labels.input["b"]]
    features = rhs.dimensions[labels.kernel["o"]]
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
    sizes[labels.output["b"]] = batch // batches
    sizes[labels.output["f"]] = features
    for k, dimension in enumerate(window):
        base = lhs.dimensions[labels.input[str(k)]]
        sizes[labels.output[str(k)]] = dimension.output_size(base)
    if query.declared is not None and query.declared.is_array:
        element = query.declared.element_type
    else:
        element = higher_precision(lhs.element_type, rhs.element_type)
    return intern(Shape(element, tuple(sizes)))


def _check_forward(
    query: Query,
    labels: _Labels,
    window: tuple[WindowDimension, ...],
    lhs: Shape,
    rhs: Shape,
    groups: int,
) -> None:
    features = lhs.dimensions[labels.input["f"]]
    inner = rhs.dimensions[labels.kernel["i"]]
    sparse = "sparsity_config" in query.attributes
    if not sparse and (features % groups or features // groups != inner):
        query.fail(
            f"{features} input features in {groups} groups, the kernel takes {inner}"
        )
    for k, dimension in enumerate(window):
        if rhs.dimensions[labels.kernel[str(k)]] != dimension.size:
            query.fail(f"the window does not have the size of {rhs}")
