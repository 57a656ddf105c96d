"""Garbage collection off for a while: big graphs are made, nothing of them is garbage.

with garbage_collection_paused():
    ...

The collector would walk a heap that only grows again and again: a fifth of the time of
reading a large module, a third of the time of the passes in a process that holds JAX.
"""

from __future__ import annotations

import gc
import threading


class _Pause:
    """How many are inside; threads compile side by side.

    Leaving makes no object: the first one made afterwards has the collector look once
    at all that was made inside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_collecting = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_collecting = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        self._lock.acquire()  # its own `with` would make an object behind gc.enable
        try:
            self._inside -= 1
            if not self._inside and self._was_collecting:
                gc.enable()
        finally:
            self._lock.release()


_pause = _Pause()


def garbage_collection_paused() -> _Pause:
    """Pause the collector until the last of all threads that paused it has left."""
    return _pause
