"""Sends several elements of a type narrower than a byte as one byte.

Before:  %a = s4[16]{0:E(4)} all-gather(%x), dimensions={0}, ...
After:   %p = s4[1,2]{1,0:E(4)} bitcast(%x)
         %b = s8[1]{0} bitcast-convert(%p)
         %g = s8[8]{0} all-gather(%b), dimensions={0}, ...
         %q = s4[8,2]{1,0:E(4)} bitcast-convert(%g)
         %r = s4[16]{0:E(4)} bitcast(%q)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from hlo_passes.analysis.devices import members_of_each_group
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import BITS, Shape, array_shape
from hlo_passes.passes.framework.base import ComputationPass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of

_COLLECTIVES: Final = frozenset(
    {"all-gather", "all-to-all", "collective-broadcast", "collective-permute"}
)
_BYTE: Final = "s8"


@dataclass(frozen=True, slots=True)
class SubByteCollectiveNormalization(ComputationPass):
    """Bitcast packed sub-byte elements to bytes before a collective, and back after it.

    Communication libraries have no types of less than 8 bits. The pass changes
    all-gathers, all-to-alls, collective-broadcasts and collective-permutes of one
    operand. The elements must be packed in memory, and along the most minor dimension
    they must fill whole bytes. An all-to-all must also split its dimension into whole
    bytes.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/hlo/transforms/simplifiers/sub_byte_collective_normalization.cc`.
    """

    name: ClassVar[str] = "sub-byte-collective-normalization"
    needs_collectives: ClassVar[bool] = True

    def run_on_computation(
        self, computation: Computation, context: PassContext, report: Report
    ) -> None:
        """Visit collectives in post order."""
        changed = False
        for collective in post_order(computation):
            if collective.opcode not in _COLLECTIVES:
                continue
            reason = _reason_to_keep(collective, computation.module)
            if reason:
                report.remark(f"not normalized: %{collective.name} {reason}")
                continue
            _send_bytes(collective)
            report.count("collectives-normalized")
            changed = True
        if changed:
            restore_text_order(computation)


def _reason_to_keep(collective: Instruction, module: Module) -> str:
    if len(collective.operands) != 1:
        return "has several operands"
    shape = collective.operands[0].shape
    bits = BITS.get(shape.element_type, 0)
    if shape.element_type == "pred" or not 0 < bits < 8 or 8 % bits:
        return "has a type that is not narrower than a byte"
    layout, ratio = shape.layout, 8 // bits
    if layout is None or layout.element_size_in_bits != bits:
        return "has elements that are not packed"
    if not shape.rank or shape.dimensions[layout.minor_to_major[0]] % ratio:
        return "does not fill bytes along its most minor dimension"
    if collective.opcode == "all-to-all" and collective.shape.is_array:
        (split,) = collective.integers("dimensions")
        members = members_of_each_group(collective, module)
        if not members or collective.shape.dimensions[split] % (members * ratio):
            return "does not send whole bytes to each device"
    return "has control edges" if has_control_edges(collective) else ""


def _send_bytes(collective: Instruction) -> None:
    computation, shape = collective.computation, collective.shape
    (operand,) = collective.operands
    packed = computation.new("bitcast", _split(operand.shape), (operand,))
    sent = computation.new("bitcast-convert", _bytes(operand.shape), (packed,))
    received = copy_of(collective, (sent,), _bytes(shape))
    unpacked = computation.new("bitcast-convert", _split(shape), (received,))
    result = computation.new("bitcast", shape, (unpacked,))
    computation.replace(collective, result)


def _bytes(shape: Shape) -> Shape:
    """The array with several elements to a byte."""
    assert shape.layout is not None
    sizes = list(shape.dimensions)
    sizes[shape.layout.minor_to_major[0]] //= 8 // BITS[shape.element_type]
    layout = replace(shape.layout, element_size_in_bits=0)
    return array_shape(_BYTE, tuple(sizes), layout)


def _split(shape: Shape) -> Shape:
    """The array with the elements of a byte as its most minor dimension."""
    assert shape.layout is not None
    ratio = 8 // BITS[shape.element_type]
    sizes = [*shape.dimensions, ratio]
    sizes[shape.layout.minor_to_major[0]] //= ratio
    order = (shape.rank, *shape.layout.minor_to_major)
    layout = replace(shape.layout, minor_to_major=order)
    return array_shape(shape.element_type, tuple(sizes), layout)
