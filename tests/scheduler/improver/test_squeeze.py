"""Orders that need too much memory, and what is left of their step when they fit."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

import hlo_passes
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.improver.annealing import Budget
from hlo_passes.scheduler.improver.atoms import Atoms, make_atoms
from hlo_passes.scheduler.improver.list_start import list_orders
from hlo_passes.scheduler.improver.proof import peak_bytes
from hlo_passes.scheduler.improver.search import Effort, improve
from hlo_passes.scheduler.improver.squeeze import squeeze
from hlo_passes.scheduler.improver.window import Window
from tests.scheduler.improver.modules import problems, random_module
from tests.scheduler.improver.naive import walk
from tests.scheduler.improver.orders import random_order


def _too_large(atoms: Atoms, seed: int) -> list[int] | None:
    """An order within the limits that needs more memory than the one given."""
    draw = random.Random(seed)
    given = walk(atoms, range(len(atoms))).peak
    for _ in range(200):
        order = random_order(atoms, draw)
        found = walk(atoms, order)
        if not found.breaks and found.peak > given:
            return order
    return None


def _squeezed(atoms: Atoms, order: list[int], cap_bytes: int) -> tuple[bool, Window]:
    window = Window(atoms, cap_bytes)
    assert window.set_order(order)
    budget = Budget()
    fits = squeeze(window, moves=4_000, seed=1, temperature_us=1.0, budget=budget)
    assert 0 < budget.tried <= 4_000
    assert budget.taken <= budget.tried
    return fits, window


def test_what_fits_is_an_order_within_all_limits() -> None:
    fitting = 0
    for seed in range(12):
        module, costs = random_module(seed, length=30)
        for problem in problems(module, costs):
            atoms = make_atoms(problem)
            order = _too_large(atoms, seed)
            if order is None or walk(atoms, range(len(atoms))).breaks:
                continue
            given = walk(atoms, range(len(atoms))).peak
            fits, window = _squeezed(atoms, order, given)
            assert window.cap_bytes == given
            found = walk(atoms, window.order)
            assert not found.breaks
            assert sorted(window.order) == list(range(len(atoms)))
            assert fits == (window.peak_bytes <= given)
            assert found.step_us == pytest.approx(window.total_us)
            fitting += fits
    assert fitting > 3


def _layers(sizes: Sequence[int]) -> str:
    """Gathered weights, one after the other, each for one product."""
    lines = ["%x0 = f32[8] parameter(0)"]
    for k, size in enumerate(sizes):
        lines.append(f"%w{k} = f32[{size // 2}] parameter({k + 1})")
    for k, size in enumerate(sizes):
        lines += [
            f"%start{k} = (f32[{size // 2}], f32[{size}]) all-gather-start(%w{k}), "
            f"channel_id={k + 1}, replica_groups={{{{0,1}}}}, dimensions={{0}}, "
            "use_global_device_ids=true",
            f"%g{k} = f32[{size}] all-gather-done(%start{k})",
            f"%x{k + 1} = f32[8] custom-call(%x{k}, %g{k}), "
            'custom_call_target="product"',
        ]
    lines.append(f"ROOT %r = f32[8] negate(%x{len(sizes)})")
    body = "\n  ".join(lines)
    return (
        "HloModule layers, is_scheduled=true, num_partitions=2\n\n"
        f"ENTRY %main {{\n  {body}\n}}\n"
    )


def test_a_list_schedule_that_needs_too_much_is_a_start_once_it_fits() -> None:
    # The next gather runs beside each product; of the last two only one has room.
    sizes = [1000] * 60 + [2000] * 2
    costs = TableEstimator(
        {f"x{k + 1}": 20.0 for k in range(len(sizes))},
        {f"start{k}": 10.0 for k in range(len(sizes))},
        absent=0.0,
    )
    (problem,) = problems(hlo_passes.parse(_layers(sizes)), costs)
    atoms = make_atoms(problem)
    best, given = list_orders(atoms)[0], range(len(atoms))
    cap = 4 * 3100
    assert walk(atoms, best).peak > cap > walk(atoms, given).peak
    found = improve(problem, cap, Effort(factor=0.1, rounds=0), Budget())
    assert (found.kept, found.start) == ("", "squeezed")
    assert peak_bytes(problem, found.order) <= cap
    assert (found.before_us, found.after_us) == (30.0 * 62, 10.0 + 20.0 * 62 + 10.0)


def test_an_order_that_exposes_nothing_is_squeezed_too() -> None:
    # A product before the first gather hides that one as well.
    sizes = [1000] * 20 + [2000] * 2
    text = _layers(sizes).replace("custom-call(%x0, %g0)", "custom-call(%h, %g0)")
    head = '%h = f32[8] custom-call(%x0), custom_call_target="head"'
    text = text.replace("%start0 =", f"{head}\n  %start0 =")
    products = ["h", *(f"x{k + 1}" for k in range(len(sizes)))]
    costs = TableEstimator(
        dict.fromkeys(products, 20.0),
        {f"start{k}": 10.0 for k in range(len(sizes))},
        absent=0.0,
    )
    (problem,) = problems(hlo_passes.parse(text), costs)
    atoms = make_atoms(problem)
    window = Window(atoms, 1 << 60)
    assert window.set_order(list_orders(atoms)[0])
    assert sum(window.wait_us) == 0.0
    fits, _ = _squeezed(atoms, list_orders(atoms)[0], window.peak_bytes - 1)
    assert fits
    found = improve(problem, 4 * 3100, Effort(), Budget())
    assert (found.start, found.before_us) == ("squeezed", 680.0)
    assert found.after_us == 470.0
