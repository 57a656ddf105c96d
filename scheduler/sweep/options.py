"""What a sweep varies: names of options found in a pipeline, and their values.

    sweep  = item { "," item }
    item   = name "=" value | value          a value alone continues the list before it
    name   = OPTION | PASS "." OPTION | "*." OPTION
    value  = up to the next comma, or quoted with '

    threshold-bytes=1048576,4194304,parallel-collective-overlap-limit=1,2,4

An option's name refers to the one pass of the pipeline that has such an option, at
every place where that pass occurs; a sequence of passes (`gpu-schedule`) has the
options of all its passes. If several passes have the option, `PASS.OPTION` says
which one, and `*.OPTION` sets it in all of them together. The simulator's own option
is `simulate.streams`. A value replaces the one in the pipeline's text.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.errors import UsageError, nearest
from hlo_passes.passes.framework.base import Pass
from hlo_passes.passes.framework.pipeline import FixedPoint
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.passes.framework.sequence import PassSequence, all_options
from hlo_passes.passes.framework.spec import Step, parse_steps, step_text
from hlo_passes.xla_flags import flag_setting

#: The simulator, named as if it were a pass, and its options.
SIMULATOR: Final = "simulate"
SIMULATOR_OPTIONS: Final = ("streams",)
#: Named instead of a pass: all passes that have the option.
_ALL: Final = "*"
#: More combinations than this are taken for a mistake.
MOST_COMBINATIONS: Final = 10_000

_ITEM: Final = re.compile(
    r"\s*(?:(?P<name>(?:\*\.)?[A-Za-z][\w.-]*)\s*=)?\s*(?:'(?P<quoted>[^']*)'|(?P<bare>[^,']*))"
    r"\s*(?:,|$)"
)


@dataclass(frozen=True, slots=True)
class SweptOption:
    """An option, the passes that have it, and the values to try.

    Attributes:
        passes: names of the passes that receive it, or `simulate`.
        option: its name.
        values: texts.
        label: the name for readers: `PASS.OPTION` or `*.OPTION` where several passes of
            the pipeline have such an option, else `OPTION`.
    """

    passes: tuple[str, ...]
    option: str
    values: tuple[str, ...]
    label: str = ""

    def __post_init__(self) -> None:
        """Call it by its own name if nothing else is said."""
        if not self.label:
            object.__setattr__(self, "label", self.option)

    def xla_flag_setting(self, text: str) -> str:
        """The flag of XLA for a value, as in XLA_FLAGS; '' where there is none."""
        for name in self.passes:
            members = ()
            if name not in (SIMULATOR, FixedPoint.name):
                kind = find_pass(name)
                members = kind.members if issubclass(kind, PassSequence) else ()
            for each in (name, *members):
                if setting := flag_setting(each, self.option, text):
                    return setting
        return ""


#: One value for each swept option, in the order of the options.
Choice = tuple[str, ...]


def parse_sweep(text: str, pipeline: str) -> tuple[SweptOption, ...]:
    """Read a sweep text; its options are looked up in the passes of a pipeline.

    Raises UsageError U222 for a text of another form, a name that no pass or several
    passes of the pipeline have, and too many combinations; PipelineSpecError for the
    pipeline.
    """
    offered = _offered(parse_steps(pipeline))
    found: list[SweptOption] = []
    taken: set[tuple[str, str]] = set()
    for name, values in _lists(text):
        owners, option = _find(name, offered)
        for owner in owners:
            if (owner, option) in taken:
                twice = f"{owner}.{option} is given twice"
                raise _fault(text, twice, "one list for each")
            taken.add((owner, option))
        found.append(
            SweptOption(owners, option, values, _label(option, owners, offered))
        )
    if (count := count_of(found)) > MOST_COMBINATIONS:
        hint = f"at most {MOST_COMBINATIONS} are run"
        raise _fault(text, f"these are {count} combinations", hint)
    return tuple(found)


def _label(
    option: str, owners: tuple[str, ...], offered: dict[str, tuple[str, ...]]
) -> str:
    """The option's name, with its pass where several passes have one of that name."""
    if sum(option in options for options in offered.values()) == 1:
        return option
    return f"{owners[0] if len(owners) == 1 else _ALL}.{option}"


def count_of(swept: Sequence[SweptOption]) -> int:
    """The number of combinations."""
    count = 1
    for each in swept:
        count *= len(each.values)
    return count


def combinations(swept: Sequence[SweptOption]) -> Iterator[Choice]:
    """All combinations; the last option varies fastest."""
    return itertools.product(*(each.values for each in swept))


def pipeline_of(pipeline: str, swept: Sequence[SweptOption], choice: Choice) -> str:
    """The pipeline's text with the values of a choice."""
    wanted: dict[str, dict[str, str]] = {}
    for each, value in zip(swept, choice, strict=True):
        for name in each.passes:
            wanted.setdefault(name, {})[each.option] = value
    return ",".join(step_text(_with(step, wanted)) for step in parse_steps(pipeline))


def simulator_options(swept: Sequence[SweptOption], choice: Choice) -> dict[str, str]:
    """The values of a choice that belong to the simulator."""
    return {
        each.option: value
        for each, value in zip(swept, choice, strict=True)
        if SIMULATOR in each.passes
    }


def _fault(text: str, message: str, hint: str) -> UsageError:
    return UsageError(f"--sweep={text}: {message}", code="U222", hint=hint)


def _lists(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Names with their values, as written."""
    example = "as in threshold-bytes=1048576,4194304"
    found: list[tuple[str, list[str]]] = []
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise _fault(text, f"cannot read {text[at:]!r}", example)
        at = item.end()
        value = item["quoted"] if item["quoted"] is not None else item["bare"].strip()
        if item["name"]:
            found.append((item["name"], [value]))
        elif found:
            found[-1][1].append(value)
        else:
            raise _fault(text, f"{value!r} has no option before it", example)
    if not found:
        raise _fault(text, "it varies nothing", example)
    for name, values in found:
        if "" in values:
            raise _fault(text, f"{name} has an empty value", example)
    return [(name, tuple(dict.fromkeys(values))) for name, values in found]


def _offered(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """The options of each pass of the pipeline, and of the simulator."""
    offered: dict[str, tuple[str, ...]] = {}
    waiting = list(steps)
    while waiting:
        step = waiting.pop(0)
        waiting = [*step.inner, *waiting]
        kind = FixedPoint if step.name == FixedPoint.name else find_pass(step.name)
        offered[step.name] = _options(kind)
    offered[SIMULATOR] = SIMULATOR_OPTIONS
    return offered


def _options(kind: type[Pass]) -> tuple[str, ...]:
    """Names of a pass's options; a sequence has those of its passes too."""
    if issubclass(kind, PassSequence):
        return all_options(kind)
    return tuple(
        field.name.replace("_", "-")
        for field in dataclasses.fields(kind)
        if field.init and not (kind is FixedPoint and field.name == "passes")
    )


def _find(
    name: str, offered: dict[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], str]:
    """The passes and the option that a name refers to."""
    owner, _, option = name.rpartition(".")
    owners = tuple(
        each
        for each, options in offered.items()
        if option in options and owner in ("", _ALL, each)
    )
    if len(owners) == 1 or (owners and owner == _ALL):
        return owners, option
    if owners:
        several = " or ".join(f"{each}.{option}" for each in owners)
        raise UsageError(
            f"--sweep: {option} is an option of {len(owners)} passes",
            code="U222",
            hint=f"say which: {several}; or {_ALL}.{option} for all of them",
        )
    full = [f"{each}.{o}" for each, options in offered.items() for o in options]
    plain = [o for options in offered.values() for o in options]
    known = full if owner else plain
    raise UsageError(
        f"--sweep: no pass of the pipeline has the option {name}",
        code="U222",
        hint=nearest(name, known) or f"there are: {', '.join(full)}",
    )


def _with(step: Step, wanted: dict[str, dict[str, str]]) -> Step:
    """A step with other option values."""
    return dataclasses.replace(
        step,
        options=tuple({**dict(step.options), **wanted.get(step.name, {})}.items()),
        inner=tuple(_with(inner, wanted) for inner in step.inner),
    )
