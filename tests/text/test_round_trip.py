"""What is read is printed back: byte for byte, and again from the IR alone."""

from __future__ import annotations

import pathlib

import pytest

import hlo_passes
from hlo_passes.text.reader import parse_completely
from tests.fuzz.check import structure
from tests.modules import CORPUS, SHARED, module_files, read_text

CORPUS_FILES = module_files(CORPUS / "modules", CORPUS / "handwritten")
GOLDEN_FILES = module_files(CORPUS / "golden")
SHARED_FILES = module_files(SHARED / "corpus", SHARED / "golden")
#: Beyond this size the complete parser takes long; small files cover its forms.
SMALL_BYTES = 400_000


def test_the_corpus_is_there() -> None:
    assert len(CORPUS_FILES) > 50


@pytest.mark.parametrize("file", CORPUS_FILES + SHARED_FILES, ids=lambda f: f.name)
def test_bytes_come_back(file: pathlib.Path) -> None:
    _bytes_come_back(file)


def test_bytes_of_golden_files_come_back() -> None:
    for file in GOLDEN_FILES:
        _bytes_come_back(file)


def _bytes_come_back(file: pathlib.Path) -> None:
    text = read_text(file)
    module = hlo_passes.parse(text, filename=file.name)
    assert module.to_text() == text
    # The same again, put together from the pieces instead of the kept source.
    module.version = 1
    assert module.to_text() == text, file


@pytest.mark.parametrize(
    "file",
    [f for f in CORPUS_FILES + SHARED_FILES if f.stat().st_size < SMALL_BYTES // 8],
    ids=lambda f: f.name,
)
def test_both_readers_make_the_same_module(file: pathlib.Path) -> None:
    text = read_text(file)
    if len(text) > SMALL_BYTES:
        pytest.skip("too large for the complete parser in a test")
    complete = parse_completely(text, filename=file.name)
    assert structure(hlo_passes.parse(text, filename=file.name)) == structure(complete)
    complete.version = 1
    assert complete.to_text() == text


@pytest.mark.parametrize("file", CORPUS_FILES, ids=lambda f: f.name)
def test_canonical_text_is_stable(file: pathlib.Path) -> None:
    module = hlo_passes.parse(read_text(file))
    canonical = module.to_canonical_text()
    again = hlo_passes.parse(canonical)
    assert again.to_canonical_text() == canonical
    assert again.instruction_count == module.instruction_count
