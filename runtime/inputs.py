"""Inputs from a seed: finite, of every type, and in range for indices.

    arrays = seeded_inputs(plain, device_count=8, seed=0)     # (devices, *shape) each

A parameter that is used as an index (of a gather, scatter, dynamic-slice or
dynamic-update-slice, also through opcodes that pass values on) is drawn from the valid
positions. One that reaches a square root, a logarithm, a denominator, or a power is
positive, so that an optimizer's second moments and step counts give finite results.
Inputs that must be equal on every device are: integer and pred scalars,
which control loops, and parameters whose sharding is `{replicated}`. Parameters that
are the tables of ragged all-to-alls fit together (`ragged_inputs.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.runtime.dtypes import numpy_dtype
from hlo_passes.runtime.parameter_uses import elements_of_uses, uses
from hlo_passes.runtime.plain.builder import PlainModule
from hlo_passes.runtime.plain.stand_ins import TARGET
from hlo_passes.runtime.plain.values import array_leaves
from hlo_passes.runtime.ragged_inputs import legal_tables

#: Bounds of integers that are not indices: small, so that sums and products stay exact
#: in every type, and loops that count to one of them end soon.
_LOW, _HIGH = -4, 8
#: Bounds of numbers that must be positive, and of such integers.
_POSITIVE_LOW, _POSITIVE_HIGH = 0.25, 1.0
_POSITIVE_FIRST = 1

#: Opcodes that take a positive operand: `divide` its second, `power` both.
_WANT_POSITIVE: Final = frozenset(["sqrt", "rsqrt", "log", "log-plus-one", "power"])

#: Opcodes, beside products and quotients, whose value has the sign of their operands'
#: values.
_KEEP_SIGN: Final = frozenset(
    "add all-gather broadcast clamp concatenate convert copy dynamic-slice "
    "dynamic-update-slice gather maximum minimum pad reduce reduce-precision reshape "
    "reverse select slice sort transpose".split()
)
#: A parameter's values are followed through this many uses at most.
_MOST_USES: Final = 4096

#: Opcodes whose further operands are positions.
_INDEXED: Final = frozenset(["dynamic-slice", "dynamic-update-slice", "gather"])

#: Opcodes whose value consists of their operands' values, element by element or as a
#: part: an index stays an index.
_HANDS_ON: Final = frozenset(
    [
        "convert",
        "reshape",
        "broadcast",
        "transpose",
        "slice",
        "concatenate",
        "pad",
        "reverse",
        "copy",
        "dynamic-slice",
        "gather",
        "select",
        "clamp",
        "add",
        "subtract",
        "minimum",
        "maximum",
        "and",
        "or",
        "bitcast-convert",
        "sort",
    ]
)


def seeded_inputs(
    plain: PlainModule, source: Module, *, device_count: int, seed: int
) -> list[np.ndarray]:
    """One array per parameter leaf, shape (devices, *shape).

    Args:
        plain: the module as it will run.
        source: the module that it was made from; its parameters' shardings are read.
        device_count: replicas x partitions.
        seed: of NumPy's PCG64; equal seeds and signatures give equal arrays.
    """
    shared = _shared_leaves(source)
    tables = legal_tables(plain, source, device_count=device_count, seed=seed)
    arrays = []
    for number, parameter in enumerate(plain.module.entry.parameters):
        shape = parameter.shape
        generator = np.random.Generator(np.random.PCG64([seed, number]))
        is_scalar_switch = not shape.dimensions and _is_discrete(shape)
        limit = _index_limit(parameter) if _is_discrete(shape) else None
        positive = limit is None and _wants_positive(parameter)
        if parameter in tables:
            array = tables[parameter]
        elif shared[number] or is_scalar_switch:
            row = _drawn(generator, shape, shape.dimensions, limit, positive=positive)
            array = np.repeat(row[np.newaxis], device_count, axis=0)
        else:
            dimensions = (device_count, *shape.dimensions)
            array = _drawn(generator, shape, dimensions, limit, positive=positive)
        arrays.append(array)
    return arrays


def _shared_leaves(source: Module) -> list[bool]:
    flags = []
    for parameter in source.entry.parameters:
        is_shared = parameter.attributes.get("sharding") == "{replicated}"
        flags += [is_shared] * len(array_leaves(parameter.shape))
    return flags


def _is_discrete(shape: Shape) -> bool:
    return shape.element_type[0] in "su" or shape.element_type == "pred"


def _drawn(
    generator: np.random.Generator,
    shape: Shape,
    dimensions: tuple[int, ...],
    limit: int | None,
    *,
    positive: bool,
) -> np.ndarray:
    kind = shape.element_type
    dtype = numpy_dtype(kind)
    if kind == "pred":
        return generator.integers(0, 2, dimensions).astype(dtype)
    if _is_discrete(shape):
        bits = int(kind[1:])
        low, high = (0, limit) if limit is not None else (_LOW, _HIGH)
        if positive:
            low = _POSITIVE_FIRST
        if kind[0] == "u":
            low, high = max(low, 0), min(high, 1 << bits)
        else:
            low, high = max(low, -(1 << (bits - 1))), min(high, 1 << (bits - 1))
        return generator.integers(low, max(high, low + 1), dimensions).astype(dtype)
    if kind in ("c64", "c128"):
        real, imaginary = generator.uniform(-1, 1, (2, *dimensions))
        return (real + 1j * imaginary).astype(dtype)
    if kind == "f8e8m0fnu":  # only powers of two
        return np.exp2(generator.integers(-3, 4, dimensions)).astype(dtype)
    low = _POSITIVE_LOW if positive else -1.0
    if kind == "f64":
        return generator.uniform(low, _POSITIVE_HIGH, dimensions)
    # In f32 and in place: the parameters of a real model fill much of the memory.
    values = generator.random(dimensions, np.float32)
    values *= _POSITIVE_HIGH - low
    values += low
    return np.asarray(values).astype(dtype, copy=False)


# -- which parameters are indices ---------------------------------------------


def _index_limit(parameter: Instruction) -> int | None:
    """The least number of positions that the parameter's values select from."""
    limits = list(_limits(parameter))
    return min(limits) if limits else None


def _limits(parameter: Instruction) -> Iterator[int]:
    for value, user in uses(parameter, _heirs):
        yield from _limits_of_use(value, user)


def _limits_of_use(value: Instruction, user: Instruction) -> Iterator[int]:
    operands = user.operands
    if user.opcode == "dynamic-slice":
        sizes = user.integers("dynamic_slice_sizes")
        for dimension, operand in enumerate(operands[1:]):
            if operand is value and not value.shape.dimensions:
                yield operands[0].shape.dimensions[dimension] - sizes[dimension] + 1
    elif user.opcode == "dynamic-update-slice":
        whole, part = operands[0].shape.dimensions, operands[1].shape.dimensions
        for dimension, operand in enumerate(operands[2:]):
            if operand is value and not value.shape.dimensions:
                yield whole[dimension] - part[dimension] + 1
    elif user.opcode == "gather" and operands[1] is value:
        sizes = user.integers("slice_sizes")
        for dimension in user.integers("start_index_map"):
            yield operands[0].shape.dimensions[dimension] - sizes[dimension] + 1
    elif user.opcode == "scatter" and operands[len(operands) // 2] is value:
        for dimension in user.integers("scatter_dims_to_operand_dims"):
            yield operands[0].shape.dimensions[dimension]


def _heirs(value: Instruction, user: Instruction) -> Iterator[Instruction]:
    """Instructions that have the value's elements after this use."""
    if user.opcode in _HANDS_ON:
        if user.opcode in ("gather", "dynamic-slice") and user.operands[0] is not value:
            return
        if user.opcode == "select" and user.operands[0] is value:
            return
        yield user
    elif user.opcode == "tuple":
        for at, operand in enumerate(user.operands):
            if operand is value:
                yield from elements_of_uses(user, at)


# -- which parameters are positive ----------------------------------------------


def _wants_positive(parameter: Instruction) -> bool:
    """Whether a value below zero, or zero, may make a result that is not finite."""
    if parameter.shape.element_type == "pred":
        return False
    found = itertools.islice(uses(parameter, _heirs_of_sign), _MOST_USES)
    return any(_is_wanted_positive(value, user) for value, user in found)


def _is_wanted_positive(value: Instruction, user: Instruction) -> bool:
    if user.opcode == "divide":
        return user.operands[1] is value and user.shape.element_type[0] in "fb"
    return user.opcode in _WANT_POSITIVE


def _heirs_of_sign(value: Instruction, user: Instruction) -> Iterator[Instruction]:
    """Instructions whose sign is that of the value, as far as this use says."""
    opcode, operands = user.opcode, user.operands
    if opcode in _KEEP_SIGN:
        is_index = opcode in _INDEXED and operands[0] is not value
        if not is_index or (opcode == "dynamic-update-slice" and operands[1] is value):
            is_chosen = opcode == "select" and operands[0] is value
            if not is_chosen and not user.shape.is_tuple:
                yield user
    elif opcode == "multiply":
        # A factor that is one number for all elements: a rate, a decay.
        (other,) = [o for o in operands if o is not value] or [value]
        if other is not value and (_is_one_number(other) or _is_one_number(value)):
            yield user
    elif opcode == "divide":
        if operands[0] is value and operands[1] is not value:
            yield user
    elif opcode == "custom-call":
        if user.attributes.get("custom_call_target", "").strip('"') == TARGET:
            yield user
    elif opcode == "tuple":
        yield from _heirs(value, user)


def _is_one_number(value: Instruction) -> bool:
    """Whether all its elements are equal, as far as the text shows."""
    while value.opcode in ("convert", "reshape", "copy") and value.shape.dimensions:
        value = value.operands[0]
    if value.opcode == "broadcast":
        value = value.operands[0]
    return not value.shape.dimensions


def inputs_by_shape(shapes: Sequence[Shape]) -> tuple[str, ...]:
    """A signature: the shapes' texts, without layouts."""
    return tuple(s.text_without_layout for s in shapes)
