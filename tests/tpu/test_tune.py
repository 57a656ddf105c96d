"""`tune` for TPUs that are not there; what compiles needs `libtpu`."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.tpu.test_aot import HAS_LIBRARY, PROGRAMS, command, needs_library

GATHERED = f"{PROGRAMS}:layers_gathered"
ON_V5E = ("--target=v5e", "--topology=2x4")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--hosts=2",), "--hosts is for GPUs"),
        (("--costs=pyproject.toml",), "--costs is for GPUs"),
        (("--html=page.html",), "--html is for GPUs"),
        (("--html=page.html",), "--costs=FILE --html=PAGE` make a page"),
        (("--also=maxtext-a3-1vm",), "--also of tune is not for TPUs"),
        (("--plug-in",), "--plug-in of tune is not for TPUs"),
        (("--flag=xla_tpu_a",), "U251"),
    ],
)
def test_what_is_not_for_tpus(words: tuple[str, ...], told: str) -> None:
    run = command("tune", GATHERED, *ON_V5E, *words)
    assert run.returncode == 2
    assert told in run.stderr


def test_wrong_targets() -> None:
    run = command("tune", GATHERED, "--target=v5e", "--topology=2x2x2")
    assert (run.returncode, "U252" in run.stderr) == (2, True)
    run = command("tune", "tests/tpu/programs.py", *ON_V5E)
    assert (run.returncode, "U026" in run.stderr) == (2, True)
    run = command("tune", GATHERED, "--slices=2")
    assert (run.returncode, "--slices is for a TPU" in run.stderr) == (2, True)


@pytest.mark.skipif(HAS_LIBRARY, reason="the library is here")
def test_without_the_library_it_is_named() -> None:
    run = command("tune", GATHERED, *ON_V5E)
    assert (run.returncode, "libtpu is not installed" in run.stderr) == (5, True)


@needs_library
def test_the_whole_way(tmp_path: pathlib.Path) -> None:
    words = ("tune", GATHERED, *ON_V5E, "--budget=9", f"--cache={tmp_path / 'cache'}")
    flags = tmp_path / "flags.env"
    run = command(*words, "--json", f"--output={flags}")
    assert run.returncode == 0, run.stderr[-2000:]
    view = json.loads(run.stdout)
    assert view["best_step_us"] <= view["baseline_step_us"]
    assert view["baseline_simulated_step_us"] > 0.0
    assert view["baseline_peak_memory_bytes"] < view["memory_limit_bytes"]
    assert view["evaluations"] <= 9
    verdicts = {row["name"]: row["verdict"] for row in view["levers"]}
    assert verdicts["scheduler"] == "pointless"
    assert verdicts["asynchronous all-to-alls"] == "pointless"
    assert {"set", "leave", "no effect", "helps alone"} & set(verdicts.values())
    assert flags.read_text().startswith("#")
    if view["best"]:
        again = view["recompiled"]
        assert again["problem"] == ""
        assert again["step_us"] == pytest.approx(view["best_step_us"])
        assert again["equal_computations"] == again["computations"]
        assert view["libtpu_init_args"] in flags.read_text()
    # A second run compiles nothing and says the same.
    second = json.loads(command(*words, "--json").stdout)
    assert second["compilations"] == 0
    assert second["best"] == view["best"]
    assert second["tried"] == view["tried"]


@needs_library
def test_a_program_without_anything_asynchronous_is_priced(
    tmp_path: pathlib.Path,
) -> None:
    run = command(
        "tune", GATHERED, "--target=v6e", "--topology=2x4", "--budget=2", "--json",
        f"--cache={tmp_path}",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    view = json.loads(run.stdout)
    assert view["baseline_exposed_us"] > 0.0  # synchronous all-gathers
    assert view["baseline_step_us"] > view["baseline_exposed_us"]


@needs_library
def test_a_flag_that_nobody_knows_is_an_error(tmp_path: pathlib.Path) -> None:
    run = command(
        "tune", GATHERED, *ON_V5E, "--flag=xla_tpu_no_such=1", f"--cache={tmp_path}"
    )
    assert run.returncode != 0
    assert "xla_tpu_no_such" in run.stderr
