"""`hlo-passes list`: the passes, their options and defaults."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import types
import typing
from typing import Any

from hlo_passes import plugins
from hlo_passes.cli.command import own_command
from hlo_passes.errors import PipelineSpecError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.passes.framework.base import Pass
from hlo_passes.passes.framework.pipeline import FixedPoint
from hlo_passes.passes.framework.registry import find_pass, pass_targets
from hlo_passes.passes.framework.sequence import PassSequence
from hlo_passes.progress import say
from hlo_passes.xla_flags import xla_flag

#: Fields that are not options: passes in parentheses, options of passes inside.
_NO_OPTIONS = ("passes", "handed_on")
#: Where the names of XLA's flags begin.
_FLAG_COLUMN = 50


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true")


def type_text(hint: object) -> str:
    """A field's type as a user writes values of it: `0.10 or 0.12 or none`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(type_text, typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        return "words"
    plain = {
        bool: "true or false", int: "integer", float: "number", str: "text",
        types.NoneType: "none",
    }  # fmt: skip
    return plain.get(hint, str(hint))  # type: ignore[call-overload]


def describe(kind: type[Pass]) -> dict[str, Any]:
    """Name, purpose and options of a pass class."""
    hints = typing.get_type_hints(kind)
    return {
        "name": kind.name,
        "purpose": (kind.__doc__ or "").strip().partition("\n")[0],
        "options": [
            {
                "name": f.name.replace("_", "-"),
                "type": type_text(hints[f.name]),
                "default": None if f.default is dataclasses.MISSING else f.default,
                "xla_flag": xla_flag(kind.name, f.name.replace("_", "-")),
            }
            for f in dataclasses.fields(kind)
            if f.name not in _NO_OPTIONS
        ],
        **({"passes": list(kind.members)} if issubclass(kind, PassSequence) else {}),
    }


def _row(name: str) -> dict[str, Any]:
    try:
        return {**describe(find_pass(name)), "name": name}
    except PipelineSpecError as problem:
        # One broken plug-in must not hide all others.
        return {
            "name": name,
            "purpose": f"error[{problem.code}]: {problem.message}",
            "options": [],
        }


def _run(arguments: argparse.Namespace) -> int:
    rows = [*map(_row, pass_targets()), describe(FixedPoint)]
    rows.sort(key=lambda row: row["name"])
    others = {
        "estimators": plugins.offers(plugins.ESTIMATORS),
        "rules": plugins.offers(plugins.RULES),
    }
    if arguments.json:
        listed = {
            kind: [
                {"name": o.name, "target": o.target, "distribution": o.distribution}
                for offered in found.values()
                for o in offered
            ]
            for kind, found in others.items()
        }
        view = {"passes": rows, **listed}
        sys.stdout.write(json.dumps(view, indent=1) + "\n")
        return ExitCode.DONE
    for row in rows:
        say(f"{row['name']}\n    {row['purpose']}\n")
        if "passes" in row:
            say(f"      = {','.join(row['passes'])}\n")
        for option in row["options"]:
            default = option["default"]
            if isinstance(default, bool):
                default = str(default).lower()
            elif isinstance(default, tuple):
                default = " ".join(map(str, default))
            line = f"      {option['name']}={default}"
            if option["xla_flag"]:
                line = f"{line:{_FLAG_COLUMN}}  {option['xla_flag']}"
            say(f"{line}\n")
    for kind, found in others.items():
        if found:
            say(f"{kind} of other distributions\n")
        for offered in found.values():
            for offer in offered:
                say(f"      {offer.name} ({offer.distribution})\n")
    return ExitCode.DONE


COMMAND = own_command("list", _configure, _run)
