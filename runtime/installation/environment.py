"""Installing for a program that nobody can edit: the environment variable HLO_PASSES.

    HLO_PASSES=collective-permute-combiner     a pipeline's text
    HLO_PASSES=passes.toml                     any name that ends in .toml:

        [[install]]
        pipeline = "collective-permute-combiner"
        modules = "jit_step"

        [[install]]
        pipeline = "latency-hiding-scheduler"
        stage = "post-scheduler"
        target = "h100_sxm"

Nothing happens at import, and nothing when the variable is not set or empty. A table
takes the arguments of `runtime.install`, and `target`, `topology` and `costs`.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
import pathlib
import tomllib
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.passes.base import PassContext
from hlo_passes.source import Location
from runtime.installation.install import Installation, install

#: The variable that `install_from_environment` reads.
VARIABLE: Final = "HLO_PASSES"

_TABLE: Final = "install"
_CONTEXT_KEYS: Final = ("target", "topology", "costs")
_KEYS: Final = (
    *(name for name in inspect.signature(install).parameters if name != "context"),
    *_CONTEXT_KEYS,
)


def install_from_environment() -> tuple[Installation, ...]:
    """Install what the environment variable HLO_PASSES asks for.

    Returns:
        The installations, active; none when the variable is not set.

    Raises:
        UsageError: U001, no such file; U060, U062, the file's contents.
        PipelineSpecError: U010-U014, a pipeline's text.
    """
    wanted = os.environ.get(VARIABLE, "").strip()
    if not wanted:
        return ()
    if not wanted.endswith(".toml"):
        return (install(wanted),)
    with contextlib.ExitStack() as unless_all:
        made = [
            unless_all.enter_context(_installed(t, wanted)) for t in _tables(wanted)
        ]
        unless_all.pop_all()
    return tuple(made)


def _tables(name: str) -> list[dict[str, Any]]:
    try:
        text = pathlib.Path(name).read_text(encoding="utf-8")
    except OSError as problem:
        raise UsageError(
            f"{VARIABLE}={name}: {problem.strerror}", code="U001"
        ) from problem
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise _refused(name, str(problem)) from problem
    tables = content.get(_TABLE)
    others = [key for key in content if key != _TABLE]
    if others or not isinstance(tables, list) or not tables:
        raise _refused(
            name,
            "expected tables [[install]], and nothing else"
            + (f"; found {others[0]}" if others else ""),
        )
    return tables


def _installed(table: dict[str, Any], name: str) -> Installation:
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            raise _refused(
                name,
                f"there is no key {key}",
                f"did you mean {near[0]}?" if near else f"one of {', '.join(_KEYS)}",
            )
    if not isinstance(table.get("pipeline"), str):
        raise _refused(name, 'a table [[install]] without pipeline = "..."')
    context = {key: table[key] for key in _CONTEXT_KEYS if key in table}
    arguments = {key: value for key, value in table.items() if key not in context}
    if context:
        arguments["context"] = PassContext(**context)
    return install(**arguments)


def _refused(name: str, what: str, hint: str = "") -> UsageError:
    return UsageError(what, code="U062", location=Location(name, 1, 1), hint=hint)
