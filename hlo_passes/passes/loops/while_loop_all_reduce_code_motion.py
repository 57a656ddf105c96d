"""Adds up each device's own values in a loop, and reduces the sum once, after it.

Before:  while (16 times):  %r = all-reduce(%x)
                            %total = add(%total of the iteration before, %r)
After:   while (16 times):  %total = add(%total of the iteration before, %x)
         %sum = add(%total before the loop, all-reduce(%total))
                                                    the loop itself starts from 0
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.replication import SharedValues
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.literal_text import array_text
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.movable_reductions import (
    Accumulation,
    ReductionSearch,
    StoredSlices,
)
from hlo_passes.passes.loops.pipelining import Callers, constant
from hlo_passes.passes.rewriting.cloning import clone_instruction, element_of
from hlo_passes.xla_release import XlaRelease

#: What a new loop or collective takes from the one that it was made from.
_DESCRIPTION: Final = ("metadata", "frontend_attributes", "sharding")
_OF_LOOP: Final = ("condition", "body", "backend_config", *_DESCRIPTION)
_OF_REDUCTION: Final = (
    "replica_groups",
    "use_global_device_ids",
    "dimensions",
    "to_apply",
)


@dataclass(frozen=True, slots=True)
class WhileLoopAllReduceCodeMotion(Pass):
    """Move all-reduces out of loops that only add up or store their results.

    The pass moves an all-reduce in two cases. Either the loop adds its result to a
    state element that nothing else in the loop reads, or the loop stores its results in
    such an element, slice by slice. Linear operations may be in between: conversions,
    reshapes, transposes, and selects between the value and 0. After the loop, one
    all-reduce remains, of the sum or of all slices. A floating-point sum is then
    rounded in another order.

    XLA does not check three things: whether all devices choose alike in a `select`,
    whether a factor was reduced over the same devices, and whether a conversion of a
    sum equals the sum of the converted parts (a `convert` to an integer type does not).
    It also treats a scatter into a value as a sum, even if an earlier iteration has
    reduced that value. And it gives a channel id to all-reduces that had none. Without
    XLA's quirks (`--no-xla-quirks`), all-reduces that fail these checks stay in the
    loop, and all-reduces without a channel id get none. The pass stops when it finds a
    layout-constrained all-reduce in a loop.

    By default, reduce-scatters stay in the loop, as in XLA. If they move too, the loop
    adds up their whole operands, so its state grows.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions for each all-reduce of a loop.
    Source: openxla/xla `xla/service/while_loop_all_reduce_code_motion.cc`.

    Attributes:
        most_stored_bytes: the most bytes that the slices of all iterations may have
            together; larger ones stay in the loop.
        most_constants: a sum with more elements than this starts from a broadcast,
            where XLA writes an array of zeros.
        reduce_scatter: also move reduce-scatters.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "while-loop-all-reduce-code-motion"
    reorders_sums: ClassVar[bool] = True

    most_stored_bytes: int = 10240
    most_constants: int = 65536
    reduce_scatter: bool = False
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit the bodies of loops, callees first."""
        version = module.version
        graph = build_call_graph(module)
        callers = Callers(dict(graph.callers))
        release = context.release_for(module, self.xla)
        motion = _Motion(
            release,
            context.xla_quirks,
            self.most_constants,
            next_channel_id(module),
        )
        opcodes = {"all-reduce"} | (
            {"reduce-scatter"} if self.reduce_scatter else set()
        )
        # Judged once, of the module as it was.
        shared = functools.cache(lambda: SharedValues.of(module))
        changed: dict[Computation, None] = {}
        for body in graph.post_order:
            loops = [
                caller
                for caller in graph.callers_of(body)
                if caller.opcode == "while"
                and caller.called_computations[0] is body
                and caller.shape.is_tuple
                and not caller.removed
            ]
            reductions = [i for i in post_order(body) if i.opcode in opcodes]
            if not loops or not reductions:
                continue
            if any(r.attributes.get("constrain_layout") == "true" for r in reductions):
                report.remark(f"not moved: %{body.name} constrains layouts")
                break
            if any(has_control_edges(i) for i in (*loops, *reductions)) or any(
                loop.operands[0].opcode != "tuple" for loop in loops
            ):
                report.remark(
                    f"not moved: loops of %{body.name} have control edges or no tuple "
                    "to start from"
                )
                continue
            search = ReductionSearch(
                body,
                loops,
                shared(),
                release,
                self.most_stored_bytes,
                context.xla_quirks,
            )
            sums: dict[Instruction, list[Accumulation]] = {}
            slices: dict[Instruction, StoredSlices] = {}
            for reduction in reductions:
                found = search.movable(reduction)
                if reduction.opcode == "reduce-scatter" and not _own(loops, graph):
                    found = "is in a loop whose condition others have, too"
                if isinstance(found, str):
                    report.remark(f"not moved: %{reduction.name} {found}")
                elif isinstance(found, StoredSlices):
                    slices[reduction] = found
                else:
                    sums[reduction] = found
            if slices:
                loops = [motion.move_slices(loop, slices) for loop in loops]
            if sums:
                _widen_sums(body, loops, sums)
                loops = [motion.move_sums(loop, sums) for loop in loops]
            for reduction in (*slices, *sums):
                if release.moved_reductions_take_attributes:
                    reduction.set_attribute("frontend_attributes", None)
                body.replace(reduction, reduction.operands[0])
                report.count(f"{reduction.opcode}s-moved")
            if slices or sums:
                callers.set_body(body, loops)
                changed |= dict.fromkeys([body, *(loop.computation for loop in loops)])
        for computation in changed:
            restore_text_order(computation)
        return module.version != version


@dataclass(slots=True)
class _Motion:
    """Rewrites the loops of one body."""

    release: XlaRelease
    xla_quirks: bool
    most_constants: int
    next_channel: int

    def move_slices(
        self, loop: Instruction, moved: Mapping[Instruction, StoredSlices]
    ) -> Instruction:
        """Reduce after a loop what its iterations store; returns the new loop."""
        computation = loop.computation
        new = clone_instruction(loop, computation, loop.operands, before=loop)
        results: dict[int, Instruction] = {}
        # One constant for each number, whoever starts there.
        numbers: dict[int, Instruction] = {}
        for reduction, slices in moved.items():
            whole = element_of(new, slices.index, before=loop)
            kind = whole.shape.element_type
            ends = [
                o + n
                for o, n in zip(slices.offsets, slices.shape.dimensions, strict=True)
            ]
            value = whole
            if any(slices.offsets) or tuple(ends) != whole.shape.dimensions:
                parts = zip(slices.offsets, ends, strict=True)
                spelled = ", ".join(f"[{first}:{end}]" for first, end in parts)
                value = computation.new(
                    "slice",
                    slices.shape,
                    [value],
                    {"slice": f"{{{spelled}}}"},
                    before=loop,
                )
            value = _converted(value, reduction.shape.element_type, loop)
            reduced = clone_instruction(reduction, computation, [value], before=loop)
            computation.set_shape(reduced, value.shape)
            value = _converted(reduced, kind, loop)
            if not value.shape.compatible(whole.shape):
                for o in slices.offsets:
                    if o not in numbers:
                        numbers[o] = constant(computation, "s64", o, before=loop)
                places = [numbers[o] for o in slices.offsets]
                value = computation.new(
                    "dynamic-update-slice",
                    whole.shape,
                    [whole, value, *places],
                    before=loop,
                )
            results[slices.index] = value
        self._replace(loop, new, results)
        return new

    def move_sums(
        self, loop: Instruction, moved: Mapping[Instruction, list[Accumulation]]
    ) -> Instruction:
        """Let a loop add up from 0, and reduce the sums; returns the new loop."""
        computation, start = loop.computation, loop.operands[0]
        # Start the sums from 0.
        starts, before = list(start.operands), {}
        for reduction, sums in moved.items():
            for each in sums:
                before[each.index] = start.operands[each.index]
                summed = before[each.index].shape
                if reduction.opcode == "reduce-scatter":
                    summed = reduction.operands[0].shape
                starts[each.index] = self._zeros(computation, summed, loop)
        shape = tuple_shape([s.shape for s in starts])
        state = computation.new("tuple", shape, starts, before=loop)
        new = computation.new(
            "while",
            shape,
            [state],
            {n: loop.attributes[n] for n in _OF_LOOP if n in loop.attributes},
            before=loop,
        )
        # Reduce them, and add what they started with.
        results: dict[int, Instruction] = {}
        for reduction, sums in moved.items():
            for each in sums:
                total = element_of(new, each.index, before=loop)
                value = _converted(total, reduction.shape.element_type, loop)
                value = self._reduced(reduction, value, loop)
                value = _converted(value, total.shape.element_type, loop)
                results[each.index] = computation.new(
                    "add", value.shape, [before[each.index], value], before=loop
                )
        self._replace(loop, new, results)
        return new

    def _reduced(
        self, reduction: Instruction, value: Instruction, before: Instruction
    ) -> Instruction:
        names: tuple[str, ...] = _OF_REDUCTION
        is_derived = self.release.moved_reductions_are_derived
        if is_derived:
            names = (*names, *_DESCRIPTION)
        channel = reduction.channel_id
        if (channel is None and self.xla_quirks) or not (channel is None or is_derived):
            channel = self.next_channel
            self.next_channel += 1
        attributes = {
            n: reduction.attributes[n] for n in names if n in reduction.attributes
        }
        shape = value.shape
        if reduction.opcode == "reduce-scatter":
            shape = reduction.shape
        reduced = before.computation.new(
            reduction.opcode, shape, [value], attributes, before=before
        )
        reduced.channel_id = channel
        return reduced

    def _zeros(
        self, computation: Computation, shape: Shape, before: Instruction
    ) -> Instruction:
        if shape.element_count <= self.most_constants:
            text = array_text(np.zeros(shape.dimensions), "f32")
            return computation.new("constant", shape, literal=text, before=before)
        zero = constant(computation, shape.element_type, 0, before=before)
        return computation.new(
            "broadcast", shape, [zero], {"dimensions": "{}"}, before=before
        )

    def _replace(
        self, loop: Instruction, new: Instruction, results: Mapping[int, Instruction]
    ) -> None:
        """Put a tuple of the new results in place of the old loop."""
        computation = loop.computation
        elements = [
            results[k] if k in results else element_of(new, k, before=loop)
            for k in range(len(new.shape.elements))
        ]
        shape = tuple_shape([e.shape for e in elements])
        result = computation.new("tuple", shape, elements, before=loop)
        computation.replace(loop, result)
        if self.release.moved_reductions_are_derived:
            for user in result.users:
                index = user.tuple_index_or_none
                if index is not None:
                    computation.replace(user, elements[index])


def _own(loops: Sequence[Instruction], graph: CallGraph) -> bool:
    """Whether nothing but these loops has their conditions, which must change."""
    return all(
        caller in loops
        for loop in loops
        for caller in graph.callers_of(loop.called_computations[1])
    )


def _widen_sums(
    body: Computation,
    loops: Sequence[Instruction],
    moved: Mapping[Instruction, Sequence[Accumulation]],
) -> None:
    """Let body and conditions hold what is not scattered yet."""
    zeros: dict[Shape, Instruction] = {}
    state = body.parameters[0]
    types = list(state.shape.elements)
    for reduction, sums in moved.items():
        if reduction.opcode != "reduce-scatter":
            continue
        given = reduction.operands[0]
        # The sums, and what reads them.
        for each in sums:
            types[each.index] = given.shape
            body.set_shape(each.buffer, given.shape)
            body.set_shape(each.adds, given.shape)
        # What chooses between the value and 0.
        for select in reduction.users:
            if select.opcode != "select":
                continue
            zero = zeros.get(given.shape)
            if zero is None:
                text = array_text(np.zeros(given.shape.dimensions), "f32")
                zero = body.new("constant", given.shape, literal=text, before=select)
                zeros[given.shape] = zero
            predicate = body.new(
                "broadcast",
                given.shape.with_element_type("pred"),
                [select.operands[0].operands[0]],
                {"dimensions": "{}"},
                before=select,
            )
            choices = [given if o is reduction else zero for o in select.operands[1:]]
            body.set_shape(select, given.shape)
            body.set_operands(select, [predicate, *choices])
    shape = tuple_shape(types)
    if tuple(types) == tuple(state.shape.elements):
        return
    body.set_shape(state, shape)
    body.set_shape(body.root, shape)
    for loop in loops:
        condition = loop.called_computations[1]
        condition.set_shape(condition.parameters[0], shape)


def _converted(value: Instruction, kind: str, before: Instruction) -> Instruction:
    if value.shape.element_type == kind:
        return value
    shape = value.shape.with_element_type(kind)
    return value.computation.new("convert", shape, [value], before=before)
