"""The fingerprint of an installation in the key of a compiled program.

    pipeline, options, stage, filters, sources of the passes -> 64 hexadecimal digits

JAX keeps compiled programs on disk under a key that knows nothing of passes. The
fingerprint goes into that key, and so covers everything that decides what the passes
do: their options and the contents of files that an option or the context names, and
their code with the files that it imports, since a pass that is being written changes
from one run to the next under the same name. A random word represents what has no text
that says everything (code typed in at a prompt, a closure, an array), so that no other
process finds what it compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import inspect
import os
import pathlib
import re
import secrets
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType
from typing import Any, Final

import jax

import hlo_passes
from hlo_passes import plugins
from hlo_passes.errors import UsageError
from hlo_passes.passes.framework.base import Pass
from hlo_passes.passes.framework.pipeline import Pipeline

#: Hexadecimal digits of it at the end of a function's name: 64 bits.
DIGITS: Final = 16

#: The text after the function's own name.
MARK: Final = re.compile(rf"__hlo_passes_([0-9a-f]{{{DIGITS}}})")

#: Types whose text says everything.
_PLAIN: Final = (
    *(str, bytes, int, float, complex, NoneType),
    *(os.PathLike, enum.Enum, range),
)

#: Modules whose files do not count: the standard library, and what is covered already.
_OTHERS: Final = frozenset({*sys.stdlib_module_names, hlo_passes.__name__}) - {
    "__main__"
}

#: Folders of installed distributions.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})

#: Written by the interpreter, and different in every run.
_NOT_SOURCE: Final = "__pycache__"


def fingerprint(pipeline: Pipeline, *settings: Any) -> str:
    """64 hexadecimal digits; the same in every process with the same code.

    Args:
        pipeline: the passes and their context.
        settings: other values that decide.
    """
    digest = hashlib.sha256()
    for part in _parts(pipeline, settings):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _parts(pipeline: Pipeline, settings: Iterable[Any]) -> Iterable[str]:
    yield jax.__version__
    yield own_sources()
    yield from _plugin_parts()
    for each in pipeline.passes:
        yield from _pass_parts(each)
    yield from _value_parts("context", pipeline.context)
    for setting in settings:
        yield from _value_parts("setting", setting)


def _plugin_parts() -> Iterable[str]:
    """Rules and estimators of other distributions: an option's text may name one."""
    for group in (plugins.RULES, plugins.ESTIMATORS):
        for name, offered in plugins.offers(group).items():
            for offer in offered:
                with contextlib.suppress(UsageError):  # nobody can use it either
                    yield from _value_parts(f"{group} {name}", plugins.load(offer))


def _pass_parts(each: Pass) -> Iterable[str]:
    for kind in type(each).__mro__[:-1]:
        yield code_of(kind)
    yield from _field_parts(each, each.describe_options())


def _field_parts(value: Any, named: Mapping[str, object]) -> Iterable[str]:
    # What is not a dataclass, or only in part, keeps values in its dictionary.
    for name, inner in {**named, **getattr(value, "__dict__", {})}.items():
        yield from _value_parts(name, inner)


def _value_parts(name: str, value: object) -> Iterable[str]:
    """A value, with what decides in its place: code, and contents of files.

    A value whose text may leave something out makes the fingerprint nobody else's.
    """
    if isinstance(value, _PLAIN):
        yield f"{name}={value!r}"
        if isinstance(value, str | os.PathLike) and os.path.isfile(value):
            yield _digest(pathlib.Path(value))
    elif isinstance(value, Pass):
        yield from _pass_parts(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield f"{name}: {code_of(type(value))}"
        fields = dataclasses.fields(value)
        yield from _field_parts(value, {f.name: getattr(value, f.name) for f in fields})
    elif isinstance(value, tuple | list):
        yield f"{name}: {len(value)} values"
        for inner in value:
            yield from _value_parts(name, inner)
    elif isinstance(value, dict):
        yield f"{name}: {len(value)} pairs"
        for pair in value.items():
            yield from _value_parts(name, pair)
    elif callable(value):
        yield f"{name}: {code_of(value)}"
    else:
        yield f"{name}: {_nobody_elses(value)}"


def code_of(thing: Callable[..., Any]) -> str:
    """Name and source of a class or function; a random word where that says too little.

    The source is the file that defines it and the files that this one imports.
    """
    is_function = inspect.isfunction(thing)
    if not is_function and not isinstance(thing, type):
        # A method, a partial or a callable object may hold anything.
        return _nobody_elses(thing)
    parts = [f"{thing.__module__}.{thing.__qualname__}"]
    is_own = thing.__module__.partition(".")[0] == hlo_passes.__name__
    if not is_own:
        try:
            file = inspect.getsourcefile(thing)
        except TypeError:
            file = None
        if file is None or not pathlib.Path(file).is_file():
            return f"{parts[0]} {_nobody_elses(thing)}"
        parts.append(_digest(pathlib.Path(file)))
        parts += _digests_of_imports(thing.__module__)
    if is_function:
        # Several functions of a file may have one name, and a function several
        # defaults.
        parts.append(str(list(thing.__code__.co_positions())))
        parts.append(_instructions_of(thing.__code__))
        parts += _value_parts("defaults", thing.__defaults__)
        parts += _value_parts("defaults", thing.__kwdefaults__)
        closed_over = inspect.getclosurevars(thing).nonlocals
        for name, value in closed_over.items():
            parts += _value_parts(name, value)
        if closed_over and not is_own:
            # What it closed over may change, so nobody else shares the program.
            parts.append(_word_of_this_process())
    return " ".join(parts)


def _instructions_of(code: types.CodeType) -> str:
    """What a function does, as text that is the same in every process of one Python.

    Two lambdas of one line may differ in nothing else: Python 3.12 gives what only
    returns a constant no columns.
    """
    constants = [
        _instructions_of(c)
        if isinstance(c, types.CodeType)
        else str(sorted(map(repr, c)))
        if isinstance(c, frozenset)
        else repr(c)
        for c in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _digests_of_imports(name: str) -> list[str]:
    """Digests of the files that a module imports, and those import, by file.

    Left out are the standard library, this package, which `own_sources` covers, and
    other installed distributions. An import inside a function is not seen.
    """
    package = name.partition(".")[0]
    found: dict[str, str] = {}
    seen = {name}
    left = [name]
    while left:
        module = sys.modules.get(left.pop())
        for value in list(vars(module).values()) if module else ():
            other = _module_of(value)
            if other in seen:
                continue
            seen.add(other)
            file = getattr(sys.modules.get(other), "__file__", None)
            top = other.partition(".")[0]
            if file is None or top in _OTHERS:
                continue
            path = pathlib.Path(file)
            if top != package and not _INSTALLED.isdisjoint(path.parts):
                continue
            found[file] = _digest(path) if path.is_file() else _word_of_this_process()
            left.append(other)
    return [found[file] for file in sorted(found)]


def _module_of(value: object) -> str:
    """The module that a value is, or that defines the class or function."""
    if inspect.ismodule(value):
        return value.__name__
    if isinstance(value, type) or inspect.isfunction(value):
        return value.__module__
    return ""


def _digest(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _nobody_elses(value: object) -> str:
    return f"{id(value)} {_word_of_this_process()}"


@cache
def _word_of_this_process() -> str:
    return secrets.token_hex()


@cache
def own_sources() -> str:
    """One digest of all files of `hlo_passes`, read once per process.

    In a checkout its folders `scheduler` and `runtime` are symbolic links.
    """
    digest = hashlib.sha256(sys.version.encode())
    for root in map(pathlib.Path, hlo_passes.__path__):
        files = [
            pathlib.Path(folder, name)
            for folder, _, names in os.walk(root, followlinks=True)
            for name in names
        ]
        for file in sorted(files):
            if _NOT_SOURCE not in file.parts:
                digest.update(str(file.relative_to(root)).encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()
