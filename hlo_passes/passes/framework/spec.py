"""Reads pipelines from text.

pipeline = step { "," step }
step     = name [ "{" option { "," option } "}" ] [ "(" pipeline ")" ]
option   = name "=" value          value: up to the next , or }, or quoted with '

collective-permute-combiner{threshold-bytes=1048576},fixed-point(hlo-cse,hlo-dce)
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
import types
import typing
from dataclasses import dataclass

from hlo_passes.errors import PipelineSpecError, nearest
from hlo_passes.source import SourceText
from hlo_passes.xla_release import RELEASE_NAMES, xla_release

_log = logging.getLogger("hlo_passes")
#: The option that says which release of XLA a pass follows, and what it was called.
XLA_OPTION = "xla"
_OLD_NAMES = {"jax-release": XLA_OPTION, "xla-version": XLA_OPTION}
#: Value with which `jax-release` said that no release is meant.
_NO_RELEASE = "none"
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9_-]*)\s*")
_BARE_VALUE = re.compile(r"[^,}]*")
_QUOTED_VALUE = re.compile(r"\s*'([^']*)'\s*")
_NEEDS_QUOTES = re.compile(r"[,{}()\s]")

#: Passes nested in passes deeper than this are refused.
MAXIMUM_NESTING = 100


@dataclass(frozen=True, slots=True)
class Step:
    """One step as written: name, option texts by name, steps inside."""

    name: str
    options: tuple[tuple[str, str], ...]
    inner: tuple[Step, ...]
    offset: int


@dataclass(slots=True)
class _Reader:
    source: SourceText
    at: int = 0

    def fail(self, message: str, hint: str = "") -> PipelineSpecError:
        return PipelineSpecError(
            message, location=self.source.location(self.at), hint=hint
        )

    def starts(self, character: str) -> bool:
        return self.source.text.startswith(character, self.at)


def parse_steps(text: str) -> tuple[Step, ...]:
    """The steps of a pipeline text; PipelineSpecError U010 has an error's place."""
    reader = _Reader(SourceText(text, "<pipeline>"))
    if not text.strip():
        raise reader.fail("the pipeline is empty", "name a pass, as in hlo-dce")
    # An explicit stack of unfinished step lists, so that nesting does not use Python's.
    levels: list[list[Step]] = [[]]
    heads: list[tuple[str, tuple[tuple[str, str], ...], int]] = []
    while True:
        offset = reader.at
        name = _NAME.match(text, offset)
        if not name:
            raise reader.fail("expected the name of a pass")
        reader.at = name.end()
        options = _read_options(reader)
        if reader.starts("("):
            if len(heads) >= MAXIMUM_NESTING:
                raise reader.fail(f"passes nested deeper than {MAXIMUM_NESTING}")
            heads.append((name[1], options, offset))
            levels.append([])
            reader.at += 1
            continue
        levels[-1].append(Step(name[1], options, (), offset))
        while reader.starts(")") and heads:
            reader.at = _skip_blanks(text, reader.at + 1)
            outer_name, outer_options, outer_offset = heads.pop()
            inner = tuple(levels.pop())
            levels[-1].append(Step(outer_name, outer_options, inner, outer_offset))
        if reader.starts(","):
            reader.at += 1
        elif reader.at == len(text) and not heads:
            return tuple(levels[0])
        else:
            raise reader.fail("expected ',' between passes", "or ')' is missing")


def step_text(step: Step) -> str:
    """A step as a pipeline's text spells it."""
    text = step.name
    if step.options:
        listed = ",".join(f"{name}={_quoted(value)}" for name, value in step.options)
        text += f"{{{listed}}}"
    if step.inner:
        text += f"({','.join(map(step_text, step.inner))})"
    return text


def _quoted(value: str) -> str:
    return f"'{value}'" if not value or _NEEDS_QUOTES.search(value) else value


def value_text(value: object) -> str:
    """The value of an option as a pipeline's text spells it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value)


def _skip_blanks(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _read_options(reader: _Reader) -> tuple[tuple[str, str], ...]:
    text = reader.source.text
    if not reader.starts("{"):
        return ()
    reader.at = _skip_blanks(text, reader.at + 1)
    found: dict[str, str] = {}
    while not reader.starts("}"):
        name = _NAME.match(text, reader.at)
        if not name or not text.startswith("=", name.end()):
            raise reader.fail("expected an option, as in threshold-bytes=1048576")
        if name[1] in found:
            raise reader.fail(f"option {name[1]} is given twice")
        reader.at = name.end() + 1
        quoted = _QUOTED_VALUE.match(text, reader.at)
        if quoted:
            found[name[1]] = quoted[1]
            reader.at = quoted.end()
        else:
            bare = _BARE_VALUE.match(text, reader.at)
            value = bare[0] if bare else ""
            found[name[1]] = value.strip()
            reader.at += len(value)
        if reader.starts(","):
            reader.at = _skip_blanks(text, reader.at + 1)
        elif not reader.starts("}"):
            raise reader.fail("expected ',' or '}' after an option")
    reader.at = _skip_blanks(text, reader.at + 1)
    return tuple(found.items())


def current_options(
    name: str, known: typing.Container[str], options: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Options by their present names; says once which names are old.

    Args:
        name: of the pass, for the message.
        known: names of its options; an old name that is among them stays.
        options: (name, text) as written.

    Raises PipelineSpecError U010 for an option that is given by both names.
    """
    found: dict[str, str] = {}
    for option, text in options:
        current = _OLD_NAMES.get(option, option)
        if option in known or current not in known:
            current = option
        if current in found:
            raise PipelineSpecError(
                f"{name}: {option} and {current} are one option, given twice",
                code="U010",
            )
        if current != option:
            warn_of_old_name(option, current)
            text = "" if text == _NO_RELEASE else text
        found[current] = text
    return tuple(found.items())


@functools.cache
def warn_of_old_name(old: str, current: str) -> None:
    """Say once that an option has another name now."""
    _log.warning(
        "the option %s is called %s now; the next release does not know the old name",
        old,
        current,
    )


def option_values(
    owner: type, name: str, options: tuple[tuple[str, str], ...]
) -> dict[str, object]:
    """Typed field values of a pass class from option texts.

    Raises PipelineSpecError U012 for an unknown option and U013 for a bad value.
    """
    hints = typing.get_type_hints(owner)
    fields = {f.name.replace("_", "-"): f for f in dataclasses.fields(owner) if f.init}
    values: dict[str, object] = {}
    for option, text in current_options(name, fields, options):
        field = fields.get(option)
        if field is None:
            known = ", ".join(fields) or "none"
            raise PipelineSpecError(
                f"{name} has no option {option}",
                code="U012",
                hint=nearest(option, fields) or f"its options: {known}",
            )
        if option == XLA_OPTION:
            _check_release(name, text)
        values[field.name] = _convert(name, option, text, hints[field.name])
    return values


def _check_release(name: str, text: str) -> None:
    """Refuse what names no release; '' is the run's."""
    try:
        if text:
            xla_release(text)
    except ValueError:
        raise PipelineSpecError(
            f"{name}: {XLA_OPTION}={text} is not a release that is known",
            code="U013",
            hint=f"expected {' or '.join(RELEASE_NAMES)}",
        ) from None


def _convert(name: str, option: str, text: str, kind: object) -> object:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        members = [k for k in typing.get_args(kind) if k is not type(None)]
        if text in ("none", ""):
            return None
        return _convert(name, option, text, members[0])
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is int:
            return int(text)
        if kind is float:
            return float(text)
        if typing.get_origin(kind) is typing.Literal:
            return {str(v): v for v in typing.get_args(kind)}[text]
        if kind is str:
            return text
        if typing.get_origin(kind) is tuple:
            return tuple(part for part in text.split(" ") if part)
    except (KeyError, ValueError):
        pass
    expected = {bool: "true or false", int: "a whole number", float: "a number"}
    wanted = expected.get(
        kind,  # type: ignore[call-overload]
        " or ".join(map(str, typing.get_args(kind))),
    )
    raise PipelineSpecError(
        f"{name}: invalid value {text!r} for {option}",
        code="U013",
        hint=f"expected {wanted}",
    )
