"""Fusions under a scratch budget against all fusions there are.

The judge shares the price of one kernel with the pass, and nothing else: it writes every
fusion as text, tries every order of evaluation, and every set of values in memory.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes import Pipeline
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import facts
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.scheduler.fusions.instruction_time import instruction_ticks
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency.data_tables import DEFAULT_OP_PROFILE, op_cycles
from tests.elementwise_programs import ELEMENTS, program
from tests.runtime.evaluator import DTYPES, Evaluator

BYTES = {"f32": 4, "bf16": 2, "pred": 1}
BINARY = ("add", "multiply", "maximum", "subtract", "divide")
UNARY = ("negate", "abs", "exponential", "tanh")
TILE = 512
FREE = ("broadcast", "constant", "iota")


def ticks(instruction: Instruction, on: str) -> int:
    return instruction_ticks(instruction, target(on), op_cycles(DEFAULT_OP_PROFILE))


def fused(module: Module, options: str, on: str = "h100_sxm"):
    context = PassContext(target=on)
    spec = f"scratch-budget-fusion{{{options}}}"
    return Pipeline.parse(spec, context=context).run(module)


# -- the judge --------------------------------------------------------------------


@dataclass
class Graph:
    """Elementwise instructions by name, as text.

    Attributes:
        sizes: `[1024]`, behind every element type.
        types: element types by name, inputs included.
        calls: opcode, operands and the rest of the line by name; free ones included.
        results: names that must be in memory at the end.
    """

    sizes: str
    types: dict[str, str] = field(default_factory=dict)
    calls: dict[str, tuple[str, tuple[str, ...], str]] = field(default_factory=dict)
    results: tuple[str, ...] = ()

    @property
    def nodes(self) -> list[str]:
        return [n for n, call in self.calls.items() if call[0] not in FREE]

    @property
    def inputs(self) -> list[str]:
        return [name for name in self.types if name not in self.calls]

    def reads(self, name: str) -> list[str]:
        """What it needs in scratch."""
        operands = dict.fromkeys(self.calls[name][1])
        return [o for o in operands if o not in self.calls or o in self.nodes]

    def shape(self, name: str) -> str:
        if self.calls.get(name, ("",))[0] == "constant":
            return "f32[]"
        return f"{self.types[name]}{self.sizes}"

    def line(self, name: str) -> str:
        opcode, operands, rest = self.calls[name]
        inside = (
            rest
            if opcode in ("constant", "iota")
            else ", ".join(f"%{o}" for o in operands)
        )
        tail = "" if opcode == "constant" else rest
        if opcode == "iota":
            inside, tail = "", ", iota_dimension=0"
        return f"%{name} = {self.shape(name)} {opcode}({inside}){tail}"

    def with_free(self, nodes: Collection[str]) -> list[str]:
        """Instructions and the free ones that they read, in order."""
        wanted = set(nodes)
        for name in reversed(self.calls):
            if name in wanted:
                wanted |= {
                    o
                    for o in self.calls[name][1]
                    if self.calls.get(o, ("",))[0] in FREE
                }
        return [name for name in self.calls if name in wanted]

    def text(self) -> str:
        """The module."""
        lines = [
            f"%{n} = {self.shape(n)} parameter({k})" for k, n in enumerate(self.inputs)
        ]
        lines += map(self.line, self.calls)
        shapes = ", ".join(map(self.shape, self.results))
        lines.append(
            f"ROOT %t = ({shapes}) tuple({', '.join(f'%{r}' for r in self.results)})"
        )
        return wrapped(self, self.inputs, lines, f"({shapes})")

    def fusion_text(self, nodes: Collection[str], outputs: Sequence[str]) -> str:
        loads = dict.fromkeys(
            o for n in self.calls if n in nodes for o in self.reads(n) if o not in nodes
        )
        arguments = ", ".join(f"{n}: {self.shape(n)}" for n in loads)
        shapes = [self.shape(n) for n in outputs]
        result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
        body = [f"%{n} = {self.shape(n)} parameter({k})" for k, n in enumerate(loads)]
        body += map(self.line, self.with_free(nodes))
        if len(outputs) == 1:
            body = [
                f"ROOT {b}" if b.startswith(f"%{outputs[0]} =") else b for b in body
            ]
        else:
            body.append(
                f"ROOT %r = {result} tuple({', '.join(f'%{o}' for o in outputs)})"
            )
        lines = [
            f"%in{k} = {self.shape(n)} parameter({k})" for k, n in enumerate(loads)
        ]
        operands = ", ".join(f"%in{k}" for k in range(len(loads)))
        lines.append(f"ROOT %f = {result} fusion({operands}), kind=kLoop, calls=%body")
        inner = "\n  ".join(body)
        head = f"%body ({arguments}) -> {result} {{\n  {inner}\n}}\n"
        text = wrapped(self, [], lines, result, arguments.replace(": ", "x: "))
        return text.replace("ENTRY", f"{head}\nENTRY", 1)


def wrapped(
    graph: Graph,
    inputs: Sequence[str],
    lines: Sequence[str],
    result: str,
    arguments: str = "",
) -> str:
    arguments = arguments or ", ".join(f"{n}: {graph.shape(n)}" for n in inputs)
    inside = "\n  ".join(lines)
    return (
        f"HloModule m, num_partitions=2\n\nENTRY %e ({arguments}) -> {result} {{\n"
        f"  {inside}\n}}\n"
    )


def widest(
    reads: Mapping[str, Sequence[str]], size: Mapping[str, int], order: Sequence[str]
) -> int:
    """Bytes per element of one order, from the definition."""
    most, scratch = 0, set()
    for k, name in enumerate(order):
        scratch |= {*reads[name], name}
        most = max(most, sum(size[value] for value in scratch))
        later = {value for other in order[k + 1 :] for value in reads[other]}
        scratch &= later
    return most


class Judge:
    """The cheapest kernels, by looking at all of them."""

    def __init__(self, graph: Graph, budget: int, on: str) -> None:
        self.graph, self.budget, self.on = graph, budget, on
        self.nodes = graph.nodes
        self.plain = {
            i.name: ticks(i, on)
            for i in hlo_passes.parse(graph.text()).entry.instructions
            if i.name in self.nodes
        }

    def needed(self, nodes: Collection[str]) -> int:
        reads = {n: self.graph.reads(n) for n in nodes}
        size = {n: BYTES[self.graph.types[n]] for n in self.graph.types}
        return min(
            widest(reads, size, order)
            for order in itertools.permutations(nodes)
            if all(r not in order[k:] for k, n in enumerate(order) for r in reads[n])
        )

    def kernels(self) -> Iterator[tuple[frozenset[str], frozenset[str], int]]:
        """What is loaded, what is written, and the price."""
        for count in range(1, len(self.nodes) + 1):
            for nodes in itertools.combinations(self.nodes, count):
                loads = {r for n in nodes for r in self.graph.reads(n)} - set(nodes)
                needs = frozenset(loads & set(self.nodes))
                prices: dict[tuple[str, ...], int] = {}
                if count == 1:
                    prices[nodes] = self.plain[nodes[0]]
                free = len(self.graph.with_free(nodes)) > count
                if (
                    (count > 1 or free)
                    and self.hangs_together(nodes)
                    and self.needed(nodes) * TILE <= self.budget
                ):
                    for outputs in self.outputs(nodes):
                        made = hlo_passes.parse(self.graph.fusion_text(nodes, outputs))
                        price = ticks(made.entry.root, self.on)
                        prices[outputs] = min(price, prices.get(outputs, price))
                for outputs, price in prices.items():
                    yield needs, frozenset(outputs), price

    def hangs_together(self, nodes: Sequence[str]) -> bool:
        groups = [{n, *self.graph.reads(n)} for n in nodes]
        first = groups.pop()
        while meeting := [g for g in groups if g & first]:
            first |= meeting[0]
            groups.remove(meeting[0])
        return not groups

    def outputs(self, nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
        ends = {n for n in nodes if not any(n in self.graph.reads(m) for m in nodes)}
        for count in range(1, len(nodes) + 1):
            for outputs in itertools.combinations(nodes, count):
                if ends <= set(outputs):
                    yield outputs

    def cheapest(self) -> int:
        kernels = list(self.kernels())
        wanted = {r for r in self.graph.results if r in self.nodes}

        @cache
        def rest(there: frozenset[str]) -> float:
            if wanted <= there:
                return 0
            return min(
                price + rest(there | written)
                for needs, written, price in kernels
                if needs <= there and not written <= there
            )

        return int(rest(frozenset()))


# -- random chains ----------------------------------------------------------------


def chain(rng: random.Random, length: int, sizes: str, opcodes: Sequence[str]) -> Graph:
    """Each instruction reads the one before it, and perhaps something older."""
    graph = Graph(sizes)
    for k in range(rng.choice((1, 1, 2))):
        graph.types[f"x{k}"] = rng.choice(("f32", "f32", "bf16"))
    last = "x0"
    for k in range(length):
        name, kind = f"n{k}", graph.types[last]
        arrays = [n for n in (*graph.inputs, *graph.nodes) if n != last]
        older = [n for n in arrays if graph.types[n] == kind]
        choice = rng.random()
        if choice < 0.2 and kind != "pred":
            graph.types[name] = "bf16" if kind == "f32" else "f32"
            graph.calls[name] = "convert", (last,), ""
        elif choice < 0.35 and kind == "f32":
            graph.types[f"c{k}"] = graph.types[f"b{k}"] = "f32"
            if rng.random() < 0.5:
                graph.calls[f"c{k}"] = "constant", (), "2"
                graph.calls[f"b{k}"] = "broadcast", (f"c{k}",), ", dimensions={}"
            else:
                del graph.types[f"c{k}"]
                graph.calls[f"b{k}"] = "iota", (), ""
            graph.types[name] = kind
            graph.calls[name] = rng.choice(BINARY), (last, f"b{k}"), ""
        elif choice < 0.9 and older:
            graph.types[name] = kind
            graph.calls[name] = rng.choice(BINARY), (last, rng.choice(older)), ""
        else:
            graph.types[name] = kind
            graph.calls[name] = rng.choice(opcodes), (last,), ""
        last = name
    others = [n for n in graph.nodes if n != last]
    graph.results = (*rng.sample(others, min(len(others), rng.choice((0, 0, 1)))), last)
    unread = [
        n for n in graph.nodes if not any(n in graph.reads(m) for m in graph.nodes)
    ]
    graph.results = tuple(dict.fromkeys((*graph.results, *unread)))
    return graph


def calculating(fusion: Instruction) -> list[Instruction]:
    (body,) = fusion.called_computations
    return [
        i for i in body.instructions if i.opcode not in ("parameter", "tuple", *FREE)
    ]


def body_needs(fusion: Instruction) -> int:
    """Bytes per element of a fusion's body, in the order of its text."""
    (body,) = fusion.called_computations
    inside = calculating(fusion)
    reads = {
        i.name: [
            o.name for o in i.operands if o.opcode not in FREE and o.shape.dimensions
        ]
        for i in inside
    }
    size = {
        i.name: BYTES[i.shape.element_type]
        for i in body.instructions
        if i.shape.is_array
    }
    return widest(reads, size, [i.name for i in inside])


def fusions(module: Module) -> list[Instruction]:
    return [
        i for c in module.computations for i in c.instructions if i.opcode == "fusion"
    ]


def kernels_price(module: Module, on: str) -> int:
    return sum(ticks(i, on) for i in module.entry.instructions)


@pytest.mark.parametrize("seed", range(200))
def test_as_cheap_as_all_fusions_tried(seed: int) -> None:
    graph, budget, module, _, on = _of_seed(seed)
    assert all(body_needs(fusion) * TILE <= budget for fusion in fusions(module))
    made = sum(ticks(i, on) for i in module.entry.instructions if i.opcode not in FREE)
    assert made == Judge(graph, budget, on).cheapest()


def _of_seed(seed: int):
    rng = random.Random(seed)
    on = rng.choice(("h100_sxm", "gb200"))
    sizes = rng.choice(("[65536]", "[1024,4096]", "[2048]"))
    graph = chain(rng, rng.randint(2, 6), sizes, UNARY)
    budget = TILE * rng.choice((6, 8, 10, 12, 12, 14, 16, 18))
    module = hlo_passes.parse(graph.text())
    result = fused(module, f"scratch-bytes={budget}", on)
    return graph, budget, module, result, on


def test_the_chains_above_are_of_all_kinds() -> None:
    counts = {
        "whole": 0,
        "cut": 0,
        "computed again": 0,
        "several results": 0,
        "left": 0,
    }
    for seed in range(200):
        _, _, module, result, _ = _of_seed(seed)
        statistics = result.passes[0].statistics
        counts["whole"] += result.changed and not result.remarks
        counts["cut"] += "values-loaded-again" in statistics
        counts["computed again"] += "instructions-computed-again" in statistics
        counts["several results"] += any(f.shape.is_tuple for f in fusions(module))
        counts["left"] += not result.changed
    assert min(counts.values()) >= 4, counts


# -- laws of all programs ---------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    budget=st.integers(0, 2000),
    tile=st.sampled_from((1, 16, 64, 512)),
    limit=st.sampled_from((0, 300, 6561)),
    on=st.sampled_from(("h100_sxm", "gb200")),
)
def test_cheaper_within_the_budget_and_equal(
    seed: int, budget: int, tile: int, limit: int, on: str
) -> None:
    text = program(random.Random(seed), 2)
    before, module = hlo_passes.parse(text), hlo_passes.parse(text)
    options = f"scratch-bytes={budget},tile-elements={tile},exact-limit={limit}"
    result = fused(module, options, on)
    # It costs less, or it is the same text.
    price, now = kernels_price(before, on), kernels_price(module, on)
    assert now < price if result.changed else module.to_text() == text
    # Every body fits, in the order in which it is written.
    for fusion in fusions(module):
        assert body_needs(fusion) * min(tile, ELEMENTS) <= budget
        assert all(facts(i.opcode).is_elementwise for i in calculating(fusion))
    # What has control edges is where it was, with its edges.
    kept = {i.name: i for i in module.entry.instructions}
    for i in before.entry.instructions:
        if i.control_predecessors or i.control_successors:
            assert kept[i.name].opcode == i.opcode
            assert len(kept[i.name].control_predecessors) == len(i.control_predecessors)
    # Values are equal, bit by bit.
    made = [
        np.random.default_rng(seed)
        .standard_normal((2, *p.shape.dimensions))
        .astype(DTYPES[p.shape.element_type])
        for p in before.entry.parameters
    ]
    with np.errstate(all="ignore"):
        values, others = (Evaluator(m, 1, 2).run(made) for m in (before, module))
    for one, other in zip(values, others, strict=True):
        assert one.tobytes() == other.tobytes()
    # Nothing is left to do.
    assert not fused(module, options, on).changed


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), budget=st.integers(4, 40))
def test_more_scratch_never_costs_more(seed: int, budget: int) -> None:
    graph = chain(random.Random(seed), 6, "[1024,4096]", UNARY)
    prices = []
    for scratch in (budget, budget + 4):
        module = hlo_passes.parse(graph.text())
        fused(module, f"scratch-bytes={scratch * TILE}")
        prices.append(kernels_price(module, "h100_sxm"))
    assert prices[1] <= prices[0]
