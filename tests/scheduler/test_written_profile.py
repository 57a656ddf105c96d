"""A profile that `estimate` writes says what a simulation takes, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.cli.main import main
from hlo_passes.files import read_module
from hlo_passes.scheduler.estimators.choice import make_estimator
from hlo_passes.scheduler.estimators.profile import read_profile
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.written_profile import profile_of
from tests.modules import CORPUS, REPOSITORY

#: By XLA's own GPU compiler, of two releases: slices that are asynchronous fusions,
#: collectives inside fusions, loops, branches, synchronous collectives.
BY_GPU = [
    *sorted((CORPUS / "modules").glob("*/*.gpu-scheduled.hlo*")),
    *sorted((REPOSITORY / "docs" / "tutorial").glob("*.hlo")),
]
#: What XLA answers where it knows nothing.
CONSTANT_US = 5000.0


def figures(timeline: Timeline) -> dict[str, Any]:
    """All that was simulated, without the names of those who gave the prices."""
    rows = [
        dataclasses.replace(row, model="", reason="") for row in timeline.collectives
    ]
    return {
        "computations": timeline.computations,
        "collectives": rows,
        "spans": timeline.spans,
        "memory": timeline.memory,
        "streams": timeline.streams,
    }


@pytest.mark.parametrize("file", BY_GPU, ids=lambda f: f"{f.parent.name}/{f.name}")
@pytest.mark.parametrize("target", ["h100_sxm", "gb200"])
def test_a_profile_read_back_changes_nothing(file, target, tmp_path, capsys) -> None:
    written = tmp_path / "p.pbtxt"
    words = [str(file), f"--target={target}", "--rows=0"]
    assert main(["estimate", *words, f"--write-profile={written}"]) == 0
    module = read_module(str(file))
    alone = scheduler.simulate(module, target=target)
    if written.read_text():
        again = scheduler.simulate(module, target=target, profile=str(written))
        assert figures(again) == figures(alone)


@pytest.mark.parametrize("file", BY_GPU[::7], ids=lambda f: f"{f.parent.name}/{f.name}")
def test_other_estimators_follow_the_profile_too(file, tmp_path) -> None:
    module = read_module(str(file))
    table = TableEstimator(
        {i.name: 3.25 for c in module.computations for i in c.instructions},
        {i.name: 81.5 for c in module.computations for i in c.instructions},
    )
    ring = make_estimator("ring+gpu-approximate")
    for estimator in (table, ring):
        profile = profile_of(module, estimator)
        stack = scheduler.EstimatorStack(
            (scheduler.estimators.profile.ProfileEstimator(profile), estimator)
        )
        alone = scheduler.simulate(module, estimator=estimator)
        assert figures(scheduler.simulate(module, estimator=stack)) == figures(alone)


def test_slices_that_overlap_have_no_constant(tmp_path) -> None:
    """XLA's constant for every asynchronous fusion made a step twenty times as long."""
    (file,) = CORPUS.glob("modules/0.12.0.1/scan_layers.gpu-scheduled.hlo*")
    module = read_module(str(file))
    profile = profile_of(module, make_estimator("sol"))
    assert profile.costs
    assert CONSTANT_US not in profile.costs.values()
    starts = {
        i.name
        for c in module.computations
        for i in c.instructions
        if "fusion-start" in i.name
    }
    assert starts & profile.costs.keys()
    assert max(profile.costs[s] for s in starts & profile.costs.keys()) < 100.0
    # XLA's strict check of a profile demands an entry for everything.
    whole = profile_of(module, make_estimator("sol"), with_constants=True)
    assert CONSTANT_US in whole.costs.values()
    assert profile.costs.keys() < whole.costs.keys()


CLONES = """HloModule m, is_scheduled=true, num_partitions=8

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%small (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  ROOT %n = f32[1024]{0} negate(%p)
}

%large (q: f32[1048576]) -> f32[1048576] {
  %q = f32[1048576]{0} parameter(0)
  ROOT %e = f32[1048576]{0} negate(%q)
}

ENTRY %main (a: f32[1024], b: f32[1048576]) -> (f32[1024], f32[1024], f32[1048576]) {
  %a = f32[1024]{0} parameter(0)
  %b = f32[1048576]{0} parameter(1)
  %start = f32[1024]{0} all-reduce-start(%a), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add
  %f = f32[1024]{0} fusion(%a), kind=kLoop, calls=%small
  %f.remat = f32[1048576]{0} fusion(%b), kind=kLoop, calls=%large
  %done = f32[1024]{0} all-reduce-done(%start)
  %sync = f32[1024]{0} all-reduce(%f), channel_id=2, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add
  ROOT %t = (f32[1024]{0}, f32[1024]{0}, f32[1048576]{0}) tuple(%done, %sync, %f.remat)
}
"""


def test_a_clone_is_not_averaged_with_its_original(tmp_path) -> None:
    """XLA averages them when it reads a profile, and so does our reader."""
    module = hlo_passes.parse(CLONES)
    file = tmp_path / "p.pbtxt"
    file.write_text(profile_of(module, make_estimator("sol")).to_text())
    assert set(read_profile(str(file)).costs) == {"start", "f", "sync"}
    alone = scheduler.simulate(module)
    assert figures(scheduler.simulate(module, profile=str(file))) == figures(alone)


def test_a_measured_synchronous_collective_takes_what_was_measured(tmp_path) -> None:
    module = hlo_passes.parse(CLONES)
    file = tmp_path / "p.pbtxt"
    file.write_text('costs { name: "sync" cost_us: 77.5 }\n')
    timeline = scheduler.simulate(module, profile=str(file))
    (row,) = [r for r in timeline.collectives if r.name == "sync"]
    assert (row.latency_us, row.model) == (77.5, "profile")


SLICED = """HloModule m, is_scheduled=true, num_partitions=8

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%wrapped (q: f32[1024]) -> f32[1024] {
  %q = f32[1024]{0} parameter(0)
  ROOT %c = f32[1024]{0} custom-call(%q), custom_call_target="unknown"
}

ENTRY %main (a: f32[1024]) -> (f32[1024], f32[1024]) {
  %a = f32[1024]{0} parameter(0)
  %unknown = ((f32[1024]{0}), f32[1024]{0}, u32[]) async-start(%a), calls=%wrapped
  %start = f32[1024]{0} all-reduce-start(%a), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add
  %done = f32[1024]{0} all-reduce-done(%start)
  %end = f32[1024]{0} async-done(%unknown)
  ROOT %t = (f32[1024]{0}, f32[1024]{0}) tuple(%done, %end)
}
"""


def test_a_table_ends_with_what_has_no_price(tmp_path, capsys) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(SLICED)
    assert main(["estimate", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    prices = [line for line in lines if " in %main" in line]
    assert "all-reduce-start" in prices[0]
    (constant,) = [k for k, line in enumerate(prices) if "5000.000?" in line]
    assert all("?" in line for line in prices[constant:])
    assert not any("?" in line for line in prices[:constant])
    # Totals are of prices.
    assert not any("5000.000 " in line for line in lines)
    assert any(line.endswith("microseconds, and in no total") for line in lines)
    # The same for several targets.
    assert main(["estimate", str(file), "--compare-targets=h100_sxm,b200"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if "%" in line]
    assert [line.split()[-1] for line in rows] == ["%start", "%unknown"]
    (total,) = [line for line in lines if line.endswith("latencies of a step")]
    assert max(map(float, total.split()[:2])) < CONSTANT_US
