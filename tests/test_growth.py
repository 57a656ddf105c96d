"""Twice the size takes twice the steps, for graphs on which it once took four times.

Steps are bytecodes: the same on every machine. `benchmarks/bench_growth.py` measures
processor time, of every pass on every graph.
"""

from __future__ import annotations

import itertools
import sys
from types import FrameType
from typing import Any

import pytest

import hlo_passes
from benchmarks.bench_growth import GOAL, Work, commands, measure, table
from benchmarks.family_modules import family_text
from benchmarks.growth_graphs import GRAPHS
from hlo_passes import Pipeline
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.sharding.propagation import propagate
from hlo_passes.passes.sharding.values import program_of
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph
from hlo_passes.scheduler.fusions.heroes import Heroes
from hlo_passes.scheduler.fusions.reduction_groups import disjoint_groups
from hlo_passes.scheduler.passes.loop_multi_buffer import ahead_of_others
from hlo_passes.scheduler.scratch_fusion.parts import parts_of
from hlo_passes.scheduler.scratch_fusion.scratch import narrowest_order

#: (graph, command, size); the second size is twice the first.
GREW_TOO_FAST = (
    ("equal", "hlo-cse", 128),
    ("pairs", "convert-async-collectives-to-sync", 128),
    ("all-reduces", "async-collective-creator", 128),
    ("all-reduces", "gpu-all-reduce-combiner", 128),
    ("dead all-reduces", "gpu-all-reduce-combiner{threshold-count=2}", 128),
    ("permutes", "collective-permute-combiner", 128),
    ("wide permute", "collective-permute-splitter", 128),
    ("pair chain", "estimate", 128),
    ("all-reduce chain", "estimate", 256),
    ("calls", "simulate", 512),
    ("elements", "schedule-checker", 128),
    ("open pairs", "schedule-checker", 128),
    ("fan", "scheduler-memory-fencing", 128),
    ("pair chain", "scheduler-memory-fencing", 128),
    ("wide permute", "scheduler-memory-fencing", 128),
    ("rebuilt tuple", "scheduler-memory-fencing", 128),
    ("wide permute", "hlo-memory-scheduler", 128),
    ("wide pair", "hlo-memory-scheduler", 512),
    ("elements", "hlo-memory-scheduler", 128),
    ("rebuilt tuple", "hlo-memory-scheduler", 128),
    ("transfers", "hlo-memory-scheduler", 128),
    ("all-reduces", "gpu-schedule", 64),
    ("all-reduce chain", "gpu-schedule", 64),
    ("open pairs", "schedule-improver", 128),
    ("loops", "gpu-schedule", 64),
    ("moving", "collective-pipeliner-backward", 64),
    ("moving", "collective-pipeliner-forward", 64),
    ("moving", "collective-pipeliner-forwardsink", 64),
    ("moving", "while-loop-all-reduce-code-motion", 64),
    ("equal all-reduces", "all-reduce-simplifier", 64),
    ("sinking loops", "while-loop-fusible-sinking", 32),
    ("sinking loops", "while-loop-concat-code-motion", 32),
    ("sinking loops", "while-loop-unroller", 32),
    ("windowed loops", "windowed-einsum-handler", 8),
    (
        "dots and all-to-alls",
        "windowed-einsum-handler{alltoall-windowed-einsum=true}",
        32,
    ),
    ("annotated", "async-stream-attribute-wrapper", 512),
    ("annotated", "explicit-collectives-group-async-wrapper", 512),
    ("annotated", "latency-hiding-scheduler", 256),
    ("devices", "diff", 256),
)


def _steps(work: Work) -> int:
    """Bytecodes that Python runs; loops inside C count as one."""
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize(("graph", "command", "size"), GREW_TOO_FAST)
def test_steps_grow_with_the_size(graph: str, command: str, size: int) -> None:
    prepare, text = commands()[command], GRAPHS[graph].text
    prepare(text(size))()  # what is made once
    _steps(lambda: None)  # Python 3.12 counts only after a frame has asked for it
    steps = [_steps(prepare(text(n))) for n in (size, 2 * size)]
    assert steps[0] > 0
    assert steps[1] <= GOAL * steps[0]


@pytest.mark.parametrize(
    "name",
    [
        "collective-backend-choice",
        "collective-ring-decomposer",
        "loop-invariant-collective-hoisting",
        "loop-multi-buffer",
    ],
)
def test_steps_grow_with_the_size_before_a_trial(name: str) -> None:
    """Prices of all collectives, and a look at all loops, when no trial fits."""
    pipeline = Pipeline.parse(f"{name}{{most-instructions=0}}")

    def steps(size: int) -> int:
        module = hlo_passes.parse(family_text(size))
        context = pipeline.settled(module)
        (each,) = pipeline.passes
        return _steps(lambda: each.run(module, context, Report()))

    steps(100)
    assert steps(600) <= GOAL * steps(300)


def test_steps_grow_with_the_size_of_a_fusion() -> None:
    """The order of evaluation of instructions that hang together, of which few fit."""

    def steps(count: int) -> int:
        module = hlo_passes.parse(GRAPHS["chain"].text(count))
        (part,) = parts_of(module.entry)
        assert len(part.nodes) == count
        return _steps(lambda: narrowest_order(part, part.everything, most_states=4))

    steps(8)
    assert steps(400) <= GOAL * steps(200)


def _all_are_results(count: int) -> FusedGraph:
    """A chain of values, each of them a result: behind the last one are all others."""
    values = ["x", *(f"v{k}" for k in range(count))]
    lines = "\n".join(
        f"  %{value} = f32[8] add(%{before}, %x)"
        for before, value in itertools.pairwise(values)
    )
    results = f"({', '.join(['f32[8]'] * count)})"
    module = hlo_passes.parse(f"""HloModule case
%body (x: f32[8]) -> {results} {{
  %x = f32[8] parameter(0)
{lines}
  ROOT %all = {results} tuple({", ".join(f"%{v}" for v in values[1:])})
}}
ENTRY %main (x: f32[8]) -> {results} {{
  %x = f32[8] parameter(0)
  ROOT %fusion = {results} fusion(%x), kind=kLoop, calls=%body
}}
""")
    return FusedGraph.of(module.entry.root)


def test_steps_grow_with_the_results_of_a_fusion() -> None:
    def steps(count: int) -> int:
        graph = _all_are_results(count)

        def heroes() -> None:
            assert tuple(map(Heroes(graph).of, graph.roots)) == graph.roots

        return _steps(heroes)

    steps(8)
    assert steps(400) <= GOAL * steps(200)


@pytest.mark.parametrize("broadcasts_join", [True, False])
def test_steps_grow_with_the_results_of_a_reduction(broadcasts_join: bool) -> None:
    """Which results share work."""

    def steps(count: int) -> int:
        graph = _all_are_results(count)
        real = [k % 2 == 0 for k in range(count)]

        def groups() -> None:
            found = disjoint_groups(graph, real, broadcasts_join=broadcasts_join)
            assert found == 1

        return _steps(groups)

    steps(8)
    assert steps(400) <= GOAL * steps(200)


def _concatenation(count: int) -> str:
    """Many operands of which one is divided."""
    operands = [f"x{k}" for k in range(count)]
    signature = ", ".join(f"{name}: f32[8,4]" for name in operands)
    lines = "\n".join(
        f"  %{name} = f32[8,4] parameter({k})"
        + (", sharding={devices=[2,1]<=[2]}" if k == count // 2 else "")
        for k, name in enumerate(operands)
    )
    return f"""HloModule case, num_partitions=2
ENTRY %main ({signature}) -> f32[8,{4 * count}] {{
{lines}
  ROOT %c = f32[8,{4 * count}] concatenate({", ".join(f"%{o}" for o in operands)}),
    dimensions={{1}}
}}
"""


def test_steps_grow_with_the_operands_that_are_divided() -> None:
    """Each operand of a concatenation asks all others."""

    def steps(count: int) -> int:
        program = program_of(hlo_passes.parse(_concatenation(count)))
        taken = _steps(lambda: propagate(program))
        assert not any(array.is_unknown for array in program.arrays)
        return taken

    steps(8)
    assert steps(200) <= GOAL * steps(100)


def _shift_register(count: int) -> str:
    """A loop whose state moves up by one element, up to one that is gathered."""
    state = f"(s32[], {', '.join(['f32[8]'] * count)})"
    reads = "\n".join(
        f"  %x{k} = f32[8] get-tuple-element(%state), index={k + 1}"
        for k in range(count)
    )
    moved = "\n".join(f"  %m{k} = f32[8] negate(%x{k})" for k in range(1, count))
    after = ", ".join(f"%m{k}" for k in range(1, count))
    return f"""HloModule case, num_partitions=2
%body (state: {state}) -> {state} {{
  %state = {state} parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
{reads}
  %half = f32[4] slice(%x0), slice={{[0:4]}}
  %w = f32[8] all-gather(%half), channel_id=1, replica_groups={{{{0,1}}}},
    use_global_device_ids=true, dimensions={{0}}
{moved}
  ROOT %after = {state} tuple(%i, {after}, %w)
}}
%condition (state: {state}) -> pred[] {{
  %state = {state} parameter(0)
  ROOT %goes_on = pred[] constant(false)
}}
ENTRY %main (x: f32[8]) -> {state} {{
  %x = f32[8] parameter(0), sharding={{devices=[2]<=[2]}}
  %first = s32[] constant(0)
  %start = {state} tuple(%first, {", ".join(["%x"] * count)})
  ROOT %loop = {state} while(%start), condition=%condition, body=%body
}}
"""


def test_steps_grow_with_the_state_of_a_loop() -> None:
    """What need not wait for the iteration before: one element asks for another."""

    def steps(count: int) -> int:
        module = hlo_passes.parse(_shift_register(count))
        (body,) = (c for c in module.computations if c.name == "body")
        ahead = ahead_of_others(body)
        assert len(ahead) == count  # all that moves, and what is gathered
        return _steps(lambda: ahead_of_others(body))

    steps(8)
    assert steps(200) <= GOAL * steps(100)


def test_steps_grow_with_what_is_divided() -> None:
    """Each array of the state enters the loop, and asks what depends on it alone."""

    def steps(count: int) -> int:
        module = hlo_passes.parse(_shift_register(count))
        program = program_of(module)
        return _steps(lambda: propagate(program))

    steps(8)
    assert steps(200) <= GOAL * steps(100)


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_graph_is_measured(graph: str) -> None:
    cell = measure(graph, "verify", wanted_seconds=0.0)
    assert not cell.problem
    assert "verify" in table({(graph, "verify"): cell}, markdown=True)


@pytest.mark.parametrize("command", commands())
def test_every_command_is_measured(command: str) -> None:
    cell = measure("pair chain", command, wanted_seconds=0.0)
    assert not cell.problem
