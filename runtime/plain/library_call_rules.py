"""Rules for custom-calls: known calls of GPU libraries, and JAX's markers.

    (f32[4,8], s8[99]) custom-call(%a, %b), custom_call_target="__cublas$gemm",
        backend_config={"gemm_backend_config":{"alpha_real":2,"beta":0,...}}
    ->
    dot(%a, %b), times 2; the scratch space as zeros

Source of the configurations: openxla/xla `xla/service/gpu/backend_configs.proto` and
`gpu_backend_lib`'s rewriter passes (Aug 2026). Everything else is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from hlo_passes.analysis.partitioning import ANNOTATIONS
from hlo_passes.ir.element_types import is_floating
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import parse_backend_config
from hlo_passes.ir.shapes import Shape
from hlo_passes.runtime.plain.builder import Builder, Operation, Rule
from hlo_passes.runtime.plain.product_rules import product
from hlo_passes.runtime.plain.refusals import check_shape, refuse
from hlo_passes.runtime.plain.top_k_rules import top_k
from hlo_passes.runtime.plain.values import Value, array_leaves, arrays, plain_shape

#: Targets that mark a value and change nothing. Those for the partitioner are here only
#: if they mark a program for one device.
_MARKERS: Final = ANNOTATIONS | {"LayoutConstraint", "MoveToHost", "MoveToDevice"}

_GEMM_TARGETS: Final = ("__cublas$gemm", "__cublas$lt$matmul")
_TOP_K_TARGETS: Final = ("TopK", "__gpu$TopK")
_CONVOLUTION_TARGETS: Final = ("__cudnn$convForward",)

#: Epilogues of a gemm with a simple meaning: (adds a vector, applies ReLU).
_EPILOGUES: Final[Mapping[str, tuple[bool, bool]]] = {
    "DEFAULT": (False, False),
    "BIAS": (True, False),
    "RELU": (False, True),
    "BIAS_RELU": (True, True),
}


def _custom_call(builder: Builder, op: Operation) -> Value:
    target = op.attributes.get("custom_call_target", "").strip('"')
    if target in _GEMM_TARGETS:
        return _gemm(builder, op)
    if target in _CONVOLUTION_TARGETS:
        return _convolution(builder, op)
    if target in _TOP_K_TARGETS:
        return top_k(builder, op)
    if target in _MARKERS and len(op.operands) == 1:
        return op.operands[0]
    if target == "AllocateBuffer" and not op.operands and not op.shape.is_tuple:
        return _unwritten(builder, op.shape)
    refuse(op.source, f"the custom-call {target} is not known here")


def _unwritten(builder: Builder, shape: Shape) -> Value:
    """A buffer without values: NaN or one everywhere, so that who reads it is seen."""
    if shape.element_type == "pred":
        return builder.constant(shape, "true")
    return builder.constant(shape, "nan" if is_floating(shape.element_type) else "1")


def _config(op: Operation, key: str) -> Mapping[str, Any]:
    text = op.attributes.get("backend_config")
    value = parse_backend_config(text).json() if text else None
    part = value.get(key) if isinstance(value, dict) else None
    if isinstance(part, dict):
        return part
    refuse(op.source, f"its backend_config has no {key}")


def _gemm(builder: Builder, op: Operation) -> Value:
    """Alpha * dot + beta * C, then the epilogue; scratch space becomes zeros."""
    check_shape(op.source, op.shape)
    config = _config(op, "gemm_backend_config")
    epilogue = config.get("epilogue", "DEFAULT")
    alpha, beta = float(config.get("alpha_real", 1)), float(config.get("beta", 0))
    if epilogue not in _EPILOGUES or float(config.get("alpha_imag", 0)):
        refuse(
            op.source, f"a gemm with {epilogue} and such scales has no plain form here"
        )
    adds_vector, applies_relu = _EPILOGUES[epilogue]
    operands = [a for value in op.operands for a in arrays(value)]
    expected = 2 + (beta != 0) + adds_vector
    if len(operands) != expected:
        refuse(op.source, f"a gemm of this kind has {expected} operands")
    result = array_leaves(op.shape)[0]
    wide = result.with_element_type("f32") if _is_narrow(result) else result
    value = product(builder, "dot", wide, operands[:2], _dot_dimensions(config))
    value = _scaled(builder, value, alpha)
    if beta:
        addend = _scaled(builder, _as_type(builder, operands[2], wide), beta)
        value = builder.array("add", wide, (value, addend))
    if adds_vector:
        value = builder.array("add", wide, (value, _row(builder, operands[-1], wide)))
    if applies_relu:
        zero = builder.constant(wide, "0")
        value = builder.array("maximum", wide, (value, zero))
    return _with_scratch(builder, op, _as_type(builder, value, result))


def _is_narrow(shape: Shape) -> bool:
    return shape.element_type in ("f16", "bf16") or shape.element_type.startswith("f8")


def _dot_dimensions(config: Mapping[str, Any]) -> dict[str, str]:
    numbers = config["dot_dimension_numbers"]
    names = {
        "lhs_batch_dims": "lhs_batch_dimensions",
        "lhs_contracting_dims": "lhs_contracting_dimensions",
        "rhs_batch_dims": "rhs_batch_dimensions",
        "rhs_contracting_dims": "rhs_contracting_dimensions",
    }
    return {
        ours: f"{{{','.join(str(d) for d in numbers[theirs])}}}"
        for ours, theirs in names.items()
        if numbers.get(theirs)
    }


def _as_type(builder: Builder, value: Instruction, like: Shape) -> Instruction:
    if value.shape.element_type == like.element_type:
        return value
    shape = value.shape.with_element_type(like.element_type)
    return builder.array("convert", shape, (value,))


def _scaled(builder: Builder, value: Instruction, factor: float) -> Instruction:
    if factor == 1:
        return value
    scale = builder.constant(value.shape, json.dumps(factor))
    return builder.array("multiply", value.shape, (value, scale))


def _row(builder: Builder, vector: Instruction, shape: Shape) -> Instruction:
    """The vector along the last dimension of the shape."""
    vector = _as_type(builder, vector, shape)
    last = f"{{{shape.rank - 1}}}"
    return builder.array(
        "broadcast", plain_shape(shape), (vector,), {"dimensions": last}
    )


def _with_scratch(builder: Builder, op: Operation, value: Instruction) -> Value:
    if not op.shape.is_tuple:
        return value
    scratch = [builder.constant(leaf, "0") for leaf in array_leaves(op.shape)[1:]]
    return (value, *scratch)


def _convolution(builder: Builder, op: Operation) -> Value:
    """conv_result_scale * convolution; no side input, no activation."""
    check_shape(op.source, op.shape)
    config = _config(op, "cudnn_conv_backend_config")
    operands = [a for value in op.operands for a in arrays(value)]
    if len(operands) != 2 or config.get("activation_mode", "kNone") != "kNone":
        refuse(
            op.source,
            "a convolution with side input or activation has no plain form here",
        )
    names = ("window", "dim_labels", "feature_group_count", "batch_group_count")
    attributes = {n: op.attributes[n] for n in names if n in op.attributes}
    value = product(
        builder, "convolution", array_leaves(op.shape)[0], operands, attributes
    )
    value = _scaled(builder, value, float(config.get("conv_result_scale", 1)))
    return _with_scratch(builder, op, value)


RULES: Final[dict[str, Rule]] = {"custom-call": _custom_call}
