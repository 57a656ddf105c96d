"""Keeps caches from serving a program compiled without the passes, or with others.

JAX keeps compiled programs in memory (of functions that were called) and, if
`jax_compilation_cache_dir` is set, on disk. Those in memory are dropped when an
installation begins and when it ends. The keys of those on disk include the fingerprints
of what is installed; but a key is made before the compilation, and with "pass-through"
passes may fail during it. A program on which they failed is not written at all.

Both use functions of JAX that are chained: the function that was there before is called
too, and is put back when the last installation that needs ours has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import jax

from hlo_passes.runtime import jax_private

_lock = threading.Lock()
#: Fingerprints of what is installed, in the order of installation.
_installed: list[str] = []
#: Names of modules on which passes failed, one collection per installation.
_withheld: list[Collection[str]] = []


class _Link:
    """Our function in the place of one of JAX's, while it is needed.

    Attributes:
        before: the function that was there; None while ours is not installed.
    """

    def __init__(
        self,
        get: Callable[[], Callable[..., Any]],
        put: Callable[[Callable[..., Any]], None],
        ours: Callable[..., Any],
    ) -> None:
        self._get, self._put, self._ours = get, put, ours
        self.before: Callable[..., Any] | None = None

    def put_in(self) -> None:
        if self.before is None:
            self.before = self._get()
            self._put(self._ours)

    def take_out(self) -> None:
        # If somebody else hooked in after us, ours stays as a link of the chain.
        if self.before is not None and self._get() is self._ours:
            self._put(self.before)
            self.before = None


def _key_words() -> str:
    with _lock:
        before, words = _hook.before, list(_installed)
    return "".join((before() if before else "", *words))


def _write(key: str, module: str, executable: Any, *rest: Any, **named: Any) -> None:
    with _lock:
        before, withheld = _writer.before, set().union(*_withheld)
    # XLA spells some names differently from JAX: the compiled module's name counts.
    failed = withheld and withheld & set(jax_private.module_names(executable))
    if before is not None and not failed:
        before(key, module, executable, *rest, **named)


_hook = _Link(jax_private.cache_key_hook, jax_private.set_cache_key_hook, _key_words)
_writer = _Link(jax_private.cache_writer, jax_private.set_cache_writer, _write)


def enter(fingerprint: str) -> None:
    """Add a fingerprint to the keys of programs from now on, and drop the others."""
    with _lock:
        _hook.put_in()
        _installed.append(fingerprint)
    jax.clear_caches()


def leave(fingerprint: str) -> None:
    """End what `enter` began."""
    with _lock:
        _installed.remove(fingerprint)
        if not _installed:
            _hook.take_out()
    jax.clear_caches()


def withhold(names: Collection[str]) -> None:
    """Write no program to disk whose module has one of the names; more can be added."""
    with _lock:
        _writer.put_in()
        _withheld.append(names)


def release(names: Collection[str]) -> None:
    """End what `withhold` began, for the same object."""
    with _lock:
        _withheld[:] = [others for others in _withheld if others is not names]
        if not _withheld:
            _writer.take_out()
