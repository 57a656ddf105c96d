"""In the process of a captured program: writes each module that JAX gives to XLA.

    jit_step.mlir, jit_step-2.mlir      StableHLO, as text with source locations

A module is written before it is compiled, so a program that crashes leaves all it had.
Nothing that goes wrong here reaches the program.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import os
import pathlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import jax

from hlo_passes.runtime import jax_private

_CACHE_HIT: Final = "/jax/compilation_cache/cache_hits"
#: Characters of a module's name that no file's name should have, and how many it has.
_ODD: Final = re.compile(r"[^\w.-]")
_LONGEST: Final = 100
#: JAX numbers the callbacks into Python, `jax.debug.print` too.
_CALLBACK: Final = re.compile(r"\bindex = \d+ : ui64")


def begin(settings: dict[str, Any], note: Callable[..., None]) -> None:
    """Record from now on.

    Args:
        settings: `folder` and `journal`; `modules`, patterns of names, [] for all;
            `first`, how many modules to record, None for no limit.
        note: appends keywords to the journal.
    """
    recorder = Recorder(settings, note)
    jax_private.watch_compilations(recorder.compiled)
    jax.monitoring.register_event_listener(recorder.event)
    note(jax=jax.__version__)


class Recorder:
    """Writes modules and notes their compilations."""

    def __init__(self, settings: dict[str, Any], note: Callable[..., None]) -> None:
        """Nothing is written yet; arguments as of `begin`."""
        self.settings = settings
        self._note = note
        self._files: dict[tuple[str, str], str] = {}
        self._of_thread = threading.local()

    def event(self, event: str, **_: str | int) -> None:
        """JAX says what happened: it found the program of this thread on disk."""
        if event == _CACHE_HIT:
            self._of_thread.hit = True

    def compiled(
        self, run: Callable[[], Any], module: Any, platform: str, devices: int
    ) -> Any:
        """Compile, and record it; what `run` returns or raises."""
        what: dict[str, Any] = {}
        try:
            what = self._written(module)
        except Exception as problem:
            self._failed(problem)
        self._of_thread.hit = False
        started = time.perf_counter()
        try:
            return run()
        except Exception as problem:
            words = str(problem).splitlines() or [""]
            what = what and what | {"error": f"{type(problem).__name__}: {words[0]}"}
            raise
        finally:
            if what:
                what |= {
                    "seconds": time.perf_counter() - started,
                    "cached": self._of_thread.hit,
                    "platform": platform,
                    "devices": devices,
                }
                try:
                    self._note(**what)
                except Exception as problem:
                    self._failed(problem)

    def _failed(self, problem: Exception) -> None:
        words = f"cannot record: {type(problem).__name__}: {problem}"
        try:
            self._note(problem=words)
        except OSError:
            return  # its folder is gone: nobody waits for it any more

    def _written(self, module: Any) -> dict[str, Any]:
        """Name and file of a module, {} for one that is not to be recorded."""
        name = jax_private.stablehlo_name(module)
        wanted = self.settings["modules"]
        if wanted and not any(fnmatch.fnmatchcase(name, each) for each in wanted):
            return {}
        # Once there are enough, only what is known is counted.
        first = self.settings["first"]
        is_full = first is not None and len(self._files) >= first
        if is_full and all(name != known for known, _ in self._files):
            return {}
        # Modules are the same whatever line of the program calls them.
        text = jax_private.stablehlo_text(module, locations=False)
        digest = hashlib.sha256(_CALLBACK.sub("", text).encode()).hexdigest()
        key = (name, digest)
        if key not in self._files:
            if is_full:
                return {}
            text = jax_private.stablehlo_text(module, locations=True)
            self._files[key] = self._write(name, text.encode())
        return {"name": name, "file": self._files[key], "digest": digest}

    def _write(self, name: str, data: bytes) -> str:
        """The name of the file that holds the module, of this process or another."""
        folder = pathlib.Path(self.settings["folder"])
        plain = _ODD.sub("_", name)[:_LONGEST].lstrip(".") or "module"
        whole = folder / f".{os.getpid()}-{threading.get_ident()}"
        whole.write_bytes(data)
        try:
            for number in itertools.count(1):
                file = folder / f"{plain}{'' if number == 1 else f'-{number}'}.mlir"
                try:
                    _put(whole, file)
                except FileExistsError:
                    if file.read_bytes() == data:
                        return file.name
                else:
                    return file.name
        finally:
            whole.unlink()
        raise AssertionError


def _put(whole: pathlib.Path, file: pathlib.Path) -> None:
    """Give a file a second name, or copy it; FileExistsError where there is one."""
    try:
        os.link(whole, file)
    except FileExistsError:
        raise
    except OSError:  # the file system has no second names
        with file.open("xb") as copy:
            copy.write(whole.read_bytes())
