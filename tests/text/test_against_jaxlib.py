"""What we print from the IR alone, jaxlib reads to the module it reads from the file."""

from __future__ import annotations

import pathlib

import pytest

import hlo_passes
from tests.modules import CORPUS, module_files, read_text

# Golden dumps differ from one another by one pass only: some say as much as all.
FILES = [
    *module_files(CORPUS / "modules", CORPUS / "handwritten"),
    *module_files(CORPUS / "golden")[::25],
]


@pytest.mark.parametrize("file", FILES, ids=lambda f: "/".join(f.parts[-2:]))
def test_jaxlib_reads_an_equal_module(file: pathlib.Path) -> None:
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    text = read_text(file)
    if "constant({...})" in text:
        pytest.skip("jaxlib makes up other numbers for {...} at every reading")
    try:
        expected = _hlo.hlo_module_from_text(text).to_string(options)
    except RuntimeError as refused:
        pytest.skip(f"this release of jaxlib does not read it: {str(refused)[:80]}")
    canonical = hlo_passes.parse(text).to_canonical_text()
    assert _hlo.hlo_module_from_text(canonical).to_string(options) == expected
