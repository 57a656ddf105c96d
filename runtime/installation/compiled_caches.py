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

from hlo_passes.runtime import jax_private

_lock = threading.Lock()
#: Fingerprints of what is installed, in the order of installation.
_installed: list[str] = []
#: Names of modules that passes failed on, a collection for each installation.
_withheld: list[Collection[str]] = []


class _Link:
    """A function of ours in the place of one of JAX's, while anybody needs it.

    Attributes:
        before: what was there; None while ours is not there.
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
        # Where somebody else hooked in behind us, ours stays as a link of the chain.
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
    # XLA spells some names otherwise than JAX: what counts is the compiled module's.
    failed = withheld and withheld & set(jax_private.module_names(executable))
    if before is not None and not failed:
        before(key, module, executable, *rest, **named)


_hook = _Link(jax_private.cache_key_hook, jax_private.set_cache_key_hook, _key_words)
_writer = _Link(jax_private.cache_writer, jax_private.set_cache_writer, _write)


def enter(fingerprint: str) -> None:
    """Let programs be known by a fingerprint from now on; forget the others."""
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
    """Write no program to disk whose module has one of the names; more may come."""
    with _lock:
        _writer.put_in()
        _withheld.append(names)


def release(names: Collection[str]) -> None:
    """End what `withhold` began, for the same object."""
    with _lock:
        _withheld[:] = [others for others in _withheld if others is not names]
        if not _withheld:
            _writer.take_out()
