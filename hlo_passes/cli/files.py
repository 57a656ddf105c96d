"""Inputs and outputs of the command line.

An input is HLO text, gzip of it, `-` for stdin, a serialised proto (`.pb`), or anything
for which a reader is registered in the entry-point group `hlo_passes.readers` (`.mlir`,
by the package `runtime`). An output appears whole or not at all.
"""

from __future__ import annotations

import gzip
import importlib
import os
import pathlib
import sys
import tempfile
import zlib

from hlo_passes.errors import ParseError, UsageError
from hlo_passes.ir.module import Module
from hlo_passes.passes.spec import nearest
from hlo_passes.source import Location, SourceText
from hlo_passes.text.reader import parse

READERS = "hlo_passes.readers"
STDIN = "-"
_GZIP = b"\x1f\x8b"


def read_module(path: str) -> Module:
    """Read the module at `path`.

    Raises:
        UsageError: U001, no such file.
        ParseError: P040 (not UTF-8), P041 (broken gzip), and those of `parse`.
    """
    name = "<stdin>" if path == STDIN else path
    data = _read_bytes(path)
    suffixes = pathlib.PurePath(path).suffixes
    if data[:2] == _GZIP:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as problem:
            raise ParseError(
                f"this gzip file is broken: {problem}",
                code="P041",
                location=Location(name, 1, 1),
            ) from problem
    if ".pb" in suffixes:
        from hlo_passes.proto import module_from_proto

        return module_from_proto(data, filename=name)
    suffix = next((s for s in reversed(suffixes) if s != ".gz"), "")
    if suffix == ".mlir":
        return _registered_reader(suffix[1:])(data, name)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        before = data[: problem.start].decode("utf-8", "replace")
        raise ParseError(
            "this is no text: a byte that is no UTF-8",
            code="P040",
            location=SourceText(before, name).location(len(before)),
            hint="a serialised proto is read when its name ends in .pb",
        ) from problem
    return parse(text, filename=name)


def _read_bytes(path: str) -> bytes:
    if path == STDIN:
        return sys.stdin.buffer.read()
    try:
        return pathlib.Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path}", code="U001", hint=_near_file(path)
        ) from None
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot read {path}: {problem}", code="U001") from problem


def _near_file(path: str) -> str:
    folder = pathlib.Path(path).parent
    names = [f.name for f in folder.iterdir()] if folder.is_dir() else []
    return nearest(pathlib.Path(path).name, names)


def _registered_reader(suffix: str):
    # Reading every installed distribution's metadata takes longer than most
    # modules take to rewrite: only when a name is not ours.
    from importlib.metadata import entry_points

    for entry in entry_points(group=READERS, name=suffix):
        module_name, _, attribute = entry.value.partition(":")
        return getattr(importlib.import_module(module_name), attribute)
    raise UsageError(f"no reader for .{suffix} files is installed", code="U002")


def write_text(path: str | None, text: str) -> None:
    """Write text to a file (gzip by suffix), or to stdout for None.

    The file is written beside its place and then moved there. Raises UsageError U003
    when that cannot be done.
    """
    if path is None or path == STDIN:
        try:
            sys.stdout.buffer.write(text.encode())
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as problem:
            raise UsageError(
                f"cannot write to stdout: {problem}", code="U003"
            ) from problem
        return
    data = text.encode()
    if path.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    write_bytes(path, data)


def write_bytes(path: str, data: bytes) -> None:
    """Write a file whole or not at all; UsageError U003 when that cannot be done."""
    target = pathlib.Path(path)
    temporary = None
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)  # a device or a pipe: nothing to replace
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".hlo-passes-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
        pathlib.Path(temporary).chmod(mode)
        pathlib.Path(temporary).replace(target)
    except OSError as problem:
        if temporary is not None:
            pathlib.Path(temporary).unlink(missing_ok=True)
        reason = problem.strerror or str(problem)
        raise UsageError(f"cannot write {path}: {reason}", code="U003") from problem


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
