"""The parts of a computation that fusions of elementwise instructions may divide.

    %b = f32[8,4] broadcast(%c), dimensions={}     free: needs no scratch
    %m = f32[8,4] multiply(%x, %b)                 0: reads %x, which is an input
    %e = f32[8,4] exponential(%m)                  1: reads 0
    %d = f32[4,4] dot(%e, %w), ...                 outside: it wants 1 in memory

The instructions of a part hang together by what they read of each other, and have one
size, layout, sharding and frontend attributes; `levels.py` says which may be together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.ir.shapes import Layout, Shape
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.scheduler.fusions.fused_graph import bit_width
from hlo_passes.scheduler.scratch_fusion.levels import Key, blocks_of

#: Elementwise opcodes that stay: a copy is there for the sake of its buffer, and a map
#: calls another computation.
_LEFT_ALONE: Final = frozenset({"copy", "map"})
#: What a fusion takes over from its instructions, so that they must agree.
_EQUAL: Final = ("sharding", "frontend_attributes")

#: A set of values of a part.
Numbers: TypeAlias = "frozenset[int]"


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Elementwise instructions that may be fused with each other.

    Values are numbered: those that the part computes, then its inputs. What a part
    tells of one instruction or value has the length of its edges, so that a part may
    have a million.

    Attributes:
        nodes: the instructions, operands first.
        inputs: arrays that they read and that are computed elsewhere.
        operands: of each instruction, as they were found.
        reads: values that each instruction reads, from the smallest number on.
        readers: instructions that read each value, from the smallest number on.
        bits: per element of each value.
        kept: instructions that something outside of the part reads, or nothing.
    """

    nodes: tuple[Instruction, ...]
    inputs: tuple[Instruction, ...]
    operands: tuple[tuple[Instruction, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    readers: tuple[tuple[int, ...], ...]
    bits: tuple[int, ...]
    kept: Numbers

    @property
    def everything(self) -> Numbers:
        """All instructions."""
        return frozenset(range(len(self.nodes)))

    @property
    def shape(self) -> Shape:
        """Of some instruction; they differ in element types alone."""
        return self.nodes[0].shape

    def has_free_operands(self, node: int) -> bool:
        """Whether an instruction reads anything that needs no scratch."""
        return any(is_free(o, self.shape) for o in self.operands[node])

    def is_computed(self, value: int) -> bool:
        """Whether a value is one of the instructions, and no input."""
        return value < len(self.nodes)

    def loads(self, nodes: Numbers) -> Numbers:
        """Values that instructions read and do not compute."""
        reads = self.reads
        return frozenset(v for node in nodes for v in reads[node] if v not in nodes)

    def loads_of_others(self, nodes: Numbers) -> Numbers:
        """Those of them that the part computes."""
        return frozenset(filter(self.is_computed, self.loads(nodes)))


def reason_to_stay(instruction: Instruction) -> str:
    """Why an elementwise instruction cannot be fused, for remarks."""
    if has_control_edges(instruction):
        return "has control edges"
    unknown = unknown_attribute(instruction)
    return f"has an attribute that XLA does not know: {unknown}" if unknown else ""


def is_candidate(instruction: Instruction) -> bool:
    """Whether it goes element by element over arrays of one size and layout."""
    shape, opcode = instruction.shape, instruction.opcode
    return (
        facts(opcode).is_elementwise
        and opcode not in _LEFT_ALONE
        and not shape.is_scalar
        and _is_plain(shape)
        and all(
            o.shape.is_scalar or _is_alike(o.shape, shape) for o in instruction.operands
        )
    )


def is_free(instruction: Instruction, shape: Shape) -> bool:
    """Whether a fusion has it without scratch: the same value everywhere, or an iota.

    Args:
        instruction: an operand.
        shape: of who reads it.
    """
    if instruction.shape.is_scalar:
        return True
    opcode = instruction.opcode
    return (
        (
            opcode == "iota"
            or (opcode == "broadcast" and instruction.operands[0].shape.is_scalar)
        )
        and _is_alike(instruction.shape, shape)
        and not reason_to_stay(instruction)
    )


def _is_plain(shape: Shape) -> bool:
    """Whether it is an array of which only the order in memory can matter."""
    layout = shape.layout
    return (
        shape.is_array
        and not shape.is_dynamic
        and 0 not in shape.dimensions
        and (layout is None or layout == Layout(layout.minor_to_major))
    )


def _is_alike(shape: Shape, other: Shape) -> bool:
    return (
        shape.is_array
        and not shape.is_dynamic
        and shape.dimensions == other.dimensions
        and shape.layout == other.layout
    )


def parts_of(computation: Computation) -> list[Part]:
    """All parts of a computation with something to fuse, in the order of their text."""
    order = post_order(computation)
    keys = {i: _key(i) for i in order if is_candidate(i) and not reason_to_stay(i)}
    blocks = blocks_of(order, keys)
    position = {instruction: k for k, instruction in enumerate(order)}
    found: list[Part] = []
    for instruction in computation.instructions:
        block = blocks.get(instruction)
        if not block:
            continue
        part = _part(sorted(block, key=position.__getitem__))
        block.clear()  # it is found once
        if len(part.nodes) > 1 or part.has_free_operands(0):
            found.append(part)
    return found


def _key(instruction: Instruction) -> Key:
    shape = instruction.shape
    equal = tuple(instruction.attributes.get(name) for name in _EQUAL)
    return shape.dimensions, shape.layout, equal


def _part(nodes: Sequence[Instruction]) -> Part:
    shape, own = nodes[0].shape, set(nodes)
    arrays = dict.fromkeys(
        operand
        for node in nodes
        for operand in node.operands
        if not is_free(operand, shape)
    )
    inputs = tuple(array for array in arrays if array not in own)
    number = {value: k for k, value in enumerate((*nodes, *inputs))}
    reads: list[tuple[int, ...]] = []
    readers: list[list[int]] = [[] for _ in number]
    kept: list[int] = []
    for k, node in enumerate(nodes):
        read = {number[o] for o in node.operands if o in number}
        reads.append(tuple(sorted(read)))
        for value in reads[-1]:
            readers[value].append(k)
        is_read = any(user not in own for user in node.users)
        if is_read or node.is_root or not node.users:
            kept.append(k)
    return Part(
        tuple(nodes),
        inputs,
        tuple(node.operands for node in nodes),
        tuple(reads),
        tuple(map(tuple, readers)),
        tuple(bit_width(v.shape.element_type) for v in number),
        frozenset(kept),
    )
