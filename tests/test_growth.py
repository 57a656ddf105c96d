"""Twice the size takes twice the steps, for graphs on which it once took four times.

Steps are bytecodes: the same on every machine. `benchmarks/bench_growth.py` measures
processor time, of every pass on every graph.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

import hlo_passes
from benchmarks.bench_growth import GOAL, Work, commands, measure, table
from benchmarks.growth_graphs import GRAPHS
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


def test_steps_grow_with_the_size_of_a_fusion() -> None:
    """The order of evaluation of instructions that hang together, of which few fit."""

    def steps(count: int) -> int:
        module = hlo_passes.parse(GRAPHS["chain"].text(count))
        (part,) = parts_of(module.entry)
        assert len(part.nodes) == count
        return _steps(lambda: narrowest_order(part, part.everything, most_states=4))

    steps(8)
    assert steps(400) <= GOAL * steps(200)


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_graph_is_measured(graph: str) -> None:
    cell = measure(graph, "verify", wanted_seconds=0.0)
    assert not cell.problem
    assert "verify" in table({(graph, "verify"): cell}, markdown=True)


@pytest.mark.parametrize("command", commands())
def test_every_command_is_measured(command: str) -> None:
    cell = measure("pair chain", command, wanted_seconds=0.0)
    assert not cell.problem
