"""Splits an all-to-all and the dot beside it into parts that overlap.

    Before:  %a = f32[8,64] all-to-all(%x), dimensions={0}     dot(%a, %w)
    After:   %p = all-to-all(slice(%x, [0:8], [0:32]))         dot(%p, slice(%w))
             %q = all-to-all(slice(%x, [0:8], [32:64]))        dot(%q, slice(%w))
             add(%dot.1, add(%dot, zeros))

There are as many parts as devices in a group, each a part of the contracted dimension.
A dot before an all-to-all is split likewise: each part of the product is sent for
itself. Transposes, reshapes and copies may be between the two: the all-to-all is moved
to the dot first. The order of the text is up to the caller.

Source: openxla/xla `xla/backends/gpu/transforms/windowed_einsum_handler.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.reshapes import unmodified_dimensions
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Layout, Shape, array_shape
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.passes.rewriting.gpu_backend_config import set_operation_queue_id
from hlo_passes.xla_release import XlaRelease

#: What may be between the dot and the all-to-all, if nothing else reads it.
_BETWEEN: Final = frozenset({"transpose", "reshape", "copy"})
_INDIVISIBLE: Final = "the contracted dimension cannot be divided"
#: What a part of a dot takes over from the whole.
_OF_DOTS: Final = (
    "lhs_batch_dims",
    "lhs_contracting_dims",
    "rhs_batch_dims",
    "rhs_contracting_dims",
    "operand_precision",
    "algorithm",
)


@dataclass(slots=True)
class AllToAllSplitter:
    """Splits the all-to-alls of one module.

    Attributes:
        module: the module.
        release: of XLA, for the config that is written.
        quirks: as XLA does it, also where parts are then sent to other devices.
        report: receives counts and remarks.
        channel: the next free channel id, 0 until one is needed.
    """

    module: Module
    release: XlaRelease
    quirks: bool
    report: Report
    channel: int = 0

    def split_before(self, dot: Instruction) -> bool:
        """Split an all-to-all whose result the dot reads first; whether it did."""
        chain, exchange = _exchange_before(dot)
        if exchange is None:
            return False
        dimension = _traced(exchange, chain, forward=True)
        reason = _why_untouched(dot, exchange, (exchange, *chain), dimension)
        contracted = _contracted(dot)
        if not reason and not self.quirks:
            reason = _why_whole(dot, exchange)
            if not reason and contracted is not None and contracted[0] == dimension:
                reason = "the dot contracts the dimension that it splits"
        if reason or dimension is None:
            return self._left(exchange, reason)
        computation = dot.computation
        if chain:
            # Exchange what the dot reads, after the reshapes.
            last = chain[-1]
            (source,) = exchange.operands
            computation.replace_operand(chain[0], exchange, source)
            moved = self._moved(exchange, last, dimension)
            computation.replace_operand(dot, last, moved)
            computation.remove_with_dead_operands(exchange)
            exchange = moved
        return self._split(dot, exchange, dot, exchange.operands[0])

    def split_after(self, exchange: Instruction) -> bool:
        """Split an all-to-all of what a dot computes; whether it did."""
        if not _splits(exchange):
            return False
        chain: list[Instruction] = []
        (source,) = exchange.operands
        while source.opcode in _BETWEEN and source.user_count == 1:
            chain.append(source)
            (source,) = source.operands
        chain.reverse()
        dot = source
        if dot.opcode != "dot" or dot.user_count != 1:
            return False
        dimension = _traced(exchange, chain, forward=False)
        reason = _why_untouched(dot, exchange, (dot, *chain), dimension)
        if not reason and not self.quirks:
            reason = _why_whole(dot, exchange)
        if reason or dimension is None:
            return self._left(exchange, reason)
        computation = exchange.computation
        if chain:
            # Exchange what the dot computes, before the reshapes.
            moved = self._moved(exchange, dot, dimension)
            computation.replace_operand(chain[0], dot, moved)
            derive(moved, exchange)
            computation.replace(exchange, chain[-1])
            exchange = moved
        return self._split(dot, exchange, exchange, dot.operands[0])

    def _left(self, exchange: Instruction, reason: str) -> bool:
        self.report.remark(f"not split: %{exchange.name}: {reason}")
        return False

    def _fresh_channel(self) -> int:
        channel = self.channel or next_channel_id(self.module)
        self.channel = channel + 1
        return channel

    def _moved(
        self, exchange: Instruction, operand: Instruction, dimension: int
    ) -> Instruction:
        """An all-to-all of another operand, for the same devices written out."""
        groups = exchange.replica_groups
        assert groups is not None
        return self._exchange(
            operand, operand.shape, groups.to_explicit_text(), dimension
        )

    def _exchange(
        self, operand: Instruction, shape: Shape, groups: str, dimension: int
    ) -> Instruction:
        attributes = {
            "channel_id": str(self._fresh_channel()),
            "replica_groups": groups,
            "dimensions": f"{{{dimension}}}",
        }
        return operand.computation.new("all-to-all", shape, (operand,), attributes)

    def _split(
        self,
        dot: Instruction,
        exchange: Instruction,
        result: Instruction,
        left: Instruction,
    ) -> bool:
        """Split the two, which are neighbors; `result` is the later one."""
        computation = dot.computation
        right = dot.operands[1]
        reason = _why_whole(dot, exchange)
        contracted = _contracted(dot)
        if contracted is None or reason not in ("", _INDIVISIBLE):
            return self._left(exchange, reason)
        element_type = array_shape(result.shape.element_type)
        zero = computation.new("constant", element_type, literal="0")
        total = computation.new(
            "broadcast", result.shape, (zero,), {"dimensions": "{}"}
        )
        if reason:
            # XLA leaves the zeros behind.
            return self._left(exchange, reason)
        groups = exchange.replica_groups
        assert groups is not None
        count = len(groups.groups[0])
        (dimension,) = exchange.integers("dimensions")
        shape = dot.shape
        if shape.layout is not None:
            shape = shape.with_layout(Layout(tuple(reversed(range(shape.rank)))))
        written = exchange.attributes["replica_groups"]
        kept = {n: dot.attributes[n] for n in _OF_DOTS if n in dot.attributes}
        queue = self.channel or next_channel_id(self.module)
        for k in range(count):
            one = derive(_part(left, contracted[0], k, count), exchange)
            other = derive(_part(right, contracted[1], k, count), exchange)
            if result is dot:
                one = self._exchange(one, one.shape, written, dimension)
                derive(one, exchange)
            product = computation.new("dot", shape, (one, other), kept)
            summand = product
            if result is exchange:
                summand = self._exchange(product, result.shape, written, dimension)
                derive(summand, exchange)
            total = computation.new("add", summand.shape, (summand, total))
            derive(total, exchange)
            set_operation_queue_id(product, self.release, queue + k)
        computation.replace(result, total)
        self.report.count("all-to-alls-split")
        return True


def _splits(instruction: Instruction) -> bool:
    """Whether it is an all-to-all of one array among groups."""
    return (
        instruction.opcode == "all-to-all"
        and instruction.shape.is_array
        and len(instruction.operands) == 1
        and "dimensions" in instruction.attributes
        and instruction.attributes.get("constrain_layout") != "true"
        and instruction.replica_groups is not None
        and bool(instruction.replica_groups.groups)
    )


def _exchange_before(
    dot: Instruction,
) -> tuple[list[Instruction], Instruction | None]:
    """What is between an all-to-all and a dot, in this order, and the former."""
    chain: list[Instruction] = []
    current = dot.operands[0]
    if dot.operands.count(current) > 1:
        return chain, None
    while current.opcode in _BETWEEN and current.user_count == 1:
        chain.append(current)
        (current,) = current.operands
    chain.reverse()
    found = _splits(current) and current.user_count == 1
    return chain, current if found else None


def _why_untouched(
    dot: Instruction,
    exchange: Instruction,
    inner: tuple[Instruction, ...],
    dimension: int | None,
) -> str:
    """Why XLA, too, leaves the two alone or fails; '' if it does not."""
    touched = {dot, exchange, *inner}
    if dimension is None:
        return "a reshape changes the dimension that it splits"
    if any(i.control_predecessors or i.control_successors for i in touched):
        return "control edges tie it down"
    if any(i.is_root for i in inner):
        return "it or what it reads is a result"
    if {o.shape.element_type for o in dot.operands} != {dot.shape.element_type}:
        return "the dot has another type than its operands"
    return ""


def _why_whole(dot: Instruction, exchange: Instruction) -> str:
    """Why the two stay whole, '' if they may be split."""
    groups = exchange.replica_groups
    assert groups is not None
    sizes = {len(group) for group in groups.groups}
    contracted = _contracted(dot)
    if len(sizes) != 1:
        return "its groups differ in size"
    if contracted is None:
        return "the dot does not contract one dimension"
    if dot.operands[1].shape.dimensions[contracted[1]] % min(sizes):
        return _INDIVISIBLE
    return ""


def _contracted(dot: Instruction) -> tuple[int, int] | None:
    """The dimension that is contracted, of each operand; None if not one."""
    left = dot.integers("lhs_contracting_dims")
    right = dot.integers("rhs_contracting_dims")
    return (left[0], right[0]) if len(left) == len(right) == 1 else None


def _traced(
    exchange: Instruction, chain: list[Instruction], *, forward: bool
) -> int | None:
    """Where the dimension that is split is on the other end; None if nowhere."""
    (dimension,) = exchange.integers("dimensions")
    for step in chain if forward else reversed(chain):
        if step.opcode == "transpose":
            order = step.integers("dimensions")
            dimension = order.index(dimension) if forward else order[dimension]
        elif step.opcode == "reshape":
            (operand,) = step.operands
            sizes = (operand.shape.dimensions, step.shape.dimensions)
            kept = unmodified_dimensions(*sizes)
            if forward:
                kept = {old: new for new, old in kept.items()}
            if dimension not in kept:
                return None
            dimension = kept[dimension]
    return dimension


def _part(operand: Instruction, dimension: int, k: int, count: int) -> Instruction:
    """Part `k` of `count` along a dimension."""
    sizes = operand.shape.dimensions
    size = sizes[dimension] // count
    ranges = [f"[0:{s}]" for s in sizes]
    ranges[dimension] = f"[{k * size}:{(k + 1) * size}]"
    shape = operand.shape.with_dimensions(
        (*sizes[:dimension], size, *sizes[dimension + 1 :])
    )
    return operand.computation.new(
        "slice", shape, (operand,), {"slice": f"{{{', '.join(ranges)}}}"}
    )
