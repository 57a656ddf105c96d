"""Installs passes for a program that nobody can edit: environment variable HLO_PASSES.

    HLO_PASSES=collective-permute-combiner     a pipeline's text
    HLO_PASSES=passes.toml                     any name that ends in .toml:

        [[install]]
        pipeline = "collective-permute-combiner"
        modules = "jit_step"

        [[install]]
        pipeline = "latency-hiding-scheduler"
        stage = "post-scheduler"
        target = "h100_sxm"

Nothing happens at import, or if the variable is not set or empty. A table takes the
arguments of `runtime.install`, and `target`, `hosts`, `gpus_per_host`, `topology` and
`costs`.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tomllib
from collections.abc import Sequence
from typing import Any, Final, get_args, get_origin, get_type_hints

from hlo_passes.errors import HloError, UsageError, nearest
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.runtime.installation.install import Installation, install
from hlo_passes.runtime.installation.options import InstallOptions
from hlo_passes.source import Location

#: The variable that `install_from_environment` reads.
VARIABLE: Final = "HLO_PASSES"

_TABLE: Final = "install"
_CONTEXT_KEYS: Final[dict[str, tuple[type, ...]]] = {
    "target": (str,),
    "hosts": (int,),
    "gpus_per_host": (int,),
    "topology": (str,),
    "costs": (str,),
}

#: The types that a key may have, and their words in messages.
_WORDS: Final[dict[tuple[type, ...], str]] = {
    (str,): "a text",
    (str, list): "a text or a list of texts",
    (int,): "a whole number",
    (bool,): "true or false",
}


def _types(hint: Any) -> tuple[type, ...]:
    """The types of a TOML file that a field's annotation allows."""
    allowed = {get_origin(each) or each for each in get_args(hint) or (hint,)}
    named = ((str, str), (Sequence, list), (int, int), (bool, bool))
    return tuple(kind for member, kind in named if member in allowed)


_KEYS: Final[dict[str, tuple[type, ...]]] = {
    "pipeline": (str,),
    **{
        name: _types(hint)
        for name, hint in get_type_hints(InstallOptions).items()
        if name != "context"
    },
    **_CONTEXT_KEYS,
}


def install_from_environment() -> tuple[Installation, ...]:
    """Install what the environment variable HLO_PASSES asks for.

    Returns:
        The active installations; none if the variable is not set.

    Raises:
        UsageError: U001, no such file; U062, its form, a key or the type of a value.
        HloError: an error of `install` about the values, with the file's name first.
    """
    wanted = os.environ.get(VARIABLE, "").strip()
    if not wanted:
        return ()
    if not wanted.endswith(".toml"):
        return (install(wanted),)
    with contextlib.ExitStack() as unless_all:
        made = [
            unless_all.enter_context(_installed(table, wanted, number))
            for number, table in enumerate(_tables(wanted), 1)
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
    except UnicodeDecodeError as problem:
        raise _refused(name, f"no UTF-8: {problem}") from problem
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # a number too long, nested deeply
        raise _refused(name, str(problem)) from problem
    tables = content.get(_TABLE)
    others = [key for key in content if key != _TABLE]
    if (
        others
        or not isinstance(tables, list)
        or not tables
        or not all(isinstance(table, dict) for table in tables)
    ):
        raise _refused(
            name,
            "expected tables [[install]], and nothing else"
            + (f"; found {others[0]}" if others else ""),
        )
    return tables


def _installed(table: dict[str, Any], name: str, number: int) -> Installation:
    _check_types(table, name, number)
    context = {key: table[key] for key in _CONTEXT_KEYS if key in table}
    arguments = {key: value for key, value in table.items() if key not in context}
    if context:
        arguments["context"] = PassContext(**context)
    try:
        return install(**arguments)
    except HloError as problem:
        if problem.location is not None:  # of the pipeline, or of a file that it names
            problem.message = f"{name}: [[{_TABLE}]] {number}: {problem.message}"
            raise
        problem.message = f"[[{_TABLE}]] {number}: {problem.message}"
        problem.location = Location(name, 1, 1)
        raise


def _check_types(table: dict[str, Any], name: str, number: int) -> None:
    for key, value in table.items():
        if key not in _KEYS:
            raise _refused(
                name,
                f"unknown key {key}",
                nearest(key, _KEYS) or f"use one of {', '.join(_KEYS)}",
            )
        types = _KEYS[key]
        # Compare types exactly: in Python, true is a number.
        items = value if isinstance(value, list) else []
        if type(value) not in types or not all(type(i) is str for i in items):
            raise _refused(
                name, f"[[{_TABLE}]] {number}: {key} = {value!r}", _WORDS[types]
            )
    if "pipeline" not in table:
        raise _refused(name, f'[[{_TABLE}]] {number} without pipeline = "..."')


def _refused(name: str, what: str, hint: str = "") -> UsageError:
    return UsageError(what, code="U062", location=Location(name, 1, 1), hint=hint)
