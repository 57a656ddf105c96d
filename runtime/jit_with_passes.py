"""Runs passes for one function only.

    step = runtime.jit(step, passes="collective-permute-combiner", donate_argnums=0)
    step(x); step.installation.reports

    @runtime.jit(passes="collective-permute-combiner", donate_argnums=0)

XLA calls registered functions for every module of the process, and not always in the
thread that compiles, so the function's modules are recognized by their name: JAX names
a module after the function, and the function has a unique name. It ends in digits that
represent the function and its passes. That name is part of every key under which JAX
keeps compiled programs, so no cache needs to be informed.

All such functions share one callback per stage and platform.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.runtime.installation.fingerprint import DIGITS, MARK
from hlo_passes.runtime.installation.install import Installation, Registrations, prepare
from hlo_passes.runtime.installation.module_filter import ModuleFacts
from hlo_passes.runtime.installation.options import InstallOptions

_lock = threading.Lock()


class _Functions:
    """The functions with passes of one stage and platform, which share one callback."""

    def __init__(self, stage: str, platform: str) -> None:
        self.stage = stage
        self.platform = platform
        self.installations: dict[str, Installation] = {}
        self._registrations = Registrations(stage)

    def add(self, digits: str, installation: Installation) -> None:
        if not self.installations:
            self._registrations.add(self.platform, self._transformed)
        self.installations[digits] = installation

    def discard(self, digits: str) -> None:
        self.installations.pop(digits, None)
        if not self.installations:
            self._registrations.clear()

    def _transformed(self, data: bytes) -> bytes | None:
        mark = MARK.search(ModuleFacts(data).name)
        installation = self.installations.get(mark[1]) if mark else None
        if installation is None:
            return None
        return installation.transformed(self.platform, data)


_functions: dict[tuple[str, str], _Functions] = {}


def jit(
    function: Callable[..., Any] | None = None,
    *,
    passes: str | Pipeline,
    stage: str = "pre-scheduler",
    platforms: str | Sequence[str] = "cpu",
    has_collectives: bool | None = None,
    on_error: str = "fail",
    multiprocess: str = "check",
    context: PassContext | None = None,
    **jit_options: Any,
) -> Any:
    """`jax.jit` with passes in the compilation of this function only.

    Transformations of the result have them too (`jax.grad`, `jax.vmap`); called inside
    another jitted function, it is part of that function's module, without passes. They
    stay until `.installation.remove()`: a lowered function is compiled with them,
    however late. The same function with the same passes shares one installation.

    Args:
        function: the function to compile; without it a decorator is returned, as by
            `jax.jit`.
        passes: as text, or built.
        stage: as in `runtime.install`, like the following arguments.
        platforms: see there.
        has_collectives: see there.
        on_error: see there.
        multiprocess: see there.
        context: see there.
        jit_options: of `jax.jit`.

    Returns:
        What `jax.jit` gives, with the attribute `installation`.

    Raises:
        Everything that `runtime.install` raises.
        TypeError: for an object that cannot be called.
    """
    options = InstallOptions(
        stage=stage,
        platforms=platforms,
        has_collectives=has_collectives,
        on_error=on_error,
        multiprocess=multiprocess,
        context=context,
    )
    # Without a function, return a decorator.
    decorator = partial(_jit, passes=passes, options=options, jit_options=jit_options)
    return decorator if function is None else decorator(function)


def _jit(
    function: Callable[..., Any],
    *,
    passes: str | Pipeline,
    options: InstallOptions,
    jit_options: dict[str, Any],
) -> Any:
    if not callable(function):
        msg = f"jit() takes a function, not {type(function).__name__}"
        raise TypeError(msg)
    # Check passes and arguments now, not when the function is compiled.
    installation = prepare(passes, options)
    # The module's name has digits of the installation: the callback knows it by them,
    # and JAX does not reuse a program compiled without it.
    name = getattr(function, "__name__", "function")
    qualified = getattr(function, "__qualname__", name)
    whose = f"{installation.fingerprint} {function.__module__} {qualified}"
    digits = hashlib.sha256(whose.encode()).hexdigest()[:DIGITS]

    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    named.__name__ = f"{name}__hlo_passes_{digits}"
    named.__qualname__ = f"{qualified}__hlo_passes_{digits}"
    jitted = jax.jit(named, **jit_options)
    # jaxlib's object accepts attributes, but its type says otherwise.
    wrapped: Any = jitted
    wrapped.installation = _installed(digits, installation)
    return wrapped


def _installed(digits: str, installation: Installation) -> Installation:
    """Add a module name's digits to an installation; returns the one that has them."""
    with _lock:
        for platform in installation.platforms:
            key = (installation.stage, platform)
            functions = _functions.get(key)
            if functions is None:
                functions = _functions[key] = _Functions(*key)
            known = functions.installations.get(digits)
            if known is not None:
                return known
            functions.add(digits, installation)
        installation.on_removal(partial(_remove, digits, installation))
        installation.withhold_failures()
    return installation


def _remove(digits: str, installation: Installation) -> None:
    with _lock:
        for platform in installation.platforms:
            _functions[installation.stage, platform].discard(digits)
