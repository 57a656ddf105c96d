"""The page docs/passes.md, made from the docstrings and the fields of the passes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pathlib
import re
import sys
import textwrap
import tomllib
import typing

from hlo_passes.cli.list_passes import type_text
from hlo_passes.passes.framework.base import Pass
from hlo_passes.passes.framework.pipeline import FixedPoint
from hlo_passes.passes.framework.registry import GROUP, PASSES
from hlo_passes.passes.framework.sequence import PassSequence
from hlo_passes.xla_flags import FIRST_RELEASE, xla_flag

DOCS = pathlib.Path(__file__).resolve().parent
HEAD = """\
# Passes

`python -m docs.generate` writes this page from the docstrings of the passes; do not
edit it. `hlo-passes list` shows names and options, also those of passes from other
distributions.

A pipeline is text:
`collective-permute-combiner{threshold-bytes=1048576},fixed-point(hlo-cse,hlo-dce)`.
A value ends at the next `,` or `}` and may be quoted with `'`. Spaces separate the
items of a list. `none` means no value. Where an option stands for a flag of XLA, the
flag follows in parentheses: `XLA_FLAGS=--FLAG=VALUE` sets it in a real compilation.

"Compared with XLA" names the releases whose own modules before and after the pass are
in this repository (`corpus/golden`, `tests/passes/xla_pairs`); tests see that our pass
makes the same of them. "Not compared" means that there are none: the pass follows
XLA's source, and most were asked XLA's unit tests ([measurements.md](measurements.md)).
"""

#: Where XLA's own modules before and after a pass are: RELEASE/CASE/PASS.before.hlo.gz.
_RECORDED = ("corpus/golden", "tests/passes/xla_pairs")
#: What the entry `Source:` of a pass begins with that follows XLA.
_FROM_XLA = "Source: openxla/xla"

_REORDERS_SUMS = (
    "- Rounding: floating numbers are added in another order or type, so results may "
    "differ in their last bits. Passes without this line keep every bit."
)


def pass_classes() -> list[type[Pass]]:
    """The passes of this repository, by name."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())
    targets = dict(PASSES)
    targets |= project["project"].get("entry-points", {}).get(GROUP, {})
    kinds: list[type[Pass]] = [FixedPoint]
    for target in targets.values():
        module, _, name = target.partition(":")
        kinds.append(getattr(importlib.import_module(module), name))
    return sorted(kinds, key=lambda kind: kind.name)


def split_docstring(kind: type) -> tuple[str, dict[str, str]]:
    """The text, and the entries under `Attributes:` by field name."""
    text, _, listed = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    attributes: dict[str, str] = {}
    for entry in re.split(r"\n(?=\w)", textwrap.dedent(listed)):
        name, _, meaning = entry.partition(": ")
        attributes[name] = " ".join(meaning.split())
    return text.strip(), attributes


def value_text(value: object) -> str:
    """A default as a user writes it."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value in ((), ""):
        return "none"
    if isinstance(value, tuple):
        return f"`{' '.join(map(str, value))}`"
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{str(value).lower()}`"


def option_rows(kind: type[Pass]) -> list[str]:
    """A table of a pass's options; [] when it has none."""
    meanings: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if owner.__module__ != "builtins":
            meanings |= split_docstring(owner)[1]
    hints = typing.get_type_hints(kind)
    rows = [
        f"| `{f.name.replace('_', '-')}` | {type_text(hints[f.name])} | "
        f"{value_text(f.default)} | {meanings.get(f.name, 'the same')}"
        f"{_flag_text(kind.name, f.name)} |"
        for f in _own_first(kind)
        if f.name not in ("passes", "handed_on")
    ]
    if not rows:
        return []
    return ["| option | value | default | means |", "|---|---|---|---|", *rows, ""]


def _own_first(kind: type[Pass]) -> list[dataclasses.Field[object]]:
    """The options of a pass: its own, then those that it shares with others."""
    own = inspect.get_annotations(kind)
    return sorted(dataclasses.fields(kind), key=lambda f: f.name not in own)


def _flag_text(name: str, field: str) -> str:
    flag = xla_flag(name, field.replace("_", "-"))
    first = FIRST_RELEASE.get(flag)
    since = f", from XLA {first} on" if first else ""
    return f" (`{flag}`{since})" if flag else ""


def example_of(docstring: str) -> list[str]:
    """HLO before and after: the indented parts, or all where nothing is indented."""
    parts = inspect.cleandoc(docstring).split("\n\n")[1:]
    if not any(part.startswith(" ") for part in parts):
        return ["```", "\n\n".join(parts), "```", ""]
    lines = []
    for part in parts:
        if part.startswith(" "):
            lines += ["```", textwrap.dedent(part), "```", ""]
        else:
            lines += [part, ""]
    return lines


@functools.cache
def compared_releases() -> dict[str, list[str]]:
    """Pass -> releases of XLA whose own results are recorded, oldest first."""
    found: dict[str, set[str]] = {}
    for folder in _RECORDED:
        for path in (DOCS.parent / folder).glob("*/*/*.before.hlo.gz"):
            # A later run of a pass in one compilation is called PASS@2.
            name = path.name.removesuffix(".before.hlo.gz").partition("@")[0]
            found.setdefault(name, set()).add(path.parts[-3])
    return {name: sorted(releases) for name, releases in found.items()}


def _comparison(kind: type[Pass]) -> str:
    """Which releases of XLA a pass was compared with; '' if it does not follow XLA."""
    releases = compared_releases().get(kind.name)
    if releases:
        return f"- Compared with XLA: {', '.join(releases)}."
    follows = _FROM_XLA in (kind.__doc__ or "") and not issubclass(kind, PassSequence)
    return "- Not compared with XLA's own results." if follows else ""


def section(kind: type[Pass]) -> str:
    """One pass: purpose, HLO before and after, what holds, options."""
    purpose, _, rest = split_docstring(kind)[0].partition("\n")
    inherited = [
        split_docstring(owner)[0].partition("\n")[2].strip()
        for owner in kind.__mro__[1:-1]
        if issubclass(owner, Pass) and owner.__module__ != Pass.__module__
    ]
    lines = [f"## {kind.name}", "", purpose, ""]
    if kind is not FixedPoint:
        lines += example_of(sys.modules[kind.__module__].__doc__ or "")
    for text in (*inherited, rest.strip()):
        if text:
            lines += [_with_list(text), ""]
    comparison = _comparison(kind)
    if comparison:
        lines += [comparison, ""]
    if kind.reorders_sums:
        lines += [_REORDERS_SUMS, ""]
    return "\n".join([*lines, *option_rows(kind)])


def _with_list(text: str) -> str:
    """`Ensures:`, `Complexity:` and `Source:` as items of a list."""
    prose, listed = [], []
    for line in text.split("\n"):
        if re.match(r"(Requires|Ensures|Complexity|Source):", line):
            listed.append(f"- {line}")
        elif listed:
            listed[-1] += f" {line}"
        else:
            prose.append(line)
    return "\n".join([*prose, *listed])


def page() -> str:
    """The whole page."""
    kinds = pass_classes()
    contents = "\n".join(
        f"- [{k.name}](#{k.name}): {(k.__doc__ or '').partition(chr(10))[0].strip()}"
        for k in kinds
    )
    return "\n".join([HEAD, contents, "", *map(section, kinds)]).rstrip("\n") + "\n"
