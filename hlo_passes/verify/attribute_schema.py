"""Which attributes an opcode takes, of what kind, and which it cannot do without.

    "all-gather": replica_groups, channel_id, dimensions!, constrain_layout, ...

A row reads `name:kind`, with `!` behind the name when it is required. The kinds are
checked in `attribute_values`. Source: openxla/xla `xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from hlo_passes.ir.opcodes import ARITY, NATIVE_ASYNC_DONES, wrapped_opcode

#: On every instruction.
COMMON: Final[dict[str, str]] = {
    "sharding": "sharding",
    "frontend_attributes": "frontend_attributes",
    "statistics": "statistics",
    "parameter_replication": "booleans",
    "control-predecessors": "names",
    "origin": "braces",
    "metadata": "metadata",
    "backend_config": "backend_config",
}

_GROUPS = "replica_groups:replica_groups channel_id:integer"
_REDUCTION = (
    f"to_apply!:computation {_GROUPS} constrain_layout:boolean "
    "use_global_device_ids:boolean mode:word"
)
_GATHERING = (
    f"{_GROUPS} dimensions!:integers constrain_layout:boolean "
    "use_global_device_ids:boolean"
)
_PERMUTE = (
    "source_target_pairs!:pairs channel_id:integer slice_sizes:integer_lists"
)
_TRANSFER = "channel_id:integer is_host_transfer:boolean"
_PRODUCT = (
    "lhs_contracting_dims:integers rhs_contracting_dims:integers "
    "lhs_batch_dims:integers rhs_batch_dims:integers operand_precision:precisions"
)
_CONVOLUTION = (
    "window:window feature_group_count:integer batch_group_count:integer "
    "operand_precision:precisions"
)
_NORM = "epsilon!:number feature_index!:integer"
_ACCURATE = (
    "acos acosh asin asinh atanh cbrt cosine cosh erf exponential "
    "exponential-minus-one log log-plus-one logistic rsqrt sine sinh sqrt tan tanh"
)

_ROWS: Final[dict[str, str]] = {
    **dict.fromkeys(_ACCURATE.split(), "result_accuracy:braces"),
    "iota": "iota_dimension!:integer",
    "topk": "k!:integer largest:boolean is_stable:boolean",
    "all-gather": _GATHERING,
    "all-gather-start": _GATHERING,
    "all-reduce": _REDUCTION,
    "all-reduce-start": _REDUCTION,
    "reduce-scatter": f"{_REDUCTION} dimensions!:integers",
    "all-to-all": f"{_GROUPS} dimensions:integers constrain_layout:boolean",
    "ragged-all-to-all": f"{_GROUPS} dimensions:integers",
    "collective-broadcast": f"{_GROUPS} has_dynamic_root:boolean",
    "collective-permute": _PERMUTE,
    "collective-permute-start": _PERMUTE,
    "async-start": (
        "async_execution_thread:string output_to_operand_aliasing:aliasing "
        "calls!:computation"
    ),
    "async-update": "async_execution_thread:string calls:computation",
    "async-done": "async_execution_thread:string calls:computation",
    "copy-start": "cross_program_prefetch_index:integer",
    "reshape": "inferred_dimension:integer",
    "sort": "dimensions!:integers is_stable:boolean to_apply!:computation",
    "while": "condition!:computation body!:computation",
    "send": _TRANSFER,
    "send-done": _TRANSFER,
    "recv": _TRANSFER,
    "recv-done": _TRANSFER,
    "get-tuple-element": "index!:integer",
    "call": (
        "to_apply!:computation is_composite:boolean "
        "output_to_operand_aliasing:aliasing"
    ),
    "reduce-window": "window:window to_apply!:computation",
    "convolution": (
        f"{_CONVOLUTION} dim_labels!:dim_labels convolution_kind:word "
        "algorithm:word sparsity_config:braces"
    ),
    "fft": "fft_type!:word fft_length!:integers",
    "triangular-solve": (
        "left_side:boolean lower:boolean unit_diagonal:boolean transpose_a:word"
    ),
    "cholesky": "lower:boolean",
    "compare": "direction!:word type:word",
    "broadcast": "dimensions:integers",
    "concatenate": "dimensions!:integers",
    "map": "to_apply!:computation dimensions:integers",
    "scan": (
        "to_apply!:computation dimensions!:integers num_carries!:integer "
        "is_reverse:boolean is_associative:boolean"
    ),
    "reduce": "to_apply!:computation dimensions!:integers",
    "reverse": "dimensions!:integers",
    "select-and-scatter": (
        "select!:computation scatter!:computation window:window"
    ),
    "slice": "slice!:slice",
    "dynamic-slice": "dynamic_slice_sizes!:integers",
    "transpose": "dimensions!:integers",
    "batch-norm-training": _NORM,
    "batch-norm-inference": _NORM,
    "batch-norm-grad": _NORM,
    "pad": "padding!:padding",
    "fusion": (
        "calls!:computation kind!:fusion_kind output_to_operand_aliasing:aliasing"
    ),
    "infeed": "infeed_config:string",
    "outfeed": "outfeed_config:string outfeed_shape:shape",
    "rng": "distribution!:word",
    "rng-get-and-update-state": "delta!:integer",
    "rng-bit-generator": "algorithm!:word",
    "reduce-precision": "exponent_bits!:integer mantissa_bits!:integer",
    "conditional": (
        "true_computation:computation false_computation:computation "
        "branch_computations:computations"
    ),
    "custom-call": (
        "custom_call_target!:string window:window dim_labels:dim_labels "
        "feature_group_count:integer batch_group_count:integer "
        "operand_layout_constraints:shapes custom_call_has_side_effect:boolean "
        "to_apply:computation called_computations:computations "
        "output_to_operand_aliasing:aliasing padding_type:word literal:free "
        "operand_precision:precisions schedule:word api_version:word"
    ),
    "dot": f"{_PRODUCT} algorithm:word",
    "ragged-dot": f"{_PRODUCT} lhs_ragged_dims:integers rhs_group_dims:integers",
    "scaled-dot": f"{_PRODUCT} algorithm:word",
    "gather": (
        "offset_dims!:integers collapsed_slice_dims:integers "
        "start_index_map!:integers index_vector_dim!:integer slice_sizes!:integers "
        "indices_are_sorted:boolean operand_batching_dims:integers "
        "start_indices_batching_dims:integers"
    ),
    "scatter": (
        "update_window_dims!:integers inserted_window_dims:integers "
        "scatter_dims_to_operand_dims!:integers index_vector_dim!:integer "
        "to_apply!:computation indices_are_sorted:boolean unique_indices:boolean "
        "input_batching_dims:integers scatter_indices_batching_dims:integers"
    ),
    "domain": "domain!:braces",
    "get-dimension-size": "dimensions!:integers",
    "set-dimension-size": "dimensions!:integers",
}

#: In the header of a module.
HEADER: Final[dict[str, str]] = {
    "is_scheduled": "boolean",
    "replica_count": "integer",
    "num_partitions": "integer",
    "input_output_alias": "input_output_alias",
    "buffer_donor": "buffer_donor",
    "alias_passthrough_params": "boolean",
    "entry_computation_layout": "entry_computation_layout",
    "frontend_attributes": "frontend_attributes",
    "allow_spmd_sharding_propagation_to_parameters": "boolean_or_booleans",
    "allow_spmd_sharding_propagation_to_output": "boolean_or_booleans",
    "origin_recovery_table": "braces",
    "debug_attributes": "braces",
}

#: Kinds of attributes that name computations, and hence not part of a shape's key.
CALLEE_KINDS: Final = frozenset({"computation", "computations"})


def _row(opcode: str) -> tuple[dict[str, str], tuple[str, ...]]:
    kinds: dict[str, str] = {}
    required: list[str] = []
    for entry in _ROWS.get(opcode, "").split():
        name, _, kind = entry.partition(":")
        if name.endswith("!"):
            name = name[:-1]
            required.append(name)
        kinds[name] = kind
    return kinds, tuple(required)


@cache
def own_attributes(opcode: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """(kinds by name, required names) of an opcode, `COMMON` left out.

    A sugared start takes what the opcode that it wraps takes; its update and done take
    no attribute but the thread's.
    """
    if opcode in ARITY or opcode in NATIVE_ASYNC_DONES:
        return _row(opcode)
    inner = wrapped_opcode(opcode)
    thread = {"async_execution_thread": "string"}
    if inner is None or not opcode.endswith("-start"):
        return thread, ()
    kinds, required = _row(inner)
    return {
        **kinds,
        **thread,
        "output_to_operand_aliasing": "aliasing",
    }, required
