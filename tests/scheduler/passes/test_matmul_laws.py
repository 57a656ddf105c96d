"""Dots that a ring cuts compute what they did, in the order that is promised."""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes import Pipeline
from hlo_passes.passes.decomposing.matmul_sites import together
from tests.runtime.evaluator import Evaluator
from tests.scheduler.passes.matmul_programs import Matmul


def cut(one: Matmul, options: str) -> tuple[hlo_passes.Module, hlo_passes.Module]:
    """A module before and after; read again, as a user would."""
    before, after = (hlo_passes.parse(one.text()) for _ in range(2))
    spec = f"collective-matmul{{always=true,{options}}}"
    assert Pipeline.parse(spec).run(after).changed
    after = hlo_passes.parse(after.to_text())
    hlo_passes.verify(after)
    return before, after


def ran(module: hlo_passes.Module, one: Matmul, given: list[np.ndarray]) -> list[bytes]:
    counts = (one.devices, 1) if one.by == "replicas" else (1, one.devices)
    return [each.tobytes() for each in Evaluator(module, *counts).run(given)]


@st.composite
def matmuls(draw: st.DrawFn) -> tuple[Matmul, str]:
    devices = draw(st.sampled_from((2, 4, 8, 12)))
    size = draw(st.sampled_from([k for k in (2, 3, 4, 6, 8, 12) if devices % k == 0]))
    domain = draw(st.sampled_from([k for k in (1, 2, 3, 4, 6, 12) if size % k == 0]))
    order = range(devices) if domain < size else draw(st.permutations(range(devices)))
    one = Matmul(
        draw(st.sampled_from(("all-gather", "reduce-scatter"))),
        tuple(tuple(order[k : k + size]) for k in range(0, devices, size)),
        draw(st.integers(0, 1)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(("partitions", "replicas"))),
        draw(st.sampled_from(("f32", "s32"))),
        *(draw(st.integers(1, 3)) for _ in range(3)),
    )
    form = draw(st.sampled_from(("ring", "bidirectional")))
    unroll = draw(st.sampled_from(("all", "none")))
    # Devices in any order are in one domain.
    domain = domain if domain < size else devices
    return one, f"form={form},unroll={unroll},domain={domain}"


@settings(max_examples=60, deadline=None)
@given(drawn=matmuls(), seed=st.integers(0, 99))
def test_parts_mean_what_the_dot_means(drawn: tuple[Matmul, str], seed: int) -> None:
    one, options = drawn
    before, after = cut(one, options)
    chance = np.random.default_rng(seed)
    # Whole numbers this small add up without rounding, in any order.
    given = [
        chance.integers(-9, 9, (one.devices, *p.shape.dimensions)).astype(
            np.float32 if one.type == "f32" else np.int32
        )
        for p in before.entry.parameters
    ]
    assert ran(after, one, given) == ran(before, one, given)


def places(form: str, size: int) -> list[list[int]]:
    """Runs of members after an owner that are added from left to right."""
    if form == "ring" or size == 2:
        return [[*range(1, size), 0]]
    return [[*range(-(size // 2), 1)], [*range((size - 1) // 2, 0, -1)]]


@pytest.mark.parametrize("unroll", ["all", "none"])
@pytest.mark.parametrize("form", ["ring", "bidirectional"])
@pytest.mark.parametrize(("size", "domain"), [(8, 8), (8, 4), (12, 12), (12, 3)])
def test_sums_have_the_order_that_is_promised(
    size: int, domain: int, form: str, unroll: str
) -> None:
    one = Matmul("reduce-scatter", (tuple(range(size)),), depth=1)
    _, after = cut(one, f"form={form},unroll={unroll},domain={domain}")
    chance = np.random.default_rng(5)
    x = chance.standard_normal((size, one.rows * size, 1)).astype(np.float32)
    w = chance.standard_normal((size, 1, one.width)).astype(np.float32)
    blocks = (x * w).reshape(size, size, one.rows, one.width)

    def total(values: list[np.ndarray]) -> np.ndarray:
        return functools.reduce(np.add, values)

    wanted: list[np.ndarray] = []
    for owner in range(size):
        home, place = divmod(owner, domain)
        domains = [(home + k) % (size // domain) for k in range(1, size // domain + 1)]
        sums = [
            total(
                [
                    total(
                        [blocks[d * domain + (place + k) % domain, owner] for k in run]
                    )
                    for run in places(form, domain)
                ]
            )
            for d in domains
        ]
        wanted.append(total(sums))
    assert ran(after, one, [x, w]) == [np.stack(wanted).tobytes()]


@pytest.mark.parametrize("form", ["ring", "bidirectional"])
def test_parts_of_a_sum_are_added_as_they_arrive(form: str) -> None:
    size = 6
    one = Matmul("all-gather", (tuple(range(size)),), sums=True, rows=1)
    _, after = cut(one, f"form={form}")
    chance = np.random.default_rng(5)
    x, w, v = (
        chance.standard_normal(shape).astype(np.float32)
        for shape in (
            (size, 1, one.depth),
            (size, size, one.width),
            (size, size, one.width),
        )
    )
    order = [0, -1, -2, -3, -4, -5] if form == "ring" else [0, -1, 1, -2, 2, -3]
    wanted = [
        functools.reduce(
            np.add,
            [
                x[(me + k) % size, 0][:, None] * w[me, (me + k) % size][None]
                for k in order
            ],
        )
        for me in range(size)
    ]
    assert ran(after, one, [x, w, v]) == [np.stack(wanted).tobytes()]


@settings(max_examples=50, deadline=None)
@given(
    ids=st.lists(st.integers(0, 23), min_size=1, max_size=12, unique=True),
    domain=st.integers(1, 12),
)
def test_runs_in_a_domain_are_equal_and_as_long_as_can_be(
    ids: list[int], domain: int
) -> None:
    run = together([ids], domain)
    domains = [each // domain for each in ids]
    cuts = [k for k, (a, b) in enumerate(pairwise(domains), 1) if a != b]
    lengths = [b - a for a, b in pairwise([0, *cuts, len(ids)])]
    first = lengths[0]
    assert run == (first if all(length % first == 0 for length in lengths) else 0)
