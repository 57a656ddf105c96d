"""The best-fit heap against the plain way: each buffer looks at all before it."""

from __future__ import annotations

import random

import pytest

import hlo_passes
from hlo_passes.scheduler.memory import filled_bytes, fragmentation
from hlo_passes.scheduler.memory.buffers import build_buffers
from hlo_passes.scheduler.memory.packing import Packing

#: Limits of `filled_bytes`: the tree for few, the tree for all, arrays at times, never
#: the tree, and the tree given up on the way.
LIMITS = (
    {},
    {"_FEW_BUFFERS": 0, "_MANY_INTERVALS": 1 << 30},
    {"_FEW_BUFFERS": 0, "_MANY_INTERVALS": 3, "_TRIALS": 1 << 30, "_UNSORTED": 4},
    {"_FEW_BUFFERS": 1 << 30, "_UNSORTED": 4},
    {"_FEW_BUFFERS": 0, "_MANY_INTERVALS": 2, "_TRIALS": 8},
)
#: Sizes of buffers; the numbers of the last one are all alike.
SIZES = (range(1, 5), range(1, 1000), (1, 2, 4, 8, 1 << 35), (32,))


def _problem(
    draw: random.Random, count: int
) -> list[tuple[int, int, int, int, int | None]]:
    """Buffers: number, first step, last step, size, and with which one it lies."""
    sizes, shape = draw.choice(SIZES), draw.randrange(4)
    found: list[tuple[int, int, int, int, int | None]] = []
    for v in range(count):
        first = v if shape == 1 else draw.randrange(2 * count)
        length = {0: draw.randrange(count), 1: count, 2: draw.randrange(8)}.get(
            shape, draw.choice((1, 5, 2 * count))
        )
        place = draw.randrange(v) if v and draw.random() < 0.1 else None
        found.append((v, first, first + length, draw.choice(sizes), place))
    return found


def _packed(problem: list[tuple[int, int, int, int, int | None]]) -> tuple[int, int]:
    """What `Packing` finds, and the plain way."""
    events: list[tuple[float, int, tuple[int, int, int | None] | int]] = []
    for v, first, last, size, place in problem:
        events += ((first, v, (v, size, place)), (last + 0.5, v, v))
    packing = Packing()
    size_of: dict[int, int] = {}
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    group: dict[int, list[int]] = {}
    leader: dict[int, int] = {}
    for now, (_, _, event) in enumerate(sorted(events, key=lambda each: each[:2])):
        if isinstance(event, int):
            packing.free(event)
            end[event] = now
            continue
        v, size, place = event
        # Only a buffer that was begun can have another one at its place.
        place = place if place in begin else None
        packing.allocate(v, size, place)
        size_of[v], begin[v] = size, now
        leader[v] = v if place is None else leader[place]
        group.setdefault(leader[v], []).append(v)
    placed: list[tuple[int, int, int, int]] = []
    for v in sorted(group, key=lambda v: (-size_of[v], begin[v] - end[v], v)):
        size = max(size_of[member] for member in group[v])
        met = [
            (low, high)
            for first, last, low, high in placed
            if any(begin[m] <= last and first <= end[m] for m in group[v])
        ]
        free_from, gaps = 0, []
        for low, high in sorted(met):
            if low - free_from >= size:
                gaps.append((low - free_from, free_from))
            free_from = max(free_from, high)
        lowest = min(gaps)[1] if gaps else free_from
        placed += ((begin[m], end[m], lowest, lowest + size) for m in group[v])
    return packing.packed_bytes(), max((high for *_, high in placed), default=0)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("count", [1, 7, 40, 150])
def test_packing_is_the_plain_one(
    limits: dict[str, int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(filled_bytes, name, value)
    draw = random.Random(count)
    for _ in range(2000 // (count + 20)):
        problem = _problem(draw, count)
        found, expected = _packed(problem)
        assert found == expected, problem


def test_many_equal_buffers_at_once_are_one_interval() -> None:
    """Placing one costs as many steps as there are levels of the tree."""
    filled = filled_bytes.FilledBytes(3000)
    for k in range(3000):
        assert filled.place([(k, 3000)], 8) == 8 * k
    taken = [node for node in filled._whole + filled._within if node is not None]
    assert max(len(node.lows) for node in taken) == 1
    assert filled._too_many == 0


def test_a_buffer_ends_once() -> None:
    packing = Packing()
    packing.allocate(0, 8)
    packing.free(0)
    packing.allocate(1, 8)
    packing.free(0)
    packing.free(1)
    packing.free(2)
    assert packing.packed_bytes() == 8


def test_a_module_with_too_many_parts_is_not_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """HloModule m

ENTRY %e {
  %p = f32[4] parameter(0)
  %n = f32[4] negate(%p)
  ROOT %c = f32[4] cosine(%n)
}
"""
    for most, packed in ((2, None), (3, 32)):
        monkeypatch.setattr(fragmentation, "_MOST_PARTS", most)
        module = hlo_passes.parse(text)
        found = fragmentation.packed_bytes(module, build_buffers(module))
        assert found == packed
