"""Result shapes: `infer_shape` and its table of rules.

    infer_shape("add", [f32[8], f32[8]], {}, [])  ->  f32[8]

The reader asks for shapes that the text leaves out; the verifier asks for all of them
and compares. Both go through `RULES`, one row per opcode. Opcodes whose result the
operands do not determine look at the declared shape and return what it should be.
Collectives and asynchronous pairs depend on groups and partners: see `verify`. Source:
openxla/xla `xla/service/shape_inference.cc`, `hlo_verifier.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_passes.ir.opcodes import ROWS, VARIADIC
from hlo_passes.ir.shape_inference import (
    calls,
    contractions,
    elementwise,
    indexing,
    reductions,
    reshaping,
    windowed,
)
from hlo_passes.ir.shape_inference.compare import compatible
from hlo_passes.ir.shape_inference.query import (
    Query,
    ShapeError,
    Signature,
    signature_of,
)
from hlo_passes.ir.shapes import Shape

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation

__all__ = [
    "RULES",
    "Query",
    "ShapeError",
    "Signature",
    "compatible",
    "infer_shape",
    "result_shape",
    "signature_of",
]

Rule = Callable[[Query], Shape]

_BINARY: Final = (
    "add and atan2 compare complex divide maximum minimum mulhi multiply or power "
    "remainder shift-left shift-right-arithmetic shift-right-logical subtract xor"
)

#: The rule for the result shape of each opcode. These have none: constant, parameter,
#: custom-call, fusion, bitcast (free), collectives and async pairs (see `verify`),
#: unknown opcodes.
RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(elementwise.UNARY_TYPES, elementwise.unary),
    **dict.fromkeys(_BINARY.split(), elementwise.binary),
    **dict.fromkeys(("copy", "domain", "opt-barrier"), elementwise.same_as_operand),
    "clamp": elementwise.clamp,
    "select": elementwise.select,
    "convert": elementwise.convert,
    "stochastic-convert": elementwise.stochastic_convert,
    "reduce-precision": elementwise.reduce_precision,
    "bitcast-convert": elementwise.bitcast_convert,
    "broadcast": reshaping.broadcast,
    "reshape": reshaping.reshape,
    "dynamic-reshape": reshaping.dynamic_reshape,
    "transpose": reshaping.transpose,
    "reverse": reshaping.reverse,
    "concatenate": reshaping.concatenate,
    "slice": reshaping.slice_,
    "dynamic-slice": reshaping.dynamic_slice,
    "dynamic-update-slice": reshaping.dynamic_update_slice,
    "pad": reshaping.pad,
    "iota": reshaping.iota,
    "get-dimension-size": reshaping.get_dimension_size,
    "set-dimension-size": reshaping.set_dimension_size,
    "reduce": reductions.reduce,
    "reduce-window": reductions.reduce_window,
    "select-and-scatter": reductions.select_and_scatter,
    "map": reductions.map_,
    "sort": reductions.sort,
    "topk": reductions.topk,
    "scan": reductions.scan,
    "dot": contractions.dot,
    "scaled-dot": contractions.scaled_dot,
    "ragged-dot": contractions.ragged_dot,
    "fft": contractions.fft,
    "cholesky": contractions.cholesky,
    "triangular-solve": contractions.triangular_solve,
    "batch-norm-training": contractions.batch_norm,
    "batch-norm-inference": contractions.batch_norm,
    "batch-norm-grad": contractions.batch_norm,
    "convolution": windowed.convolution,
    "gather": indexing.gather,
    "scatter": indexing.scatter,
    "tuple": calls.tuple_,
    "get-tuple-element": calls.get_tuple_element,
    "partition-id": calls.device_number,
    "replica-id": calls.device_number,
    "after-all": calls.token,
    "send-done": calls.token,
    "call": calls.call,
    "while": calls.while_,
    "conditional": calls.conditional,
    "add-dependency": calls.add_dependency,
    "infeed": calls.infeed,
    "outfeed": calls.outfeed,
    "rng": calls.rng,
    "rng-bit-generator": calls.rng_bit_generator,
    "rng-get-and-update-state": calls.rng_state,
    "copy-start": calls.copy_start,
    "copy-done": calls.copy_done,
    "send": calls.send,
    "recv": calls.recv,
    "recv-done": calls.recv_done,
}

#: The text must give the shape of these although a rule could find it, as in XLA.
_ALWAYS_GIVEN: Final = (
    "convert stochastic-convert bitcast-convert reduce-precision reshape "
    "dynamic-reshape slice dynamic-slice dynamic-update-slice iota copy-start "
    "copy-done send send-done recv recv-done infeed outfeed rng rng-bit-generator "
    "rng-get-and-update-state topk scan domain "
    "opt-barrier"
)


def result_shape(query: Query) -> Shape | None:
    """The shape that an instruction must have; None where no rule determines it.

    Raises ShapeError (V400) when operands, attributes and callees do not fit.
    """
    rule = RULES.get(query.opcode)
    if rule is None:
        return None
    arity = ROWS[query.opcode].arity
    if arity not in (VARIADIC, len(query.operands)):
        query.fail(f"takes {arity} operands, but it has {len(query.operands)}")
    return rule(query)


def infer_shape(
    opcode: str,
    operand_shapes: Sequence[Shape],
    instruction_attributes: Mapping[str, str],
    callees: Sequence[Computation] = (),
) -> Shape:
    """The result shape of an instruction whose text leaves it out.

    Args:
        opcode: as printed.
        operand_shapes: in operand order.
        instruction_attributes: texts by name.
        callees: called computations, in XLA's order (while: body, condition).

    Raises:
        ShapeError: V400 the operands do not fit, V401 the opcode has no inference.
    """
    if opcode not in RULES or opcode in _ALWAYS_GIVEN.split():
        raise ShapeError(
            f"{opcode} has no shape inference",
            code="V401",
            hint=f"write the shape before {opcode}",
        )
    shape = result_shape(
        Query(
            opcode,
            tuple(operand_shapes),
            instruction_attributes,
            tuple(map(signature_of, callees)),
        )
    )
    if shape is None:
        raise ShapeError(f"{opcode} has no shape inference", code="V401")
    return shape
