"""A fused computation in the form that the cost model walks.

    parameters -> ... -> roots; a root tuple does not count as an instruction

A single instruction that is priced like a fusion (the reduction of an all-reduce) is a
graph of one node.

Source: openxla/xla `hlo/utils/hlo_traversal.cc`, `gpu_fusible.cc` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir import opcodes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import BITS, Shape

#: The width that means "no array at all".
NO_WIDTH = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """The body of a fusion.

    Attributes:
        root: of the computation; a tuple if there are several results.
        roots: the results.
        parameters: by number.
        instructions: operands before users.
    """

    root: Instruction
    roots: tuple[Instruction, ...]
    parameters: tuple[Instruction, ...]
    instructions: tuple[Instruction, ...]

    @staticmethod
    def of(fusion: Instruction) -> FusedGraph:
        """The body of a fusion instruction."""
        body = fusion.called_computations[0]
        return FusedGraph(
            body.root, tuple(_roots(body.root)), body.parameters, post_order(body)
        )

    @property
    def first_result(self) -> Shape:
        """Shape of the first result."""
        shape = self.roots[0].shape
        while shape.is_tuple:
            shape = shape.elements[0]
        return shape

    @property
    def smallest_input_bits(self) -> int:
        """Narrowest array parameter; NO_WIDTH without one."""
        return _smallest(p.shape for p in self.parameters)

    @property
    def smallest_output_bits(self) -> int:
        """Narrowest array result; NO_WIDTH without one."""
        return _smallest(r.shape for r in self.roots)

    def contains(self, instruction: Instruction) -> bool:
        """Whether it is computed inside: true for everything except parameters."""
        return instruction.opcode != "parameter"

    def users(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Users other than the root tuple."""
        return tuple(
            user
            for user in instruction.users
            if not (user is self.root and user.opcode == "tuple")
        )


def _roots(root: Instruction) -> list[Instruction]:
    if root.opcode == "get-tuple-element":
        inner = root.operands[0]
        if inner.opcode == "tuple":
            return _roots(inner.operands[root.tuple_index])
        return [inner]
    if root.opcode == "tuple":
        return [found for operand in root.operands for found in _roots(operand)]
    return [root]


def bit_width(element_type: str) -> int:
    """Bits per element; a pred takes a byte."""
    return BITS[element_type]


def _smallest(shapes) -> int:
    return min(
        (bit_width(s.element_type) for s in shapes if s.is_array), default=NO_WIDTH
    )


def is_elementwise(instruction: Instruction) -> bool:
    """XLA's IsElementwise: one result element comes from one element per operand."""
    opcode = instruction.opcode
    if opcode == "bitcast-convert":
        return bit_width(instruction.shape.element_type) == bit_width(
            instruction.operands[0].shape.element_type
        )
    return opcodes.facts(opcode).is_elementwise


def dimensions_of(instruction: Instruction) -> tuple[int, ...]:
    """The `dimensions` attribute."""
    return instruction.integers("dimensions")


# -- layouts -------------------------------------------------------------------


def minor_to_major(shape: Shape) -> tuple[int, ...]:
    """Dimensions from the fastest to the slowest in memory."""
    assert shape.layout is not None
    return shape.layout.minor_to_major


def normalized_transpose(
    transpose: Instruction,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(result dimensions, permutation) in memory order, with joined dimensions merged.

    Result dimension j is operand dimension permutation[j]. Dimensions of size one are
    dropped, and neighbors that stay neighbors are merged.
    """
    operand, result = transpose.operands[0].shape, transpose.shape
    dimensions = dimensions_of(transpose)
    operand_order = [
        d for d in reversed(minor_to_major(operand)) if operand.dimensions[d] != 1
    ]
    place = {d: k for k, d in enumerate(operand_order)}
    order = [
        (result.dimensions[d], place[dimensions[d]])
        for d in reversed(minor_to_major(result))
        if result.dimensions[d] != 1
    ]
    merged: list[list[int]] = []  # size, first place, last place
    for size, at in order:
        if merged and at == merged[-1][2] + 1:
            merged[-1][0] *= size
            merged[-1][2] = at
        else:
            merged.append([size, at, at])
    ranks = sorted(group[1] for group in merged)
    return (
        tuple(group[0] for group in merged),
        tuple(ranks.index(group[1]) for group in merged),
    )


def transpose_is_bitcast(transpose: Instruction) -> bool:
    """Whether a transpose moves nothing in memory."""
    _, permutation = normalized_transpose(transpose)
    return list(permutation) == sorted(permutation)


def reshape_is_bitcast(reshape: Instruction) -> bool:
    """Whether a reshape moves nothing in memory.

    Dimensions are matched in blocks of equal product, from the slowest on; within a
    block both sides must be laid out in descending order.
    """
    operand, result = reshape.operands[0].shape, reshape.shape
    if 0 in operand.dimensions:
        return True
    return _positions(operand, result) == _positions(result, operand)


def _positions(shape: Shape, other: Shape) -> list[int]:
    """Memory order of the blocks that the dimensions of two shapes form."""
    blocks = _blocks(shape.dimensions, other.dimensions)
    block_of = {d: k for k, block in enumerate(blocks) for d in block}
    seen: list[int] = []
    last: dict[int, int] = {}
    for d in reversed(minor_to_major(shape)):
        if shape.dimensions[d] == 1 or d not in block_of:
            continue
        block = block_of[d]
        if seen and seen[-1] == block and d > last[block]:
            last[block] = d
            continue
        seen.append(block)
        last[block] = d
    return seen


def _blocks(dims: tuple[int, ...], other: tuple[int, ...]) -> list[list[int]]:
    """Dimensions of `dims`, cut where its running product equals one of `other`'s."""
    borders, product = set(), 1
    for size in other:
        product *= size
        borders.add(product)
    blocks: list[list[int]] = [[]]
    product = 1
    for d, size in enumerate(dims):
        if size == 1:
            continue
        product *= size
        blocks[-1].append(d)
        if product in borders:
            blocks.append([])
    return [block for block in blocks if block]
