"""Lets a windowed loop keep the shards that pass through it.

    Before:  %g = f32[2,64,32] all-gather(%x), dimensions={1}      dot(%g, %v)
             while(tuple(%x, ...)), body=%windowed_dot_general_body_ag
    After:   while(tuple(%x, ..., zeros))       the loop writes each shard into the last
                                                element
             %g = get-tuple-element(%while)     dot(%g, %v)

All shards of the loop's first operand pass through each device, so that another
all-gather of it is not needed. Shards of 8-bit numbers are kept as such, and scaled
after the loop. The order of the text is up to the caller.

Source: openxla/xla `xla/backends/gpu/transforms/windowed_einsum_handler.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.loops.windowed_scales import (
    Scaled,
    is_of_eight_bits,
    scale_again,
    scaled,
)
from hlo_passes.passes.loops.windowed_sums import append_result, append_to_state
from hlo_passes.passes.rewriting.cloning import element_of

#: The dimensions of what is gathered: batch, sequence, features.
_RANK: Final = 3
_SEQUENCE: Final = 1
_FEATURES: Final = 2
#: Where the starts of a dynamic-update-slice begin among its operands.
_STARTS: Final = 2


@dataclass(frozen=True, slots=True)
class _Store:
    """A place in the body where a shard is kept.

    Attributes:
        start: where it goes, along one dimension.
        zero: its start along the others.
        dimension: along which shards are gathered.
    """

    start: Instruction
    zero: Instruction
    dimension: int

    @property
    def starts(self) -> tuple[Instruction, ...]:
        return tuple(
            self.start if dimension == self.dimension else self.zero
            for dimension in range(_RANK)
        )


@dataclass(slots=True)
class ActivationCache:
    """Lets dots read what gathering loops keep.

    Attributes:
        loops: the gathering loops, in XLA's order.
        report: receives counts and remarks.
        quirks: as XLA does it, also where shards are joined along another dimension.
        is_same: whether a scale is the same on all devices.
    """

    loops: Sequence[Instruction]
    report: Report
    quirks: bool
    is_same: Callable[[Instruction], bool]
    _sources: dict[Instruction, list[int]] = field(init=False)
    _elements: dict[Instruction, int | None] = field(init=False)

    def __post_init__(self) -> None:
        """Note what each loop gathers."""
        self._elements = {}
        self._sources = {}
        for number, loop in enumerate(self.loops):
            source = loop.operands[0].operands[0]
            self._sources.setdefault(source, []).append(number)

    def read_by(self, dot: Instruction) -> None:
        """Let a dot of all-gathers read what loops keep; each loop serves once."""
        gathers = [
            o for o in dot.operands if o.opcode == "all-gather" and len(o.operands) == 1
        ]
        numbers: set[int] = set()
        for gather in gathers:
            (source,) = gather.operands
            form = scaled(source)
            for value in (source, form.narrow if form is not None else source):
                numbers.update(self._sources.get(value, ()))
        for number in sorted(numbers):
            loop = self.loops[number]
            source = loop.operands[0].operands[0]
            for gather in dot.operands:
                if gather.opcode != "all-gather" or len(gather.operands) != 1:
                    continue
                form = _form_of(gather, source)
                if form is not None or gather.operands[0] is source:
                    if form is None or (
                        is_of_eight_bits(form) and self.is_same(form.scale)
                    ):
                        self._read(dot, gather, loop, form)
                    break

    def _read(
        self,
        dot: Instruction,
        gather: Instruction,
        loop: Instruction,
        form: Scaled | None,
    ) -> None:
        if loop not in self._elements:
            cached = _cache(loop, gather, self.report, quirks=self.quirks)
            self._elements[loop] = cached
        index = self._elements[loop]
        if index is None or loop.shape.elements[index] != _kept_shape(loop, gather):
            return
        computation = dot.computation
        kept = element_of(loop, index)
        if form is not None:
            kept = scale_again(form, kept)
        place = dot.operands.index(gather)
        operands = (*dot.operands[:place], kept, *dot.operands[place + 1 :])
        computation.set_operands(dot, operands)
        if not gather.user_count and not gather.is_root:
            computation.remove(gather)
        self.report.count("gathers-replaced")


def _form_of(gather: Instruction, source: Instruction) -> Scaled | None:
    """How what is gathered is scaled, if it is `source` scaled."""
    form = scaled(gather.operands[0])
    return form if form is not None and form.narrow is source else None


def _kept_shape(loop: Instruction, gather: Instruction) -> Shape:
    """The gathered shape, of the type that travels through the loop."""
    travels = loop.operands[0].operands[0].shape.element_type
    if travels == gather.shape.element_type:
        return gather.shape
    return gather.shape.with_element_type(travels)


def _cache(
    loop: Instruction, gather: Instruction, report: Report, *, quirks: bool
) -> int | None:
    """Let a loop keep its shards; the element that has them, None if it cannot."""
    body = loop.called_computations[0]
    stores = _stores(body)
    reason = ""
    window = next(
        (e for e in body.parameters[0].users if e.tuple_index_or_none == 0), None
    )
    permuted = None if window is None else _permute_of(window)
    if gather.shape.rank != _RANK or window is None or permuted is None:
        reason = "what it gathers has no batch, sequence and features"
    elif len(stores) != 2:
        reason = "its body does not store two shards"
    elif not quirks and {s.dimension for s in stores} != {
        *gather.integers("dimensions")
    }:
        reason = "the all-gather joins another dimension"
    elif loop.operands[0].opcode != "tuple" or body.root.opcode != "tuple":
        reason = "its state is no tuple"
    if reason or window is None or permuted is None:
        report.remark(f"nothing kept in %{loop.name}: {reason}")
        return None
    outside = loop.computation
    shape = _kept_shape(loop, gather)
    zero = outside.new("constant", array_shape(shape.element_type), literal="0")
    zeros = outside.new("broadcast", shape, (zero,), {"dimensions": "{}"})
    append_to_state(loop, zeros)
    index = len(loop.shape.elements) - 1
    kept = element_of(body.parameters[0], index)
    for store, shard in zip(stores, (window, permuted), strict=True):
        start = store.start
        if start.opcode == "dynamic-slice":
            start = body.new("reshape", store.zero.shape, (start,))
        starts = _Store(start, store.zero, store.dimension).starts
        kept = body.new("dynamic-update-slice", kept.shape, (kept, shard, *starts))
    append_result(body, kept)
    report.count("loops-caching")
    return index


def _permute_of(window: Instruction) -> Instruction | None:
    return next((u for u in window.users if u.opcode == "collective-permute"), None)


def _stores(body: Computation) -> list[_Store]:
    """Where the body stores or reads what belongs to the two shards of an iteration."""
    found: list[_Store] = []
    for instruction in post_order(body):
        if instruction.opcode == "dynamic-update-slice":
            store = _store_of_update(instruction, first=not found)
        elif instruction.opcode == "dot":
            store = _store_of_dot(instruction)
        else:
            continue
        if store is not None:
            found.append(store)
    return found


def _store_of_update(update: Instruction, *, first: bool) -> _Store | None:
    """The start of a dot's result, which is where its shard goes, too."""
    target = update.operands[0]
    if first and not _is_element(target):
        return None
    if not first and target.opcode != "dynamic-update-slice":
        return None
    start: Instruction | None = None
    zero: Instruction | None = None
    for operand in update.operands[_STARTS:]:
        if operand.opcode == "constant":
            zero = operand
        elif operand.opcode == "reshape" and (
            operand.operands[0].opcode == "dynamic-slice"
        ):
            start = operand.operands[0]
        else:
            return None
    if start is None or zero is None:
        return None
    return _Store(start, zero, _SEQUENCE)


def _store_of_dot(dot: Instruction) -> _Store | None:
    """The start of the slice that a dot contracts with a shard."""
    part = dot.operands[1]
    if part.opcode != "dynamic-slice" or not _is_element(part.operands[0], 1):
        return None
    start: Instruction | None = None
    zero: Instruction | None = None
    for operand in part.operands[1:]:
        if operand.opcode == "constant":
            zero = operand
        elif operand.opcode == "reshape" and (
            operand.operands[0].opcode == "dynamic-slice"
        ):
            start = operand
        else:
            return None
    if start is None or zero is None:
        return None
    return _Store(start, zero, _FEATURES)


def _is_element(instruction: Instruction, index: int | None = None) -> bool:
    return (
        instruction.opcode == "get-tuple-element"
        and instruction.operands[0].opcode == "parameter"
        and (index is None or instruction.tuple_index == index)
    )
