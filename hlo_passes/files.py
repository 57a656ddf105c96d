"""Inputs and outputs of the command line.

An input is HLO text, gzip of it, `-` for stdin, a serialized proto (`.pb`), or anything
with a reader in the entry-point group `hlo_passes.readers` (`.mlir`, by the package
`runtime`). An output appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import pathlib
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from hlo_passes.dump_folder import file_of_dump, is_folder
from hlo_passes.errors import ParseError, UsageError, nearest
from hlo_passes.ir.module import Module
from hlo_passes.module_form import PROTO, STABLEHLO, form_of
from hlo_passes.progress import tell
from hlo_passes.source import Location, SourceText
from hlo_passes.targets import load_target
from hlo_passes.text.reader import parse

READERS = "hlo_passes.readers"
STDIN = "-"
_STDOUT = "/dev/stdout"
_GZIP = b"\x1f\x8b"

#: What compressed input may open to, in MiB, and how to allow more.
_DEFAULT_MIB = 256
_MOST_MIB = "HLO_PASSES_MOST_OPENED_MIB"
_DIGITS = 9
#: Of zlib: data in gzip's form.
_GZIP_WINDOW = 31
LARGER = f"set {_MOST_MIB} to what you expect, or give the file uncompressed"
_LONGER = f"set {_MOST_MIB} to what you expect, or give a file"


def read_module(path: str) -> Module:
    """Read the module at `path`, of a folder of XLA's dumps its last stage.

    Raises:
        UsageError: U001, no such file; U007 from `most_opened_bytes`; U050, U051 of a
            folder (`file_of_dump`).
        ParseError: P040 (not UTF-8), P041 (broken gzip, or it holds too much), and the
            codes of `parse`.
    """
    if path != STDIN and is_folder(path):
        path = file_of_dump(path)
    name = _name_of(path)
    data = read_opened(path)
    form = form_of(path)
    if form == PROTO:
        from hlo_passes.proto import module_from_proto

        return module_from_proto(data, filename=name)
    if form == STABLEHLO:
        return _registered_reader(form[1:])(data, name)
    hint = "a serialized proto is read if its name ends in .pb"
    return parse(utf8_text(data, name, hint=hint), filename=name)


def utf8_text(data: bytes, filename: str, *, hint: str = "") -> str:
    """Bytes as text. Raises ParseError P040 at the first that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        before = data[: problem.start].decode("utf-8", "replace")
        raise ParseError(
            "this is not text: it has a byte that is not UTF-8",
            code="P040",
            location=SourceText(before, filename).location(len(before)),
            hint=hint,
        ) from problem


def _name_of(path: str) -> str:
    return "<stdin>" if path == STDIN else path


def read_opened(path: str) -> bytes:
    """The bytes of an input, or what they hold where they are gzip; `-` for stdin.

    Raises UsageError U001, U007 and ParseError P041 as `read_module`.
    """
    data = _read_bytes(path)
    try:
        return opened(data)
    except OSError as problem:
        raise ParseError(
            f"this gzip file cannot be read: {problem}",
            code="P041",
            location=Location(_name_of(path), 1, 1),
            hint=LARGER if isinstance(problem, TooLargeError) else "",
        ) from problem


class TooLargeError(OSError):
    """Compressed data holds more than may be opened."""


def most_opened_bytes() -> int:
    """How many bytes compressed input may open to; the environment may say more.

    Raises UsageError U007 if the environment says anything but a whole number.
    """
    said = os.environ.get(_MOST_MIB, str(_DEFAULT_MIB))
    if not (said.isascii() and said.isdecimal() and len(said) <= _DIGITS):
        raise UsageError(f"{_MOST_MIB}={said} is not a whole number", code="U007")
    return int(said) << 20


def opened(data: bytes) -> bytes:
    """What gzip holds, and other bytes as they are.

    Raises OSError if the gzip is broken; TooLargeError, which is one, if it holds more
    than `most_opened_bytes`. It opens no further.
    """
    if data[:2] != _GZIP:
        return data
    limit = most_opened_bytes()
    said = int.from_bytes(data[-4:], "little")  # its last bytes, unless it is broken
    try:
        text = _opened_up_to(data, 1 if said > limit else limit + 1)
    except (EOFError, zlib.error) as problem:
        raise OSError(str(problem)) from problem
    if max(said, len(text)) > limit:
        raise TooLargeError(f"it holds more than {limit >> 20} MiB")
    return text


def _opened_up_to(data: bytes, size: int) -> bytes:
    """The first bytes of what gzip holds, `size` at most; EOFError if it is cut off."""
    engine = zlib.decompressobj(wbits=_GZIP_WINDOW)
    text = engine.decompress(data, size)
    if engine.eof and engine.unused_data:
        # Several files in one.
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            return file.read(size)
    if not engine.eof and len(text) < size:
        raise EOFError("it is cut off")
    return text


def _read_bytes(path: str) -> bytes:
    try:
        if path == STDIN:
            if sys.stdin is None:
                raise UsageError("stdin is closed", code="U001")
            return _all_of(sys.stdin.buffer, "stdin")
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    return read_file(path)


def _all_of(file: BinaryIO, name: str) -> bytes:
    """What a file holds; of what has no length, like `/dev/zero`, so much only."""
    try:
        has_length = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:  # it is in memory
        has_length = True
    if has_length:
        return file.read()
    limit = most_opened_bytes()
    data = file.read(limit + 1)
    if len(data) > limit:
        raise UsageError(
            f"cannot read {name}: it gives more than {limit >> 20} MiB",
            code="U001",
            hint=_LONGER,
        )
    return data


def read_file(path: str) -> bytes:
    """The bytes of a file; UsageError U001 if it cannot be read."""
    try:
        with pathlib.Path(path).open("rb") as file:
            return _all_of(file, path)
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    except ValueError as problem:  # no file can have this name
        raise UsageError(f"cannot read {path!r}: {problem}", code="U001") from problem


def read_text(path: str) -> str:
    """The UTF-8 text of a file; UsageError U001 if it cannot be read."""
    try:
        return read_file(path).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UsageError(f"cannot read {path}: {problem}", code="U001") from problem


def require_file(path: str) -> None:
    """Refuse a file that cannot be read, before any work on it; U001."""
    try:
        found = pathlib.Path(path).stat()
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    if stat.S_ISDIR(found.st_mode):
        problem = IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise _unreadable(path, problem)


def _unreadable(path: str, problem: OSError) -> UsageError:
    if isinstance(problem, FileNotFoundError):
        hint = _near_file(path)
        return UsageError(f"no such file: {path}", code="U001", hint=hint)
    reason = problem.strerror or str(problem)
    return UsageError(f"cannot read {path}: {reason}", code="U001")


def _near_file(path: str) -> str:
    folder = pathlib.Path(path).parent
    names = [f.name for f in folder.iterdir()] if folder.is_dir() else []
    return nearest(pathlib.Path(path).name, names)


def _registered_reader(suffix: str):
    # Reading the metadata of all installed distributions takes longer than rewriting
    # most modules: do it only if the suffix is not ours.
    from importlib.metadata import entry_points

    for entry in entry_points(group=READERS, name=suffix):
        return load_target(entry.value)
    raise UsageError(f"no reader for .{suffix} files is installed", code="U002")


def write_text(path: str | None, text: str | bytes) -> None:
    """Write a file (gzip by suffix), or stdout for None; U003."""
    write_texts((path, text))


def write_bytes(path: str, data: bytes) -> None:
    """Write a file in full or not at all; U003."""
    _write_all(((path, data),))


def check_outputs(*paths: str | None) -> None:
    """Refuse outputs before the work for them is done; U003.

    None and `-` mean stdout, an empty name means no output. It refuses a place that
    cannot be written, and a place that is named for two outputs.
    """
    _require_places_of_their_own(paths)
    for path in paths:
        if path and path != STDIN:
            check_writable(path)


def check_writable(path: str) -> None:
    """Refuse a file that cannot be written, before the work for it is done; U003."""
    target = _place(path)
    with _refusing(path):
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if _is_stream(target):
            return
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not os.access(target.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _place(path: str | None) -> pathlib.Path:
    """Where an output goes after following links; stdout may be a file too."""
    shown = _STDOUT if path is None or path == STDIN else path
    return pathlib.Path(os.path.realpath(shown))


def _is_stream(target: pathlib.Path) -> bool:
    """Whether it is a device or a pipe, which cannot be replaced."""
    return target.exists() and not target.is_file() and not target.is_dir()


def _require_places_of_their_own(paths: Iterable[str | None]) -> None:
    taken: set[pathlib.Path] = set()
    for path in paths:
        place = _place(path)
        if path == "" or str(place) == os.devnull:
            continue
        if place in taken:
            name = "stdout" if path is None or path == STDIN else path
            raise UsageError(
                f"two outputs go to {name}", code="U003", hint="name a file for each"
            )
        taken.add(place)


def write_texts(*outputs: tuple[str | None, str | bytes]) -> None:
    """Write several files as `write_text` does; all or none appear."""
    _write_all(tuple((path, _encoded(path, text)) for path, text in outputs))


def _encoded(path: str | None, text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    gzipped = path is not None and path.endswith(".gz")
    return gzip.compress(data, mtime=0) if gzipped else data


def _write_all(outputs: Sequence[tuple[str | None, bytes]]) -> None:
    """Write every file beside its place, and move all of them when they are complete.

    Stderr says which files there are now: a command that prints nothing else would end
    without a word.

    Raises UsageError U003 if something cannot be written, or two have one place. Files
    are also written if stdout has no reader any more (BrokenPipeError after that).
    """
    _require_places_of_their_own(path for path, _ in outputs)
    written: list[tuple[str, pathlib.Path, pathlib.Path]] = []
    stdout = _place(None)
    gone: BrokenPipeError | None = None
    try:
        for path, data in outputs:
            with _refusing("stdout" if path is None else path):
                if path is None or path == STDIN:
                    try:
                        sys.stdout.buffer.write(data)
                        sys.stdout.flush()
                    except BrokenPipeError as problem:
                        gone = problem
                    continue
                target = _place(path)
                if _is_stream(target):
                    target.write_bytes(data)
                    continue
                written.append((path, _written_beside(target, data), target))
        _move_all(written)
    finally:
        for _, temporary, _ in written:
            temporary.unlink(missing_ok=True)
    for path, _, target in written:
        if target != stdout:  # it may have a name
            tell(f"wrote {path}\n")
    if gone is not None:
        raise gone


def _move_all(written: Sequence[tuple[str, pathlib.Path, pathlib.Path]]) -> None:
    """Move (name, file, target) to their targets; if one cannot, none has moved."""
    moved: list[tuple[pathlib.Path, pathlib.Path | None]] = []
    try:
        for path, temporary, target in written:
            with _refusing(path):
                # The last move needs no way back.
                is_last = len(moved) == len(written) - 1
                kept = None if is_last else _kept_beside(target, len(moved))
                try:
                    temporary.replace(target)
                except BaseException:
                    if kept is not None:
                        kept.unlink()
                    raise
            moved.append((target, kept))
    except BaseException:
        for target, kept in reversed(moved):
            if kept is None:
                target.unlink()
            else:
                kept.replace(target)
        raise
    for _, kept in moved:
        if kept is not None:
            kept.unlink()


def _kept_beside(target: pathlib.Path, number: int) -> pathlib.Path | None:
    """A second name for a file that is about to be replaced; None if there is none."""
    if not target.exists():
        return None
    kept = target.with_name(f".hlo-passes-kept-{os.getpid()}-{number}")
    kept.unlink(missing_ok=True)
    try:
        os.link(target, kept)
    except OSError:
        # The file system has no second names, or the file may have none.
        shutil.copy2(target, kept)
    return kept


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    """UsageError U003 for a refusal by the system; a closed pipe keeps its error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise UsageError(f"cannot write {name}: {reason}", code="U003") from problem


def _written_beside(target: pathlib.Path, data: bytes) -> pathlib.Path:
    """A new file in the target's folder, with the target's permissions."""
    if target.is_dir() or not target.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".hlo-passes-")
    temporary = pathlib.Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
        temporary.chmod(mode)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
