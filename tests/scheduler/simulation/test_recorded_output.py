"""What `simulate` prints of one module with many options, as it was before.

After a change that is meant: `pytest tests/scheduler/simulation/test_recorded_output.py
--update-cases`.
"""

from __future__ import annotations

import gzip
import hashlib
import pathlib

import pytest

from hlo_passes.cli.main import main
from tests.modules import CORPUS

_RECORDED = pathlib.Path(__file__).with_name("recorded_output.txt")
_GOLDEN = CORPUS / "golden" / "0.12.0.1" / "fsdp_mlp.threshold_4k"
#: Options, and the columns of the terminal.
_CALLS = [
    ("", 80), ("", 20), ("", 159), ("", 160), ("", 161), ("", 400), ("--rows=0", 80),
    ("--rows=1", 80), ("--no-advice", 80), ("--json", 80), ("--json --rows=0", 80),
    ("--json --no-advice", 80),
    ("--trace=trace.json", 80), ("--json --fail-if=step>5000ms", 80),
    ("--contention=0.1", 80), ("--streams=1", 80), ("--share-links", 80),
    ("--xla-statistic", 80), ("--hosts=2", 80), ("--target=a100_sxm_80", 80),
]  # fmt: skip


def test_output_is_as_recorded(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """Without options in full, else exit code, lines and a digest."""
    packed = (_GOLDEN / "latency-hiding-scheduler.after.hlo.gz").read_bytes()
    (tmp_path / "m.hlo").write_bytes(gzip.decompress(packed))
    monkeypatch.chdir(tmp_path)
    told = []
    for options, columns in _CALLS:
        monkeypatch.setenv("COLUMNS", str(columns))
        code = main(["simulate", "m.hlo", *options.split()])
        out = capsys.readouterr().out
        for file in sorted(tmp_path.glob("*.json")):
            out += file.read_text()
            file.unlink()
        digest = hashlib.sha256(out.encode()).hexdigest()[:8]
        lines = out.count("\n")
        told.append(f"{options or 'plain'}, {columns}: {code}, {lines} lines, {digest}")
        if (options, columns) == ("", 80):
            told += [line.rstrip() for line in out.splitlines()]
    text = "\n".join(told) + "\n"
    if request.config.getoption("--update-cases"):
        _RECORDED.write_text(text)
    assert text == _RECORDED.read_text()
