"""Joins elements of a loop's state that its body concatenates.

Before:  while from tuple(%zero, %a, %b):  %sums = concatenate(%x, %y)
                                           %x.1 = add(%x, slice(%sums))
                                           %y.1 = add(%y, slice(%sums))
After:   while from tuple(%zero, concatenate(%a, %b)):  %xy.1 = add(%xy, %xy)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hlo_passes.analysis.call_graph import build_call_graph, computations_post_order
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import gpu_config, has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.cleanup.tuple_simplifier import TupleSimplifier
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.concat_groups import (
    Group,
    Groups,
    elements_read,
    is_shared_scalar,
    operand_dimension,
)
from hlo_passes.passes.rewriting.cloning import (
    Copies,
    clone_computation,
    clone_instruction,
    element_of,
    repeat_control_edges,
)
from hlo_passes.passes.rewriting.copies import derive


@dataclass(frozen=True, slots=True)
class WhileLoopConcatCodeMotion(Pass):
    """Join arrays in a loop's state if the loop body concatenates them.

    The pass starts at a concatenate in the loop body and follows its operands upward.
    It can pass through elementwise operations, broadcasts, reduces, reshapes, and
    all-reduces without a channel, if they do the same to each part. It can end at
    slices that cut one value into the parts, and at elements of the state, which the
    body must then return joined as well. If everything fits, the loop computes each
    group of values as one value and no longer needs the concatenate. For example,
    several small all-reduces become one. Other readers, in the loop and after it, read
    slices of the joined value.

    The pass does not join elements that the loop condition reads. XLA does not run the
    pass on GPUs. XLA simplifies all loops afterward; this pass only cleans up dead code
    and tuples.

    Ensures: a second run changes nothing.
    Complexity: instructions times the logarithm of their number; for each concatenate
        the groups above it.
    Source: openxla/xla `xla/service/while_loop_concat_code_motion.cc`.

    Attributes:
        least_operands: leave a concatenate alone if it has fewer operands.
    """

    name: ClassVar[str] = "while-loop-concat-code-motion"

    least_operands: int = 2

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every loop that was there at the start, inner ones first."""
        version = module.version
        graph = build_call_graph(module)
        loops = [
            instruction
            for computation in computations_post_order(module, fusions=False)
            for instruction in post_order(computation)
            if instruction.opcode == "while"
        ]
        changed: dict[Computation, None] = {}
        for loop in loops:
            reason = _reason_to_keep(loop)
            if len(graph.callers_of(loop.called_computations[0])) > 1:
                reason = "shares its body"
            if reason:
                report.remark(f"nothing joined: %{loop.name} {reason}")
                continue
            joining = self._find(loop, report)
            if joining is not None:
                joining.rewrite()
                changed[loop.computation] = None
                report.count("loops-changed")
                report.count("groups-joined", len(joining.groups.found))
        for computation in changed:
            restore_text_order(computation)
        if module.version == version:
            return False
        TupleSimplifier().run(module, context, Report())
        HloDce().run(module, context, Report())
        return True

    def _find(self, loop: Instruction, report: Report) -> _Joining | None:
        """What one loop can compute joined."""
        body, condition = loop.called_computations
        state, instructions = body.parameters[0], post_order(body)
        order = {instruction: k for k, instruction in enumerate(instructions)}
        groups = Groups(state, order)
        # What the condition reads stays as it is.
        read = elements_read(condition.parameters[0])
        kept = range(len(loop.shape.elements)) if read is None else set(read)
        groups.alone |= {e for e in state.users if e.tuple_index in kept}
        gone = []
        for concatenate in instructions:
            if (
                concatenate.opcode != "concatenate"
                or len(concatenate.operands) < self.least_operands
            ):
                continue
            problem = groups.add_for(concatenate)
            if problem:
                report.remark(f"not joined for %{concatenate.name}: {problem}")
            elif groups.group_of(concatenate.operands[0]) is not None:
                gone.append(concatenate)
        if not gone:
            report.remark(f"nothing joined: %{loop.name} has nothing to join")
            return None
        return _Joining(loop, groups, set(gone), instructions)


def _reason_to_keep(loop: Instruction) -> str:
    body = loop.called_computations[0]
    if not loop.shape.is_tuple or body.root.opcode != "tuple":
        return "has a body that returns no tuple"
    if has_control_edges(loop):
        return "has control edges"
    indices = elements_read(body.parameters[0])
    if indices is None:
        return "reads its state as a whole"
    return "reads an element twice" if len(set(indices)) < len(indices) else ""


@dataclass(slots=True)
class _Joining:
    """One loop and what it computes joined.

    Attributes:
        loop: the old loop.
        groups: what is joined in its body.
        gone: concatenates that are not needed.
        instructions: of the body, in post order.
        copies: what stands in the new body for what is not joined.
        wide: what stands for the groups.
    """

    loop: Instruction
    groups: Groups
    gone: set[Instruction]
    instructions: Sequence[Instruction]
    copies: Copies = field(default_factory=dict)
    wide: dict[Group, Instruction] = field(default_factory=dict)

    def rewrite(self) -> None:
        """Replace the loop. The order of the text around it is not restored."""
        loop, computation = self.loop, self.loop.computation
        body, condition = loop.called_computations
        # An element of the new state is a group of old ones, or one old element.
        joined: dict[int, Group] = {}
        for element in body.parameters[0].users:
            group = self.groups.group_of(element)
            if group is not None:
                joined[element.tuple_index] = group
        firsts = {g.elements[0].tuple_index: g for g in joined.values()}
        kept = [
            k for k in range(len(loop.shape.elements)) if k in firsts or k not in joined
        ]
        places = {index: place for place, index in enumerate(kept)}
        shape = tuple_shape(
            [firsts[k].shape if k in firsts else loop.shape.elements[k] for k in kept]
        )
        # Start it with joined elements.
        start = loop.operands[0]
        starts = [
            start.operands[k]
            if start.opcode == "tuple"
            else element_of(start, k, before=loop)
            for k in range(len(loop.shape.elements))
        ]
        begin = [
            _join(firsts[k], [starts[e.tuple_index] for e in firsts[k].elements])
            if k in firsts
            else starts[k]
            for k in kept
        ]
        new_body = self._body(shape, places, firsts)
        new_condition = _condition(condition, shape, places)
        new = computation.new(
            "while",
            shape,
            [computation.new("tuple", shape, begin)],
            {"condition": f"%{new_condition.name}", "body": f"%{new_body.name}"},
        )
        derive(new, loop)
        new.set_attribute("sharding", None)
        _renumber(new, places)
        # Return its parts.
        returned = {k: element_of(new, places[k]) for k in kept}
        for group in firsts.values():
            whole = returned[group.elements[0].tuple_index]
            for place, element in enumerate(group.elements):
                returned[element.tuple_index] = _part(group, whole, place)
        result = computation.new(
            "tuple", loop.shape, [returned[k] for k in range(len(returned))]
        )
        computation.replace_uses(loop, result)
        computation.remove(loop)

    # -- the body ------------------------------------------------------------------

    def _body(
        self, shape: Shape, places: dict[int, int], firsts: dict[int, Group]
    ) -> Computation:
        """The new body."""
        old = self.loop.called_computations[0]
        module = old.module
        new = Computation(
            module.fresh_computation_name(old.name),
            execution_thread=old.execution_thread,
        )
        module.add_computation(new, before=old)
        state = new.new("parameter", shape, name=old.parameters[0].name, literal="0")
        self.copies[old.parameters[0]] = state
        self._write([i for i in self.instructions if i is not old.root], new, places)
        # Return what is joined joined, and the rest as it was.
        ends: list[Instruction] = []
        for index in places:
            end, group = old.root.operands[index], firsts.get(index)
            if group is None:
                ends.append(self._narrow(end))
                continue
            returned = self.groups.group_of(end)
            value = (
                self._spread(end, group) if returned is None else self.wide[returned]
            )
            ends.append(_shaped(value, group.shape))
        root = new.new("tuple", shape, ends, name=old.root.name)
        new.set_root(root)
        self.copies[old.root] = root
        for instruction in self.instructions:
            if instruction in self.copies:
                repeat_control_edges(instruction, self.copies)
        restore_text_order(new)
        return new

    def _write(
        self, wanted: Sequence[Instruction], new: Computation, places: dict[int, int]
    ) -> None:
        """Write instructions, and groups for those that are in one."""
        work = list(reversed(wanted))
        while work:
            one = work[-1]
            group = self.groups.group_of(one)
            if one in self.copies if group is None else group in self.wide:
                work.pop()
                continue
            # A group stands where its first element's operands are known.
            reader = one if group is None else group.elements[0]
            missing = [
                o
                for o in (reader.operands if one not in self.gone else ())
                if not self._is_known(o)
            ]
            if missing:
                work += reversed(missing)
                continue
            work.pop()
            if one in self.gone:
                operand = self.groups.group_of(one.operands[0])
                assert operand is not None
                if operand not in self.wide:
                    work += [one, operand.elements[0]]
                    continue
                self.copies[one] = _shaped(self.wide[operand], one.shape)
            elif group is not None:
                self.wide[group] = self._joined(group, places)
            elif one.tuple_index_or_none is not None and (
                one.operands[0] is self.groups.body_state
            ):
                state = self.copies[one.operands[0]]
                self.copies[one] = element_of(state, places[one.tuple_index])
            else:
                operands = [self._narrow(o) for o in one.operands]
                self.copies[one] = clone_instruction(one, new, operands)

    def _is_known(self, instruction: Instruction) -> bool:
        group = self.groups.group_of(instruction)
        if group is None:
            return instruction in self.copies
        return group in self.wide

    def _narrow(self, value: Instruction) -> Instruction:
        """A value of the old body as it was, in the new one."""
        found = self.copies.get(value)
        if found is None:
            number, place = self.groups.places[value]
            group = self.groups.found[number]
            found = self.copies[value] = _part(group, self.wide[group], place)
        return found

    def _joined(self, group: Group, places: dict[int, int]) -> Instruction:
        """What computes a group."""
        first = group.elements[0]
        if first.opcode == "get-tuple-element":
            state = self.copies[first.operands[0]]
            return element_of(state, places[first.tuple_index])
        if first.opcode == "slice":
            return self._narrow(first.operands[0])
        operands: list[Instruction] = []
        dimension, inserted = group.dimension, group.inserted
        shape = group.shape
        if (
            first.opcode == "broadcast"
            and not inserted
            and dimension not in first.integers("dimensions")
            and first.shape.dimensions[dimension] != 1
        ):
            # The operand has no part in the joined dimension: join in a new one, merge.
            inserted = True
            shape = Group(group.elements, dimension, inserted=True).shape
        for place, operand in enumerate(first.operands):
            if is_shared_scalar(first, place):
                operands.append(self._narrow(operand))
                continue
            where = operand_dimension(first, group.dimension, inserted=group.inserted)
            assert where is not None
            wanted = Group(tuple(e.operands[place] for e in group.elements), *where)
            known = self.groups.group_of(operand)
            value = self._spread(operand, wanted) if known is None else self.wide[known]
            operands.append(_shaped(value, wanted.shape))
        attributes = _attributes(first, dimension, inserted=inserted)
        computation = operands[0].computation
        wide = clone_instruction(first, computation, operands)
        computation.set_shape(wide, shape)
        for name, text in attributes.items():
            wide.set_attribute(name, text)
        return _shaped(wide, group.shape)

    def _spread(self, value: Instruction, group: Group) -> Instruction:
        """A value that all elements share, joined with itself."""
        shared = self._narrow(value)
        at = group.dimension
        ranks = [k + (k >= at) for k in range(shared.shape.rank)]
        inserted = Group(group.elements, at, inserted=True)
        spread = shared.computation.new(
            "broadcast",
            inserted.shape,
            [shared],
            {"dimensions": f"{{{','.join(map(str, ranks))}}}"},
        )
        return _shaped(spread, group.shape)


def _attributes(
    first: Instruction, dimension: int, *, inserted: bool
) -> dict[str, str]:
    """The attributes of a joined operation that differ from its first element's."""
    if first.opcode not in ("broadcast", "reduce"):
        return {}
    places = list(first.integers("dimensions"))
    where = operand_dimension(first, dimension, inserted=inserted)
    assert where is not None
    at, operand_inserted = where
    if first.opcode == "reduce":
        if operand_inserted:
            places = [k + (k >= at) for k in places]
    else:
        if inserted:
            places = [k + (k >= dimension) for k in places]
        if operand_inserted:
            places.insert(at, dimension)
    return {"dimensions": f"{{{','.join(map(str, places))}}}"}


# -- around the body -----------------------------------------------------------------


def _shaped(value: Instruction, shape: Shape) -> Instruction:
    """A value with other dimensions, of which some are merged or split."""
    if value.shape.dimensions == shape.dimensions:
        return value
    return value.computation.new("reshape", shape, [value])


def _join(group: Group, values: Sequence[Instruction]) -> Instruction:
    """Concatenate values as a group is joined."""
    if group.inserted:
        shape, at = values[0].shape, group.dimension
        sizes = (*shape.dimensions[:at], 1, *shape.dimensions[at:])
        values = [_shaped(v, v.shape.with_dimensions(sizes)) for v in values]
    return values[0].computation.new(
        "concatenate",
        group.shape,
        values,
        {"dimensions": f"{{{group.dimension}}}"},
    )


def _part(group: Group, whole: Instruction, place: int) -> Instruction:
    """One element of a joined value."""
    at, (first, end) = group.dimension, group.part(place)
    bounds = [(0, size) for size in whole.shape.dimensions]
    bounds[at] = first, end
    text = ", ".join(f"[{low}:{high}]" for low, high in bounds)
    dimensions = list(whole.shape.dimensions)
    dimensions[at] = end - first
    part = whole.computation.new(
        "slice",
        whole.shape.with_dimensions(tuple(dimensions)),
        [whole],
        {"slice": f"{{{text}}}"},
    )
    return _shaped(part, group.elements[place].shape)


def _condition(
    condition: Computation, shape: Shape, places: dict[int, int]
) -> Computation:
    """A condition that reads the new state."""
    state = condition.parameters[0]

    def parameter(computation: Computation, copies: Copies) -> Instruction:
        return computation.new("parameter", shape, name=state.name, literal="0")

    new, copies = clone_computation(condition, {state: parameter})
    for element in state.users:
        copies[element].set_attribute("index", str(places[element.tuple_index]))
    return new


def _renumber(loop: Instruction, places: dict[int, int]) -> None:
    """Let the backend config name the new elements of the state."""
    if not has_gpu_config(loop):
        return
    config: dict[str, Any] = dict(gpu_config(loop))
    counter = config.get("known_induction_variable")
    if counter is not None:
        config["known_induction_variable"] = _renumbered(counter, places)
    lines = config.get("dynamic_variables")
    if lines:
        config["dynamic_variables"] = [_renumbered(line, places) for line in lines]
    if config != gpu_config(loop):
        loop.backend_config = BackendConfig.of_json(config)


def _renumbered(line: dict[str, Any], places: dict[int, int]) -> dict[str, Any]:
    index = int(line.get("tuple_index", 0))
    return {**line, "tuple_index": str(places.get(index, index))}
