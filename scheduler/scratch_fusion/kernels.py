"""Fusions of a part: their bodies, and their prices by the model of XLA's kernels.

%fused_e (param_0: f32[8,4]) -> f32[8,4] {
  %param_0 = f32[8,4] parameter(0)
  %c.1 = f32[] constant(2)
  %b.1 = f32[8,4] broadcast(%c.1), dimensions={}
  %m.1 = f32[8,4] multiply(%param_0, %b.1)
  ROOT %e.1 = f32[8,4] exponential(%m.1)
}
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.passes.rewriting.cloning import clone_instruction
from hlo_passes.scheduler.fusions.instruction_time import instruction_ticks
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.latency.data_tables import DEFAULT_OP_PROFILE, op_cycles
from hlo_passes.scheduler.scratch_fusion.parts import Numbers, Part, is_free
from hlo_passes.scheduler.scratch_fusion.scratch import (
    bits_in_order,
    bits_of,
    narrowest_order,
)

_BITS_PER_BYTE: Final = 8
#: Orders of evaluation that are followed at a time, where not all are.
STATES_FOLLOWED: Final = 16
#: Prices, and orders of a part, that are kept: a large part asks for many once.
_MOST_KEPT: Final = 1 << 14

#: Ticks, kernels, and instructions of all of them; less is better.
Cost: TypeAlias = "tuple[int, int, int]"

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What one kernel computes: a fusion, or an instruction as it is.

    Attributes:
        nodes: instructions that it computes.
        outputs: those that it writes to memory.
        ticks: its price.
        is_fusion: false for an instruction as it is.
    """

    nodes: Numbers
    outputs: Numbers
    ticks: int
    is_fusion: bool

    @property
    def cost(self) -> Cost:
        """What there should be less of."""
        return self.ticks, 1, len(self.nodes)


def added(one: Cost, other: Cost) -> Cost:
    """The cost of two kernels, or of more."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


@dataclass(slots=True)
class Prices:
    """Prices of fusions on one GPU; equal fusions are priced once."""

    target: Target
    _known: dict[Hashable, int] = field(default_factory=dict)

    def plain(self, instruction: Instruction) -> int:
        """Ticks of an instruction that is a kernel of its own."""
        return instruction_ticks(
            instruction, self.target, op_cycles(DEFAULT_OP_PROFILE)
        )

    def fused(self, part: Part, nodes: Numbers, outputs: Numbers) -> int:
        """Ticks of a fusion."""
        order = tuple(sorted(nodes))
        key = likeness(part, order, outputs)
        known = self._known.get(key)
        if known is None:
            module = Module("price")
            owner = Computation("owner")
            module.add_computation(owner)

            def read(value: Instruction) -> Instruction:
                number = str(len(owner.instructions))
                return owner.new("parameter", value.shape, literal=number)

            fusion = write_fusion(part, order, outputs, owner, read)
            known = self.plain(fusion)
            _keep(self._known, key, known)
        return known


@dataclass(slots=True)
class Kernels:
    """The kernels that a part may be divided into.

    Attributes:
        part: the part.
        prices: of fusions.
        scratch_bits: for one element of a tile.
        most_states: as in `narrowest_order`.
        order: of the part's instructions, in which a fusion of some may be evaluated if
            none is found that needs less.
    """

    part: Part
    prices: Prices
    scratch_bits: int
    most_states: int | None = None
    order: Sequence[int] = ()
    _place: dict[int, int] = field(default_factory=dict)
    _narrowest: dict[Numbers, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def lay_out(self) -> None:
        """Follow few orders from now on, and find one of the whole part."""
        self.most_states = STATES_FOLLOWED
        self.order = self.narrowest(self.part.everything)[1]
        self._place = {node: k for k, node in enumerate(self.order)}

    def narrowest(self, nodes: Numbers) -> tuple[int, tuple[int, ...]]:
        """Bits per element of a fusion, and its order; see `narrowest_order`."""
        known = self._narrowest.get(nodes)
        if known is None:
            known = narrowest_order(self.part, nodes, self.most_states)
            if self.order and known[0] > self.scratch_bits:
                order = tuple(self._in_order(nodes))
                known = min(known, (bits_in_order(self.part, order), order))
            _keep(self._narrowest, nodes, known)
        return known

    def fits(self, nodes: Numbers) -> bool:
        """Whether a fusion of these instructions fits into the scratch."""
        part, most = self.part, self.scratch_bits
        return (
            bits_of(part, nodes | part.loads(nodes)) <= most
            or (bool(self.order) and bits_in_order(part, self._in_order(nodes)) <= most)
            or self.narrowest(nodes)[0] <= most
        )

    def _in_order(self, nodes: Numbers) -> list[int]:
        return sorted(nodes, key=self._place.__getitem__)

    def plain(self, node: int) -> Kernel:
        """An instruction as it is."""
        ticks = self.prices.plain(self.part.nodes[node])
        alone = frozenset((node,))
        return Kernel(alone, alone, ticks, is_fusion=False)

    def kernel(self, nodes: Numbers, outputs: Numbers) -> Kernel | None:
        """The cheaper one of what can compute these instructions; None if none can."""
        plain = None
        if len(nodes) == 1:
            (node,) = nodes
            plain = self.plain(node)
            if not self.part.has_free_operands(node):
                return plain
        if not self.fits(nodes):
            return plain
        ticks = self.prices.fused(self.part, nodes, outputs)
        if plain is not None and plain.ticks <= ticks:
            return plain
        return Kernel(nodes, outputs, ticks, is_fusion=True)


def _keep(known: dict[_Key, _Answer], key: _Key, answer: _Answer) -> None:
    """Keep an answer, and not too many of them."""
    if len(known) >= _MOST_KEPT:
        known.clear()
    known[key] = answer


def scratch_bits(part: Part, scratch_bytes: int, tile_elements: int) -> int:
    """Bits of scratch for each element of a tile, which may be the whole array."""
    elements = min(tile_elements, part.shape.element_count)
    return scratch_bytes * _BITS_PER_BYTE // elements


def tile_bytes(part: Part, bits: int, tile_elements: int) -> int:
    """Bytes of a tile with so many bits per element."""
    elements = min(tile_elements, part.shape.element_count)
    return -(-bits * elements // _BITS_PER_BYTE)


def write_fusion(
    part: Part,
    order: Sequence[int],
    outputs: Numbers,
    owner: Computation,
    read: Callable[[Instruction], Instruction],
    before: Instruction | None = None,
) -> Instruction:
    """A fusion of some instructions of a part.

    Args:
        part: whose instructions they are; `operands` says what they read.
        order: of evaluation.
        outputs: results, a tuple in order of their numbers if there are several.
        owner: the computation that receives the fusion,
        before: before this one, or at its end.
        read: what the fusion reads in place of an operand from outside.
    """
    module = owner.module
    results = tuple(sorted(outputs))
    last = part.nodes[results[-1]]
    body = Computation(
        module.fresh_computation_name(f"fused_{last.name}"),
        execution_thread=owner.execution_thread,
    )
    module.add_computation(body, before=owner)
    computed = {part.nodes[node] for node in order}
    wanted = dict.fromkeys(
        outside
        for node in order
        for operand in part.operands[node]
        for outside in _read_for(operand, part)
        if outside not in computed
    )
    copies: dict[Instruction, Instruction] = {
        value: body.new("parameter", value.shape, name=f"param_{k}", literal=str(k))
        for k, value in enumerate(wanted)
    }

    def copy(instruction: Instruction, operands: Sequence[Instruction]) -> Instruction:
        for operand in operands:
            if operand not in copies:
                copy(operand, operand.operands)
        new = clone_instruction(instruction, body, [copies[o] for o in operands])
        new.set_attribute("origin", None)
        copies[instruction] = new
        return new

    for node in order:
        copy(part.nodes[node], part.operands[node])
    roots = [copies[part.nodes[node]] for node in results]
    shape = roots[0].shape
    if len(roots) == 1:
        body.set_root(roots[0])
    else:
        shape = tuple_shape([root.shape for root in roots])
        body.set_root(body.new("tuple", shape, roots))
    operands = [read(value) for value in wanted]
    return owner.new(
        "fusion",
        shape,
        operands,
        {"kind": "kLoop", "calls": f"%{body.name}"},
        name=f"loop_{last.opcode.replace('-', '_')}_fusion",
        before=before,
    )


def _read_for(operand: Instruction, part: Part) -> tuple[Instruction, ...]:
    """What a fusion reads for an operand: constants and iotas are inside of it."""
    if not is_free(operand, part.shape):
        return (operand,)
    if operand.shape.is_scalar:
        return () if operand.opcode == "constant" else (operand,)
    return tuple(o for o in operand.operands if o.opcode != "constant")


def likeness(part: Part, order: Sequence[int], outputs: Numbers) -> Hashable:
    """What fusions of equal price have in common, whatever their names."""
    number: dict[Instruction, int] = {}
    rows: list[Hashable] = []
    computed = {part.nodes[node] for node in order}
    for node in order:
        instruction = part.nodes[node]
        for operand in part.operands[node]:
            if operand not in computed and operand not in number:
                number[operand] = len(number)
                rows.append(_source(operand, number, part))
        number[instruction] = len(number)
        read = tuple(number[o] for o in part.operands[node])
        form = instruction.opcode, instruction.shape.text
        rows.append((*form, read, node in outputs))
    return tuple(rows)


def _source(
    operand: Instruction, number: dict[Instruction, int], part: Part
) -> Hashable:
    """A value from outside, as far as the price depends on it."""
    text = operand.shape.text
    if not is_free(operand, part.shape):
        return text
    if operand.shape.is_scalar:
        return text, operand.opcode == "constant"
    read = tuple(
        (number.setdefault(o, len(number)), o.shape.text, o.opcode == "constant")
        for o in operand.operands
    )
    return text, operand.opcode, read
