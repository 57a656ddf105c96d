"""A folder that XLA writes one compilation's modules to, and the folder of XLA_FLAGS.

    with dump_folder("spmd-partitioning") as dump:
        compilation.run(dump.options)
        dump.text_after("after_spmd-partitioning")

A compilation has one such folder. It is ours for a moment; what the user asks for with
XLA_FLAGS=--xla_dump_to=DIR is written, too, and copied to DIR afterwards.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.progress import tell
from hlo_passes.runtime import jax_private

_VARIABLE: Final = "XLA_FLAGS"
_FOLDER: Final = "--xla_dump_to="
_PASSES: Final = "--xla_dump_hlo_pass_re="
#: XLA's own names for stdout and for nowhere.
_NO_FOLDERS: Final = ("", "-")


@dataclass(frozen=True, slots=True)
class Dump:
    """A folder with dumps.

    Attributes:
        folder: of XLA's files.
        options: XLA's flags by name that write there.
    """

    folder: pathlib.Path
    options: dict[str, Any]

    def text_after(self, mark: str) -> str | None:
        """The largest module whose name has the mark: no small helper; None if none."""
        found = [
            p
            for p in self.folder.iterdir()
            if mark in p.name
            and p.suffix == ".txt"
            and not re.search(r"buffer|memory", p.name)
        ]
        if not found:
            return None
        return max(found, key=lambda p: (p.stat().st_size, p.name)).read_text()


@contextlib.contextmanager
def dump_folder(passes: str) -> Iterator[Dump]:
    """A folder and the flags that dump there what text can say of modules, in full.

    Args:
        passes: a regular expression of the passes after which modules are written.

    Raises UsageError U003 if the folder that XLA_FLAGS names cannot be written.
    """
    flags = _flags()
    users_folder = _value_of(_FOLDER, flags)
    users_passes = _value_of(_PASSES, flags)
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        options: dict[str, Any] = {
            "xla_dump_to": folder,
            "xla_dump_hlo_as_text": True,
            "xla_dump_hlo_as_long_text": True,
            "xla_dump_large_constants": True,
            "xla_dump_hlo_module_re": ".*",
            "xla_dump_hlo_pass_re": (
                f"(?:{users_passes})|{passes}" if users_passes else passes
            ),
        }
        if jax_private.XLA.dumps_leave_out_elements:
            # Text that leaves out get-tuple-elements loses their control edges, and
            # names them as control predecessors of others all the same.
            options["xla_dump_compact_gte"] = False
        try:
            yield Dump(pathlib.Path(folder), options)
        finally:
            if users_folder not in _NO_FOLDERS:
                _copy(pathlib.Path(folder), users_folder)


def _flags() -> list[str]:
    """The flags of the environment, as XLA reads them: texts, or a file of them."""
    said = os.environ.get(_VARIABLE, "").strip()
    if said and not said.startswith("-"):
        with contextlib.suppress(OSError):
            said = pathlib.Path(said).read_text()
    try:
        return shlex.split(said)
    except ValueError:  # a quote that nothing closes
        return said.split()


def _value_of(flag: str, flags: list[str]) -> str:
    """The last value of a flag, '' for none."""
    values = [each.removeprefix(flag) for each in flags if each.startswith(flag)]
    return values[-1] if values else ""


def _copy(source: pathlib.Path, target: str) -> None:
    files = list(source.iterdir())
    try:
        shutil.copytree(source, target, dirs_exist_ok=True)
    except OSError as problem:
        raise UsageError(
            f"cannot write XLA's dump to {target}: {problem}",
            code="U003",
            hint=f"{_FOLDER}DIR of {_VARIABLE}",
        ) from problem
    if files:
        tell(f"wrote {len(files)} files of XLA to {target}\n")
