"""The folder of `hlo-passes capture`: modules, and an index that lists them.

modules.json  jit_step.mlir  jit_step.hlo  jit_step-2.mlir  ...
"""

from __future__ import annotations

import contextlib
import json
import pathlib

from hlo_passes.errors import UsageError

INDEX = "modules.json"


def prepare(name: str) -> pathlib.Path:
    """An empty folder of that name; files of an earlier capture are removed.

    Raises UsageError U003 if it cannot be written, or holds anything else.
    """
    folder = pathlib.Path(name).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in _earlier(folder):
            file.unlink(missing_ok=True)
        others = sorted(f.name for f in folder.iterdir())
        if not others:
            # Also a place that cannot be written is refused before the program runs.
            (folder / INDEX).touch()
    except OSError as problem:
        raise UsageError(
            f"cannot write {name}: {problem.strerror or problem}", code="U003"
        ) from problem
    if others:
        raise UsageError(
            f"{name} holds {others[0]}, which is not of an earlier capture",
            code="U003",
            hint="name a new folder: -o DIR",
        )
    return folder


def _earlier(folder: pathlib.Path) -> list[pathlib.Path]:
    """The index of an earlier capture, and the files that it lists."""
    index = folder / INDEX
    if not index.is_file():
        return []
    found = [index]
    with contextlib.suppress(ValueError, TypeError, KeyError):
        for module in json.loads(index.read_text())["modules"]:
            names = [module[key] for key in ("stablehlo", "hlo") if module[key]]
            # Only names: the index is a file like any other.
            found += [folder / n for n in names if pathlib.PurePath(n).name == n]
    return found
