"""Streams that are closed or full, outputs that cannot be written: no traceback."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys

import pytest

from hlo_passes import files
from hlo_passes.cli.main import main
from hlo_passes.errors import UsageError
from hlo_passes.progress import say
from tests.modules import REPOSITORY

MODULE = """HloModule t, num_partitions=2

ENTRY %e (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %p = f32[8]{0} collective-permute(%a), channel_id=1, source_target_pairs={{0,1}}
}
"""
OPT = ("opt", "t.hlo", "--passes=hlo-dce")
WRITING = (OPT, ("list",), ("verify", "t.hlo"), ("estimate", "t.hlo"), ("--help",))
#: Paths in a file system full of obstacles at which no file can be written.
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
        "hlo-passes opt: error[U000]: unknown option --passe",
        "  help: did you mean --passes?",
        "hlo-passes opt: error[U000]: unknown option --verify_each",
        "  help: did you mean --verify-each?",
    ]


@pytest.mark.parametrize("count", ["0", "-1", "x"])
def test_there_is_at_least_one_device(count: str) -> None:
    assert main([*OPT, f"--devices={count}"]) == 2


def test_no_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("hlo-passes: error[U004]")


# -- one place for each output ---------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (*OPT, "-o", "both", "--report={}/both"),
        (*OPT, "-o", "both", "--report=folder/../both"),
        (*OPT, "-o", "link", "--report=linked"),
        (*OPT, "--report=-"),
        (*OPT, "-o", "-", "--report=/dev/stdout"),
        ("simulate", "t.hlo", "--html=both", "--trace=./both"),
        ("simulate", "t.hlo", "--json", "--trace=-"),
        ("simulate", "t.hlo", "--html=-", "--against=t.hlo"),
        ("estimate", "t.hlo", "--write-profile=out.pb"),
        ("calibrate", "rows.csv", "-o", "-"),
        ("compile", "m.py:f", "--passes=x", "-o", "both", "--html=./both"),
        ("bisect", "t.hlo", "--passes=hlo-dce", "--json", "-o", "-"),
        ("run", "t.hlo", "--outputs=-"),
    ],
    ids=" ".join,
)
def test_two_outputs_in_one_place_are_refused_before_the_work(
    arguments: tuple[str, ...],
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "link").symlink_to("linked")
    (folder / "out.pb").symlink_to("/dev/stdout")
    (folder / "t.hlo").unlink()  # nothing is read
    assert main([a.format(folder) for a in arguments]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.partition(" ")[0]) == ("", "error[U003]:")


@pytest.mark.parametrize(
    "arguments",
    [
        (*OPT, "-o", "{}"),
        (*OPT, "--report={}"),
        ("simulate", "t.hlo", "--trace={}"),
        ("calibrate", "rows.csv", "-o", "{}"),
        ("compile", "m.py:f", "--passes=x", "--html={}"),
        ("bisect", "t.hlo", "--passes=hlo-dce", "-o", "{}"),
        ("run", "t.hlo", "--outputs={}"),
        ("lower", "m.py:f", "-o", "{}"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("place", ["absent/x", "folder"])
def test_no_place_is_refused_before_the_work(
    arguments: tuple[str, ...],
    place: str,
    folder: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "t.hlo").unlink()
    assert main([a.format(place) for a in arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error[U003]: cannot write {place}: ")


def test_links_are_written_through_and_devices_shared(folder: pathlib.Path) -> None:
    (folder / "link").symlink_to("linked")
    assert main([*OPT, "-o", "link", "--report=/dev/null"]) == 0
    assert (folder / "link").is_symlink()
    assert (folder / "linked").read_text().startswith("HloModule t")
    assert main([*OPT, "-o", "/dev/null", "--report=/dev/null"]) == 0


def test_stdout_by_its_name(folder: pathlib.Path) -> None:
    assert shell((*OPT, "-o", "/dev/stdout"), ">named.hlo") == (0, "")
    assert (folder / "named.hlo").read_text().startswith("HloModule t")
    code, told = shell((*OPT, "--report=r.json"), ">r.json")
    assert (code, told.splitlines()[0]) == (2, "error[U003]: two outputs go to r.json")


# -- readers that closed
# ----------------------------------------------------------------


def with_nobody_reading(*arguments: str) -> int:
    """The exit code of a command whose stdout and stderr are closed pipes."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "hlo_passes", *arguments],
        stdout=writing, stderr=writing, check=False,
    )  # fmt: skip
    os.close(writing)
    return done.returncode


def test_files_are_written_when_nobody_reads_the_rest(folder: pathlib.Path) -> None:
    assert with_nobody_reading(*OPT, "--report=r.json", "--timing") == 0
    assert (folder / "r.json").exists()
    assert with_nobody_reading(*OPT, "-o", "o.hlo", "--print-after=all") == 0
    assert (folder / "o.hlo").exists()
    script = folder / "check.sh"
    script.write_text('#!/bin/sh\n! grep -q collective-permute-start "$1"\n')
    script.chmod(0o755)
    bisect = ("bisect", "t.hlo", "--passes=async-collective-creator")
    for output, extra in (("b.hlo", "--json"), ("c.hlo", "--seed=1")):
        told = (f"--script={script}", extra, "-o", output)
        assert with_nobody_reading(*bisect, *told) == 0
        assert (folder / output).exists()


def test_a_failure_stays_one_when_nobody_reads_of_it() -> None:
    assert with_nobody_reading("verify", "absent.hlo") == 2
    assert with_nobody_reading("opt", "absent.hlo", "--passes=hlo-dce") == 2
    assert with_nobody_reading("opt", "t.hlo") == 2


# -- folders ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (*OPT, "--costs={}"),
        ("estimate", "t.hlo", "--costs={}"),
        ("simulate", "t.hlo", "--profile={}"),
        ("estimate", "t.hlo", "--matmul-perf-table={}"),
        ("calibrate", "{}"),
        ("bisect", "t.hlo", "--passes=hlo-dce", "--script={}"),
        ("run", "t.hlo", "--inputs={}"),
    ],
    ids=" ".join,
)
def test_a_folder_and_an_absent_file_are_told_apart(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([a.format("folder") for a in arguments]) == 2
    assert main([a.format("foldr") for a in arguments]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error[U001]: cannot read folder: Is a directory",
        "error[U001]: no such file: foldr",
        "  help: did you mean folder?",
    ]


def test_a_word_is_a_module_and_a_name_with_an_ending_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [main(["lower", f"{w}:f"]) for w in ("folder", "foldr", "foldr.py")] == [
        2
    ] * 3
    said = [e for e in capsys.readouterr().err.splitlines() if e.startswith("error")]
    assert said == [
        "error[U025]: folder has no function f",
        "error[U025]: there is no module foldr",
        "error[U001]: no such file: foldr.py",
    ]


def test_the_overview_begins_with_what_it_is_for(capsys) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("hlo-passes reads HLO")
    assert any(line.startswith("  hlo-passes simulate step.hlo ") for line in lines)
    assert any(line.startswith("  bisect ") for line in lines)
    assert max(map(len, lines)) <= 88


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes there")
def test_a_name_that_is_not_utf_8_is_shown_without_escapes(tmp_path) -> None:
    folder = os.fsencode(tmp_path) + b"/d\xff"
    os.mkdir(folder)
    done = subprocess.run(
        [sys.executable, "-m", "hlo_passes", "verify", folder + b"/m.hlo"],
        capture_output=True, check=False, cwd=REPOSITORY,
        env={**os.environ, "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert done.returncode == 2
    said = done.stderr.decode()
    assert "udcff" not in said
    assert "d\N{REPLACEMENT CHARACTER}/m.hlo" in said


@pytest.mark.parametrize("command", ["simulate", "estimate"])
def test_no_rows_may_be_asked_for(command: str, capsys) -> None:
    file = str(REPOSITORY / "docs" / "tutorial" / "step.h100_sxm.hlo")
    assert main([command, file, "--rows=0"]) == 0
    out = capsys.readouterr().out
    assert "%" + "all-gather-start " not in out
    if command == "simulate":
        assert "4 collectives: 2 exposed, 2 hidden\n" in out
    assert main([command, file, "--rows=-1"]) == 2
    assert "-1 is not an integer of 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize("before", [None, "old"])
def test_no_output_appears_if_one_cannot_be_moved(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    place = tmp_path / "outputs"
    place.mkdir()
    first, second = place / "report.json", place / "out.hlo"
    if before is not None:
        first.write_text(before)
        second.write_text(before)
    move = pathlib.Path.replace

    def refusing(source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
        if target == second:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return move(source, target)

    monkeypatch.setattr(pathlib.Path, "replace", refusing)
    with pytest.raises(UsageError, match="U003"):
        files.write_texts((str(first), "new"), (str(second), "new"))
    found = {p.name: p.read_text() for p in place.iterdir()}
    assert found == ({} if before is None else {first.name: "old", second.name: "old"})
    monkeypatch.undo()
    files.write_texts((str(first), "new"), (str(second), "new"))
    found = {p.name: p.read_text() for p in place.iterdir()}
    assert found == {first.name: "new", second.name: "new"}


def test_names_of_files_do_not_reach_the_terminal_raw(tmp_path: pathlib.Path) -> None:
    good, bad = tmp_path / "a\x1b[31mred.hlo", tmp_path / "b\x1b[31mred.hlo"
    good.write_text("HloModule m\n\nENTRY %e (p: f32[]) -> f32[] {\n"
                    "  ROOT %p = f32[] parameter(0)\n}\n")  # fmt: skip
    bad.write_text("HloModule m\n\nfrobnicate\n")
    command = [
        sys.executable,
        "-m",
        "hlo_passes",
        "verify",
        str(good),
        str(bad),
        "c\x1b",
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    assert b"a?[31mred.hlo: ok" in done.stdout
    assert b"b?[31mred.hlo:4:1: error" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


def test_results_are_cleaned_of_what_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say("%a\x1b[31m\udc80\x07 and\ttabs\n")
    assert capsys.readouterr().out == "%a?[31m\N{REPLACEMENT CHARACTER}? and\ttabs\n"
    os.rename("t.hlo", "t\x1b.hlo")
    assert main(["verify", "t\x1b.hlo"]) == 0
    out = capsys.readouterr().out
    assert out == "t?.hlo: ok, 2 instructions, partitioned, not scheduled\n"


@pytest.mark.parametrize(
    "arguments", [("verify", "/dev/zero"), ("simulate", "t.hlo", "--costs=/dev/zero")]
)
def test_what_has_no_length_is_read_up_to_a_limit(
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HLO_PASSES_MOST_OPENED_MIB", "2")
    assert main([*arguments]) == 2
    said = capsys.readouterr().err
    assert "error[U001]: cannot read /dev/zero: it gives more than 2 MiB" in said


def test_stdin_without_a_length_is_read_up_to_a_limit() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hlo_passes", "verify", "-"],
        env={
            **os.environ,
            "HLO_PASSES_MOST_OPENED_MIB": "1",
            "PYTHONPATH": str(REPOSITORY),
        },
        input=b" " * ((1 << 20) + 1),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"cannot read stdin: it gives more than 1 MiB" in done.stderr


def test_rows_of_a_diff_are_not_negative(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "t.hlo", "t.hlo", "--rows=-1"]) == 2
    assert "-1 is not an integer of 0 or more" in capsys.readouterr().err


def test_stderr_names_what_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPT, "-o", "a.hlo", "--report=r.json"]) == 0
    assert capsys.readouterr() == ("", "wrote r.json\nwrote a.hlo\n")
    for nowhere in ("-", os.devnull):
        assert main([*OPT, "-o", nowhere]) == 0
        assert capsys.readouterr().err == ""


def test_a_checker_that_finds_nothing_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pathlib.Path("s.hlo").write_text(MODULE.replace("t,", "t, is_scheduled=true,"))
    command = ["opt", "s.hlo", "--passes=schedule-checker", "-o", os.devnull]
    assert main(command) == 0
    said = "schedule-checker: nothing to refuse; computations checked: 1\n"
    assert capsys.readouterr() == ("", said)
