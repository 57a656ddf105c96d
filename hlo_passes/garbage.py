"""Garbage collection off for a while: big graphs are made, nothing of them is garbage.

with garbage_collection_paused():
    ...
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the collector, whose looks through a big graph cost more than making it."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()
