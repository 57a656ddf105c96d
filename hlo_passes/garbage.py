"""Garbage collection off for a while: big graphs are made, nothing of them is garbage.

with garbage_collection_paused():
    ...

The collector would walk a heap that only grows again and again: a fifth of the time of
reading a large module, a third of the time of the passes in a process that holds JAX.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pauses:
    """How many are inside; threads compile side by side."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.was_collecting = False


_pauses = _Pauses()


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the collector until the last of all threads that paused it has left."""
    with _pauses.lock:
        if not _pauses.inside:
            _pauses.was_collecting = gc.isenabled()
            gc.disable()
        _pauses.inside += 1
    try:
        yield
    finally:
        with _pauses.lock:
            _pauses.inside -= 1
            if not _pauses.inside and _pauses.was_collecting:
                gc.enable()
