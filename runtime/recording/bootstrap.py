"""Begins to record in every Python that a captured command starts, once it imports JAX.

`hlo-passes capture` copies this file into a folder of its own, as `sitecustomize.py`,
and puts the folder first on PYTHONPATH: Python runs it before the program. It imports
nothing but the standard library; the program finds `sys.path`, `sys.argv`, `__main__`
and its own `sitecustomize` as they are without it.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: A JSON object: the settings of the recorder, and "journal", a folder.
VARIABLE = "HLO_PASSES_CAPTURE"
_OWN_NAME = "sitecustomize"
_WATCHED = "jax"


def note(settings: dict[str, Any], **what: Any) -> None:
    """Append a line to this process's part of the journal, in one write."""
    path = os.path.join(settings["journal"], f"{os.getpid()}.jsonl")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(handle, json.dumps(what).encode() + b"\n")
    finally:
        os.close(handle)


class _AfterJax:
    """Finds JAX as all others do, and begins to record when it is imported."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.asks_others = False

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec of JAX, whose loader goes on with us; None for other modules."""
        if name != _WATCHED or self.asks_others:
            return None
        self.asks_others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asks_others = False
        if spec is None or spec.loader is None:
            return None
        # For this one import: what stays is JAX's own loader.
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _begin_to_record(self.settings)

        loader.exec_module = exec_module
        return spec


def _begin_to_record(settings: dict[str, Any]) -> None:
    hook = sys.excepthook
    try:
        from hlo_passes.runtime.recording.recorder import begin

        begin(settings, functools.partial(note, settings))
    except Exception as problem:
        # The program is not ours: it goes on whatever is wrong with us.
        what = f"{type(problem).__name__}: {problem}"
        if isinstance(problem, ImportError):
            what += " (hlo-passes must be installed there, too)"
        note(settings, problem=f"{sys.executable} is not recorded: {what}")
    finally:
        sys.excepthook = hook


def _start() -> None:
    text = os.environ.get(VARIABLE)
    # Take ourselves away, and run what the program would have run.
    ours = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != ours or not p]
    module = sys.modules.pop(_OWN_NAME, None)
    try:
        if importlib.util.find_spec(_OWN_NAME) is not None:
            importlib.import_module(_OWN_NAME)
    finally:
        if module is not None:
            sys.modules.setdefault(_OWN_NAME, module)
    # Wait for JAX.
    if text:
        settings = json.loads(text)
        note(settings, python=sys.executable)
        sys.meta_path.insert(0, _AfterJax(settings))


if __name__ == _OWN_NAME:
    _start()
