"""Makes one permute of several that send the same array, or parts of it.

Before:  %c = f32[8] collective-permute(%x), source_target_pairs=P
         %p = f32[2] slice(%x), slice={[2:4]}
         %d = f32[2] collective-permute(%p), source_target_pairs=P
After:   %c = f32[8] collective-permute(%x), source_target_pairs=P
         %d = f32[2] slice(%c), slice={[2:4]}
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.reachability import reaches
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.windows import Slice, parse_slice
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.cloning import clone_instruction
from hlo_passes.passes.rewriting.eligibility import unknown_attribute


@dataclass(frozen=True, slots=True)
class CollectivePermuteCse(Pass):
    """Merge permutes with the same pairs that send the same array, or parts of it.

    The order of the pairs does not matter. A permute of a slice becomes a slice of the
    permute of the whole array, or of a permute of a larger slice with the same strides.
    If the kept permute waits, through a control edge, for something that itself waits
    for the removed permute, the pass removes that control edge.

    XLA does not compare channels, so it may merge a permute between partitions with one
    between replicas. XLA also compares only first operands, even if a permute has
    several. Without XLA's quirks (`--no-xla-quirks`), such permutes stay. If a permute
    sends a slice of a slice, and another permute sends the larger slice, XLA takes the
    wrong part. Without the quirks, the part is right.

    Ensures: a second run changes nothing.
    Complexity: near-linear in instructions and pairs, as long as most slices of one
        array do not overlap.
    Source: openxla/xla `xla/hlo/transforms/collectives/collective_permute_cse.cc`.
    """

    name: ClassVar[str] = "collective-permute-cse"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all computations but fusions, in the order of the module."""
        version = module.version
        graph = build_call_graph(module)
        for computation in module.computations:
            if graph.is_fusion_body(computation):
                continue
            merging = _Merging(computation, report, quirks=context.xla_quirks)
            if merging.run():
                restore_text_order(computation)
        return module.version != version


class _Part(NamedTuple):
    """Which elements a slice takes, in each dimension."""

    starts: tuple[int, ...]
    strides: tuple[int, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def of(slice_: Instruction) -> _Part:
        ranges = parse_slice(slice_.attributes["slice"]).dimensions
        return _Part(
            tuple(start for start, _, _ in ranges),
            tuple(stride for _, _, stride in ranges),
            slice_.shape.dimensions,
        )

    def contains(self, other: _Part) -> bool:
        """Whether all elements of the other one are among these, in steps alike."""
        return self.strides == other.strides and all(
            start >= own
            and (start - own) % stride == 0
            and (start - own) // stride + count <= size
            for own, stride, size, start, count in zip(
                self.starts, self.strides, self.sizes, other.starts, other.sizes,
                strict=True,
            )
        )  # fmt: skip

    def within(self, whole: _Part) -> tuple[list[int], list[int]]:
        """Where it starts and ends among the elements of another part."""
        starts = [
            (start - own) // stride
            for own, stride, start in zip(
                whole.starts, whole.strides, self.starts, strict=True
            )
        ]
        return starts, [a + size for a, size in zip(starts, self.sizes, strict=True)]

    def extent(self, dimension: int) -> tuple[int, int]:
        """First element and end in one dimension."""
        start, stride = self.starts[dimension], self.strides[dimension]
        return start, start + max(0, self.sizes[dimension] - 1) * stride + 1


class _Slices:
    """Slices of one array, found by where they are in one dimension."""

    def __init__(self) -> None:
        self.places: dict[int, _Part] = {}
        self._dimension: int | None = None
        # Strides and length up to a power of two -> (start, place), sorted.
        self._rows: dict[tuple[tuple[int, ...], int], list[tuple[int, int]]] = {}

    def add(self, place: int, part: _Part) -> None:
        self.places[place] = part
        if self._dimension is not None:
            self._note(place, part)

    def near(self, part: _Part) -> set[int]:
        """All that contain a part or are contained in it, and some others."""
        if not part.starts:
            return {*self.places}
        if self._dimension is None:
            # Look along the dimension in which they differ most.
            self._dimension = max(
                range(len(part.starts)),
                key=lambda d: len({one.starts[d] for one in self.places.values()}),
            )
            for place, one in self.places.items():
                self._note(place, one)
        start, end = part.extent(self._dimension)
        found: set[int] = set()
        for (strides, power), row in self._rows.items():
            if strides == part.strides:
                low = min(start, end - (1 << power))
                first, last = bisect_left(row, (low,)), bisect_left(row, (end,))
                found.update(place for _, place in row[first:last])
        return found

    def _note(self, place: int, part: _Part) -> None:
        if self._dimension is None or not part.starts:
            return
        start, end = part.extent(self._dimension)
        row = self._rows.setdefault((part.strides, (end - start).bit_length()), [])
        insort(row, (start, place))


class _Alike:
    """Permutes with equal pairs, by operand and by what that is a slice of."""

    def __init__(self) -> None:
        self.of_operand: dict[Instruction, dict[int, None]] = {}
        self.of_slices: dict[Instruction, _Slices] = {}

    def add(self, place: int, permute: Instruction) -> None:
        operand = permute.operands[0]
        self.of_operand.setdefault(operand, {})[place] = None
        if operand.opcode == "slice":
            slices = self.of_slices.setdefault(operand.operands[0], _Slices())
            slices.add(place, _Part.of(operand))

    def remove(self, place: int, permute: Instruction) -> None:
        operand = permute.operands[0]
        self.of_operand[operand].pop(place, None)
        if operand.opcode == "slice":
            self.of_slices[operand.operands[0]].places.pop(place, None)

    def candidates(self, place: int, permute: Instruction) -> list[int]:
        """Later permutes that may send the same, more or less of it, in order."""
        operand = permute.operands[0]
        found = {*self.of_operand[operand]}
        if operand in self.of_slices:
            found |= self.of_slices[operand].places.keys()
        if operand.opcode == "slice":
            whole = operand.operands[0]
            found |= self.of_operand.get(whole, {}).keys()
            found |= self.of_slices[whole].near(_Part.of(operand))
        return sorted(other for other in found if other > place)


class _Merging:
    """What is merged in one computation."""

    def __init__(
        self, computation: Computation, report: Report, *, quirks: bool
    ) -> None:
        self.computation = computation
        self.report = report
        self.quirks = quirks
        self.permutes = [
            i for i in post_order(computation) if i.opcode == "collective-permute"
        ]
        self.place_of = {permute: k for k, permute in enumerate(self.permutes)}
        self.alike: dict[int, _Alike] = {}
        by_key: dict[object, _Alike] = defaultdict(_Alike)
        for place, permute in enumerate(self.permutes):
            self.alike[place] = by_key[self._key(permute)]
            self.alike[place].add(place, permute)

    def run(self) -> bool:
        """Merge each permute with those after it; whether any was."""
        merged = False
        for place, permute in enumerate(self.permutes):
            if permute.removed or not permute.user_count:
                continue
            for other in self.alike[place].candidates(place, permute):
                later = self.permutes[other]
                if later.removed or not later.user_count:
                    continue
                kept, gone = _kept_and_gone(permute, later)
                if gone is None or not self._replace(kept, gone):
                    continue
                merged = True
                if gone is permute:
                    break
        return merged

    def _key(self, permute: Instruction) -> object:
        """What must be equal besides the operand."""
        pairs = tuple(sorted(permute.source_target_pairs or ()))
        if self.quirks:
            return pairs
        is_plain = len(permute.operands) == 1 and permute.shape.is_array
        return pairs, permute.channel_id is None, None if is_plain else permute

    def _replace(self, large: Instruction, small: Instruction) -> bool:
        """Let readers of one permute read the other, or a slice of it."""
        computation = self.computation
        for permute in (large, small):
            if unknown := unknown_attribute(permute):
                self.report.remark(
                    f"not merged: %{permute.name} has the unknown attribute {unknown}"
                )
                return False
        if not _one_is_in_the_other(large, small):
            # XLA gives up on the module here.
            self.report.remark(
                f"not merged: %{small.name} sends other arrays than %{large.name}"
            )
            return False
        edges = {*small.control_predecessors, *small.control_successors}
        if edges - {large} or large in small.control_predecessors:
            self.report.remark(f"not merged: %{small.name} has control edges")
            return False
        # The kept one must not wait for what reads the other one.
        for predecessor in large.control_predecessors:
            if reaches(small, predecessor):
                computation.remove_control_edge(predecessor, large)
        replacement = large
        if large.operands[0] is not small.operands[0]:
            replacement = self._slice_of(large, small)
        # Permutes of it, or of a slice of it, have another operand afterwards.
        moved = [
            (self.place_of[reader], reader)
            for user in small.users
            for reader in (user, *(user.users if user.opcode == "slice" else ()))
            if reader in self.place_of
        ]
        self.alike[self.place_of[small]].remove(self.place_of[small], small)
        for place, reader in moved:
            self.alike[place].remove(place, reader)
        computation.replace_uses(small, replacement)
        computation.remove(small)
        for place, reader in moved:
            self.alike[place].add(place, reader)
        self.report.count("permutes-merged")
        return True

    def _slice_of(self, large: Instruction, small: Instruction) -> Instruction:
        """What the smaller permute received, as a part of what the larger one did."""
        computation, own = self.computation, small.operands[0]
        whole = large.operands[0]
        if whole.opcode == "slice":
            starts, ends = _Part.of(own).within(_Part.of(whole))
            fits = all(
                start >= 0 and end <= size
                for start, end, size in zip(
                    starts, ends, large.shape.dimensions, strict=True
                )
            )
            # XLA does so also where one is a slice of the other, which is wrong.
            if whole.operands[0] is own.operands[0] or (self.quirks and fits):
                ranges = Slice(
                    tuple((*bounds, 1) for bounds in zip(starts, ends, strict=True))
                )
                return computation.new(
                    "slice", small.shape, [large], {"slice": ranges.to_text()}
                )
        part = clone_instruction(own, computation, [large])
        computation.set_shape(part, small.shape)
        return part


def _one_is_in_the_other(large: Instruction, small: Instruction) -> bool:
    """Whether what one permute receives can be had from what the other one does.

    Permutes of several arrays are found by their first operand only.
    """
    if large.operands[0] is small.operands[0]:
        return large.shape.text_without_layout == small.shape.text_without_layout
    return large.shape.is_array and small.shape.is_array


def _kept_and_gone(
    first: Instruction, second: Instruction
) -> tuple[Instruction, Instruction | None]:
    """Which of two permutes is kept and which is not; None for the latter: both."""
    a, b = first.operands[0], second.operands[0]
    if a is b:
        return first, second
    if a.opcode == "slice" and a.operands[0] is b:
        return second, first
    if b.opcode == "slice" and b.operands[0] is a:
        return first, second
    if a.opcode == b.opcode == "slice" and a.operands[0] is b.operands[0]:
        part, other = _Part.of(a), _Part.of(b)
        if other.contains(part):
            return second, first
        if part.contains(other):
            return first, second
    return first, None
