"""Sends narrow values: converts before a collective instead of after it.

Before:  %c = bf16[8] convert(f8e4m3fn[8] %x)
         %m = bf16[8] multiply(%c, %scale)             a scalar, on all devices the same
         %a = bf16[32] all-gather(%m), dimensions={0}
After:   %b = f8e4m3fn[32] all-gather(%x), dimensions={0}
         %d = bf16[32] convert(%b)
         %n = bf16[32] multiply(%d, %scale')           readers of %a

Before:  %a = bf16[32] all-gather(%x), dimensions={0}
         %c = f8e4m3fn[32] convert(%a)
After:   %d = f8e4m3fn[8] convert(%x)
         %b = f8e4m3fn[32] all-gather(%d), dimensions={0}      readers of %c
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph, computations_post_order
from hlo_passes.analysis.device_offsets import groups_of
from hlo_passes.analysis.devices import group_mode
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.replication import Replication
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import BITS, Layout, array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of, derive

_COLLECTIVES: Final = frozenset(
    {"all-gather", "all-to-all", "collective-broadcast", "collective-permute"}
)
#: What may be between the conversion and the collective.
_MOVES: Final = frozenset({"bitcast", "copy", "reshape", "slice"})
_SCALES: Final = frozenset({"multiply", "divide"})


@dataclass(frozen=True, slots=True)
class _Conversion:
    """A conversion next to a collective, with what goes with it.

    Attributes:
        convert: the conversion.
        binary: the multiplication or division by the scale; None without one.
        scale: the broadcast scalar.
        clamp: what keeps the values in the range of the narrow type; None without one.
        moves: between the conversion and the collective, operands first.
    """

    convert: Instruction
    binary: Instruction | None = None
    scale: Instruction | None = None
    clamp: Instruction | None = None
    moves: tuple[Instruction, ...] = ()


@dataclass(slots=True)
class _Scales:
    """Answers whether scales are the same on the devices of groups."""

    module: Module
    _known: Replication | None = field(default=None)

    def are_alike(self, collective: Instruction, scale: Instruction) -> bool:
        mode = group_mode(collective, collective.opcode)
        if mode not in ("cross-partition", "flattened"):
            return False
        if self.module.replica_count > 1:
            return False
        if self._known is None:
            self._known = Replication(self.module, across_partitions=True, partial=True)
        permutes = collective.opcode == "collective-permute"
        groups = () if permutes else groups_of(collective)
        # A copied broadcast is not known, but what it spreads is.
        return self._known.is_same(scale, groups) or self._known.is_same(
            scale.operands[0], groups
        )


@dataclass(frozen=True, slots=True)
class CollectiveQuantizer(Pass):
    """Move a widening conversion after a collective, and a narrowing one before it.

    The collective then sends narrow values. The pass changes all-gathers, all-to-alls,
    collective-broadcasts and collective-permutes of one operand. A multiplication or
    division by a broadcast scalar moves with the conversion, and a clamp moves with a
    narrowing conversion. For this, the scalar must be the same on all devices of a
    group. Bitcasts, copies, reshapes and slices may lie between the conversion and the
    collective; they then work on the narrow values. The old instructions stay until
    dead code is removed.

    After partitioning, XLA 0.12 knows which parameters are the same on all devices. It
    keeps this beside the instructions, and its text does not show it. If a scale is
    such a parameter, XLA narrows the collective, and this pass leaves it alone.

    Ensures: after dead code is removed, a second run changes nothing.
    Complexity: linear in instructions, times the length of what is between.
    Source: openxla/xla `xla/hlo/transforms/collectives/collective_quantizer.cc`.
    """

    name: ClassVar[str] = "collective-quantizer"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit collectives in post order, callees first."""
        version = module.version
        scales = _Scales(module)
        graph = build_call_graph(module)
        for computation in computations_post_order(module, fusions=True):
            if graph.is_async_body(computation):
                continue
            changed = False
            for collective in post_order(computation):
                if (
                    collective.opcode not in _COLLECTIVES
                    or len(collective.operands) != 1
                    or not collective.shape.is_array
                ):
                    continue
                reason = _convert_after(collective, scales)
                if reason:
                    reason = _convert_before(collective, scales) and reason
                if reason:
                    report.remark(f"not narrowed: %{collective.name} {reason}")
                    continue
                report.count("collectives-narrowed")
                changed = True
            if changed:
                restore_text_order(computation)
        return module.version != version


# -- a widening conversion before the collective -------------------------------------


def _convert_after(collective: Instruction, scales: _Scales) -> str:
    """Gather narrow values and convert then; returns why not, '' when it is done."""
    found = _widening(collective.operands[0])
    if found is None:
        return "neither sends what was widened nor returns what is narrowed"
    if has_control_edges(collective):
        return "has control edges"
    if found.scale is not None and not scales.are_alike(collective, found.scale):
        return f"has a scale, %{found.scale.name}, that may differ between devices"
    narrow = _moved(found.convert.operands[0], found.moves)
    kind = narrow.shape.element_type
    sent = copy_of(collective, (narrow,), collective.shape.with_element_type(kind))
    _described(sent, collective)
    wide = sent.shape.with_element_type(found.convert.shape.element_type)
    result = _described(copy_of(found.convert, (sent,), wide), collective)
    if found.binary is not None and found.scale is not None:
        scale = _described(copy_of(found.scale, found.scale.operands, wide), collective)
        result = _described(copy_of(found.binary, (result, scale), wide), collective)
    collective.computation.replace_uses(collective, result)
    return ""


def _widening(instruction: Instruction) -> _Conversion | None:
    """The conversion to a wider type that a value comes from."""
    path = _path_to_widening(instruction)
    if not path:
        return None
    found = _Conversion(path[0], moves=tuple(path[1:]))
    if len(path) > 1 and path[1].opcode in _SCALES:
        binary = path[1]
        orders = ((0, 1), (1, 0)) if binary.opcode == "multiply" else ((0, 1),)
        for k, other in orders:
            convert, scale = binary.operands[k], binary.operands[other]
            if convert.opcode == "convert" and _is_spread_scalar(scale):
                found = _Conversion(convert, binary, scale, None, tuple(path[2:]))
                break
    return found if all(map(_is_move, found.moves)) else None


def _path_to_widening(instruction: Instruction) -> list[Instruction]:
    """From a conversion to a wider type down to an instruction; [] if there is none.

    The way up goes through operations on one operand, and through products: into the
    first operand that leads to one.
    """
    path: list[Instruction] = []
    seen: set[Instruction] = set()
    work = [(instruction, 0)]
    while work:
        current, depth = work.pop()
        if current in seen:
            continue
        seen.add(current)
        path[depth:] = [current]
        if current.opcode == "convert" and _bytes(current) > _bytes(
            current.operands[0]
        ):
            return path[::-1]
        if len(current.operands) == 1 or current.opcode == "divide":
            work.append((current.operands[0], depth + 1))
        elif current.opcode == "multiply":
            work += [(o, depth + 1) for o in reversed(current.operands)]
    return []


# -- a narrowing conversion after the collective -------------------------------------


def _convert_before(collective: Instruction, scales: _Scales) -> str:
    """Convert and send narrow values; returns why not, '' when it is done."""
    found = _narrowing(collective.users[0]) if collective.user_count == 1 else None
    if found is None:
        return "returns nothing that is narrowed"
    if has_control_edges(collective) or has_control_edges(found.convert):
        return "has control edges, or its conversion has"
    if found.scale is not None and not scales.are_alike(collective, found.scale):
        return f"has a scale, %{found.scale.name}, that may differ between devices"
    value = collective.operands[0]
    shape = value.shape
    if found.binary is not None and found.scale is not None and found.clamp is not None:
        scale = _described(
            copy_of(found.scale, found.scale.operands, shape), collective
        )
        value = _described(copy_of(found.binary, (value, scale), shape), collective)
        low, high = (
            _described(copy_of(bound, bound.operands, shape), collective)
            for bound in (found.clamp.operands[0], found.clamp.operands[2])
        )
        value = _described(copy_of(found.clamp, (low, value, high), shape), collective)
    kind = found.convert.shape.element_type
    narrow = copy_of(found.convert, (value,), shape.with_element_type(kind))
    _described(narrow, collective)
    sent = copy_of(collective, (narrow,), collective.shape.with_element_type(kind))
    _described(sent, collective)
    result = _moved(sent, found.moves)
    collective.computation.replace_uses(found.convert, result)
    return ""


def _narrowing(instruction: Instruction) -> _Conversion | None:
    """The conversion to a narrower type that a value goes to, and nowhere else."""
    path: list[Instruction] = []
    while instruction.user_count <= 1:
        path.append(instruction)
        narrows = instruction.opcode == "convert" and (
            _bytes(instruction) < _bytes(instruction.operands[0])
        )
        if narrows:
            break
        if not (_is_move(instruction) or instruction.opcode in {*_SCALES, "clamp"}):
            return None
        if not instruction.user_count:
            return None
        instruction = instruction.users[0]
    if not path or path[-1].opcode != "convert":
        return None
    found = _scaled(path[-1]) if len(path) > 2 else None
    if found is None:
        found = _Conversion(path[-1], moves=tuple(path[:-1]))
    else:
        found = _Conversion(
            found.convert, found.binary, found.scale, found.clamp, tuple(path[:-3])
        )
    return found if all(map(_is_move, found.moves)) else None


def _scaled(convert: Instruction) -> _Conversion | None:
    """convert(clamp(constant, x * scale, constant)), or with a division."""
    clamp = convert.operands[0]
    if clamp.opcode != "clamp":
        return None
    low, binary, high = clamp.operands
    if any(
        not _is_spread_scalar(bound) or bound.operands[0].opcode != "constant"
        for bound in (low, high)
    ):
        return None
    if binary.opcode not in _SCALES:
        return None
    orders = (1, 0) if binary.opcode == "multiply" else (1,)
    for k in orders:
        if _is_spread_scalar(binary.operands[k]):
            return _Conversion(convert, binary, binary.operands[k], clamp)
    return None


# -- both ----------------------------------------------------------------------------


def _is_move(instruction: Instruction) -> bool:
    """Whether it only moves values of one type."""
    operands = instruction.operands
    return (
        instruction.opcode in _MOVES
        and instruction.shape.element_type == operands[0].shape.element_type
    )


def _is_spread_scalar(instruction: Instruction) -> bool:
    if instruction.opcode != "broadcast":
        return False
    shape = instruction.operands[0].shape
    return shape.is_array and shape.element_count == 1


def _bytes(instruction: Instruction) -> int:
    """Of one element; 0 for what is no array."""
    return (BITS.get(instruction.shape.element_type, 0) + 7) // 8


def _described(new: Instruction, source: Instruction) -> Instruction:
    return derive(new, source, added=True)


def _moved(value: Instruction, moves: Sequence[Instruction]) -> Instruction:
    """Moves of another value, one after the other; each described as its operand."""
    for move in moves:
        shape = move.shape
        assert shape.layout is not None
        order = Layout(shape.layout.minor_to_major)
        kind = value.shape.element_type
        moved = copy_of(move, (value,), array_shape(kind, shape.dimensions, order))
        value = _described(moved, value)
    return value
