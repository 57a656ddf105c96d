"""Marks collectives that a pipeliner can move without using more memory.

Before:  %y = f32[1,4] all-reduce(%x)                     in the body of a loop
         %b = f32[6,4] dynamic-update-slice(%buffer, %y, %i, %zero)
         ROOT %state = (...) tuple(%next, %b)
After:   %y = f32[1,4] all-reduce(%x), frontend_attributes={trivially_pipelineable=""}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.device_offsets import own_part
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.while_loop_patterns import induction_variable, unique_element
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.xla_release import XlaRelease

#: The frontend attribute that marks a collective; its value is empty.
MARK: Final = "trivially_pipelineable"
_COLLECTIVES: Final = frozenset({"all-gather", "all-reduce", "reduce-scatter"})
#: What may lie between a collective and its store or slice.
_FORMATTING: Final = frozenset(
    {"bitcast", "convert", "get-tuple-element", "reshape", "transpose", "tuple"}
)
#: What may lie between the store and the result, or the state and the slice.
_NOTHING: Final = frozenset({"bitcast", "get-tuple-element", "tuple"})
_INDEX_TYPES: Final = frozenset({"s32", "s64", "u32", "u64"})
#: XLA's size of a pointer, of which a tuple has one for each element.
_POINTER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class CollectivePipeliningAnalyzer(Pass):
    """Mark collectives that a pipeliner can move without enlarging the loop's state.

    The mark is the frontend attribute `trivially_pipelineable`. It is for XLA's
    combiners; the pipeliners do not read it.

    The pass marks an all-reduce or reduce-scatter if its result goes into one store of
    a slice, and from there into the result of the loop body. The result may be
    reshaped, transposed or converted before the store. The loop counter must decide
    where the slice is stored. If each device keeps only its own part of an all-reduce,
    the pass follows that part instead. The pass marks an all-gather if its operand is
    such a slice of the loop's state. It does not mark results of 1 GiB and more.

    XLA's pass reports that it changes nothing. This pass reports a change if it marks
    anything.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions for each collective.
    Source: openxla/xla
        `xla/backends/gpu/transforms/collectives/collective_pipelining_analyzer.cc`.

    Attributes:
        most_bytes: do not mark results of this many bytes or more.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "collective-pipelining-analyzer"

    most_bytes: int = 1 << 30
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit the collectives of all computations."""
        version = module.version
        search = _Search(
            module,
            build_call_graph(module),
            context.release_for(module, self.xla),
        )
        for computation in search.graph.post_order:
            if not any(i.opcode in _COLLECTIVES for i in computation.instructions):
                continue
            for collective in post_order(computation):
                if collective.opcode not in _COLLECTIVES:
                    continue
                reason = self._reason_to_leave(collective, search)
                if reason:
                    report.remark(f"not marked: %{collective.name} {reason}")
                elif not _is_marked(collective):
                    attributes = collective.frontend_attributes.with_value(MARK, "")
                    collective.frontend_attributes = attributes
                    report.count("collectives-marked")
        return module.version != version

    def _reason_to_leave(self, collective: Instruction, search: _Search) -> str:
        shape = collective.shape
        size = (
            _POINTER_BYTES * len(shape.elements) if shape.is_tuple else shape.byte_size
        )
        if size >= self.most_bytes:
            return f"has a result of {size} bytes"
        if collective.opcode == "all-gather":
            return search.problem_with_slice(collective)
        if len(collective.operands) != 1:
            return "has several operands"
        result = collective
        if collective.opcode == "all-reduce":
            cut = own_part(collective, search.module)
            result = collective if isinstance(cut, str) else cut.dynamic_slice
        return search.problem_with_store(result)


def _is_marked(collective: Instruction) -> bool:
    return collective.mentions(MARK) and MARK in collective.frontend_attributes


@dataclass(slots=True)
class _Search:
    """Follows values from a collective to a store, or back to a slice."""

    module: Module
    graph: CallGraph
    release: XlaRelease
    _counters: dict[Computation, Instruction | None] = field(default_factory=dict)

    def problem_with_store(self, result: Instruction) -> str:
        """Why a result is not stored as it should be; '' if it is."""
        value = result
        while value.user_count == 1:
            (value,) = value.users
            if value.opcode == "dynamic-update-slice":
                break
            if value.opcode not in _FORMATTING:
                return f"is read by %{value.name} ({value.opcode})"
        if value.opcode != "dynamic-update-slice":
            return "is not read by one instruction, and so on, up to a store"
        if not self._follow_counter(value.operands[2:]):
            return f"is stored by %{value.name} at a place that is not the counter's"
        # From the store to the result of the body nothing may happen.
        store = value
        if store.user_count != 1:
            return f"is stored by %{store.name}, which is not read once"
        (value,) = store.users
        while value.user_count == 1:
            if value.opcode not in _NOTHING:
                return f"is read from %{store.name} by %{value.name} ({value.opcode})"
            (value,) = value.users
        return "" if value.is_root else f"is read by %{value.name} ({value.opcode})"

    def problem_with_slice(self, collective: Instruction) -> str:
        """Why operands are no slice of the state as they should be; '' if they are."""
        found = next(filter(None, map(self._slice_of, collective.operands)), None)
        if found is None:
            return "does not gather a slice of the counter's"
        if found.opcode != "dynamic-slice":
            return f"gathers %{found.name}, which is always the same slice"
        source = found.operands[0]
        while len(source.operands) == 1:
            if source.opcode not in _NOTHING:
                return f"gathers a slice of %{source.name} ({source.opcode})"
            source = source.operands[0]
        if source.opcode != "parameter":
            return f"gathers a slice of %{source.name} ({source.opcode})"
        return ""

    def _slice_of(self, operand: Instruction) -> Instruction | None:
        """The first slice that an operand comes from, if the counter places it."""
        level, seen = [operand], {operand}
        while level:
            following: list[Instruction] = []
            for value in level:
                if value.opcode == "slice":
                    return value
                if value.opcode == "dynamic-slice":
                    return value if self._follow_counter(value.operands[1:]) else None
                if value.opcode not in _FORMATTING:
                    return None
                fresh = [o for o in value.operands if o not in seen]
                seen.update(fresh)
                following += fresh
            level = following
        return None

    # -- places that the counter decides ---------------------------------------------

    def _follow_counter(self, indices: Sequence[Instruction]) -> bool:
        """Whether each index is a constant or computed from the counter alone."""
        return all(
            (i.opcode == "constant" and i.shape.element_type in _INDEX_TYPES)
            or self._is_computed_from_counter(i)
            for i in indices
        )

    def _is_computed_from_counter(self, index: Instruction) -> bool:
        computation = index.computation
        if computation not in self._counters:
            self._counters[computation] = self._counter(computation)
        counter = self._counters[computation]
        return counter is not None and _depends_only_on(index, counter)

    def _counter(self, body: Computation) -> Instruction | None:
        """The counter in the body of one loop; None for any other computation."""
        callers = self.graph.callers_of(body)
        if len(callers) != 1 or callers[0].opcode != "while":
            return None
        loop = callers[0]
        if loop.called_computations[0] is not body:
            return None
        index = induction_variable(loop, self.release)
        counter = None if index is None else unique_element(body, index)
        if index is None or counter is None:
            return None
        update, start = body.root.operands[index], loop.operands[0].operands[index]
        is_counter = _depends_only_on(update, counter) and _depends_only_on(start, None)
        return counter if is_counter else None


def _depends_only_on(value: Instruction, source: Instruction | None) -> bool:
    """Whether a value is computed from `source` and constants alone."""
    work, seen = [value], {value}
    while work:
        one = work.pop()
        if one is source or one.opcode == "constant":
            continue
        if not one.operands:
            return False
        for operand in one.operands:
            if operand not in seen:
                seen.add(operand)
                work.append(operand)
    return True
