"""Checks of declared against required shapes; each distinct question is asked once.

    V400 operands or attributes do not fit   V403 layout does not order the dimensions
    V402 declared shape is not the result's  V404 the literal does not fit the shape
                                          V405 dimension without bound

A question is (opcode, shapes, relevant attributes, callees' signatures, devices); the
answer depends on nothing else, so it is kept across instructions and modules. As
between any two passes of XLA, layouts are not compared, and floating precisions may
differ unless an opcode only passes values on. Source: openxla/xla
`hlo_verifier.cc` (ShapeVerifier).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.ir.attribute_tables import (
    COMMON_ATTRIBUTES,
    attribute_kind,
    opcode_attributes,
)
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shape_inference import (
    Query,
    Signature,
    compatible,
    result_shape,
)
from hlo_passes.ir.shapes import UNBOUNDED, Shape
from hlo_passes.verify.collectives import COLLECTIVE_RULES
from hlo_passes.verify.finding import Fault
from hlo_passes.verify.groups import Devices

#: Opcodes that pass values on: their element types must be equal.
_HANDED_ON: Final = (
    "call conditional copy-done copy-start get-tuple-element infeed outfeed "
    "opt-barrier recv recv-done send send-done tuple while"
)
_EXACT: Final = frozenset(_HANDED_ON.split())

_NO_FAULT: Final[tuple[Fault, ...]] = ()
_REMEMBERED: Final = 200_000
_answers: dict[tuple[object, ...], tuple[Fault, ...]] = {}


@cache
def shape_attributes(opcode: str) -> tuple[str, ...]:
    """The attributes that a shape may depend on."""
    return tuple(
        name
        for name in opcode_attributes(opcode)
        if name not in COMMON_ATTRIBUTES
        and attribute_kind(name, opcode) not in ("computation", "names", "string")
    )


@cache
def has_rule(opcode: str) -> bool:
    """Whether there is a rule for an opcode."""
    return opcode in COLLECTIVE_RULES or result_shape_known(opcode)


@cache
def result_shape_known(opcode: str) -> bool:
    """Whether `shape_inference` has a rule for the opcode."""
    from hlo_passes.ir.shape_inference import RULES

    return opcode in RULES


def check_shape(
    opcode: str,
    shape: Shape,
    operands: tuple[Shape, ...],
    attributes: Mapping[str, str],
    callees: tuple[Signature, ...],
    devices: Devices,
) -> tuple[Fault, ...]:
    """What is wrong with the shapes of one instruction; () if they are correct."""
    get = attributes.get
    relevant = tuple([get(name) for name in shape_attributes(opcode)])
    key = (opcode, shape, operands, relevant, callees, devices)
    answer = _answers.get(key)
    if answer is None:
        if len(_answers) >= _REMEMBERED:
            _answers.clear()
        answer = _answers[key] = _check(
            Query(opcode, operands, attributes, callees, shape), devices
        )
    return answer


def _check(query: Query, devices: Devices) -> tuple[Fault, ...]:
    opcode, shape = query.opcode, query.declared
    assert shape is not None
    try:
        rule = COLLECTIVE_RULES.get(opcode)
        expected = rule(query, devices) if rule else result_shape(query)
    except HloError as problem:
        return (Fault("V400", problem.message, problem.hint),)
    if expected is None:
        return _NO_FAULT
    if compatible(shape, expected, any_precision=opcode not in _EXACT):
        return _NO_FAULT
    return (
        Fault(
            "V402",
            f"{opcode} makes {expected.text_without_layout}, not "
            f"{shape.text_without_layout}",
        ),
    )


def check_wrapped(
    start_opcode: str,
    operands: tuple[Shape, ...],
    result: Shape,
    attributes: Mapping[str, str],
    callees: tuple[Signature, ...],
    devices: Devices,
) -> tuple[Fault, ...]:
    """What is wrong with the operation inside a sugared start."""
    start = facts(start_opcode)
    if not start.is_sugar:
        return _NO_FAULT
    return check_shape(start.work, result, operands, attributes, callees, devices)


@lru_cache(maxsize=_REMEMBERED)
def shape_faults(shape: Shape) -> tuple[Fault, ...]:
    """What is wrong with a shape by itself, wherever it occurs."""
    faults: list[Fault] = []
    for _, leaf in shape.leaves():
        if UNBOUNDED in leaf.dimensions:
            faults.append(
                Fault(
                    "V405", f"{leaf.text_without_layout} has a dimension without bound"
                )
            )
        layout = leaf.layout
        if layout is None:
            continue
        if sorted(layout.minor_to_major) != list(range(leaf.rank)):
            faults.append(
                Fault(
                    "V403",
                    f"the layout of {leaf} is not an order of {leaf.rank} dimensions",
                )
            )
    return tuple(faults)
