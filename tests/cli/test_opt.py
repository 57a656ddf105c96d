"""`hlo-passes opt`, `list` and `verify` as a user sees them."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import subprocess
import sys

import pytest

from hlo_passes.cli.main import main

TWO_PERMUTES = """HloModule t, num_partitions=8

ENTRY %e (a: f32[8], b: f32[8]) -> (f32[8], f32[8]) {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %p = f32[8]{0} collective-permute(%a), channel_id=1, source_target_pairs={{0,1}}
  %q = f32[8]{0} collective-permute(%b), channel_id=2, source_target_pairs={{0,1}}
  ROOT %r = (f32[8]{0}, f32[8]{0}) tuple(%p, %q)
}
"""
COMBINED = """HloModule t, num_partitions=8

ENTRY %e (a: f32[8], b: f32[8]) -> (f32[8], f32[8]) {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %collective-permute = (f32[8]{0}, f32[8]{0}) collective-permute(%a, %b), \
channel_id=1, source_target_pairs={{0,1}}
  %get-tuple-element = f32[8]{0} get-tuple-element(%collective-permute), index=0
  %get-tuple-element.1 = f32[8]{0} get-tuple-element(%collective-permute), index=1
  ROOT %r = (f32[8]{0}, f32[8]{0}) tuple(%get-tuple-element, %get-tuple-element.1)
}
"""
COMBINE = "--passes=collective-permute-combiner"
#: Runs a command, then prints which of the packages with slow imports are loaded.
_LOADED = """
import sys
from hlo_passes.cli.main import main
main(sys.argv[1:])
slow = {"jax", "jaxlib", "numpy", "hlo_passes.runtime", "hlo_passes.scheduler"}
print(sorted(slow & set(sys.modules)), file=sys.stderr)
"""


@pytest.fixture
def module_file(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "t.hlo"
    file.write_text(TWO_PERMUTES)
    return file


def _process(
    *arguments: str, seed: str = "0", data: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "hlo_passes", *arguments],
        input=data,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )


def test_output_on_stdout(
    module_file: pathlib.Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["opt", str(module_file), COMBINE]) == 0
    assert capfdbinary.readouterr().out.decode() == COMBINED


def test_output_file_and_report(module_file: pathlib.Path) -> None:
    out, report = module_file.with_suffix(".out.hlo.gz"), module_file.parent / "r.json"
    status = main(
        [
            "opt",
            str(module_file),
            COMBINE + ",hlo-dce",
            f"--report={report}",
            "-o",
            str(out),
        ]
    )
    assert status == 0
    assert gzip.decompress(out.read_bytes()).decode() == COMBINED
    told = json.loads(report.read_text())
    assert [p["name"] for p in told["passes"]] == [
        "collective-permute-combiner",
        "hlo-dce",
    ]
    assert [p["changed"] for p in told["passes"]] == [True, False]
    assert {"seconds", "statistics", "remarks"} <= told["passes"][0].keys()
    assert (told["instructions_before"], told["instructions_after"]) == (5, 6)


def test_nothing_to_do_gives_back_the_bytes(tmp_path: pathlib.Path) -> None:
    odd = "// a comment\n" + TWO_PERMUTES.replace("\n", "  \r\n") + "// the end"
    file = tmp_path / "odd.hlo"
    file.write_bytes(odd.encode())
    out = tmp_path / "out.hlo"
    assert main(["opt", str(file), "--passes=hlo-dce,hlo-cse", "-o", str(out)]) == 0
    assert out.read_bytes() == file.read_bytes()


def test_stdin_and_hash_seeds() -> None:
    outputs = {
        _process("opt", "-", COMBINE, seed=s, data=TWO_PERMUTES.encode()).stdout
        for s in "123"
    }
    assert outputs == {COMBINED.encode()}


def test_print_after_and_remarks(
    module_file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = TWO_PERMUTES.replace("{{0,1}}\n  ROOT", "{{1,0}}\n  ROOT")
    module_file.write_text(other)
    out = str(module_file.with_suffix(".out"))
    arguments = ["opt", str(module_file), COMBINE, "-o", out, "--remarks"]
    assert main([*arguments, "--print-after=collective-permute-combiner"]) == 0
    told = capsys.readouterr().err
    assert "// after collective-permute-combiner\nHloModule t" in told
    assert "source_target_pairs" in told.split("collective-permute-combiner: ")[1]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["opt", "{}", "--passes=colective-permute-combiner"], 2, "did you mean coll"),
        (["opt", "{}", "--passes=hlo-dce{x=1}"], 2, "hlo-dce has no option x"),
        (["opt", "{}", "--passes="], 2, "--passes: expected a value"),
        (["opt", "{}", "--passes=hlo-dce,"], 2, "expected the name of a pass"),
        (["opt", "{}", COMBINE + "{threshold-bytes=many}"], 2, "a whole number"),
        (["opt", "{}x", COMBINE], 2, "no such file"),
        (["opt", "{}"], 2, "required: --passes"),
        (["opt", "{}", COMBINE, "--print-after=hlo-dce"], 2, "no such pass"),
        (["opt", "{}", COMBINE, "-o", "/nonexistent/x.hlo"], 2, "cannot write"),
        (["optt", "{}"], 2, "did you mean opt?"),
    ],
)
def test_error_usage(
    module_file: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    assert main([a.replace("{}", str(module_file), 1) for a in arguments]) == status
    told = capsys.readouterr().err
    assert message in told
    assert "error[" in told


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (TWO_PERMUTES.replace("(%b)", "(%c)").encode(), "t.hlo:7:37: error[P004]: %c"),
        (TWO_PERMUTES.replace("f32[8]{0} coll", "f32[9]{0} coll").encode(), "error[V"),
        (TWO_PERMUTES.replace("{{0,1}}", "{{0,9}}").encode(), "error[V"),
        (b"\xff\xfe\x00\x01", "error[P040]"),
        (b"\x1f\x8bnot gzip", "error[P041]"),
        (b"", "error[P001]"),
    ],
)
def test_error_invalid_input(
    module_file: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    message: str,
) -> None:
    module_file.write_bytes(data)
    out = module_file.with_suffix(".out")
    assert main(["opt", str(module_file), COMBINE, "-o", str(out)]) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()
    assert main(["verify", str(module_file)]) == 1


def test_unknown_opcodes_pass_through_with_a_remark(
    module_file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = TWO_PERMUTES.replace(
        "  ROOT", "  %s = f32[8]{0} frobnicate(%p), knob={1}\n  ROOT"
    )
    module_file.write_text(strange)
    out = module_file.with_suffix(".out")
    assert main(["opt", str(module_file), COMBINE, "-o", str(out)]) == 0
    assert "frobnicate" in capsys.readouterr().err
    assert "frobnicate(%get-tuple-element), knob={1}" in out.read_text()
    assert main(["verify", str(module_file)]) == 1


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["passes"]
    combiner = next(p for p in listed if p["name"] == "collective-permute-combiner")
    assert combiner["purpose"]
    assert {o["name"]: o["default"] for o in combiner["options"]}[
        "threshold-bytes"
    ] == 30 * 1024 * 1024 + 7
    assert [p["name"] for p in listed] == sorted(p["name"] for p in listed)
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert "threshold-count=2048" in said
    flag = "collective_combine_threshold_count"
    assert any("threshold-count=2048" in s and flag in s for s in said.splitlines())


def test_opt_starts_without_what_is_slow_to_load(module_file: pathlib.Path) -> None:
    """Its time is measured by `python -m benchmarks.bench_commands`."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, "opt", str(module_file), COMBINE],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "[]\n"
