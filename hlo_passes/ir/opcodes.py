"""One row per opcode: arity and role.

Source of the names and arities: openxla/xla `xla/hlo/ir/hlo_opcode.h` (Aug 2026).
Opcodes are plain strings in the IR; an opcode that has no row is unknown, which the
reader keeps, the verifier reports and passes leave alone.

    reduce-scatter-start(...)     sugar for async-start around one reduce-scatter

`X-start`, `X-update` and `X-done` without a row of their own are such sugar.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

VARIADIC: Final = -1

_ZERO = "constant parameter iota partition-id replica-id rng-get-and-update-state"
_UNARY_ELEMENTWISE = (
    "abs acos acosh asin asinh atanh cbrt ceil cosine cosh count-leading-zeros erf "
    "exponential exponential-minus-one floor imag is-finite log log-plus-one logistic "
    "negate not popcnt real round-nearest-afz round-nearest-even rsqrt sign sine sinh "
    "sqrt tan tanh bitcast-convert convert copy reduce-precision"
)
_UNARY = (
    "all-gather-done all-reduce-done async-done batch-norm-none bitcast broadcast "
    "cholesky collective-permute-done copy-done copy-start domain fft "
    "get-dimension-size get-tuple-element infeed opt-barrier recv recv-done reshape "
    "reverse rng-bit-generator send-done slice topk transpose while"
)
_BINARY_ELEMENTWISE = (
    "add and atan2 compare complex divide maximum minimum mulhi multiply or power "
    "remainder shift-left shift-right-arithmetic shift-right-logical "
    "stochastic-convert subtract xor"
)
_BINARY = (
    "add-dependency convolution dot gather outfeed pad send set-dimension-size "
    "triangular-solve"
)
_TERNARY_ELEMENTWISE = "clamp select"
_VARIADIC = (
    "after-all all-gather all-gather-start all-reduce all-reduce-start all-to-all "
    "async-start async-update call collective-broadcast collective-permute "
    "collective-permute-start concatenate conditional custom-call dynamic-reshape "
    "dynamic-slice dynamic-update-slice fusion map reduce reduce-scatter "
    "reduce-window rng scan scatter sort tuple"
)

#: Number of operands by opcode, `VARIADIC` where it is free.
ARITY: Final[dict[str, int]] = {
    **dict.fromkeys(_ZERO.split(), 0),
    **dict.fromkeys(_UNARY_ELEMENTWISE.split(), 1),
    **{o: 1 for o in _UNARY.split() if o != "batch-norm-none"},
    **dict.fromkeys(_BINARY_ELEMENTWISE.split(), 2),
    **dict.fromkeys(_BINARY.split(), 2),
    **dict.fromkeys(_TERNARY_ELEMENTWISE.split(), 3),
    "batch-norm-grad": 5,
    "batch-norm-inference": 5,
    "batch-norm-training": 3,
    "ragged-all-to-all": 6,
    "ragged-dot": 3,
    "scaled-dot": 4,
    "select-and-scatter": 3,
    **dict.fromkeys(_VARIADIC.split(), VARIADIC),
}

#: Opcodes that work element by element on operands of one shape.
ELEMENTWISE: Final = frozenset(
    _UNARY_ELEMENTWISE.split()
    + _BINARY_ELEMENTWISE.split()
    + _TERNARY_ELEMENTWISE.split()
    + ["map"]
)

#: Elementwise binary opcodes whose operands may be swapped.
COMMUTATIVE: Final = frozenset("add multiply mulhi maximum minimum and or xor".split())

#: The synchronous collectives, and which of them have a start and done of their own.
SYNC_COLLECTIVES: Final = frozenset(
    "all-reduce all-gather reduce-scatter all-to-all ragged-all-to-all "
    "collective-permute collective-broadcast".split()
)
NATIVE_ASYNC: Final = frozenset("all-reduce all-gather collective-permute".split())
NATIVE_ASYNC_STARTS: Final = frozenset(f"{kind}-start" for kind in NATIVE_ASYNC)
NATIVE_ASYNC_DONES: Final = frozenset(f"{kind}-done" for kind in NATIVE_ASYNC)

#: Communication between devices, in any form except sugar (see `wrapped_opcode`).
COLLECTIVES: Final = SYNC_COLLECTIVES | NATIVE_ASYNC_STARTS
POINT_TO_POINT: Final = frozenset("send send-done recv recv-done".split())

#: Attributes that name computations, in the order in which XLA lists the callees.
CALLEE_ATTRIBUTES: Final = (
    "body",
    "condition",
    "to_apply",
    "calls",
    "select",
    "scatter",
    "true_computation",
    "false_computation",
    "branch_computations",
    "called_computations",
)

_ASYNC_SUFFIXES: Final = ("-start", "-update", "-done")

#: Opcodes whose asynchronous form is remembered; a text may hold any words.
_REMEMBERED: Final = 1024


def is_known(opcode: str) -> bool:
    """Whether XLA knows the opcode, `X-start/-update/-done` sugar included."""
    return opcode in ARITY or wrapped_opcode(opcode) is not None


@lru_cache(maxsize=_REMEMBERED)
def async_role(opcode: str) -> str | None:
    """'start', 'update' or 'done' for every asynchronous opcode, else None.

    Covers native pairs, copy-start/done, `async-*` and sugar; send and recv and their
    dones are not included.
    """
    if opcode in ("send-done", "recv-done"):
        return None
    for suffix in _ASYNC_SUFFIXES:
        if opcode.endswith(suffix) and (
            opcode in ARITY or wrapped_opcode(opcode) is not None
        ):
            return suffix[1:]
    return None


@lru_cache(maxsize=_REMEMBERED)
def wrapped_opcode(opcode: str) -> str | None:
    """The opcode that async sugar wraps: 'reduce-scatter-start' -> 'reduce-scatter'.

    None for anything that is an opcode of its own (all-gather-start, copy-done,
    async-start ...) and for unknown words.
    """
    if opcode in ARITY:
        return None
    for suffix in _ASYNC_SUFFIXES:
        if opcode.endswith(suffix):
            inner = opcode[: -len(suffix)]
            return inner if inner in ARITY else None
    return None
