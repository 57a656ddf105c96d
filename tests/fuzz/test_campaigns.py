"""Samples of the fuzzers, and what a campaign says of cases that end badly."""

from __future__ import annotations

import pathlib
import re
import signal
import subprocess
import sys

import pytest

#: Cases 2 to 5 raise, hang, die and take all memory; 6 dies in what is not ours; the
#: others are right.
BAD_CASES = """
import os, random, sys
from tests.fuzz import campaign

def make(rng):
    return campaign.Case("kind", ".bin", rng.randbytes(8), "drawn")

def check(case, rng):
    first = range(10)
    number = next((k for k in first if make(random.Random(f"1:{k}")) == case), 10)
    if number == 2: raise ValueError("wrong")
    if number == 3:
        while True: pass
    if number == 4: bytearray(2 << 30)
    if number == 5: os.abort()
    with campaign.outside("not ours"):
        if number == 6: os.abort()
    return "fine"

import argparse
parser = argparse.ArgumentParser()
campaign.add_arguments(parser)
sys.exit(campaign.run(make, check, parser.parse_args(), "of a test",
                      campaign.Limits(seconds=0.3)))
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ("tests.fuzz", "--cases=80", "corpus/handwritten"),
        ("tests.fuzz.formats", "--cases=150"),
    ],
    ids=lambda words: words[0],
)
def test_a_sample(words: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    ran = run("-m", *words, "--seed=11", f"--failures={tmp_path}")
    assert not list(tmp_path.iterdir()), ran.stdout
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 failures" in ran.stdout


def test_cases_that_end_badly_are_counted(tmp_path: pathlib.Path) -> None:
    ran = run("-c", BAD_CASES, "--cases=10", "--seed=1", f"--failures={tmp_path}")
    assert ran.returncode == 1
    said = ran.stdout
    assert "10 cases of a test" in said, said + ran.stderr
    assert "4 failures" in said
    assert "1  not ours: it was ended by signal 6\n" in said
    for what in ("ValueError: wrong", "HangError", "MemoryError", "by signal 6"):
        assert re.search(f"FAILED .*{what}\n", said), said
    assert {f.name for f in tmp_path.iterdir()} == {
        f"1-{number}.{suffix}" for number in (2, 3, 4, 5) for suffix in ("bin", "txt")
    }
    # Ctrl-C ends a campaign with its counts.
    words = [sys.executable, "-c", BAD_CASES, "--seconds=600", "--seed=1"]
    endless = subprocess.Popen(
        [*words, f"--failures={tmp_path}"], stdout=subprocess.PIPE, text=True
    )
    assert endless.stdout is not None
    assert endless.stdout.readline().startswith("case 2 ")
    endless.send_signal(signal.SIGINT)
    assert "cases of a test" in endless.communicate(timeout=60)[0]
    # A case is made again from its number.
    one = run(
        "-c", BAD_CASES, "--cases=1", "--seed=1", "--first=2", f"--failures={tmp_path}"
    )
    assert "1 cases of a test" in one.stdout
