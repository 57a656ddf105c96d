"""Which attributes an opcode has, in print order; and what kind of value each is.

    OPCODE_ATTRIBUTES["all-gather"]   channel_id replica_groups ... dimensions! ...
    ATTRIBUTE_KINDS["dimensions"]     int_list

A row lists names in the order in which XLA prints them; `!` marks the required ones.
After the row come `COMMON_ATTRIBUTES`. Source: openxla/xla `hlo_parser.cc`,
`hlo_instruction.cc`, `hlo_instructions.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Final

from hlo_passes.ir.opcodes import ROWS, facts

#: As many names of attributes and opcodes are remembered; a text may hold any words.
_REMEMBERED: Final = 1 << 12

#: What every instruction may have, in print order.
COMMON_ATTRIBUTES: Final = (
    "sharding",
    "frontend_attributes",
    "control-predecessors",
    "statistics",
    "result_accuracy",
    "origin",
    "metadata",
    "backend_config",
)

_COLLECTIVE = "channel_id replica_groups constrain_layout"
_DOT = (
    "lhs_batch_dims lhs_contracting_dims rhs_batch_dims rhs_contracting_dims "
    "operand_precision algorithm"
)
_ROWS: Final[dict[str, str]] = {
    "all-gather": f"{_COLLECTIVE} dimensions! use_global_device_ids",
    "all-gather-start": f"{_COLLECTIVE} dimensions! use_global_device_ids",
    "all-reduce": f"{_COLLECTIVE} use_global_device_ids mode to_apply!",
    "all-reduce-start": f"{_COLLECTIVE} use_global_device_ids mode to_apply!",
    "all-to-all": f"{_COLLECTIVE} dimensions",
    "async-done": "async_execution_thread calls",
    "async-start": "async_execution_thread output_to_operand_aliasing calls!",
    "async-update": "async_execution_thread output_to_operand_aliasing calls",
    "batch-norm-grad": "epsilon! feature_index!",
    "batch-norm-inference": "epsilon! feature_index!",
    "batch-norm-training": "epsilon! feature_index!",
    "broadcast": "dimensions",
    "call": "to_apply! is_composite",
    "cholesky": "lower",
    "collective-broadcast": "channel_id replica_groups has_dynamic_root",
    "collective-permute": "channel_id source_target_pairs! slice_sizes",
    "collective-permute-start": "channel_id source_target_pairs! slice_sizes",
    "compare": "direction! type order",
    "concatenate": "dimensions!",
    "conditional": "true_computation false_computation branch_computations",
    "convolution": (
        "window dim_labels! feature_group_count batch_group_count convolution_kind "
        "operand_precision algorithm sparsity_config"
    ),
    "copy-start": "cross_program_prefetch_index",
    "custom-call": (
        "window dim_labels feature_group_count batch_group_count operand_precision "
        "padding_type custom_call_target! operand_layout_constraints "
        "custom_call_has_side_effect literal output_to_operand_aliasing schedule "
        "api_version to_apply called_computations"
    ),
    "domain": "domain!",
    "dot": _DOT,
    "dynamic-slice": "dynamic_slice_sizes!",
    "fft": "fft_type! fft_length!",
    "fusion": "kind! output_to_operand_aliasing calls!",
    "gather": (
        "offset_dims! collapsed_slice_dims start_index_map! operand_batching_dims "
        "start_indices_batching_dims index_vector_dim! slice_sizes! indices_are_sorted"
    ),
    "get-dimension-size": "dimensions!",
    "get-tuple-element": "index!",
    "infeed": "infeed_config",
    "iota": "iota_dimension!",
    "map": "dimensions to_apply!",
    "outfeed": "outfeed_shape outfeed_config",
    "pad": "padding!",
    "parameter": "parameter_replication",
    "ragged-all-to-all": f"{_COLLECTIVE} dimensions",
    "ragged-dot": (
        "lhs_batch_dims lhs_contracting_dims rhs_batch_dims rhs_contracting_dims "
        "lhs_ragged_dims rhs_group_dims operand_precision"
    ),
    "recv": "channel_id is_host_transfer",
    "recv-done": "channel_id is_host_transfer",
    "reduce": "dimensions! to_apply!",
    "reduce-precision": "exponent_bits! mantissa_bits!",
    "reduce-scatter": f"{_COLLECTIVE} use_global_device_ids mode dimensions! to_apply!",
    "reduce-window": "window to_apply!",
    "reshape": "inferred_dimension",
    "reverse": "dimensions!",
    "rng": "distribution!",
    "rng-bit-generator": "algorithm!",
    "rng-get-and-update-state": "delta!",
    "scaled-dot": _DOT,
    "scan": "dimensions! num_carries! is_reverse is_associative to_apply!",
    "scatter": (
        "update_window_dims inserted_window_dims scatter_dims_to_operand_dims! "
        "input_batching_dims scatter_indices_batching_dims index_vector_dim! "
        "indices_are_sorted unique_indices to_apply!"
    ),
    "select-and-scatter": "window select! scatter!",
    "send": "channel_id is_host_transfer",
    "send-done": "channel_id is_host_transfer",
    "set-dimension-size": "dimensions!",
    "slice": "slice!",
    "sort": "dimensions! is_stable to_apply!",
    "topk": "k! largest is_stable",
    "transpose": "dimensions!",
    "triangular-solve": "left_side lower unit_diagonal transpose_a",
    "while": "condition! body!",
}

#: Opcodes that accept `result_accuracy`.
ACCURACY_OPCODES: Final = frozenset(
    "acos acosh asin asinh atanh exponential-minus-one log log-plus-one logistic sqrt "
    "cbrt rsqrt tanh erf sine sinh cosine cosh tan exponential".split()
)

#: Kind of value by attribute name; `KIND_BY_OPCODE` first.
ATTRIBUTE_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        name: kind
        for kind, names in {
            "bool": (
                "constrain_layout use_global_device_ids has_dynamic_root is_composite "
                "is_host_transfer custom_call_has_side_effect indices_are_sorted "
                "unique_indices is_stable is_reverse is_associative largest lower "
                "left_side unit_diagonal"
            ),
            "int": (
                "channel_id index iota_dimension index_vector_dim feature_index "
                "feature_group_count batch_group_count exponent_bits mantissa_bits "
                "inferred_dimension delta k num_carries cross_program_prefetch_index"
            ),
            "float": "epsilon",
            "string": (
                "async_execution_thread custom_call_target infeed_config outfeed_config"
            ),
            "int_list": (
                "dimensions dynamic_slice_sizes fft_length lhs_batch_dims "
                "lhs_contracting_dims rhs_batch_dims rhs_contracting_dims "
                "lhs_ragged_dims rhs_group_dims offset_dims collapsed_slice_dims "
                "start_index_map operand_batching_dims start_indices_batching_dims "
                "update_window_dims inserted_window_dims scatter_dims_to_operand_dims "
                "input_batching_dims scatter_indices_batching_dims"
            ),
            "computation": (
                "to_apply calls condition body select scatter true_computation "
                "false_computation"
            ),
            "names": "branch_computations called_computations control-predecessors",
            "bool_list": "parameter_replication",
            "shape": "outfeed_shape",
            "shape_list": "operand_layout_constraints",
            "output_aliasing": "output_to_operand_aliasing",
            "word": (
                "mode direction type order kind distribution convolution_kind fft_type "
                "transpose_a padding_type schedule api_version algorithm"
            ),
            "word_list": "operand_precision",
            **{
                kind: kind
                for kind in (
                    "backend_config dim_labels domain frontend_attributes literal "
                    "metadata origin padding replica_groups result_accuracy sharding "
                    "slice source_target_pairs sparsity_config statistics window"
                ).split()
            },
        }.items()
        for name in names.split()
    }
)

#: Attributes whose kind depends on the opcode.
KIND_BY_OPCODE: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("gather", "slice_sizes"): "int_list",
        ("collective-permute", "slice_sizes"): "int_lists",
        ("collective-permute-start", "slice_sizes"): "int_lists",
    }
)

_ALGORITHMS = (
    "unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 "
    "dot_f16_f16_f32 dot_bf16_bf16_bf16 dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 "
    "dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 "
    "dot_f32_f32_f32 dot_f64_f64_f64"
)
_WORDS: Final[dict[str, str]] = {
    "mode": ("cross_replica cross_partition cross_replica_and_partition flattened_id"),
    "direction": "EQ NE GE GT LE LT",
    "type": "FLOAT TOTALORDER SIGNED UNSIGNED",
    "order": "PARTIAL TOTAL",  # jaxlib 0.12's spelling of the type
    "kind": "kLoop kInput kOutput kCustom",
    "distribution": "rng_uniform rng_normal rng_invalid",
    "convolution_kind": "unset fprop dgrad wgrad",
    "fft_type": "FFT IFFT RFFT IRFFT",
    "transpose_a": "TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT",
    "padding_type": "PADDING_INVALID PADDING_VALID PADDING_SAME",
    "schedule": "SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST",
    "api_version": (
        "API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING "
        "API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI"
    ),
    "algorithm": _ALGORITHMS,
    "operand_precision": "default high highest",
}
_RNG_ALGORITHMS: Final = ("rng_default", "rng_three_fry", "rng_philox")

#: Values that XLA does not print: (opcode or '', attribute) -> canonical text.
_UNPRINTED: Final[dict[tuple[str, str], str]] = {
    **{
        ("", name): "false"
        for name in (
            "constrain_layout use_global_device_ids is_host_transfer is_composite "
            "custom_call_has_side_effect indices_are_sorted unique_indices is_reverse "
            "lower left_side unit_diagonal"
        ).split()
    },
    ("sort", "is_stable"): "false",
    ("", "feature_group_count"): "1",
    ("", "batch_group_count"): "1",
    ("", "inferred_dimension"): "-1",
    ("", "async_execution_thread"): '"main"',
    ("", "infeed_config"): '""',
    ("", "outfeed_config"): '""',
    ("", "convolution_kind"): "unset",
    ("", "padding_type"): "PADDING_INVALID",
    ("", "schedule"): "SCHEDULE_NONE",
    ("", "api_version"): "API_VERSION_ORIGINAL",
    ("", "algorithm"): "unset",
    ("", "transpose_a"): "TRANSPOSE_INVALID",
    ("", "window"): "{}",
    ("", "frontend_attributes"): "{}",
    ("", "output_to_operand_aliasing"): "{}",
    ("", "called_computations"): "{}",
    ("", "sparsity_config"): "{}",
    ("", "result_accuracy"): "{mode=default}",
    ("", "statistics"): "{}",
    ("", "backend_config"): '""',
    **{
        (opcode, name): "{}"
        for opcode in ("dot", "ragged-dot", "scaled-dot")
        for name in (
            "lhs_batch_dims rhs_batch_dims lhs_ragged_dims rhs_group_dims"
        ).split()
    },
    ("gather", "operand_batching_dims"): "{}",
    ("gather", "start_indices_batching_dims"): "{}",
    ("scatter", "input_batching_dims"): "{}",
    ("scatter", "scatter_indices_batching_dims"): "{}",
    ("collective-permute", "slice_sizes"): "{}",
    ("collective-permute-start", "slice_sizes"): "{}",
}
#: XLA reads these and forgets them.
_FORGOTTEN: Final = frozenset({("ragged-all-to-all", "dimensions"), ("", "mode")})

#: Printed even when the text leaves them out.
_FILLED: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    **dict.fromkeys(
        (
            "all-gather", "all-gather-start", "all-reduce", "all-reduce-start",
            "all-to-all", "ragged-all-to-all", "reduce-scatter",
            "collective-broadcast",
        ),
        (("replica_groups", "{}"),),
    ),
    **dict.fromkeys(
        ("dot", "ragged-dot", "scaled-dot"),
        (("lhs_contracting_dims", "{}"), ("rhs_contracting_dims", "{}")),
    ),
    "broadcast": (("dimensions", "{}"),),
    "map": (("dimensions", "{}"),),
    "gather": (("collapsed_slice_dims", "{}"),),
    "scatter": (("update_window_dims", "{}"), ("inserted_window_dims", "{}")),
}  # fmt: skip


@cache
def opcode_attributes(opcode: str) -> Mapping[str, bool]:
    """Attributes of an opcode in print order, and whether each is required.

    Sugar (`reduce-scatter-start`) has those of what it wraps. The common ones are
    included; an unknown opcode has only them.
    """
    names: dict[str, bool] = {}
    kind, about = _unsugared(opcode), facts(opcode)
    if not about.is_sugar:
        names = _row(opcode)
    else:
        names["async_execution_thread"] = False
        if about.half == "start":
            names.update(_row(kind))
        if about.half in ("start", "update"):
            # Only XLA:TPU writes it at an update, of a call that it begins earlier.
            names["output_to_operand_aliasing"] = False
    for name in COMMON_ATTRIBUTES:
        if name != "result_accuracy" or kind in ACCURACY_OPCODES:
            names[name] = False
    return MappingProxyType(names)


def _unsugared(opcode: str) -> str:
    """The opcode that sugar wraps; any other opcode itself."""
    about = facts(opcode)
    return about.work if about.is_sugar else opcode


def _row(opcode: str) -> dict[str, bool]:
    return {
        word.removesuffix("!"): word.endswith("!")
        for word in _ROWS.get(opcode, "").split()
    }


#: The places of all attributes of all opcodes, for opcodes that are not known.
_EXTRA_RANK: Final[dict[str, int]] = {
    name: k
    for k, name in enumerate(
        dict.fromkeys(
            name
            for opcode in sorted(ROWS)
            for name in _row(opcode)
            if name not in COMMON_ATTRIBUTES
        )
    )
}


class PrintRank(dict[str, tuple[float, int]]):
    """Sort keys of attribute names, including names that the opcode does not have."""

    def __missing__(self, name: str) -> tuple[float, int]:
        """Unknown names come after the opcode's own attributes, before common ones."""
        return (self["sharding"][0] - 0.5, _EXTRA_RANK.get(name, 0))


@cache
def print_rank(opcode: str) -> PrintRank:
    """Where each attribute of an opcode is printed; see `in_print_order`."""
    return PrintRank({n: (k, 0) for k, n in enumerate(opcode_attributes(opcode))})


@lru_cache(maxsize=_REMEMBERED)
def attribute_kind(name: str, opcode: str = "") -> str | None:
    """Kind of an attribute's value; None for a name that XLA does not know."""
    base = _unsugared(opcode)
    return KIND_BY_OPCODE.get((base, name)) or ATTRIBUTE_KINDS.get(
        name, "int_lists" if name == "slice_sizes" else None
    )


def allowed_words(name: str, opcode: str = "") -> tuple[str, ...]:
    """The words that an attribute of kind word may have; () for other names."""
    if name == "algorithm" and _unsugared(opcode) == "rng-bit-generator":
        return _RNG_ALGORITHMS
    return tuple(_WORDS.get(name, "").split())


def is_printed(name: str, text: str, opcode: str = "") -> bool:
    """Whether XLA prints an attribute with this canonical text."""
    if name == "operand_precision":
        return any(w != "default" for w in text.strip("{}").split(",") if w)
    unprinted = _unprinted_texts(name, opcode)
    return unprinted is not None and text not in unprinted


@lru_cache(maxsize=_REMEMBERED)
def _unprinted_texts(name: str, opcode: str) -> tuple[str | None, ...] | None:
    """Canonical texts of an attribute that XLA does not print; None: no text at all."""
    base = _unsugared(opcode)
    if (base, name) in _FORGOTTEN or ("", name) in _FORGOTTEN:
        return None
    return _UNPRINTED.get((base, name)), _UNPRINTED.get(("", name))


@cache
def filled_attributes(opcode: str) -> Mapping[str, str]:
    """Attribute texts by name that XLA prints although the text may leave them out."""
    if facts(opcode).half in ("update", "done"):
        return MappingProxyType({})
    filled = _FILLED.get(_unsugared(opcode), ())
    return MappingProxyType(dict(filled))
