"""What we print from the IR alone, jaxlib reads to the module it reads from the file."""

from __future__ import annotations

import collections
import gzip
import pathlib
import subprocess
import sys

import pytest
from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

import hlo_passes
from hlo_passes.proto_messages import ModuleProto
from tests.modules import CORPUS, REPOSITORY, module_files, read_text
from tests.text import round_trip
from tests.text.round_trip import Counts, differences_of, module_differences

# Golden dumps differ from one another by one pass only: some say as much as all.
FILES = [
    *module_files(CORPUS / "modules", CORPUS / "handwritten"),
    *module_files(CORPUS / "golden")[::25],
]
TEXT = """HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %c = f32[2]{0} constant({1, 2})
  ROOT %a = f32[2]{0} add(%p, %c), metadata={op_name="sum"}
}

"""


@pytest.mark.parametrize("file", FILES, ids=lambda f: "/".join(f.parts[-2:]))
def test_jaxlib_reads_an_equal_module(file: pathlib.Path) -> None:
    counts: Counts = collections.Counter()
    assert list(differences_of(read_text(file), counts)) == []
    if not counts["read by jaxlib and compared"]:
        pytest.skip("this release of jaxlib does not read it")


def proto(text: str) -> ModuleProto:
    return ModuleProto(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("{1, 2}", "{1, 3}", "%main: field 8 of %c differs"),
        ('"sum"', '"total"', "%main: field 7 of %a differs"),
        ("%a =", "%b =", "%main: instruction %a is missing"),
        ("HloModule m", "HloModule n", "field 1 of the module differs"),
    ],
)
def test_a_difference_is_told(old: str, new: str, difference: str) -> None:
    changed = proto(TEXT.replace(old, new))
    assert difference in module_differences(proto(TEXT), changed, frozenset())


def test_only_literals_of_elided_constants_are_left_out() -> None:
    elided = frozenset({("main", "c")})
    one = proto(TEXT)
    other = proto(TEXT.replace("{1, 2}", "{3, 4}"))
    assert list(module_differences(one, other, elided)) == []
    renamed = proto(TEXT.replace("{1, 2})", '{3, 4}), metadata={op_name="c"}'))
    found = list(module_differences(one, renamed, elided))
    assert found == ["%main: field 7 of %c differs"]


def test_lost_bytes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        hlo_passes.Module, "to_text", lambda _: TEXT.replace("m,", "w,")
    )
    found = list(differences_of(TEXT, collections.Counter()))
    assert [f.partition(" came")[0] for f in found] == [
        "whole: line 1: " + repr(TEXT[10:70]),
        "pieces: line 1: " + repr(TEXT[10:70]),
    ]


def test_the_command_counts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.hlo.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "b.hlo").write_text(TEXT.replace("{1, 2}", "{...}"))
    (tmp_path / "notes.txt").write_text("no module")
    (tmp_path / "broken.hlo.gz").write_bytes(b"\x1f\x8b\x00")
    (tmp_path / "c.py").write_text("no module either")
    done = subprocess.run(
        [sys.executable, "-m", round_trip.__name__, str(tmp_path)],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [line.split(maxsplit=1) for line in done.stdout.splitlines()] == [
        ["4", "files"],
        ["1", "left aside: jaxlib does not read it, nor do we"],
        ["1", "left aside: no text"],
        ["1", "literals of elided constants left out"],
        ["1", "of them with elided constants"],
        ["2", "read by jaxlib and compared"],
        ["0", "do not come back"],
    ]
