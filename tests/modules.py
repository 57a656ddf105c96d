"""Where test modules come from: the corpus, and optional folders beside it."""

from __future__ import annotations

import gzip
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY / "corpus"
#: Public modules and XLA's own dumps, where a checkout has them beside it.
SHARED = REPOSITORY.parent / "shared"


def module_files(*roots: pathlib.Path) -> list[pathlib.Path]:
    """HLO text files under folders that exist, sorted."""
    return sorted(
        file
        for root in roots
        if root.is_dir()
        for file in root.rglob("*")
        if file.name.endswith((".hlo", ".hlo.gz"))
    )


def read_text(file: pathlib.Path) -> str:
    """The text of a module file, unpacked."""
    data = file.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
