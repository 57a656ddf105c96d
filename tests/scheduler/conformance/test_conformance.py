"""A sample of the recordings; `python -m tests.scheduler.conformance` judges all."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from typing import Any

import pytest

from hlo_passes import Module, Pipeline, parse
from hlo_passes.ir.computation import Computation
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.scheduler.latency_hiding import driver
from hlo_passes.scheduler.latency_hiding.driver import computations_to_schedule
from hlo_passes.scheduler.latency_hiding.result import ScheduleResult
from hlo_passes.scheduler.latency_hiding.scan import Scan
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from tests.modules import CORPUS, SHARED
from tests.scheduler.conformance.choose import (
    SAMPLE,
    branches,
    choose,
    circumstances,
)
from tests.scheduler.conformance.judge import Verdict, judge
from tests.scheduler.conformance.recordings import (
    AFTER,
    Recording,
    computation_orders,
    find_recordings,
)

ARCHIVES = sorted((CORPUS / "schedules").glob("*/*.tar.xz"))
PUBLIC = SHARED / "golden" / "llama3_8b_cp_bf16_1x4"
#: Chosen so that every branch that any recording takes is taken, see `choose`. Those
#: that take most branches in the least time come first.
CHOSEN = SAMPLE.read_text().splitlines()


def chosen(name: str) -> Recording:
    """A recording by its place in the corpus."""
    folder = CORPUS / name
    if folder.is_dir():
        (recording,) = find_recordings(folder)
        return recording
    archive = folder.parent.with_name(f"{folder.parent.name}.tar.xz")
    found = find_recordings(archive)
    return next(r for r in found if r.name.endswith(f"/{folder.name}"))


def one(name: str, setting: str) -> Recording:
    """A recording of jax 0.10.2 by its input and setting."""
    archive = CORPUS / "schedules" / "0.10.2" / f"{name}.tar.xz"
    return next(r for r in find_recordings(archive) if r.name.endswith(setting))


def told(verdict: Verdict) -> str:
    return "\n".join(str(d) for d in verdict.differences)


def test_there_are_recordings_of_all_releases() -> None:
    releases = {"0.10.2", "0.11.2", "0.12.0.1"}
    assert {a.parent.name for a in ARCHIVES} == releases
    assert {name.split("/")[1] for name in CHOSEN} == releases


@pytest.mark.parametrize("name", CHOSEN)
def test_as_xla_did(name: str) -> None:
    recording = chosen(name)
    verdict = judge(recording)
    assert not verdict.differences, f"{recording.name}\n{told(verdict)}"
    assert verdict.in_order == verdict.logged_in_order == verdict.scheduled
    assert verdict.equal_decisions == verdict.decisions


def test_the_sample_is_the_cheapest_that_takes_each_branch() -> None:
    taken = {"a": ["x", "y"], "b": ["y", "z"], "c": ["x", "y", "z"], "d": ["y"]}
    seconds = {"a": 1.0, "b": 1.0, "c": 9.0, "d": 0.1}
    measured = {n: {"taken": taken[n], "seconds": seconds[n]} for n in taken}
    assert choose(measured, 1) == ["d", "a", "b"]
    assert choose(measured, 2) == ["d", "a", "b", "c"]
    seconds["c"] = measured["c"]["seconds"] = 0.2
    assert choose(measured, 1) == ["c"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no sys.monitoring")
def test_what_a_recording_takes_is_seen() -> None:
    both = [one("moe", f"1x1x8.{setting}") for setting in ("sol", "tight_memory")]
    with branches(sys.monitoring) as taken:
        seen = []
        for recording in both:
            taken.clear()
            sys.monitoring.restart_events()
            judge(recording)
            seen.append({*taken})
    known, more = seen
    place = "scheduler/latency_hiding/state.py:SchedulingState.is_memory_over"
    assert any(f.startswith(place) for f in known)
    assert more - known
    assert {*circumstances(both[0])} >= {"release 0.10.2", "decided by first"}


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="no ../shared/golden")
@pytest.mark.parametrize("variant", ["sol", "approx_overlap4", "tight_memory"])
def test_public_module(variant: str) -> None:
    (recording,) = find_recordings(PUBLIC / variant)
    verdict = judge(recording)
    assert not verdict.differences, told(verdict)
    assert verdict.decisions > 2000


@pytest.mark.parametrize("name", ["transformer_unrolled", "moe_grad", "grouped_loop"])
def test_own_estimates_in_place_of_xlas(name: str) -> None:
    verdict = judge(one(name, "1x2x8.sol"), estimator_name="sol", figures=False)
    assert verdict.estimator_name == "sol"
    assert verdict.in_order == verdict.logged_in_order == verdict.scheduled


def test_as_a_pass(tmp_path: pathlib.Path) -> None:
    """The pass, with options as text, orders like `schedule_module`."""
    recording = one("pipeline_training", "1x2x8.start_delay")
    costs = tmp_path / "costs.json"
    costs.write_text(recording.texts["costs.json"])
    pipeline = Pipeline.parse(
        "latency-hiding-scheduler{parallel-collective-overlap-limit=4,"
        f"collective-start-as-early-as-possible=true,costs={costs}}}",
        PassContext(target=recording.target, topology=recording.topology),
    )
    module = parse(recording.before, filename=recording.name)
    assert pipeline.run(module).changed
    assert computation_orders(module.to_text()) == recording.orders


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("scan_layers_train", "1x2x8.start_delay"),
        ("control_flow", "1x1x8.tight_memory"),
    ],
)
def test_order_of_computations_decides_nothing(
    name: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callees first is all that counts: siblings the other way round, the same result.

    XLA takes them in an order that depends on the compilation's history.
    """
    recording = one(name, setting)
    turned_any = False

    def turned(module: Module, tracker: AsyncTracker) -> list[Computation]:
        nonlocal turned_any
        chosen = computations_to_schedule(module, tracker)
        other = siblings_turned(chosen)
        turned_any = other != chosen
        return other

    monkeypatch.setattr(driver, "computations_to_schedule", turned)
    verdict = judge(recording)
    assert not verdict.differences, told(verdict)
    assert verdict.equal_decisions == verdict.decisions > 0
    assert turned_any


def siblings_turned(chosen: list[Computation]) -> list[Computation]:
    """Another order with callees first: the last one that is ready goes first."""
    below = {c: reached(c) for c in chosen}
    waiting, placed = list(chosen), []
    while waiting:
        ready = next(c for c in reversed(waiting) if below[c].isdisjoint(waiting))
        waiting.remove(ready)
        placed.append(ready)
    return placed


def reached(computation: Computation) -> set[Computation]:
    """What it calls, at any depth."""
    found: set[Computation] = set()
    work = [computation]
    while work:
        called = {d for i in work.pop().instructions for d in i.called_computations}
        work += called - found
        found |= called
    return found


def test_differences_are_found() -> None:
    """A harness that finds nothing is worth nothing: each kind is planted."""
    recording = one("scan_layers_train", "1x1x8.sol")
    assert not judge(recording).differences
    rows = recording.texts["decisions.tsv"].splitlines()
    at = next(k for k, row in enumerate(rows) if not row.endswith("first"))
    chosen, other, reason = rows[at].split("\t")
    rows[at] = f"{chosen}\t{other}\tkPlanted"
    found = _planted(recording, {"decisions.tsv": "\n".join(rows) + "\n"})
    assert [d.part for d in found] == ["decision"]
    assert f"XLA    {chosen} over {other}: kPlanted" in found[0].text
    assert f"ours   {chosen} over {other}: {reason}" in found[0].text
    assert "both   " in found[0].text

    figures = json.loads(recording.texts["statistics.json"])
    name = min(figures["after"])
    figures["after"][name]["total cycles"] *= 1.01
    figures["before"][name]["memory pressure peak (bytes)"] += 4
    found = _planted(recording, {"statistics.json": json.dumps(figures)})
    assert sorted((d.part, d.computation) for d in found) == [
        ("peak", name),
        ("statistic", name),
    ]

    lines = recording.after.splitlines()
    last = next(k for k, line in enumerate(lines) if line.startswith("  ROOT %"))
    lines[last - 1], lines[last - 2] = lines[last - 2], lines[last - 1]
    found = _planted(recording, {AFTER: "\n".join(lines)})
    assert [d.part for d in found] == ["logged order", "order"]


def test_a_choice_that_only_one_way_makes_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scan is judged itself, not only the comparison pair by pair."""
    recording = one("scan_layers_train", "1x1x8.sol")
    monkeypatch.setattr(Scan, "pick", lambda self, candidates, group=-1: 0)
    verdict = judge(recording, figures=False)
    assert {d.part for d in verdict.differences} >= {"order"}
    assert "logged order" not in {d.part for d in verdict.differences}
    assert verdict.in_order < verdict.logged_in_order == verdict.scheduled
    assert verdict.equal_decisions == verdict.decisions


def test_an_illegal_schedule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = one("scan_layers_train", "1x1x8.sol")

    def backwards(module: Module, *rest: Any, **named: Any) -> ScheduleResult:
        result = driver.schedule_module(module, *rest, **named)
        module.entry.set_order(module.entry.instructions[::-1])
        return result

    monkeypatch.setattr("tests.scheduler.conformance.judge.schedule_module", backwards)
    found = judge(recording).differences
    assert {d.part for d in found} == {"order", "logged order", "legality"}


def _planted(recording: Recording, texts: dict[str, str]) -> list:
    planted = dataclasses.replace(recording, texts=recording.texts | texts)
    return judge(planted).differences
