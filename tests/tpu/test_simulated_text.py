"""What reports say of TPUs alone: memory, links, the other estimator."""

from __future__ import annotations

import pathlib
from dataclasses import replace
from typing import get_args

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.cli.main import main
from hlo_passes.plurals import counted
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.tpu_final import DIFFERENCE
from hlo_passes.scheduler.hardware.topology import Topology, TpuGrid
from hlo_passes.scheduler.page.causes import causes_of
from hlo_passes.scheduler.schedule_diff import ScheduleDiff
from hlo_passes.scheduler.schedule_moves import Simulated
from hlo_passes.scheduler.simulation.advice import in_the_program
from hlo_passes.scheduler.simulation.report import report_text
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.surroundings import Surroundings
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.simulation.timeline_data import CauseKind
from hlo_passes.scheduler.simulation.units import bytes_text
from hlo_passes.scheduler.tpu.chips import chip
from tests.tpu.test_modules import TILED, costs_file

ESTIMATED = TILED.replace(
    "negate(%p)",
    'negate(%p), backend_config={"window_config":{"estimated_cycles":"30"}}',
)
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "tpu.md"


def late(text: str) -> str:
    """The same with the negation after the permute, which could hide it."""
    lines = text.splitlines(keepends=True)
    (at,) = (n for n, line in enumerate(lines) if "negate(" in line)
    lines[at : at + 2] = lines[at + 1], lines[at]
    return "".join(lines)


def final(text: str = ESTIMATED, target: str = "v5e") -> Timeline:
    module = hlo_passes.parse(text)
    return scheduler.simulate(module, target=target, estimator="tpu-final")


def test_memory_is_told_of_what_a_device_has(tmp_path: pathlib.Path) -> None:
    logged = scheduler.simulate(hlo_passes.parse(TILED), costs=costs_file(tmp_path))
    for timeline in (logged, final()):
        said = report_text(timeline)
        assert ", of a device's 16.0 GiB (tiles are not counted)" in said
        assert "nobody says how much" not in said
        memory = timeline.to_json()["memory"]
        # How XLA:TPU packs it is not known either.
        assert "packs it" not in said
        assert memory["packed_bytes"] is None
        assert memory["device_bytes"] == chip("v5e").device_bytes == 16 << 30
        # What XLA takes of it is not known, so nothing says that it fits.
        assert (memory["available_bytes"], memory["fits"]) == (None, None)
    # Two devices share the memory of one chip here.
    assert chip("tpu7x").device_bytes * 2 == chip("tpu7x").hbm_bytes


def test_the_parameters_are_told_as_a_part_of_the_peak() -> None:
    """The result counts at the peak, but not in the figure of XLA's scheduler."""
    timeline = final()
    found = timeline.footprint
    rest = found.peak_bytes - found.parameters_bytes
    assert rest != timeline.peak_memory_bytes
    peak, given = map(bytes_text, (found.peak_bytes, found.parameters_bytes))
    assert f"{peak} at the peak, {given} of it parameters, of a" in report_text(
        timeline
    )


def test_a_step_that_cannot_fit_says_so_first() -> None:
    large = ESTIMATED.replace("f32[64,256]", "f32[65536,131072]")
    timeline = final(large)
    said = report_text(timeline)
    assert "it does not fit: it needs" in said.splitlines()[0]
    assert "v5e has 16.0 GiB" in said.splitlines()[0]
    assert "DOES NOT FIT, v5e has 16.0 GiB" in said


@pytest.mark.parametrize(("rows", "code"), [("64", 0), ("65536000", 6)])
def test_a_limit_of_memory_is_all_that_a_tpu_has(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], rows: str, code: int
) -> None:
    file = tmp_path / "final.hlo"
    file.write_text(ESTIMATED.replace("f32[64,256]", f"f32[{rows},256]"))
    command = ["simulate", str(file), "--target=v5e", "--estimator=tpu-final"]
    assert main([*command, "--fail-if=memory>target"]) == code
    told = capsys.readouterr().out.splitlines()[-1]
    how = "fails" if code else "passes"
    assert told.startswith(f"fail-if  memory>target: {how}: ")
    assert told.endswith(
        "more than 16.0 GiB; tiles and what the compiler keeps for itself are not "
        "counted"
    )


def test_links_of_a_tpu_are_no_nvlink() -> None:
    module = hlo_passes.parse(TILED)
    start = next(i for i in module.entry.instructions if i.name == "s")
    for machine, link in (
        (TpuGrid(1, 1, 4, "2x2"), "interconnect"),
        (Topology(1, 1, 4), "nvlink"),
        (Topology(4, 1, 1), "network"),
    ):
        assert Surroundings(module, machine, Rules()).channel(start) == link


def test_the_other_estimator_is_named(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(TILED)
    logged = scheduler.simulate(module, costs=costs_file(tmp_path)).notes[-1]
    assert logged.startswith("tpu-final, the other estimator of TPUs, may give ")
    assert DIFFERENCE in logged
    assert final().notes[-1].startswith("tpu-log, the other estimator of TPUs, may ")
    # Of a GPU's module nothing is said, and the page has the same figures.
    text = TILED.replace(":T(8,128)", "").replace("{:S(2)}", "")
    told = scheduler.simulate(hlo_passes.parse(text)).notes
    assert not any("other estimator" in note for note in told)
    assert f"differ by {DIFFERENCE} on fusions" in PAGE.read_text(encoding="utf-8")


def test_what_holds_by_one_estimator_alone_says_so(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(ESTIMATED)
    for own, other, on in (
        ("tpu-log", "tpu-final", Pricing(costs=costs_file(tmp_path))),
        ("tpu-final", "tpu-log", Pricing(target="v5e", estimator="tpu-final")),
    ):
        timeline = scheduler.simulate(module, on, with_range=True)
        said = report_text(timeline)
        assert "): by these costs no order of these instructions is faster; " in said
        assert "): by these costs no restructuring that moves the same bytes " in said
        ends = f"; settings of {own} alone, {other} may lie outside"
        (told,) = (x for x in said.splitlines() if x.startswith("range "))
        assert told.endswith(ends)
        page = timeline.to_html(module)
        assert ends in page
        assert " By these costs a better order could save at most " in page
        assert '"bound_premise":"by these costs "' in page
        # Of two steps as well.
        both = Simulated(module, timeline)
        assert ends in ScheduleDiff(both, both, (), 10).to_text()


def test_the_report_ends_with_what_to_change() -> None:
    timeline = final()
    assert timeline.exposed_us > 0.0
    # No order of these instructions is faster, so only flags are named.
    assert "schedule-improver" not in timeline.how_to_change
    assert timeline.how_to_change in report_text(timeline)
    timeline = final(late(ESTIMATED))
    told = report_text(timeline).splitlines()[-1]
    assert told.startswith("what to change: flags of the compiler, which ")
    chips = "FILE.py:FUNCTION --target=v5e --topology=GRID"
    assert f"`hlo-passes tune {chips}`" in told
    assert f"`hlo-passes compile {chips} --passes=schedule-improver`" in told
    assert told[1:] in timeline.to_html()
    # For a GPU changes are tried.
    text = TILED.replace(":T(8,128)", "").replace("{:S(2)}", "")
    assert "what to change:" not in report_text(
        scheduler.simulate(hlo_passes.parse(text))
    )


def test_hints_of_the_page_are_those_of_a_tpu() -> None:
    assert "stream" in in_the_program("queued")
    for kind in get_args(CauseKind):
        assert "stream" not in in_the_program(kind, on_tpu=True)
    assert "`hlo-passes tune`" in in_the_program("synchronous", on_tpu=True)
    timeline = final()
    row = replace(timeline.collectives[0], cause_kind="queued", total_exposed_us=1.0)
    for target, has in (("v5e", False), ("h100_sxm", True)):
        changed = replace(timeline, collectives=(row,), target=target)
        (cause,) = causes_of(changed)
        assert ("stream" in cause["label"] + cause["lever"]) is has


def test_one_is_told_in_the_singular() -> None:
    assert counted(1, "module") == "1 module"
    assert counted(0, "module") == "0 modules"
    assert counted(2, "process") == "2 processes"
