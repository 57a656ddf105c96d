"""Unrolls a loop that passes values from one element of its state to another.

Before:  while (n times): ROOT tuple(%next, f(%newest), %newest)     %newest moves on
After:   while (n / 2 times): two iterations, called one after the other
         while (the rest):    one iteration
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph, loops_outside_fusions
from hlo_passes.analysis.integers import constant_integer
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.ir.module import Module
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.loop_state import invariant_elements
from hlo_passes.passes.loops.pipelining import constant
from hlo_passes.passes.rewriting.cloning import clone_computation
from hlo_passes.passes.rewriting.flattening import flatten_call_graph

#: What a loop's config says of its count.
_COUNTS: Final = frozenset({"known_trip_count", "known_init_step", "dynamic_variables"})


@dataclass(frozen=True, slots=True)
class WhileLoopPipelineUnroller(Pass):
    """Unroll loops that pass values along their state, so that they need no copies.

    If the body returns a state element in another position, a value takes several
    iterations to arrive. The pass makes a new loop whose body calls that many
    iterations one after the other. The new loop runs first, and the old loop runs the
    remaining iterations. The counter must be an `s32` that grows by 1 up to a bound
    that never changes. XLA does not run the pass on GPUs.

    XLA accepts any addition of 1 to the counter. Without XLA's quirks
    (`--no-xla-quirks`), the sum must be the counter's next value. In XLA, the config of
    the old loop still says how often the loop ran before. Without the quirks, the pass
    removes that count.

    Complexity: linear in instructions, times the iterations that become one.
    Source: openxla/xla `xla/service/while_loop_pipeline_unroller.cc`.

    Attributes:
        most_iterations: leave a loop alone if more iterations would become one.
    """

    name: ClassVar[str] = "while-loop-pipeline-unroller"

    most_iterations: int = 64

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every loop that was there at the start."""
        version = module.version
        graph = build_call_graph(module)
        loops = loops_outside_fusions(module, graph)
        for loop in loops:
            depth = _depth(loop)
            reason = ""
            if depth == 1:
                reason = "hands no value from element to element"
            elif depth > self.most_iterations:
                reason = f"would have {depth} iterations in one"
            else:
                reason = _problem(loop, xla_quirks=context.xla_quirks)
            if reason:
                report.remark(f"not unrolled: %{loop.name} {reason}")
                continue
            _unroll(loop, depth)
            if not context.xla_quirks:
                _forget_count(loop)
            report.count("loops-unrolled")
        if module.version == version:
            return False
        flatten_call_graph(module, xla_quirks=False)
        HloDce().run(module, context, Report())
        return True


def _forget_count(loop: Instruction) -> None:
    """Take out of a loop's config where it starts and how often it runs."""
    config = gpu_config(loop)
    kept = {name: value for name, value in config.items() if name not in _COUNTS}
    if len(kept) < len(config):
        loop.backend_config = BackendConfig.of_json(kept) if kept else None


def _depth(loop: Instruction) -> int:
    """How many iterations values take until all have arrived; 1 if none moves."""
    body = loop.called_computations[0]
    state, root = body.parameters[0], body.root
    if root.opcode != "tuple":
        return 1
    moves: dict[int, int] = {}
    for place, value in enumerate(root.operands):
        source = value.tuple_index_or_none
        if source is not None and source != place and value.operands[0] is state:
            moves.setdefault(source, place)
    # Chains begin where nothing arrives; circles have no beginning.
    depth, arrived = 1, set(moves.values())
    for start in moves:
        if start not in arrived:
            length = 1
            while start in moves:
                start, length = moves[start], length + 1
            depth = lcm(depth, length + 1)
    return depth


def _problem(loop: Instruction, *, xla_quirks: bool) -> str:
    """Why the bound of a loop cannot be lowered; '' if it can."""
    body, condition = loop.called_computations
    found = _counter_and_bound(condition)
    if found is None:
        return "compares nothing to end"
    counter, bound = found
    state = condition.parameters[0]
    index = counter.tuple_index_or_none
    if index is None or counter.operands[0] is not state:
        return "compares no element of its state"
    if counter.user_count != 1:
        return "reads its counter twice to end"
    if counter.shape.element_type != "s32":
        return "does not count in s32"
    if not _grows_by_one(body, index, xla_quirks=xla_quirks):
        return "does not count by 1"
    if bound.opcode == "constant":
        return ""
    # Else it is an element that never changes, or one operation on such a one.
    kept = {e.tuple_index for e in invariant_elements(body)}
    sources = [bound]
    if bound.tuple_index_or_none is None:
        sources = [o for o in bound.operands if o.opcode != "constant"]
    is_kept = len(sources) == 1 and all(
        o.tuple_index_or_none in kept and o.operands[0] is state for o in sources
    )
    return "" if is_kept else "has a bound that may change"


def _counter_and_bound(
    condition: Computation,
) -> tuple[Instruction, Instruction] | None:
    root = condition.root
    direction = root.attributes.get("direction", "").strip()
    if root.opcode != "compare" or direction not in ("GE", "GT", "LE", "LT"):
        return None
    left, right = root.operands
    return (right, left) if direction in ("GE", "GT") else (left, right)


def _grows_by_one(body: Computation, index: int, *, xla_quirks: bool) -> bool:
    for element in body.parameters[0].users:
        if element.tuple_index_or_none != index:
            continue
        for user in element.users:
            if user.opcode == "add" and any(
                o is not element and constant_integer(o) == 1 for o in user.operands
            ):
                return xla_quirks or body.root.operands[index] is user
        return False
    return False


def _unroll(loop: Instruction, depth: int) -> None:
    """Put a loop of `depth` iterations in one before it."""
    body, condition = loop.called_computations
    module, shape = loop.computation.module, loop.shape
    # Call copies of the body, one after the other.
    unrolled = Computation(
        module.fresh_computation_name(f"{body.name}.unrolled"),
        execution_thread=body.execution_thread,
    )
    module.add_computation(unrolled, before=loop.computation)
    value = unrolled.new("parameter", shape, name="input_tuple", literal="0")
    for _ in range(depth):
        step, _ = clone_computation(body)
        value = unrolled.new("call", shape, [value], {"to_apply": f"%{step.name}"})
    unrolled.set_root(value)
    # End it before the rest is smaller than that.
    ends, copies = clone_computation(condition)
    found = _counter_and_bound(condition)
    assert found is not None
    counter = copies[found[0]]
    more = constant(ends, "s32", depth - 1)
    later = ends.new("add", counter.shape, [counter, more])
    for user in counter.users:
        if user is not later:
            ends.replace_operand(user, counter, later)
    restore_text_order(ends)
    first = loop.computation.new(
        "while",
        shape,
        loop.operands,
        {"condition": f"%{ends.name}", "body": f"%{unrolled.name}"},
        before=loop,
    )
    loop.computation.set_operands(loop, [first])
