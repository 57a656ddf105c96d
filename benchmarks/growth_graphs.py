"""Made-up modules whose size is a number: one for every way in which a graph is large.

GRAPHS["chain"].text(1000)     a scheduled module; every one is valid HLO
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks import growth_collectives as collectives
from benchmarks import growth_loops as loops
from benchmarks.growth_parts import (
    PARAMETER,
    SHAPE,
    all_reduce,
    body_of,
    module_of,
    names_of,
    tuple_of,
)


@dataclass(frozen=True, slots=True)
class Graph:
    """A family of modules.

    Attributes:
        text: the module of one size.
        largest: sizes above this are not measured.
    """

    text: Callable[[int], str]
    largest: int = 1 << 13


def _chain(count: int) -> str:
    sources = ["p", *names_of("v", count)]
    return module_of(
        [
            PARAMETER,
            *(
                f"%v.{k} = {SHAPE} {('negate', 'tanh')[k % 2]}(%{sources[k]})"
                for k in range(count)
            ),
        ]
    )


def _independent(count: int) -> str:
    """Different instructions: each adds another constant."""
    return module_of(
        [
            PARAMETER,
            *(f"%c.{k} = {SHAPE} constant({{{k}{', 0' * 7}}})" for k in range(count)),
            *(f"%v.{k} = {SHAPE} add(%p, %c.{k})" for k in range(count)),
            tuple_of(names_of("v", count)),
        ]
    )


def _equal(count: int) -> str:
    return module_of(
        [
            PARAMETER,
            *(f"%v.{k} = {SHAPE} negate(%p)" for k in range(count)),
            tuple_of(names_of("v", count)),
        ]
    )


def _constants(count: int) -> str:
    return module_of(
        [
            *(f"%c.{k} = s32[] constant({k % (count // 2)})" for k in range(count)),
            tuple_of(names_of("c", count), "s32[]"),
        ]
    )


def _elements(count: int) -> str:
    shapes = ", ".join([SHAPE] * count)
    return module_of(
        [
            f"%t = ({shapes}) parameter(0)",
            *(
                f"%g.{k} = {SHAPE} get-tuple-element(%t), index={k}"
                for k in range(count)
            ),
            *(f"%v.{k} = {SHAPE} negate(%g.{k})" for k in range(count)),
            tuple_of(names_of("v", count)),
        ]
    )


def _rebuilt(count: int) -> str:
    """A tuple, all its elements, and a tuple of these."""
    return module_of(
        [
            PARAMETER,
            *(f"%v.{k} = {SHAPE} tanh(%p)" for k in range(count)),
            f"%t{tuple_of(names_of('v', count)).removeprefix('%all')}",
            *(
                f"%g.{k} = {SHAPE} get-tuple-element(%t), index={k}"
                for k in range(count)
            ),
            *(f"%w.{k} = {SHAPE} tanh(%g.{k})" for k in range(count)),
            tuple_of(names_of("w", count)),
        ]
    )


def _calls(count: int) -> str:
    sources = ["p", *names_of("v", count)]
    return module_of(
        [
            PARAMETER,
            *(
                f"%v.{k} = {SHAPE} call(%{sources[k]}), to_apply=%f.{k}"
                for k in range(count)
            ),
        ],
        *(body_of(f"f.{k}", k) for k in range(count)),
    )


def _fusions(count: int) -> str:
    return module_of(
        [
            PARAMETER,
            *(
                f"%v.{k} = {SHAPE} fusion(%p), kind=kLoop, calls=%f.{k}"
                for k in range(count)
            ),
            tuple_of(names_of("v", count)),
        ],
        *(body_of(f"f.{k}") for k in range(count)),
    )


def _nested(count: int) -> str:
    """Computation k calls k - 1."""
    bodies = (
        f"%f.{k} {{\n  %x.f.{k} = {SHAPE} parameter(0)\n"
        f"  ROOT %n.f.{k} = {SHAPE} call(%x.f.{k}), to_apply=%f.{k - 1}\n}}\n"
        for k in range(1, count)
    )
    root = f"%v = {SHAPE} call(%p), to_apply=%f.{count - 1}"
    return module_of([PARAMETER, root], body_of("f.0"), *bodies)


def _fan(count: int) -> str:
    """One value to n readers, whose results one instruction reads; three times."""
    lines, source = [PARAMETER], "p"
    for layer in range(3):
        names = [f"v.{layer}.{k}" for k in range(count // 3)]
        lines += (f"%{name} = {SHAPE} tanh(%{source})" for name in names)
        operands = ", ".join(f"%{name}" for name in names)
        source = f"j.{layer}"
        lines.append(
            f'%{source} = {SHAPE} custom-call({operands}), custom_call_target="joined"'
        )
    return module_of(lines)


def _ordered(count: int) -> str:
    """Control edges: one instruction before n, and one after these."""
    before = "control-predecessors={%first}"
    others = ", ".join(f"%v.{k}" for k in range(count))
    return module_of(
        [
            PARAMETER,
            f"%first = {SHAPE} negate(%p)",
            *(f"%v.{k} = {SHAPE} tanh(%p), {before}" for k in range(count)),
            f"%last = {SHAPE} negate(%p), control-predecessors={{{others}}}",
            tuple_of(["last", *names_of("v", count)]),
        ]
    )


def _random(count: int) -> str:
    """Instructions of one or two operands anywhere before, some of them all-reduces.

    The result has whatever nothing reads. A graph begins as all smaller ones.
    """
    draw = random.Random(1)
    names, lines = ["p"], [PARAMETER]
    unread: dict[str, None] = {}
    for k in range(count):
        one, other = draw.choice(names), draw.choice(names)
        kind = draw.randrange(8)
        unread.pop(one, None)
        if kind >= 4:
            unread.pop(other, None)
        if kind == 0:
            lines.append(f"%v.{k} = {all_reduce(k, one)}")
        elif kind < 4:
            lines.append(f"%v.{k} = {SHAPE} tanh(%{one})")
        else:
            lines.append(f"%v.{k} = {SHAPE} add(%{one}, %{other})")
        names.append(f"v.{k}")
        unread[names[-1]] = None
    return module_of([*lines, tuple_of(list(unread))])


GRAPHS: Final = {
    "chain": Graph(_chain),
    "independent": Graph(_independent),
    "equal": Graph(_equal),
    "constants": Graph(_constants),
    "all-reduces": Graph(collectives.all_reduces),
    "dead all-reduces": Graph(collectives.dead_all_reduces),
    "equal all-reduces": Graph(collectives.equal_all_reduces),
    "all-reduce chain": Graph(collectives.all_reduce_chain),
    "permutes": Graph(collectives.permutes),
    "wide permute": Graph(collectives.wide_permute),
    "wide pair": Graph(collectives.wide_pair),
    "pairs": Graph(collectives.pairs),
    "open pairs": Graph(collectives.open_pairs),
    "pair chain": Graph(collectives.pair_chain),
    "transfers": Graph(collectives.transfers),
    "elements": Graph(_elements),
    "rebuilt tuple": Graph(_rebuilt),
    "calls": Graph(_calls),
    "fusions": Graph(_fusions),
    "nested calls": Graph(_nested, largest=128),
    "loops": Graph(loops.loops, largest=1 << 11),
    "moving": Graph(loops.moving, largest=1 << 12),
    "moving loops": Graph(loops.moving_loops, largest=1 << 11),
    "sinking loops": Graph(loops.sinking, largest=1 << 11),
    "windowed loops": Graph(loops.windowed, largest=1 << 10),
    "dots and all-to-alls": Graph(collectives.split_sides),
    "ring": Graph(collectives.ring),
    "devices": Graph(collectives.devices),
    "fan": Graph(_fan),
    "annotated": Graph(collectives.annotated),
    "control edges": Graph(_ordered),
    "random": Graph(_random),
}
