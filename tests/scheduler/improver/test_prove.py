"""Proofs: never above the optimum, equal to it where the model is the whole problem."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from hlo_passes.errors import PipelineSpecError, UsageError
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import PassRun, Pipeline
from hlo_passes.scheduler.improver import exact_model as models
from hlo_passes.scheduler.improver import prove, solvers
from hlo_passes.scheduler.improver.atoms import STARTS, Atoms, make_atoms
from hlo_passes.scheduler.improver.bounds import lower_bound
from hlo_passes.scheduler.improver.evaluation import step_us
from hlo_passes.scheduler.improver.exact_model import ExactModel, exact_model
from hlo_passes.scheduler.improver.prove import Proof, prove_module, proven_bound_us
from hlo_passes.scheduler.improver.reach import reach_of
from hlo_passes.scheduler.improver.search import Effort
from hlo_passes.scheduler.improver.solvers import CP_SAT, HIGHS, Limits, cp_sat, highs
from hlo_passes.scheduler.improver.whole_module import improve_module
from tests.scheduler.improver import cp_model
from tests.scheduler.improver.modules import (
    conditions,
    order_text,
    problems,
    random_module,
)
from tests.scheduler.improver.naive import walk
from tests.scheduler.improver.orders import optimum
from tests.scheduler.schedules import LATE, module, write_costs

#: Modules of the comparison with all orders; more of them by hand now and then.
MODULES = 60
_NEAR = 1e-9
_NEAR_OF_HIGHS = 5e-6


def _small(
    seeds: Iterable[int] = range(MODULES),
    *,
    length: int = 4,
    loops: bool = False,
    **settings: Any,
) -> Iterator[tuple[Atoms, float]]:
    """Problems with the step of their best order."""
    for seed in seeds:
        made, costs = random_module(seed, length=length, loops=loops)
        for problem in problems(made, costs, **settings):
            atoms = make_atoms(problem)
            if walk(atoms, range(len(atoms))).breaks:
                continue
            best = optimum(atoms)
            if best is not None:
                yield atoms, best


def test_the_bound_of_the_flow_is_below_the_best_order() -> None:
    for atoms, best in _small():
        assert lower_bound(atoms).us <= best * (1 + _NEAR)


def test_highs_says_what_the_best_order_takes() -> None:
    pytest.importorskip("scipy")
    compared = 0
    for atoms, best in _small():
        found = exact_model(atoms, reach_of(atoms))
        if isinstance(found, str):
            continue
        given = step_us(atoms, range(len(atoms)))
        solved = highs(found, given, Limits())
        assert solved.is_closed
        assert solved.bound_us <= best * (1 + _NEAR)
        if len({atoms.resource[v] for v in _starts(atoms)}) == 1:
            compared += 1
            assert solved.bound_us >= best * (1 - _NEAR_OF_HIGHS)
    assert compared >= 10


def test_cp_sat_says_what_the_best_order_takes() -> None:
    pytest.importorskip("ortools", reason="OR-Tools is not installed")
    compared = 0
    for atoms, best in _small():
        given = step_us(atoms, range(len(atoms)))
        solved = cp_sat(atoms, range(len(atoms)), given, Limits())
        assert solved.is_closed
        compared += 1
        assert best * (1 - _NEAR) <= solved.bound_us <= best * (1 + _NEAR)
    assert compared >= 10


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models of CP-SAT are solved without OR-Tools."""
    lacking = types.SimpleNamespace(import_module=lambda _: cp_model.module())
    monkeypatch.setattr(solvers, "importlib", lacking)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("loops", "settings"),
    [
        (False, {}),
        (True, {}),
        (False, {"parallel_collective_overlap_limit": 2}),
        (True, {"parallel_collective_overlap_limit": 2}),
        (False, {"parallel_async_compute_limit": 1}),
        (False, {"parallel_async_compute_limit": 1 << 30}),
    ],
)
def test_the_model_of_cp_sat_has_the_best_order(
    loops: bool, settings: dict[str, int]
) -> None:
    compared = 0
    for atoms, best in _small(range(8), length=3, loops=loops, **settings):
        order = range(len(atoms))
        solved = cp_sat(atoms, order, step_us(atoms, order), Limits())
        assert solved.is_closed
        assert solved.nodes > 0
        assert solved.bound_us == pytest.approx(best, rel=_NEAR)
        compared += 1
    assert compared >= 4


@pytest.mark.usefixtures("stand_in")
def test_cp_sat_gives_up_at_its_limit() -> None:
    for atoms, _ in _small(range(4)):
        order = range(len(atoms))
        given = step_us(atoms, order)
        for limits, is_closed in ((Limits(nodes=0), False), (Limits(seconds=1), True)):
            solved = cp_sat(atoms, order, given, limits)
            assert solved.is_closed is is_closed
            assert (solved.bound_us > 0.0) is is_closed
            assert (solved.nodes > 0) is is_closed


def _starts(atoms: Atoms) -> list[int]:
    return [v for v, kind in enumerate(atoms.kind) if kind == STARTS]


def test_rows_that_are_left_out_only_lower_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("scipy")
    cut = 0
    monkeypatch.setattr(models, "MOST_SPANS", 3)
    for atoms, best in _small():
        found = exact_model(atoms, reach_of(atoms))
        if isinstance(found, ExactModel):
            cut += not found.is_complete
            solved = highs(found, step_us(atoms, range(len(atoms))), Limits())
            assert solved.bound_us <= best * (1 + _NEAR)
    assert cut


@pytest.mark.parametrize("seed", range(6))
def test_a_proof_changes_nothing_and_holds_for_what_the_search_finds(seed: int) -> None:
    pytest.importorskip("scipy")
    made, costs = random_module(seed, length=14)
    before = order_text(made)
    limits = Limits(nodes=100)
    given = {p.computation: p for p in prove_module(made, conditions(costs), limits)}
    assert order_text(made) == before
    improve_module(made, conditions(costs, effort=Effort(0.2, 2)))
    for proof in prove_module(made, conditions(costs), limits):
        assert proof.bound_us <= proof.step_us * (1 + _NEAR)
        assert proof.bound_us >= proof.flow_us
        # Callers change with what they call; what calls nothing has one optimum.
        first = given[proof.computation]
        if first.verdict == "proved optimal" and first.flow_us == proof.flow_us:
            assert proof.step_us >= first.step_us * (1 - _NEAR_OF_HIGHS)


@pytest.mark.parametrize("seed", [25, 69, 122])
def test_the_bound_of_a_module_is_raised_to_its_best_order(seed: int) -> None:
    pytest.importorskip("scipy")
    made, costs = random_module(seed, length=6, loops=False)
    (problem,) = problems(made, costs)
    atoms = make_atoms(problem)
    best = optimum(atoms)
    assert best is not None
    flow = proven_bound_us(made, conditions(costs), ())
    assert flow == lower_bound(atoms).us < best * (1 - _NEAR_OF_HIGHS)
    proven = proven_bound_us(made, conditions(costs), (Limits(),))
    assert best * (1 - _NEAR_OF_HIGHS) <= proven <= best * (1 + _NEAR)


@pytest.mark.parametrize("seed", range(4))
def test_callers_count_with_what_is_proven_of_what_they_call(seed: int) -> None:
    pytest.importorskip("scipy")
    made, costs = random_module(seed, length=14)
    on = conditions(costs, effort=Effort(0.2, 2))
    solvers = (Limits(nodes=100), Limits(nodes=1))
    given = proven_bound_us(made, on, solvers)
    found = improve_module(made, on)
    assert given <= found.after_us * (1 + _NEAR)
    proven = proven_bound_us(made, on, solvers)
    assert proven_bound_us(made, on, ()) <= proven <= found.after_us * (1 + _NEAR)


def test_the_same_limit_of_nodes_says_the_same() -> None:
    pytest.importorskip("scipy")
    said = set()
    for _ in range(2):
        made, costs = random_module(3, length=14)
        limits = Limits(nodes=3)
        proofs = prove_module(made, conditions(costs), limits)
        said.add("\n".join(p.text(limits) for p in proofs))
    assert len(said) == 1


def test_nothing_is_proven_of_an_order_above_the_limits() -> None:
    pytest.importorskip("scipy")
    made, costs = random_module(16, length=8, loops=True)
    (proof, _) = prove_module(made, conditions(costs), Limits(nodes=1))
    assert proof.why_not == "its order is not within edges and limits"


def test_what_a_proof_leaves_of_the_time_is_shared_by_those_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 10 s the first of two may take five; it takes 2, so the other may take 8."""
    shares: list[float | None] = []

    def proved(atoms: Atoms, proof: Proof, limits: Limits) -> Proof:
        del atoms
        shares.append(limits.seconds)
        return replace(proof, seconds=2.0)

    monkeypatch.setattr(prove, "_proved", proved)
    made, costs = random_module(4, length=8, loops=True)
    said: list[str] = []
    prove_module(made, conditions(costs), Limits(seconds=10.0), progress=said.append)
    assert shares == [5.0, 8.0]
    assert [line.startswith("proving %") for line in said] == [True, True, False]
    assert said[-1] == ""  # takes the line away


# -- the pass -----------------------------------------------------------------


def _run(costs: str, options: str) -> PassRun:
    made = module(LATE)
    (run,) = (
        Pipeline.parse(f"schedule-improver{{costs={costs},{options}}}").run(made).passes
    )
    return run


def test_remarks_say_what_is_proven(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("scipy")
    report = _run(write_costs(tmp_path), "prove=5")
    proofs = report.details["improvement"]["proofs"]
    assert proofs["body"]["verdict"] == "proved optimal"
    assert proofs["main"]["is_closed"]
    assert proofs["main"]["bound_us"] <= proofs["main"]["step_us"]
    said = "proved optimal: no order of %body"
    assert any(remark.startswith(said) for remark in report.remarks)


@pytest.mark.parametrize(("solver", "package"), [(HIGHS, "scipy"), (CP_SAT, "ortools")])
def test_a_missing_package_is_named_with_its_cure(
    solver: str,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    lacking = types.SimpleNamespace(import_module=missing)
    monkeypatch.setattr(solvers, "importlib", lacking)
    with pytest.raises(UsageError) as caught:
        _run(write_costs(tmp_path), f"prove=5,prove-with={solver}")
    assert caught.value.code == "U229"
    assert f"pip install {package}" in caught.value.hint


@pytest.mark.parametrize(
    "options", ["prove=-1", "prove-nodes=-1", "prove-with=x", "offer-limits='2 x'"]
)
def test_values_out_of_range_are_refused(options: str) -> None:
    with pytest.raises(PipelineSpecError) as caught:
        Pipeline.parse(f"schedule-improver{{{options}}}")
    assert caught.value.code == "U013"


def test_other_limits_are_offered_and_not_applied(tmp_path: pathlib.Path) -> None:
    costs = write_costs(tmp_path)
    without = module(LATE)
    Pipeline.parse(f"schedule-improver{{costs={costs}}}").run(without)
    offered = module(LATE)
    spec = f"schedule-improver{{costs={costs},offer-limits='1 2 4'}}"
    (report,) = Pipeline.parse(spec, PassContext()).run(offered).passes
    assert offered.to_text() == without.to_text()
    listed = report.details["improvement"]["offers"]
    assert [offer["limit"] for offer in listed] == [2, 4]
    said = [r for r in report.remarks if "parallel-collective-overlap-limit=" in r]
    assert len(said) == 2
    for line, offer in zip(said, listed, strict=True):
        head, _, rest = line.partition(": ")
        assert head.endswith(f"parallel-collective-overlap-limit={offer['limit']}")
        assert rest.startswith("no order is better") == bool(offer["kept"])
