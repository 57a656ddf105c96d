"""No program that was compiled without the passes, or with others, is served.

JAX keeps compiled programs in memory (a function that was called once) and, where
`jax_compilation_cache_dir` is set, on disk. The first are dropped when an installation
begins and when it ends. The key of the second gets the fingerprints of what is
installed, through a hook of JAX's that is chained: what it was before is asked too, and
it is put back when the last installation ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import jax

from runtime import jax_private

_lock = threading.Lock()
#: Fingerprints of what is installed, in the order of installation.
_installed: list[str] = []
#: The hook that was there before ours; None while ours is not there.
_chained: Callable[[], str] | None = None


def _hook() -> str:
    with _lock:
        before, words = _chained, list(_installed)
    return "".join((before() if before else "", *words))


def enter(fingerprint: str) -> None:
    """Let programs be known by a fingerprint from now on; forget the others."""
    global _chained
    with _lock:
        if _chained is None:
            _chained = jax_private.cache_key_hook()
            jax_private.set_cache_key_hook(_hook)
        _installed.append(fingerprint)
    jax.clear_caches()


def leave(fingerprint: str) -> None:
    """End what `enter` began."""
    global _chained
    with _lock:
        _installed.remove(fingerprint)
        # Where somebody else hooked in behind us, ours stays as a link of the chain.
        if not _installed and jax_private.cache_key_hook() is _hook:
            assert _chained is not None
            jax_private.set_cache_key_hook(_chained)
            _chained = None
    jax.clear_caches()
