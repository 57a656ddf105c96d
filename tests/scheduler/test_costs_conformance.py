"""A sample of XLA's costs; `python -m tests.scheduler.costs_conformance` judges all."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from hlo_passes.cli.main import main as hlo_passes_main
from tests.modules import CORPUS
from tests.scheduler.conformance.recordings import Recording, find_recordings
from tests.scheduler.costs_conformance import (
    CostVerdict,
    corpus_inputs,
    distinct,
    judge_costs,
    main,
    summary,
    without_recording,
)

ARCHIVES = sorted((CORPUS / "costs").glob("*.tar.xz"))
#: Every so many recordings of an archive are judged here.
STRIDE = 6


def one(name: str) -> Recording:
    """A recording of jax 0.10.2."""
    archive = next(a for a in ARCHIVES if a.name.startswith("0.10.2"))
    return next(r for r in find_recordings(archive) if r.name.endswith(name))


def told(verdict: CostVerdict) -> str:
    return "\n".join(str(miss) for miss in verdict.misses)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda a: a.name)
def test_costs_are_xlas(archive: pathlib.Path) -> None:
    recordings = [*distinct(find_recordings(archive))]
    assert {r.target for r in recordings} == {"h200", "b200"}
    verdicts = [judge_costs(r) for r in recordings[::STRIDE]]
    assert not [told(v) for v in verdicts if v.misses]
    assert sum(v.tallies["node"].equal for v in verdicts) > 500
    assert sum(v.tallies["latency"].equal for v in verdicts) > 50


def test_costs_of_the_base_target_are_xlas() -> None:
    archive = CORPUS / "schedules" / "0.10.2" / "large_fills.tar.xz"
    verdicts = [judge_costs(r) for r in distinct(find_recordings(archive))]
    assert {v.machine for v in verdicts} == {
        ("h100_sxm", "1x1x8"),
        ("h100_sxm", "1x2x8"),
    }
    assert not [told(v) for v in verdicts if v.misses]
    assert all(v.tallies["node"].compared > 10 for v in verdicts)


def test_inputs_without_a_recording_have_a_reason() -> None:
    archives = sorted((CORPUS / "schedules").glob("*/*.tar.xz")) + ARCHIVES
    lines = [*without_recording(find_recordings(*archives))]
    assert len(corpus_inputs()) > 60
    assert len({line.split(": ")[1].partition("/")[0] for line in lines}) < 8
    assert not [line for line in lines if line.endswith("not recorded")]


def test_the_command_prints_the_same(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = one("moe/b200.1x1x8")
    file = tmp_path / "moe.hlo"
    file.write_text(recording.before)
    arguments = ["estimate", str(file), "--target=b200", "--topology=1x1x8", "--json"]
    assert hlo_passes_main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)["instructions"]
    found = {row["name"]: row["latency_us"] for row in rows}
    wanted = json.loads(recording.texts["costs.json"])["latency_us"]
    assert wanted
    assert {n: float(f"{found[n]:.6g}") for n in wanted} == wanted


def test_misses_are_found(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A judge that finds nothing is worth nothing: each kind is planted."""
    recording = one("fsdp_mlp/h200.1x1x8")
    assert not judge_costs(recording).misses
    costs = json.loads(recording.texts["costs.json"])
    start = min(costs["latency_us"])
    dear = max(costs["node_cost_us"], key=costs["node_cost_us"].__getitem__)
    costs["latency_us"][start] *= 1.02
    costs["node_cost_us"][dear] += 1.0
    costs["node_cost_us"]["never_was"] = 0.0
    texts = recording.texts | {"costs.json": json.dumps(costs)}
    verdict = judge_costs(dataclasses.replace(recording, texts=texts))
    assert {(m.part, m.instruction) for m in verdict.misses} == {
        ("latency", start),
        ("node", dear),
        ("node", "never_was"),
    }
    tally = verdict.tallies["latency"]
    assert (tally.close, tally.equal) == (tally.compared - 1,) * 2
    assert "h200 1x1x8: 1 recordings" in summary([verdict])

    folder = tmp_path / "planted"
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    monkeypatch.setattr("sys.argv", ["costs_conformance", str(tmp_path)])
    assert main() == 1
    assert f"latency of %{start}: ours" in capsys.readouterr().out
