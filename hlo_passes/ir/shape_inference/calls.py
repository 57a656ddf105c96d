"""tuple, get-tuple-element, call, while, conditional and opcodes with tokens.

    (s32[], f32[8]) while((s32[], f32[8])), condition=%c, body=%b

Source: openxla/xla `xla/service/shape_inference.cc`, `hlo_verifier.cc`.
"""

from __future__ import annotations

from hlo_passes.ir.shape_inference.compare import compatible
from hlo_passes.ir.shape_inference.query import Query
from hlo_passes.ir.shapes import TOKEN, Shape, array_shape, tuple_shape

_PRED = array_shape("pred")
_U32 = array_shape("u32")
_STATE = array_shape("u64", (2,))


def tuple_(query: Query) -> Shape:
    """A tuple of the operands' shapes."""
    return tuple_shape(tuple(query.operands))


def get_tuple_element(query: Query) -> Shape:
    """Element index= of a tuple."""
    shape, index = query.operand(0), query.integer("index")
    if not shape.is_tuple:
        query.fail(f"takes a tuple, not {shape}")
    if not 0 <= index < len(shape.elements):
        query.fail(f"{shape} has no element {index}")
    return shape.elements[index]


def device_number(query: Query) -> Shape:
    """partition-id and replica-id: u32[]."""
    return _U32


def token(query: Query) -> Shape:
    """after-all, send-done: a token."""
    return TOKEN


def call(query: Query) -> Shape:
    """The callee's result; operands as its parameters."""
    signature = query.callee()
    if len(signature.parameters) != len(query.operands):
        query.fail(
            f"its computation takes {len(signature.parameters)} parameters, it has "
            f"{len(query.operands)} operands"
        )
    for k, parameter in enumerate(signature.parameters):
        if not compatible(query.operand(k), parameter):
            query.fail(f"operand {k} is {query.operand(k)}, parameter {parameter}")
    return signature.result


def while_(query: Query) -> Shape:
    """Body and condition take the operand; the body returns it, the other pred[]."""
    body, condition = query.callee(0), query.callee(1)
    state = query.operand(0)
    for name, signature in (("body", body), ("condition", condition)):
        if len(signature.parameters) != 1:
            query.fail(f"its {name} takes {len(signature.parameters)} parameters")
        if not compatible(signature.parameters[0], state):
            query.fail(f"its {name} takes {signature.parameters[0]}, not {state}")
    if not compatible(condition.result, _PRED):
        query.fail(f"its condition returns {condition.result}, not pred[]")
    if not compatible(body.result, state):
        query.fail(f"its body returns {body.result}, not {state}")
    return body.result


def conditional(query: Query) -> Shape:
    """(selector, one operand per branch): what all branches return."""
    selector = query.operand(0)
    if not selector.is_scalar or selector.element_type not in ("pred", "s32"):
        query.fail(f"the selector must be pred[] or s32[], it is {selector}")
    branches = query.callees
    if not branches or (selector.element_type == "pred" and len(branches) != 2):
        query.fail(f"{len(branches)} branches for {selector}")
    if len(query.operands) != len(branches) + 1:
        query.fail(f"{len(query.operands) - 1} operands for {len(branches)} branches")
    for k, branch in enumerate(branches):
        if len(branch.parameters) != 1:
            query.fail(f"branch {k} takes {len(branch.parameters)} parameters")
        if not compatible(branch.parameters[0], query.operand(k + 1)):
            query.fail(
                f"branch {k} takes {branch.parameters[0]}, not {query.operand(k + 1)}"
            )
        if not compatible(branch.result, branches[0].result):
            query.fail(f"branch {k} returns {branch.result}, branch 0 another shape")
    return branches[0].result


def add_dependency(query: Query) -> Shape:
    """(value, token): the value."""
    if query.operand(1) is not TOKEN and not query.operand(1).is_token:
        query.fail(f"operand 1 must be a token, it is {query.operand(1)}")
    return query.operand(0)


def infeed(query: Query) -> Shape:
    """(data, token) from a token."""
    result = query.result()
    if not query.operand(0).is_token:
        query.fail(f"operand 0 must be a token, it is {query.operand(0)}")
    if not result.is_tuple or len(result.elements) != 2:
        query.fail(f"returns (data, token[]), not {result}")
    return tuple_shape((result.elements[0], TOKEN))


def outfeed(query: Query) -> Shape:
    """A token from (data, token)."""
    if not query.operand(1).is_token:
        query.fail(f"operand 1 must be a token, it is {query.operand(1)}")
    return TOKEN


def rng(query: Query) -> Shape:
    """The declared array, of the two scalar operands' type."""
    result, low, high = query.result(), query.array(0), query.array(1)
    if len(query.operands) != 2 or low.rank or high.rank:
        query.fail("takes two scalars")
    if low.element_type != high.element_type:
        query.fail(f"operands of different types, {low} and {high}")
    expected = Shape(low.element_type, result.dimensions)
    if not compatible(result, expected, any_precision=True):
        query.fail(f"makes {low.element_type}, not {result}")
    kind, distribution = low.element_type, query.text("distribution")
    if distribution not in ("rng_uniform", "rng_normal"):
        query.fail(f"distribution {distribution} is none")
    if distribution == "rng_normal" and kind[0] not in "fb":
        query.fail(f"rng_normal does not take {kind}")
    if kind in ("c64", "c128"):
        query.fail(f"does not take {kind}")
    return result


def rng_bit_generator(query: Query) -> Shape:
    """The declared array, or (state, array) with the operand's state."""
    result = query.result()
    if result.is_tuple and (
        len(result.elements) != 2
        or not compatible(result.elements[0], query.operand(0))
    ):
        query.fail(f"returns {result} from state {query.operand(0)}")
    return result


def rng_state(query: Query) -> Shape:
    """rng-get-and-update-state: u64[2]."""
    return _STATE


def copy_start(query: Query) -> Shape:
    """(destination, source, u32[]), each of the operand's shape."""
    shape = query.operand(0)
    return tuple_shape((shape, shape, _U32))


def copy_done(query: Query) -> Shape:
    """Element 0 of the start, whose shape is that of element 1."""
    shape = query.operand(0)
    if not shape.is_tuple or len(shape.elements) < 2:
        query.fail(f"takes (destination, source, u32[]), not {shape}")
    if not compatible(shape.elements[0], shape.elements[1]):
        query.fail("destination and source differ in shape")
    return shape.elements[0]


def send(query: Query) -> Shape:
    """(data, u32[], token[])."""
    return tuple_shape((query.operand(0), _U32, TOKEN))


def recv(query: Query) -> Shape:
    """(data, u32[], token[]); the data is the declared one."""
    result = query.result()
    if not result.is_tuple or not result.elements:
        query.fail(f"returns (data, u32[], token[]), not {result}")
    return tuple_shape((result.elements[0], _U32, TOKEN))


def recv_done(query: Query) -> Shape:
    """(data, token[])."""
    shape = query.operand(0)
    if not shape.is_tuple or not shape.elements:
        query.fail(f"takes what recv returns, not {shape}")
    return tuple_shape((shape.elements[0], TOKEN))
