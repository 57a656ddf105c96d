"""What the collective pipeliners share: loops, moved operations, channels, marks.

    while { x = f(i); y = all-reduce(x); b = dynamic-update-slice(b, y, i) }
                      `--- moved ---'   `------------ store ------------'

A pipeliner finds counted loops, decides for each what it moves to another iteration,
and rewrites the loops one by one. Copies of collectives receive fresh channel ids, and
what is moved is marked as pipelined.

Source: openxla/xla `xla/service/collective_pipeliner.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.counted_loops import CountedLoop, counted_loop
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.analysis.host_offload import moves_slice
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.scheduling_annotations import (
    Annotation,
    annotation_of,
    next_group,
    set_annotation,
)
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import is_host_transfer
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import SYNC_COLLECTIVES, facts
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.cloning import (
    Copies,
    clone_instruction,
    repeat_control_edges,
)
from hlo_passes.passes.rewriting.gpu_backend_config import set_collective_fields
from hlo_passes.xla_release import XlaRelease

#: Targets of the custom calls with which one run tells the next what it moved.
INSERTED: Final = '"InsertedByPreviousStep"'
SUNK: Final = '"SunkByPreviousStep"'
#: The frontend attribute that chooses operations if only marked ones are moved.
MARK: Final = "is_pipelineable"
_TRUE: Final = frozenset({"true", "t", "yes", "y", "1"})
_HOST: Final = {"move-to-host": '"MoveToHost"', "move-to-device": '"MoveToDevice"'}
_TRANSFERS: Final = frozenset({"send", "recv"})
_TRANSFERS_DONE: Final = frozenset({"send-done", "recv-done"})
#: Of a pipelined loop only one side of each edge is left, so that it cannot be moved.
_WITH_EDGES: Final = "has control edges"


@dataclass(slots=True)
class Move:
    """What leaves its iteration together.

    Attributes:
        collectives: the operations to move; several only for the sink.
        formatting: what is moved with them, operands first: what lies between a
            collective and its stores, or before it.
        stores: the dynamic-update-slices that keep the results.
        outputs: the elements of the loop's result that the stores are.
        dimension: in which the stores write one slice; -1 without a store.
        token_sink: what consumes the result and returns a token.
    """

    collectives: list[Instruction]
    formatting: list[Instruction]
    stores: list[Instruction] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    dimension: int = -1
    token_sink: Instruction | None = None

    @property
    def collective(self) -> Instruction:
        """The first of the moved operations, the only one but for the sink."""
        return self.collectives[0]

    def store_index(self) -> Instruction:
        """The index at which the first store writes, in `dimension`."""
        return self.stores[0].operands[FIRST_INDEX + self.dimension]

    def side_inputs(self) -> list[Instruction]:
        """What the formatting reads besides the collectives and itself, each once."""
        seen = {*self.formatting, *self.collectives}
        found: list[Instruction] = []
        for operation in self.formatting:
            for operand in operation.operands:
                if operand not in seen:
                    seen.add(operand)
                    found.append(operand)
        return found


#: Where the indices of a dynamic-update-slice begin among its operands.
FIRST_INDEX: Final = 2


@dataclass(slots=True)
class PipelinedLoop:
    """A loop whose iterations are counted, and its parts."""

    loop: Instruction
    counted: CountedLoop
    iterations: int

    @property
    def computation(self) -> Computation:
        """The computation that runs the loop."""
        return self.loop.computation

    @property
    def body(self) -> Computation:
        """The computation of one iteration."""
        return self.loop.called_computations[0]

    @property
    def condition(self) -> Computation:
        """The computation that says whether another iteration runs."""
        return self.loop.called_computations[1]

    @property
    def start(self) -> Instruction:
        """The tuple of the state before the first iteration."""
        return self.loop.operands[0]


@dataclass(slots=True)
class Copying:
    """Makes the copies of one run: their channels, annotations and marks.

    Attributes:
        release: which fields a backend config has.
        fresh_channels: whether copies of collectives receive channel ids of their own.
        next_channel: the next free one.
        next_group: the next free number of a scheduling group.
    """

    release: XlaRelease
    fresh_channels: bool
    next_channel: int
    next_group: int

    def give_channel(self, copy: Instruction) -> None:
        """Give a copy a channel of its own, if it has one.

        A send or recv keeps its own, since both iterations belong to one transfer.
        """
        opcode = copy.opcode
        is_host = is_host_transfer(copy)
        if opcode in _TRANSFERS and not is_host:
            return
        if opcode in _TRANSFERS_DONE:
            channel = copy.operands[0].channel_id
            if channel is not None:
                copy.channel_id = channel
            return
        row = facts(opcode)
        is_native_start = row.half == "start" and row.spelling == "native"
        if not (opcode in SYNC_COLLECTIVES or is_native_start or is_host):
            return
        if self.fresh_channels and copy.channel_id is not None:
            copy.channel_id = self.next_channel
            self.next_channel += 1

    def mark_pipelined(self, copy: Instruction) -> None:
        """Say in the backend config of a collective that it was pipelined."""
        if copy.opcode in SYNC_COLLECTIVES and has_gpu_config(copy):
            set_collective_fields(copy, self.release, is_pipelined=True)

    def renumber_group(self, copy: Instruction, groups: dict[int, int]) -> None:
        """Put a copy into a scheduling group of its own copy of the body."""
        annotation = annotation_of(copy)
        if annotation is None or annotation.group is None:
            return
        group = groups.get(annotation.group)
        if group is None:
            group = groups[annotation.group] = self.next_group
            self.next_group += 1
        set_annotation(copy, Annotation(group, annotation.iteration))

    def clone(
        self,
        instruction: Instruction,
        computation: Computation,
        copies: Copies,
        before: Instruction | None,
    ) -> Instruction:
        """A copy over other copies, with its control edges and its channel."""
        operands = [copies[operand] for operand in instruction.operands]
        copy = clone_instruction(instruction, computation, operands, before=before)
        copies[instruction] = copy
        repeat_control_edges(instruction, copies)
        self.give_channel(copy)
        return copy


def drop_annotation(copy: Instruction) -> None:
    """Take an instruction out of its scheduling group."""
    if annotation_of(copy) is not None:
        set_annotation(copy, None)


@dataclass(frozen=True, slots=True)
class CollectivePipeliner(Pass):
    """The options of all pipeliners, and the order of their work.

    Attributes:
        op: the opcode to move; `move-to-host` and `move-to-device` stand for the custom
            calls that move slices.
        only_marked: move only operations with the frontend attribute `is_pipelineable`.
        most_per_loop: the most operations that may leave one loop.
        unique_channels: give copies of collectives their own channel ids.
        level: how many earlier runs have moved operations; each of them left marks.
        last_run: remove these marks at the end.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    op: str = "all-reduce"
    only_marked: bool = False
    most_per_loop: int = (1 << 63) - 1
    unique_channels: bool = True
    level: int = 0
    last_run: bool = True
    xla: str = ""

    def should_move(self, instruction: Instruction) -> bool:
        """Whether the options choose an instruction."""
        if self.op in _HOST:
            target = instruction.attributes.get("custom_call_target")
            return target == _HOST[self.op] and moves_slice(instruction)
        if instruction.opcode != self.op:
            return False
        if not self.only_marked:
            return True
        if "frontend_attributes" not in instruction.attributes:
            return False
        return instruction.frontend_attributes.get(MARK, "").lower() in _TRUE

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Rewrite each counted loop that has something to move."""
        return self.run_once(module, context, report)

    def run_once(self, module: Module, context: PassContext, report: Report) -> bool:
        """One round over all loops."""
        version = module.version
        graph = build_call_graph(module)
        # Find all loops first: rewriting one does not change how others count.
        loops = list(self._loops(graph, context, report))
        if not loops:
            return self._finish(module, context, version)
        callers = Callers(dict(graph.callers))
        copying = Copying(
            context.release_for(module, self.xla),
            self.unique_channels,
            next_channel_id(module),
            next_group(module),
        )
        # Rewrite them one by one.
        changed: dict[Computation, None] = {}
        for loop in loops:
            problem = _reason_to_keep(loop)
            if problem:
                report.remark(f"not pipelined: %{loop.loop.name} {problem}")
                continue
            moves = self.find_moves(loop, callers, context, report)
            if not moves:
                continue
            report.count("loops-pipelined")
            report.count("collectives-moved", sum(len(m.collectives) for m in moves))
            new = self.rewrite(loop, moves, copying, context)
            callers.set_loop(new)
            changed[new.computation] = None
            changed[new.called_computations[0]] = None
        for computation in changed:
            restore_text_order(computation)
        return self._finish(module, context, version)

    def find_moves(
        self,
        loop: PipelinedLoop,
        callers: Callers,
        context: PassContext,
        report: Report,
    ) -> list[Move]:
        """What leaves its iteration, in post order; [] leaves the loop alone."""
        raise NotImplementedError

    def rewrite(
        self,
        loop: PipelinedLoop,
        moves: list[Move],
        copying: Copying,
        context: PassContext,
    ) -> Instruction:
        """Rewrite one loop; returns the new `while`."""
        raise NotImplementedError

    def _loops(
        self, graph: CallGraph, context: PassContext, report: Report
    ) -> Iterable[PipelinedLoop]:
        for computation in graph.post_order:
            if not any(i.opcode == "while" for i in computation.instructions):
                continue
            for loop in post_order(computation):
                if loop.opcode != "while" or len(loop.called_computations) != 2:
                    continue
                body = loop.called_computations[0]
                if not any(map(self.should_move, body.instructions)):
                    continue
                counted = counted_loop(loop)
                if counted is None:
                    report.remark(
                        f"not pipelined: %{loop.name} does not count from a constant "
                        "to a constant"
                    )
                    continue
                often = counted.iterations
                if context.xla_quirks:
                    often = counted.xla_iterations
                if often is None or often < 2:
                    times = "an unknown number of times"
                    if often is not None:
                        times = ("never", "once")[often]
                    report.remark(f"not pipelined: %{loop.name} runs {times}")
                    continue
                yield PipelinedLoop(loop, counted, often)

    def _finish(self, module: Module, context: PassContext, version: int) -> bool:
        """Remove marks and what is dead by now; True if anything has changed."""
        if self.last_run:
            for computation in module.computations:
                for mark in computation.instructions:
                    if (
                        mark.opcode == "custom-call"
                        and mark.attributes.get("custom_call_target") == INSERTED
                        and not mark.removed
                    ):
                        computation.replace_uses(mark, mark.operands[0])
                        computation.remove_with_dead_operands(mark)
        if module.version == version:
            return False
        HloDce().run(module, context, Report())
        return True


@dataclass(slots=True)
class Callers:
    """Who calls a computation, kept up while loops are rewritten."""

    _callers: dict[Computation, Sequence[Instruction]]

    def loop_of(self, body: Computation) -> Instruction | None:
        """The only `while` that runs it; None if there is no such one."""
        callers = self._callers.get(body, ())
        if len(callers) != 1 or callers[0].opcode != "while":
            return None
        return callers[0]

    def set_loop(self, loop: Instruction) -> None:
        """Note a new `while` with a body of its own."""
        for callee in loop.called_computations:
            self._callers[callee] = (loop,)

    def set_body(self, body: Computation, loops: Sequence[Instruction]) -> None:
        """Note the loops that run a body now."""
        self._callers[body] = loops


def _reason_to_keep(loop: PipelinedLoop) -> str:
    """Why a loop must stay as it is, '' if nothing speaks against it."""
    if has_control_edges(loop.loop):
        return _WITH_EDGES
    if len(loop.body.parameters) != 1 or loop.body.root.opcode != "tuple":
        return "has a body that returns no tuple"
    readers = (*loop.body.parameters[0].users, *loop.loop.users)
    if any(user.opcode != "get-tuple-element" for user in readers):
        return "has a state that is read as a whole"
    return ""


# -- small instructions --------------------------------------------------------------


def constant(
    computation: Computation,
    kind: str,
    value: int,
    *,
    shape: Shape | None = None,
    before: Instruction | None = None,
) -> Instruction:
    """A scalar constant; `shape` if its layout is another one."""
    literal = str(value) if kind != "pred" else ("false", "true")[value]
    return computation.new(
        "constant", shape or array_shape(kind, ()), literal=literal, before=before
    )


def marked_as_inserted(
    value: Instruction, level: int, before: Instruction | None
) -> Instruction:
    """A custom call around a value, for the run at the next level."""
    computation = value.computation
    number = constant(computation, "s64", level + 1, before=before)
    return computation.new(
        "custom-call",
        value.shape,
        [value, number],
        {"custom_call_target": INSERTED},
        before=before,
    )


def outputs_by_source(root: Instruction) -> Mapping[Instruction, list[int]]:
    """Which elements of a tuple each instruction is."""
    found: dict[Instruction, list[int]] = {}
    for index, operand in enumerate(root.operands):
        found.setdefault(operand, []).append(index)
    return found


def parameter_of(shape: Shape, name: str) -> Any:
    """What puts a parameter of another shape into a copied computation."""

    def make(computation: Computation, copies: Copies) -> Instruction:
        return computation.new("parameter", shape, (), name=name, literal="0")

    return make
