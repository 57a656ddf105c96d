"""Garbage collection off for a while: big graphs are made, nothing of them is garbage.

with garbage_collection_paused():
    ...

The collector would walk a heap that only grows again and again: a fifth of the time of
reading a large module, a third of the time of the passes in a process that holds JAX.
What was made is not walked afterwards either: it counts as old, as if it had survived.
"""

from __future__ import annotations

import gc
import threading

#: Fewer objects than this are soon looked at.
_FEW: int = 10_000
#: How many objects may become old in this way before all are looked at.
_UNSEEN: int = 1_000_000


class _Pause:
    """How many are inside; threads compile side by side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_collecting = False
        self._unseen = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_collecting = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_collecting:
                self._make_old()
                gc.enable()

    def _make_old(self) -> None:
        """Spare the collector a look at every object made since its last one.

        To freeze objects and to thaw them makes them old without a look at any. Modules
        that are garbage wait for the next look at everything, so there must be one from
        time to time. Where somebody else has frozen objects, they are left alone.
        """
        made = gc.get_count()[0]
        if made < _FEW or gc.get_freeze_count():
            return
        self._unseen += made
        if self._unseen < _UNSEEN:
            gc.freeze()
            gc.unfreeze()
        else:
            self._unseen = 0
            gc.collect()


_pause = _Pause()


def garbage_collection_paused() -> _Pause:
    """Pause the collector until the last of all threads that paused it has left."""
    return _pause
