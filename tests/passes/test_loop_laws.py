"""Rewritten loops compute what the loops computed: random counters, stores, gathers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.analysis.counted_loops import counted_loop
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.loops.collective_pipeliner_backward import (
    CollectivePipelinerBackward,
)
from hlo_passes.passes.loops.collective_pipeliner_forward import (
    CollectivePipelinerForward,
)
from hlo_passes.passes.loops.collective_pipeliner_forwardsink import (
    CollectivePipelinerForwardsink,
)
from hlo_passes.passes.loops.loop_double_buffer_transformer import (
    LoopDoubleBufferTransformer,
)
from hlo_passes.passes.loops.while_loop_all_reduce_code_motion import (
    WhileLoopAllReduceCodeMotion,
)
from tests.runtime.evaluator import Evaluator

DEVICES = 2
ROWS = 6
_GROUPS = "replica_groups={{0,1}}, use_global_device_ids=true"
_MOST_ITERATIONS = 8
_FORMATS = (
    "multiply({0}, {1})",
    "add({0}, {2})",
    "negate({0})",
    "subtract({2}, {0})",
)


@dataclass(frozen=True)
class Counter:
    """How a loop counts, and how often its body runs."""

    type: str
    start: int
    step: int
    bound: int
    direction: str
    is_left: bool

    @property
    def iterations(self) -> int:
        compare = {
            "LT": lambda i: i < self.bound,
            "LE": lambda i: i <= self.bound,
            "GT": lambda i: i > self.bound,
            "GE": lambda i: i >= self.bound,
        }[self.direction]
        i, count = self.start, 0
        while compare(i) and count <= _MOST_ITERATIONS:
            i += self.step
            count += 1
        return count

    @property
    def condition(self) -> str:
        if self.is_left:
            return f"compare(%i.1, %bound), direction={self.direction}"
        mirrored = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}[self.direction]
        return f"compare(%bound, %i.1), direction={mirrored}"


@st.composite
def counters(draw: st.DrawFn) -> Counter:
    if draw(st.booleans()):
        # Each row once, upward or downward.
        return draw(
            st.sampled_from(
                (
                    Counter("s32", 0, 1, ROWS, "LT", is_left=True),
                    Counter("s64", ROWS - 1, -1, 0, "GE", is_left=False),
                )
            )
        )
    step = draw(st.sampled_from((1, 2, 3, -1, -2, -3)))
    start = draw(st.integers(-3, 5))
    often = draw(st.integers(0, _MOST_ITERATIONS - 2))
    bound = start + step * often + draw(st.integers(-1, 1))
    directions = ("LT", "LE") if step > 0 else ("GT", "GE")
    return Counter(
        draw(st.sampled_from(("s32", "s8", "s64"))),
        start,
        step,
        bound,
        draw(st.sampled_from(directions)),
        draw(st.booleans()),
    )


@st.composite
def loops(draw: st.DrawFn) -> tuple[str, int]:
    """A module of one loop that stores and gathers, and how often its body runs."""
    counter = draw(counters())
    kind = counter.type
    types = [f"{kind}[]", f"f32[{ROWS},4]"]
    body: list[str] = []
    ends = ["%next", "%source"]
    starts = ["%first", "%in"]
    stores = draw(st.integers(0, 3))
    totals = draw(st.integers(0, 2))
    gathers = draw(st.integers(0 if stores or totals else 1, 2))
    for k in range(stores):
        place, more = draw(st.integers(-2, 2)), draw(st.integers(-1, 7))
        body += [
            f"%buffer{k} = f32[{ROWS},4] get-tuple-element(%state), index={len(types)}",
            f"%by{k} = {kind}[] constant({place})",
            f"%more{k} = {kind}[] constant({more})",
            f"%scaled{k} = {kind}[] multiply(%i, %by{k})",
            f"%place{k} = {kind}[] add(%scaled{k}, %more{k})",
            f"%x{k} = f32[1,4] multiply(%row, %row)",
            f"%y{k} = f32[1,4] all-reduce(%x{k}), channel_id={k + 1}, {_GROUPS}, "
            "to_apply=%add",
        ]
        value = f"%y{k}"
        for n, form in enumerate(draw(st.lists(st.sampled_from(_FORMATS), max_size=3))):
            body.append(f"%f{k}_{n} = f32[1,4] {form.format(value, '%halves', '%row')}")
            value = f"%f{k}_{n}"
        index = draw(st.sampled_from((f"%place{k}", "%i")))
        body.append(
            f"%stored{k} = f32[{ROWS},4] dynamic-update-slice(%buffer{k}, {value}, "
            f"{index}, %none)"
        )
        types.append(f"f32[{ROWS},4]")
        ends.append(f"%stored{k}")
        starts.append("%in")
    for k in range(totals):
        operand = draw(st.sampled_from(("%row", "%square")))
        linear = draw(st.booleans())
        body += [
            f"%total{k} = f32[1,4] get-tuple-element(%state), index={len(types)}",
            f"%part{k} = f32[1,4] all-reduce({operand}), channel_id={k + 21}, "
            f"{_GROUPS}, to_apply=%add",
            f"%turned{k} = f32[4,1] transpose(%part{k}), dimensions={{1,0}}",
            f"%back{k} = f32[1,4] reshape(%turned{k})",
            f"%sum_of{k} = f32[1,4] add(%total{k}, %{'back' if linear else 'part'}{k})",
        ]
        types.append("f32[1,4]")
        ends.append(f"%sum_of{k}")
        starts.append("%halves.1")
    for k in range(gathers):
        operand = draw(st.sampled_from(("%row", "%square")))
        body += [
            f"%sum{k} = f32[2,4] get-tuple-element(%state), index={len(types)}",
            f"%g{k} = f32[2,4] all-gather({operand}), channel_id={k + 11}, {_GROUPS}, "
            "dimensions={0}",
            f"%new{k} = f32[2,4] subtract(%g{k}, %sum{k})",
        ]
        types.append("f32[2,4]")
        ends.append(f"%new{k}")
        starts.append("%small")
    state = f"({', '.join(types)})"
    lines = "\n".join(f"  {line}" for line in body)
    count = counter.iterations
    text = f"""HloModule m, num_partitions={DEVICES}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %both = f32[] add(%a, %b)
}}

%body (state: {state}) -> {state} {{
  %state = {state} parameter(0)
  %i = {kind}[] get-tuple-element(%state), index=0
  %step = {kind}[] constant({counter.step})
  %next = {kind}[] add(%i, %step)
  %none = {kind}[] constant(0)
  %half = f32[] constant(0.5)
  %halves = f32[1,4] broadcast(%half), dimensions={{}}
  %source = f32[{ROWS},4] get-tuple-element(%state), index=1
  %row = f32[1,4] dynamic-slice(%source, %i, %none), dynamic_slice_sizes={{1,4}}
  %square = f32[1,4] multiply(%row, %halves)
{lines}
  ROOT %after = {state} tuple({", ".join(ends)})
}}

%condition (state.1: {state}) -> pred[] {{
  %state.1 = {state} parameter(0)
  %i.1 = {kind}[] get-tuple-element(%state.1), index=0
  %bound = {kind}[] constant({counter.bound})
  ROOT %goes_on = pred[] {counter.condition}
}}

ENTRY %main (in: f32[{ROWS},4], small: f32[2,4]) -> {state} {{
  %in = f32[{ROWS},4] parameter(0)
  %small = f32[2,4] parameter(1)
  %first = {kind}[] constant({counter.start})
  %half.1 = f32[] constant(0.5)
  %halves.1 = f32[1,4] broadcast(%half.1), dimensions={{}}
  %start = {state} tuple({", ".join(starts)})
  %loop = {state} while(%start), condition=%condition, body=%body, backend_config={{"known_trip_count":{{"n":"{count}"}}}}
{chr(10).join(f"  %r{k} = {t} get-tuple-element(%loop), index={k}" for k, t in enumerate(types))}
  ROOT %result = {state} tuple({", ".join(f"%r{k}" for k in range(len(types)))})
}}
"""
    return text, count


class MarksEvaluator(Evaluator):
    """Knows the marks of a run that is not the last: they hand their operand on."""

    def _custom_call(self, i: Any, operands: list[Any]) -> list[Any]:
        assert i.attributes["custom_call_target"].endswith('ByPreviousStep"')
        return operands[0]


def results(module: Module) -> list[np.ndarray]:
    """What the module computes on fixed numbers."""
    numbers = np.random.default_rng(7)
    given = [
        numbers.integers(-8, 8, (DEVICES, *shape)).astype(np.float32) / 4
        for shape in ((ROWS, 4), (2, 4))
    ]
    return MarksEvaluator(module, 1, DEVICES).run(given)


PASSES = st.lists(
    st.sampled_from(
        (
            CollectivePipelinerForward(),
            CollectivePipelinerForward(use_tree=False),
            CollectivePipelinerForward(reuse_buffer=True),
            CollectivePipelinerForward(most_per_loop=1),
            CollectivePipelinerForward(last_run=False),
            CollectivePipelinerBackward(),
            CollectivePipelinerBackward(invariant_ops=False),
            CollectivePipelinerForwardsink(),
            WhileLoopAllReduceCodeMotion(),
            WhileLoopAllReduceCodeMotion(most_constants=2, xla="0.12"),
            CollectivePipelinerForwardsink(last_run=False, delayed_elements=3),
        )
    ),
    min_size=1,
    max_size=3,
)


@given(loops(), PASSES)
@settings(max_examples=25, deadline=None)
def test_pipelined_loops_compute_the_same(
    loop: tuple[str, int], passes: list[hlo_passes.Pass]
) -> None:
    text, _ = loop
    module = hlo_passes.parse(text)
    expected = results(hlo_passes.parse(text))
    context = PassContext(xla_quirks=False)
    hlo_passes.Pipeline(tuple(passes), context).run(module, verify_each=True)
    for mine, theirs in zip(
        results(hlo_passes.parse(module.to_text())), expected, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


@given(loops(), st.sampled_from(("double-buffer", "full-unroll", "auto")))
@settings(max_examples=25, deadline=None)
def test_unrolled_loops_compute_the_same(loop: tuple[str, int], strategy: str) -> None:
    text, count = loop
    module = hlo_passes.parse(text)
    expected = results(hlo_passes.parse(text))
    unroll = LoopDoubleBufferTransformer(strategy=strategy)  # type: ignore[arg-type]
    changed = hlo_passes.Pipeline((unroll,)).run(module, verify_each=True).changed
    assert changed == (count > 1)
    for mine, theirs in zip(
        results(hlo_passes.parse(module.to_text())), expected, strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


@given(loops())
@settings(max_examples=50, deadline=None)
def test_counted_loops_are_counted_right(loop: tuple[str, int]) -> None:
    text, count = loop
    (found,) = [
        counted_loop(i)
        for i in hlo_passes.parse(text).entry.instructions
        if i.opcode == "while"
    ]
    assert found is not None
    assert found.iterations == count
