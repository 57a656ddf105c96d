"""The fingerprint of an installation in the key of a compiled program.

    pipeline, options, stage, filters, sources of the passes -> 64 hexadecimal digits

JAX keeps compiled programs on disk under a key that knows nothing of passes. The
fingerprint goes into that key, and so covers everything that decides what the passes
do: their options and the contents of files that an option or the context names, and
their code, since a pass that is being written changes from one run to the next under
the same name. Where code cannot be read (typed in at a prompt)
a random word represents it, so that no other process finds what it compiled.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import os
import pathlib
import secrets
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import jax

import hlo_passes
from hlo_passes.passes.base import Pass, PassContext
from hlo_passes.passes.pipeline import Pipeline
from hlo_passes.pricing import Pricing

#: Written by the interpreter, and different in every run.
_NOT_SOURCE: Final = "__pycache__"


def fingerprint(pipeline: Pipeline, *settings: Any) -> str:
    """64 hexadecimal digits; the same in every process with the same code.

    Args:
        pipeline: the passes and their context.
        settings: other values that decide, with a complete `repr`, or functions.
    """
    digest = hashlib.sha256()
    for part in _parts(pipeline, settings):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _parts(pipeline: Pipeline, settings: Iterable[Any]) -> Iterable[str]:
    yield jax.__version__
    yield own_sources()
    for each in pipeline.passes:
        yield from _pass_parts(each)
    yield from _field_parts(pipeline.context)
    for setting in settings:
        yield code_of(setting) if callable(setting) else repr(setting)


def _pass_parts(each: Pass) -> Iterable[str]:
    for kind in type(each).__mro__[:-1]:
        yield code_of(kind)
    for name, value in each.describe_options().items():
        yield from _value_parts(name, value)


def _field_parts(value: PassContext | Pricing) -> Iterable[str]:
    for field in dataclasses.fields(value):
        yield from _value_parts(field.name, getattr(value, field.name))


def _value_parts(name: str, value: object) -> Iterable[str]:
    """A value, with what decides in its place: passes, and contents of files."""
    if isinstance(value, Pass):
        yield from _pass_parts(value)
    elif isinstance(value, Pricing):
        yield from _field_parts(value)
    elif isinstance(value, tuple):
        yield f"{name}: {len(value)} values"
        for inner in value:
            yield from _value_parts(name, inner)
    else:
        yield f"{name}={value!r}"
        if isinstance(value, str) and os.path.isfile(value):
            yield hashlib.sha256(pathlib.Path(value).read_bytes()).hexdigest()
        elif type(value).__repr__ is object.__repr__:
            # Its text is an address, which says nothing to another process.
            yield _word_of_this_process()


def code_of(thing: type | Callable[..., Any]) -> str:
    """Name and source of a class or function, from the file that defines it."""
    place = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
    if place.partition(".")[0] == hlo_passes.__name__:
        return place
    try:
        file = inspect.getsourcefile(thing)
    except TypeError:
        file = None
    if file is None or not pathlib.Path(file).is_file():
        return f"{place} {_word_of_this_process()}"
    captured = inspect.getclosurevars(thing).nonlocals if _is_function(thing) else {}
    source = hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()
    if captured:
        # A closure may hold anything, so nobody else shares the program.
        return f"{place} {source} {_word_of_this_process()}"
    return f"{place} {source}"


def _is_function(thing: object) -> bool:
    return inspect.isfunction(thing) or inspect.ismethod(thing)


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
