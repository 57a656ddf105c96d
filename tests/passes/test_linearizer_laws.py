"""The linearizer against its definition, asked instruction by instruction."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.reachability import ancestors, reaches

ADD = """%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""


def random_module(seed: int) -> hlo_passes.Module:
    """Collectives, synchronous or not, work between them, and control edges."""
    rng = random.Random(seed)
    lines: list[str] = []
    values = ["x"]
    names = ["x"]
    waiting: list[str] = []
    for k in range(rng.randint(4, 16)):
        edges = rng.sample(names, min(len(names), rng.choice((0, 0, 0, 1, 2))))
        behind = (
            f", control-predecessors={{{', '.join(f'%{e}' for e in edges)}}}"
            if edges
            else ""
        )
        kind = rng.choice(("work", "sync", "start", "done"))
        operand = rng.choice(values)
        if kind == "done" and waiting:
            start = waiting.pop(rng.randrange(len(waiting)))
            lines.append(f"%i{k} = f32[8]{{0}} all-reduce-done(%{start}){behind}")
            values.append(f"i{k}")
        elif kind in ("sync", "start"):
            opcode = "all-reduce" if kind == "sync" else "all-reduce-start"
            lines.append(
                f"%i{k} = f32[8]{{0}} {opcode}(%{operand}), replica_groups={{{{0,1}}}}, "
                f"to_apply=%add{behind}"
            )
            (values if kind == "sync" else waiting).append(f"i{k}")
        else:
            other = rng.choice(values)
            lines.append(f"%i{k} = f32[8]{{0}} add(%{operand}, %{other}){behind}")
            values.append(f"i{k}")
        names.append(f"i{k}")
    for n, start in enumerate(waiting):
        lines.append(f"%e{n} = f32[8]{{0}} all-reduce-done(%{start})")
        values.append(f"e{n}")
    shape = ", ".join(["f32[8]{0}"] * len(values))
    body = "\n  ".join(lines)
    return hlo_passes.parse(
        f"HloModule m, replica_count=2\n\n{ADD}\n"
        f"ENTRY %main (x: f32[8]) -> ({shape.replace('{0}', '')}) {{\n"
        f"  %x = f32[8]{{0}} parameter(0)\n  {body}\n"
        f"  ROOT %t = ({shape}) tuple({', '.join(f'%{v}' for v in values)})\n}}\n"
    )


def collectives(module: hlo_passes.Module) -> list[tuple[str, str]]:
    """Names of what begins and what ends each collective, in post order."""
    return [
        (i.name, i.users[0].name if i.opcode.endswith("-start") else i.name)
        for i in post_order(module.entry)
        if i.opcode in ("all-reduce", "all-reduce-start")
    ]


def edges(module: hlo_passes.Module) -> set[tuple[str, str]]:
    return {
        (p.name, i.name)
        for i in module.entry.instructions
        for p in i.control_predecessors
    }


@given(st.integers(0, 10**6))
def test_edges_are_those_of_the_definition(seed: int) -> None:
    module = random_module(seed)
    plain = module.clone()
    listed = collectives(plain)
    named = {i.name: i for i in plain.entry.instructions}
    for (_, previous), (start, _) in itertools.pairwise(listed):
        first, then = named[previous], named[start]
        if not reaches(first, then) and not reaches(then, first):
            plain.entry.add_control_edge(first, then)
    result = hlo_passes.Pipeline.parse(
        "collectives-schedule-linearizer{when=always}"
    ).run(module)
    assert edges(module) == edges(plain)
    assert result.changed == (edges(module) != edges(random_module(seed)))
    now = {i.name: i for i in module.entry.instructions}
    for (_, previous), (start, _) in itertools.pairwise(listed):
        first, then = now[previous], now[start]
        assert reaches(first, then) or reaches(then, first)
        assert (first in ancestors((then,))) == reaches(first, then)
