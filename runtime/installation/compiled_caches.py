"""No program that was compiled without the passes, or with others, is served.

JAX keeps compiled programs in memory (a function that was called once) and, where
`jax_compilation_cache_dir` is set, on disk. The first are dropped when an installation
begins and when it ends. The key of the second gets the fingerprints of what is
installed; but a key is made in front of the compilation, and with "pass-through" passes
may fail inside it. A program that they failed on is not written at all.

Both go through functions of JAX's own that are chained: what stood there is asked too,
and is put back when the last that needs ours has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import jax

from runtime import jax_private

_lock = threading.Lock()
#: Fingerprints of what is installed, in the order of installation.
_installed: list[str] = []
#: The hook that was there before ours; None while ours is not there.
_chained: Callable[[], str] | None = None
#: Names of modules that passes failed on, a collection for each installation.
_withheld: list[Collection[str]] = []
#: The writer that was there before ours; None while ours is not there.
_chained_writer: Callable[..., None] | None = None


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


def _write(key: str, module: str, executable: Any, *rest: Any, **named: Any) -> None:
    with _lock:
        before, withheld = _chained_writer, set().union(*_withheld)
    # XLA spells some names otherwise than JAX: what counts is the compiled module's.
    failed = withheld and withheld & set(jax_private.module_names(executable))
    if before is not None and not failed:
        before(key, module, executable, *rest, **named)


def withhold(names: Collection[str]) -> None:
    """Write no program to disk whose module has one of the names; more may come."""
    global _chained_writer
    with _lock:
        if _chained_writer is None:
            _chained_writer = jax_private.cache_writer()
            jax_private.set_cache_writer(_write)
        _withheld.append(names)


def release(names: Collection[str]) -> None:
    """End what `withhold` began, for the same object."""
    global _chained_writer
    with _lock:
        _withheld[:] = [others for others in _withheld if others is not names]
        if not _withheld and jax_private.cache_writer() is _write:
            assert _chained_writer is not None
            jax_private.set_cache_writer(_chained_writer)
            _chained_writer = None
