"""`--module` and `--stage`: a folder of XLA's dumps in the place of any input file.

hlo-passes simulate DIR --module=jit_step
hlo-passes opt DIR --module=4 --stage=partitioned --passes=xla-gpu -o out.hlo
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from hlo_passes.dump_folder import Choice, file_of_dump, is_folder
from hlo_passes.errors import UsageError

#: Commands whose inputs are modules.
_READ_MODULES: Final = (
    "bisect", "diff", "estimate", "opt", "run", "simulate", "tune", "verify",
)  # fmt: skip
#: Arguments that name inputs.
_INPUTS: Final = ("input", "inputs", "before", "after", "against")
#: Commands that take two folders as two sets of modules.
_COMPARE_FOLDERS: Final = ("diff",)
#: Commands to which elided constants matter.
_RUN: Final = ("run",)
_MODULE: Final = "--module"
_STAGE: Final = "--stage"


def add_dump_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """Add both options to a command that reads modules and has none of that name."""
    if command not in _READ_MODULES:
        return
    actions = parser._actions  # argparse has no other way to ask
    taken = {option for action in actions for option in action.option_strings}
    if {_MODULE, _STAGE} & taken:
        return
    parser.add_argument(
        _MODULE,
        default="",
        metavar="NAME",
        help="in a folder of XLA's dumps: name or number of the module",
    )
    parser.add_argument(
        _STAGE,
        default="",
        metavar="STAGE",
        help="in a folder of XLA's dumps: before_optimizations, partitioned, "
        "after_optimizations (the last one is the default) or the name of a pass",
    )


def choose_dumps(command: str, arguments: argparse.Namespace) -> None:
    """Replace folders among a command's inputs by the files that they stand for.

    Raises UsageError as `file_of_dump`, and U053 for a choice without a folder.
    """
    if command not in _READ_MODULES or not hasattr(arguments, "module"):
        return
    choice = Choice(arguments.module, arguments.stage, command in _RUN)
    given = {name: getattr(arguments, name, None) for name in _INPUTS}
    if isinstance(given["inputs"], str):
        del given["inputs"]  # of `run`: arrays
    paths = [p for value in given.values() for p in _listed(value)]
    folders = [p for p in paths if is_folder(p)]
    if not folders:
        if arguments.module or arguments.stage:
            option = _MODULE if arguments.module else _STAGE
            raise UsageError(
                f"{option} chooses in a folder of XLA's dumps, and no input is one",
                code="U053",
                hint=f"leave {option} out, or give the folder",
            )
        return
    if command in _COMPARE_FOLDERS and len(folders) == len(paths):
        return
    for name, value in given.items():
        if isinstance(value, str):
            setattr(arguments, name, _file(value, choice))
        elif isinstance(value, list):
            setattr(arguments, name, [_file(v, choice) for v in value])


def _listed(value: object) -> Sequence[str]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list):
        return [v for v in value if isinstance(v, str)]
    return ()


def _file(path: str, choice: Choice) -> str:
    return file_of_dump(path, choice) if is_folder(path) else path
