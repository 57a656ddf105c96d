"""What an entry point names, imported: 'hlo_passes.runtime.commands:RUN'.

A jax that cannot be imported, since it is missing, broken, or does not fit its jaxlib,
is one message (R013); any other failed import is a defect of whoever offers the target.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, Final

from hlo_passes.errors import UnsupportedHloError

_JAX: Final = frozenset({"jax", "jaxlib"})


class JaxUnusableError(UnsupportedHloError):
    """Something needs JAX, which cannot be imported here."""

    default_code = "R013"


def load_target(target: str) -> Any:
    """Import an object.

    Args:
        target: 'module:name'.

    Raises:
        JaxUnusableError: R013, jax or jaxlib cannot be imported.
    """
    module_name, _, attribute = target.partition(":")
    with jax_is_usable():
        return getattr(importlib.import_module(module_name), attribute)


@contextlib.contextmanager
def jax_is_usable() -> Iterator[None]:
    """Raise JaxUnusableError, R013, where jax or jaxlib cannot be imported inside."""
    try:
        yield
    except (ImportError, RuntimeError) as problem:
        if not _is_of_jax(problem):
            raise
        raise JaxUnusableError(
            f"jax cannot be imported: {problem}",
            hint="jax and jaxlib must be of one release: pip install -U jax jaxlib",
        ) from problem


def _is_of_jax(problem: ImportError | RuntimeError) -> bool:
    """Whether jax or jaxlib is what is missing, or raised it while it was imported."""
    if isinstance(problem, ImportError) and _package(problem.name) in _JAX:
        return True
    trace = problem.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        is_import = frame.f_code.co_name == "<module>"
        if is_import and _package(frame.f_globals.get("__name__")) in _JAX:
            return True
        trace = trace.tb_next
    return False


def _package(name: str | None) -> str:
    return (name or "").partition(".")[0]
