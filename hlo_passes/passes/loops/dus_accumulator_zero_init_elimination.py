"""Leaves out the zeros of a buffer that a loop overwrites completely.

Before:  %zeros = f32[6,4] broadcast(%zero)
         while (6 times) from (0, %zeros):
             %b = dynamic-update-slice(%buffer, %x, %i, %none)
After:   %buffer = f32[6,4] custom-call(), custom_call_target="AllocateBuffer"
         while (6 times) from (0, %buffer): ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.index_ranges import IndexRange, IndexRanges
from hlo_passes.analysis.while_loop_patterns import induction_variable
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import gpu_config, has_gpu_config, known_trip_count
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report

_LAYOUT_ONLY: Final = frozenset({"bitcast", "copy", "reshape"})
#: What changes a constant's type.
_CASTS: Final = frozenset({"bitcast", "bitcast-convert", "convert"})
_DESCRIPTION: Final = ("metadata", "frontend_attributes")
_FIRST_INDEX: Final = 2


@dataclass(frozen=True, slots=True)
class DusAccumulatorZeroInitElimination(Pass):
    """Leave a buffer without initial values if a loop overwrites all of it.

    The pass replaces the broadcast that fills the buffer with a custom call that only
    allocates the buffer. The initial value must be the broadcast of a scalar constant,
    nothing else may read it, and it must have as many rows as the loop has iterations.
    The loop must count from 0 by 1, and its trip count, start and step must be in its
    backend config. The body may use the buffer only for the store of a slice, and the
    slices of all iterations must cover the buffer.

    XLA does not check whether the body or the condition reads the stored values while
    some rows are still missing. Without XLA's quirks (`--no-xla-quirks`), such a buffer
    keeps its initial values.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, times nested fusions of a store.
    Source: openxla/xla
        `xla/backends/gpu/transforms/dus_accumulator_zero_init_elimination.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "dus-accumulator-zero-init-elimination"

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every element of every loop."""
        version = module.version
        graph = build_call_graph(module)
        release = context.release_for(module, self.xla)
        for computation in module.computations:
            if graph.is_fusion_body(computation):
                continue
            for loop in computation.instructions:
                if loop.opcode != "while":
                    continue
                config = _count(loop)
                if isinstance(config, str):
                    report.remark(f"initial values stay: %{loop.name} {config}")
                    continue
                count, index = config
                if index is None:
                    index = induction_variable(loop, release)
                if index is None:
                    report.remark(f"initial values stay: %{loop.name} has no counter")
                    continue
                stores = _Stores(loop, count, index, graph, context.xla_quirks)
                _visit(stores, report)
        return module.version != version


def _count(loop: Instruction) -> tuple[int, int | None] | str:
    """(trip count, element that counts) of a loop; a text says what is missing."""
    if "sharding" in loop.attributes:
        return "has a sharding"
    count = known_trip_count(loop)
    if count is None or count <= 0:
        return "has no known trip count"
    config: Mapping[str, Any] = gpu_config(loop) if has_gpu_config(loop) else {}
    line = config.get("known_init_step")
    if line is None:
        return "has no known start and step"
    if int(line.get("init", 0)) != 0 or int(line.get("step", 0)) != 1:
        return "does not count from 0 by 1"
    if loop.operands[0].opcode != "tuple":
        return "starts from no tuple"
    known = config.get("known_induction_variable")
    return count, None if known is None else int(known.get("tuple_index", 0))


def _visit(stores: _Stores, report: Report) -> None:
    """Take the initial values of one loop's buffers away."""
    loop, start = stores.loop, stores.loop.operands[0]
    computation = loop.computation
    for index in range(len(start.operands)):
        initial = start.operands[index]
        if index == stores.counter or not is_filled(initial):
            continue
        reason = ""
        dimensions = initial.shape.dimensions if initial.shape.is_array else ()
        if "sharding" in initial.attributes:
            reason = "has a sharding"
        elif initial.user_count != 1:
            reason = "is read by others"
        elif not dimensions or dimensions[0] != stores.count:
            reason = f"does not have {stores.count} rows"
        elif not stores.overwrite(index):
            reason = f"is read in the loop %{loop.name} before it is overwritten"
        if reason:
            report.remark(f"initial values stay: %{initial.name} {reason}")
            continue
        buffer = computation.new(
            "custom-call",
            initial.shape,
            (),
            {"custom_call_target": '"AllocateBuffer"'}
            | {
                n: initial.attributes[n]
                for n in _DESCRIPTION
                if n in initial.attributes
            },
            before=start,
        )
        for name in _DESCRIPTION:
            buffer.set_attribute(name, initial.attributes.get(name))
        operands = list(start.operands)
        operands[index] = buffer
        computation.set_operands(start, operands)
        report.count("initial-values-left-out")


def is_filled(initial: Instruction) -> bool:
    """Whether it is a broadcast scalar constant, perhaps one that a fusion makes."""
    if _is_broadcast_constant(initial):
        return True
    fusion, element = initial, None
    if initial.opcode == "get-tuple-element":
        fusion, element = initial.operands[0], initial.tuple_index
    if fusion.opcode != "fusion" or fusion.operands:
        return False
    root = fusion.called_computations[0].root
    if element is not None:
        if root.opcode != "tuple":
            return False
        root = root.operands[element]
    return _is_broadcast_constant(root)


def _is_broadcast_constant(value: Instruction) -> bool:
    while value.opcode in _LAYOUT_ONLY:
        value = value.operands[0]
    if value.opcode != "broadcast":
        return False
    scalar = value.operands[0]
    while scalar.opcode in _CASTS:
        scalar = scalar.operands[0]
    return scalar.opcode == "constant" and scalar.shape.rank == 0


@dataclass(slots=True)
class _Stores:
    """What the body of one loop does with its buffers."""

    loop: Instruction
    count: int
    counter: int
    graph: CallGraph
    xla_quirks: bool

    @property
    def body(self) -> Computation:
        """The computation of one iteration."""
        return self.loop.called_computations[0]

    def overwrite(self, index: int) -> bool:
        """Whether nobody reads the element before all of it is overwritten."""
        root, state = self.body.root, self.body.parameters[0]
        if root.opcode != "tuple":
            return False
        elements = [u for u in state.users if u.tuple_index_or_none == index]
        if not self.xla_quirks and (
            any(u.opcode != "get-tuple-element" for u in state.users)
            or self._condition_reads(index)
        ):
            return False
        if len(elements) != 1:
            return not elements
        (element,) = elements
        result = root.operands[index]
        while result.opcode in ("bitcast", "copy"):
            result = result.operands[0]
        if result is element or not self._is_overwritten(element):
            return False
        return self.xla_quirks or self._is_only_returned(element, index)

    def _condition_reads(self, index: int) -> bool:
        state = self.loop.called_computations[1].parameters[0]
        return any(u.tuple_index_or_none in (None, index) for u in state.users)

    def _is_overwritten(self, buffer: Instruction) -> bool:
        """Whether all users store into it."""
        return all(self._overwrites(user, buffer) for user in buffer.users)

    def _overwrites(self, user: Instruction, buffer: Instruction) -> bool:
        if user.opcode == "dynamic-update-slice":
            return user.operands[0] is buffer and self._covers(user)
        if user.opcode == "bitcast":
            return self._is_overwritten(user)
        if user.opcode == "fusion":
            parameters = user.called_computations[0].parameters
            return self._is_overwritten(parameters[user.operands.index(buffer)])
        if user.opcode != "conditional":
            return False
        branches = [
            branch.parameters[0]
            for branch, given in zip(
                user.called_computations, user.operands[1:], strict=True
            )
            if given is buffer
        ]
        return bool(branches) and all(map(self._is_overwritten, branches))

    def _is_only_returned(self, buffer: Instruction, index: int) -> bool:
        """Whether one store reads the buffer, and only the result has what it makes."""
        value = buffer
        while value.user_count == 1:
            (user,) = value.users
            if user is self.body.root:
                return user.operands.count(value) == 1 and user.operands[index] is value
            if user.opcode == "fusion":
                callee = user.called_computations[0]
                if user.operands.count(value) != 1:
                    return False
                place = user.operands.index(value)
                if not _is_stored_by_root(callee.parameters[place]):
                    return False
            elif user.opcode == "dynamic-update-slice":
                if user.operands.count(value) != 1:
                    return False
            elif user.opcode not in ("bitcast", "copy"):
                return False
            value = user
        return False

    def _covers(self, store: Instruction) -> bool:
        """Whether the slices of all iterations cover the buffer."""
        whole, part = (o.shape.dimensions for o in store.operands[:2])
        if len(whole) != len(part):
            return False
        ranges = IndexRanges(self._known(), lambda _: None, self._fusion_of)
        moving: tuple[int, IndexRange] | None = None
        for k, index in enumerate(store.operands[_FIRST_INDEX:]):
            values = ranges.of(index)
            if values is None or not values.step:
                return False
            if values.is_one_value and values.first == 0:
                if part[k] != whole[k]:
                    return False
            elif moving is not None:
                return False
            else:
                moving = k, values
        if moving is None:
            return False
        k, values = moving
        assert values.step is not None
        return (
            0 < part[k] <= whole[k]
            and values.first <= 0
            and values.last >= whole[k] - part[k]
            and part[k] >= values.step
        )

    def _known(self) -> dict[Instruction, IndexRange]:
        values = IndexRange(0, self.count - 1)
        return {
            user: values
            for user in self.body.parameters[0].users
            if user.tuple_index_or_none == self.counter
        }

    def _fusion_of(self, computation: Computation) -> Instruction | None:
        callers = self.graph.callers_of(computation)
        is_fused = len(callers) == 1 and callers[0].opcode == "fusion"
        return callers[0] if is_fused else None


def _is_stored_by_root(parameter: Instruction) -> bool:
    """Whether a fusion stores into a parameter and returns just that."""
    value = parameter
    while not value.is_root:
        if value.user_count != 1:
            return False
        (user,) = value.users
        if user.opcode not in ("bitcast", "dynamic-update-slice") or (
            user.operands[0] is not value or user.operands.count(value) != 1
        ):
            return False
        value = user
    return True
