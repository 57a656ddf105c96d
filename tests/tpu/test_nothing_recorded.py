"""The repository holds nothing that Google's compiler for TPUs wrote.

Looked for in every file under version control, packed ones included: lines of the
library's log, and what only its modules have. Examples for TPUs are written by hand, in
this folder; none of them has what the compiler alone writes.
"""

from __future__ import annotations

import gzip
import pathlib
import re
import subprocess
import tarfile
from collections.abc import Iterator

import pytest

from tests.modules import REPOSITORY

#: A line of the log, as the library stamps it; and fields of its backend configs with
#: values, of which people write names alone.
MARKS = re.compile(
    rb"[IWEF](?!0101 00:00:00)\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \w+\.cc:\d+\] .*TensorCore"
    rb"|[IWEF](?!0101 00:00:00)\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ latency_hiding_sched"
    rb"uler\.cc:\d+\] Memory pressure before"
    rb'|"(?:flag_configs|used_scoped_memory_configs|scoped_memory_configs)":\['
    rb'|"aliasing_operands":\{|"dma_priority":|"barrier_config":'
)
#: One of these is in all that the marks match; to look for them is fast.
WORDS = (
    b"TensorCore",
    b"Memory pressure before",
    b'_configs":[',
    b'"aliasing_operands":{',
    b'"dma_priority":',
    b'"barrier_config":',
)
#: In a module: a layout with tiles, which no CPU or GPU has.
TILES = re.compile(rb"\{[\d,]*:T\(\d")
MODULES = (".hlo", ".txt", ".hlo.gz", ".txt.gz", ".pb", ".pb.gz")
BY_HAND = ("tests/",)


def tracked() -> list[pathlib.Path]:
    run = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if run.returncode:
        pytest.skip("this is not a checkout")
    names = [name for name in run.stdout.decode().split("\0") if name]
    files = [REPOSITORY / name for name in names]
    return [file for file in files if file.is_file() and not file.is_symlink()]


def contents(file: pathlib.Path) -> Iterator[bytes]:
    """What a file holds, unpacked."""
    data = file.read_bytes()
    if file.name.endswith((".tar.xz", ".tar.gz")):
        with tarfile.open(file) as archive:
            for entry in archive:
                inside = archive.extractfile(entry)
                if inside is not None:
                    yield inside.read()
    elif data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    else:
        yield data


def is_marked(data: bytes) -> bool:
    """Whether the library wrote it."""
    return any(word in data for word in WORDS) and MARKS.search(data) is not None


def test_nothing_of_the_library_is_here() -> None:
    own = pathlib.Path(__file__).resolve()
    found = []
    for file in tracked():
        place = str(file.relative_to(REPOSITORY))
        if file.resolve() == own:
            continue
        for data in contents(file):
            if is_marked(data):
                found.append(place)
            is_module = place.endswith(MODULES) and not place.startswith(BY_HAND)
            if is_module and b":T(" in data and TILES.search(data):
                found.append(f"{place} has tiles")
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        b"I1122 10:11:12.123456     77 cost_model.cc:5] TensorCore frequency: 1 MHz",
        b'backend_config={"flag_configs":[],"window_config":{}}',
        b'backend_config={"aliasing_operands":{"lists":[]}}',
    ],
)
def test_what_would_be_found(text: bytes) -> None:
    assert is_marked(text)


def test_no_file_is_the_library() -> None:
    large = [f.name for f in tracked() if f.suffix in (".so", ".whl")]
    assert large == []
