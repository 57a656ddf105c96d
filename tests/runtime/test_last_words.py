"""What a library says before it ends the process is told, redirected or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hlo_passes.runtime.last_words import last_words

_PROCESS = """
import os, tempfile
from hlo_passes.runtime.last_words import told_if_ended
with tempfile.TemporaryFile() as file, told_if_ended(file.fileno()):
    os.write(file.fileno(), {said!r})
    {end}
print("alive")
"""


def _run(said: bytes, end: str) -> subprocess.CompletedProcess[str]:
    code = _PROCESS.format(said=said, end=end)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("end", ["os.abort()", "os._exit(3)"])
def test_the_last_words_of_a_process_are_told(end: str) -> None:
    run = _run(b"greeting\nF1128 a.cc:1] Check failed: x\n    @ frame\n", end)
    assert run.returncode
    assert run.stderr == (
        "error[R006]: this process ended while a library was at work, which said last:\n"
        "  F1128 a.cc:1] Check failed: x\n"
    )


def test_a_process_that_lives_tells_nothing() -> None:
    for end in ("pass", "raise SystemExit(2)"):
        run = _run(b"F1128 a.cc:1] no end\n", end)
        assert run.stderr == ""
        assert (run.returncode, run.stdout) in ((0, "alive\n"), (2, ""))


def test_the_line_with_the_reason() -> None:
    assert last_words("Failed to find a host\nERROR: Unknown flag\n\n") == (
        "ERROR: Unknown flag"
    )
    assert last_words("a\n*** SIGSEGV received\n  @ frame\n") == "*** SIGSEGV received"
    assert last_words("\n") == ""


def test_the_reason_goes_before_the_head_of_the_frames() -> None:
    log = "F1128 a.cc:1] Check failed: x\n*** Check failure stack trace: ***\n    @ f\n"
    assert last_words(log) == "F1128 a.cc:1] Check failed: x"
    assert last_words("a\n*** SIGSEGV (@0x0) ***\nb\n") == "*** SIGSEGV (@0x0) ***"
