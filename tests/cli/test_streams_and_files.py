"""Streams that are closed or full, outputs that cannot be written: no traceback."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from hlo_passes.cli import files
from hlo_passes.cli.main import main
from hlo_passes.errors import UsageError

MODULE = """HloModule t, num_partitions=2

ENTRY %e (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %p = f32[8]{0} collective-permute(%a), channel_id=1, source_target_pairs={{0,1}}
}
"""
OPT = ("opt", "t.hlo", "--passes=hlo-dce")
WRITING = (OPT, ("list",), ("verify", "t.hlo"), ("estimate", "t.hlo"), ("--help",))
#: What of a file system full of obstacles is no place for a file.
NO_PLACES = ("absent/x", "folder", "t.hlo/x", "x" * 5000, "")


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.hlo").write_text(MODULE)
    (tmp_path / "folder").mkdir()
    return tmp_path


def shell(arguments: tuple[str, ...], redirected: str) -> tuple[int, str]:
    """Exit code and stderr of a command with its streams redirected by a shell."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirected}', "sh",
         sys.executable, "-m", "hlo_passes", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", WRITING, ids=lambda a: a[0])
@pytest.mark.parametrize("redirected", [">/dev/full", ">&-"])
def test_an_output_that_cannot_be_written_is_told(
    arguments: tuple[str, ...], redirected: str
) -> None:
    if redirected == ">/dev/full" and not pathlib.Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    code, told = shell(arguments, redirected)
    assert (code, told.count("error[U003]"), told.count("\n")) == (2, 1, 1)


@pytest.mark.parametrize("arguments", WRITING, ids=lambda a: a[0])
def test_a_reader_that_has_gone_is_no_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "hlo_passes", *arguments],
        stdout=writing, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_stdin_and_stderr() -> None:
    code, told = shell(("verify", "-"), "<&-")
    assert (code, told) == (2, "error[U001]: stdin is closed\n")
    assert shell(("verify", "absent.hlo"), "2>&-") == (2, "")


@pytest.mark.parametrize("place", NO_PLACES)
def test_neither_file_appears_when_one_cannot(
    place: str, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(f.name for f in folder.iterdir())
    assert main([*OPT, "-o", "out.hlo", f"--report={place}"]) == 2
    assert main([*OPT, "-o", place, "--report=report.json"]) == 2
    assert main([*OPT, "-o", "both", "--report=./both"]) == 2
    assert main([*OPT, "-o", "out.hlo", "--explain=absent"]) == 2
    assert sorted(f.name for f in folder.iterdir()) == before
    assert capsys.readouterr().err.count("error[U") == 4


def test_a_failing_move_leaves_nothing(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_from: pathlib.Path, to: pathlib.Path) -> None:
        raise OSError(5, "Input/output error", str(to))

    monkeypatch.setattr(pathlib.Path, "replace", refuse)
    before = sorted(f.name for f in folder.iterdir())
    with pytest.raises(UsageError, match="cannot write out: Input/output error"):
        files.write_text("out", "text")
    assert sorted(f.name for f in folder.iterdir()) == before


@pytest.mark.parametrize(
    "given", [["--topology="], ["--costs="], ["--target", ""], ["--report="]]
)
def test_an_option_is_given_something(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*OPT, *given]) == 2
    assert "error[U000]: argument --" in capsys.readouterr().err


def test_an_unknown_option_is_told_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["opt", "t.hlo", "--passe=hlo-dce"]) == 2
    assert main([*OPT, "--verify_each"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "hlo-passes opt: error[U000]: there is no option --passe",
        "  help: did you mean --passes?",
        "hlo-passes opt: error[U000]: there is no option --verify_each",
        "  help: did you mean --verify-each?",
    ]


@pytest.mark.parametrize("count", ["0", "-1", "x"])
def test_there_is_at_least_one_device(count: str) -> None:
    assert main([*OPT, f"--devices={count}"]) == 2


def test_no_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("hlo-passes: error[U004]")
