"""Keeps our frames out of the modules that we lower, so that only the user's remain.

    FileNames
    1 "model.py"

JAX records for every instruction which lines of Python made it. Our lines, and those of
what starts a program from the shell, say nothing about the user's program, and would
differ from one installation to the next.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Final

import absl

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.runtime import jax_private

_OURS: Final[tuple[ModuleType, ...]] = (hlo_passes, scheduler)
#: The interpreter's names for the file that runs `python -m`, and for our entry point.
_RUNPY: Final = "<frozen runpy>"
_ENTRY_POINT: Final = "hlo-passes"


def leave_out_own_frames() -> None:
    """Keep our files out of what JAX lowers from now on; one call is enough."""
    folders = [str(pathlib.Path(__file__).parent)]
    for package in _OURS:
        folders += package.__path__
    _leave_out(folders)


def leave_out_frames_of_the_command() -> None:
    """Also leave out frames between the shell and us; only for the command."""
    leave_out_own_frames()
    _leave_out(absl.__path__)
    jax_private.leave_out_of_frames(_RUNPY)
    started = pathlib.Path(sys.argv[0])
    if started.name == _ENTRY_POINT:
        jax_private.leave_out_of_frames(str(started))


def _leave_out(folders: Iterable[str]) -> None:
    for folder in folders:
        jax_private.leave_out_of_frames(f"{folder}{os.sep}")
