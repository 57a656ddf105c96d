"""What was found out, kept on disk by content, so that nothing is compiled twice.

    store = Store.default()
    store.write(key_of("module", flags), b"...")
    store.read(key_of("module", flags))         b"...", None if it is not there

A key names all that decides: the program, the flags, the releases, the costs, our own
sources. So nothing has to be taken out again. Files appear whole or not at all; one
that cannot be read or written counts as absent.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import pathlib
import tempfile
import zlib
from dataclasses import dataclass
from typing import Final

_VARIABLE: Final = "XDG_CACHE_HOME"
_FOLDER: Final = "hlo-passes/tune"
#: Digits of a key that are its folder.
_FANOUT: Final = 2


def key_of(*parts: str) -> str:
    """64 hexadecimal digits of texts, in their order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of results by key; '' for one that keeps nothing."""

    folder: str

    @classmethod
    def default(cls) -> Store:
        """In the user's folder for caches."""
        base = os.environ.get(_VARIABLE) or pathlib.Path("~/.cache").expanduser()
        return cls(str(pathlib.Path(base, _FOLDER)))

    def read(self, key: str) -> bytes | None:
        """What was written under a key; None if nothing was, or it is broken."""
        if not self.folder:
            return None
        try:
            return gzip.decompress(self._file(key).read_bytes())
        except (OSError, EOFError, zlib.error):
            return None

    def write(self, key: str, data: bytes) -> None:
        """Keep data under a key."""
        if not self.folder:
            return
        file = self._file(key)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            packed = gzip.compress(data, compresslevel=6, mtime=0)
            handle, name = tempfile.mkstemp(dir=file.parent, prefix=".")
            try:
                with os.fdopen(handle, "wb") as temporary:
                    temporary.write(packed)
                pathlib.Path(name).replace(file)
            except BaseException:
                pathlib.Path(name).unlink(missing_ok=True)
                raise

    def _file(self, key: str) -> pathlib.Path:
        return pathlib.Path(self.folder, key[:_FANOUT], key[_FANOUT:])
