"""Seeded faults: one change to the text of a module that XLA accepts.

    %r = f32[8]{0} add(%a, %b)   ->   %r = f32[9]{0} add(%a, %b)      "result size"

Each kind of fault picks its place with a random generator, so a seed settles the
mutant. A fault may turn out harmless; what the verifier and XLA say is compared by
`fault_campaign`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Lines = list[str]

_INSTRUCTION = re.compile(r"^  (?:ROOT )?%([\w.-]+) = (.*)$")
_PARTS = re.compile(
    r"^  (?:ROOT )?%(?P<name>[\w.-]+) = (?P<shape>\(.*?\)|\S+) (?P<opcode>[a-z-]+)\("
)
_OPERAND = re.compile(r"%([\w.-]+)")
_SIZE = re.compile(r"\[(\d+)")
_TYPE = re.compile(r"\b(f32|bf16|f16|s32|u32|pred|s8|u8|f8e4m3fn|f64|s64)\[")
_GROUPS = re.compile(r"replica_groups=\{(\{[\d,]+\}(?:,\{[\d,]+\})*)\}")
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=")
_PAIRS = re.compile(r"source_target_pairs=\{(\{\d+,\d+\}(?:,\{\d+,\d+\})*)\}")
_LIST = re.compile(
    r"\b(dimensions|[lr]hs_\w+_dims|offset_dims|start_index_map|slice_sizes|"
    r"dynamic_slice_sizes)=\{([\d,]+)\}"
)
_CALLEE = re.compile(r"\b(to_apply|calls|condition|body)=%([\w.-]+)")
_ATTRIBUTE = re.compile(r", ([a-z_]+)=(?=[{%\d\[\w])")
_ORDER = re.compile(r"\{(\d+),(\d+)((?:,\d+)*)\}")

_STARTS: Final = ("-start(",)
_DONES: Final = ("-done(",)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one fault: its kind, the line (from 1) and the new text."""

    kind: str
    line: int
    text: str


def _instruction_lines(lines: Lines, wanted: Callable[[str], bool]) -> list[int]:
    return [k for k, s in enumerate(lines) if _INSTRUCTION.match(s) and wanted(s)]


def _replaced(lines: Lines, at: int, line: str | None) -> str:
    kept = [line] if line is not None else []
    return "\n".join([*lines[:at], *kept, *lines[at + 1 :]])


def _substituted(
    lines: Lines,
    random_: random.Random,
    pattern: re.Pattern[str],
    change: Callable[[re.Match[str], random.Random], str | None],
    wanted: Callable[[str], bool] = lambda _: True,
) -> tuple[int, str] | None:
    """Change one match of a pattern in one line that has it."""
    places = _instruction_lines(lines, lambda s: wanted(s) and bool(pattern.search(s)))
    if not places:
        return None
    at = random_.choice(places)
    match = random_.choice(list(pattern.finditer(lines[at])))
    new = change(match, random_)
    if new is None:
        return None
    line = lines[at][: match.start()] + new + lines[at][match.end() :]
    return (at, _replaced(lines, at, line)) if line != lines[at] else None


# -- the kinds ----------------------------------------------------------------


def result_size(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """Another size before the opcode."""
    places = _instruction_lines(
        lines,
        lambda s: (
            bool(_SIZE.search(s.split("(")[0]))
            and not re.search(r" (parameter|custom-call|bitcast|rng\S*)\(", s)
        ),
    )
    if not places:
        return None
    at = random_.choice(places)
    match = _SIZE.search(lines[at])
    assert match
    line = (
        lines[at][: match.start(1)] + str(int(match[1]) + 1) + lines[at][match.end(1) :]
    )
    return at, _replaced(lines, at, line)


def result_type(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """Another element type before the opcode."""
    others = {"f32": "s32", "bf16": "s32", "f16": "s32", "f64": "s32", "pred": "f32"}
    places = _instruction_lines(
        lines,
        lambda s: (
            bool(_TYPE.match(s.partition(" = ")[2]))
            and not re.search(
                r" (parameter|custom-call|bitcast|convert|bitcast-convert|iota|rng\S*)\(",
                s,
            )
        ),
    )
    if not places:
        return None
    at = random_.choice(places)
    head, _, rest = lines[at].partition(" = ")
    match = _TYPE.match(rest)
    assert match
    other = others.get(match[1], "f32")
    return at, _replaced(lines, at, f"{head} = {other}{rest[match.end(1) :]}")


def dropped_operand(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """One operand fewer."""
    return _substituted(
        lines,
        random_,
        re.compile(r"(?<=[a-z-]\()%[\w.-]+(?:, (?=%))?"),
        lambda m, r: "",
        lambda s: not re.search(r" (custom-call|after-all)\(", s),
    )


def repeated_operand(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """One operand more."""
    return _substituted(
        lines,
        random_,
        re.compile(r"(?<=[a-z-]\()(%[\w.-]+)"),
        lambda m, r: f"{m[1]}, {m[1]}",
        lambda s: not re.search(r" (custom-call|after-all)\(", s),
    )


def undefined_operand(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """An operand of a name that is not there."""
    return _substituted(
        lines,
        random_,
        re.compile(r"(?<=[a-z-]\()%[\w.-]+"),
        lambda m, r: "%no_such_name",
    )


def swapped_order(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """An instruction after the one that reads it."""
    places = []
    for k in range(len(lines) - 1):
        first, second = _INSTRUCTION.match(lines[k]), _INSTRUCTION.match(lines[k + 1])
        if first and second and re.search(rf"%{re.escape(first[1])}\b", second[2]):
            places.append(k)
    if not places:
        return None
    at = random_.choice(places)
    swapped = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
    return at, "\n".join(swapped)


def duplicate_name(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """The name of the instruction before."""
    places = [
        k
        for k in range(1, len(lines))
        if _INSTRUCTION.match(lines[k - 1]) and _INSTRUCTION.match(lines[k])
    ]
    if not places:
        return None
    at = random_.choice(places)
    first, second = _INSTRUCTION.match(lines[at - 1]), _INSTRUCTION.match(lines[at])
    assert first
    assert second
    line = lines[at].replace(f"%{second[1]} = ", f"%{first[1]} = ", 1)
    return at, _replaced(lines, at, line)


def dropped_done(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A done replaced by a get-tuple-element of its start."""
    places = _instruction_lines(
        lines, lambda s: bool(re.search(r"[a-z]-done\(", s)) and "%" in s
    )
    if not places:
        return None
    at = random_.choice(places)
    line = re.sub(r" [a-z-]+-done\(", " get-tuple-element(", lines[at], count=1)
    head, _, tail = line.partition(")")
    return at, _replaced(lines, at, f"{head}), index=1{tail}")


def doubled_done(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A second done of one start."""
    places = _instruction_lines(
        lines, lambda s: bool(re.search(r"[a-z]-done\(", s)) and "ROOT" not in s
    )
    if not places:
        return None
    at = random_.choice(places)
    match = _INSTRUCTION.match(lines[at])
    assert match
    second = lines[at].replace(f"%{match[1]} = ", f"%{match[1]}.again = ", 1)
    return at, "\n".join([*lines[: at + 1], second, *lines[at + 1 :]])


def wrong_done(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """The done of another kind of start."""
    kinds = ["all-reduce", "all-gather", "collective-permute", "copy"]

    def change(match: re.Match[str], random_: random.Random) -> str:
        return random_.choice([k for k in kinds if k != match[1]]) + "-done("

    return _substituted(lines, random_, re.compile(r"([a-z-]+)-done\("), change)


def group_repeats(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A member twice in explicit groups."""

    def change(match: re.Match[str], random_: random.Random) -> str | None:
        ids = re.findall(r"\d+", match[1])
        if len(ids) < 2:
            return None
        return match[0].replace(ids[-1], ids[0]) if ids[-1] != ids[0] else None

    return _substituted(lines, random_, _GROUPS, change)


def group_range(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A member outside the range."""

    def change(match: re.Match[str], random_: random.Random) -> str:
        ids = re.findall(r"\d+", match[1])
        head, _, tail = match[0].rpartition(ids[-1])
        return f"{head}99999{tail}"

    return _substituted(lines, random_, _GROUPS, change)


def group_missing(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """Groups that leave members out, or of other sizes."""

    def change(match: re.Match[str], random_: random.Random) -> str | None:
        groups = re.findall(r"\{[\d,]+\}", match[1])
        if len(groups) < 2:
            return None
        return f"replica_groups={{{','.join(groups[:-1])}}}"

    return _substituted(lines, random_, _GROUPS, change)


def iota_size(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """Iota groups that do not multiply up."""
    return _substituted(
        lines,
        random_,
        _IOTA,
        lambda m, r: f"replica_groups=[{int(m[1]) + 1},{m[2]}]<=",
    )


def iota_transposed(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """As many members in groups of another size."""

    def change(match: re.Match[str], random_: random.Random) -> str | None:
        if match[1] == match[2]:
            return None
        return f"replica_groups=[{match[2]},{match[1]}]<="

    return _substituted(
        lines, random_, _IOTA, change, lambda s: not re.search(r" all-reduce\S*\(", s)
    )


def pair_repeats(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A source twice."""
    return _substituted(
        lines,
        random_,
        _PAIRS,
        lambda m, r: (
            "source_target_pairs={"
            + m[1]
            + ","
            + m[1].split("},")[0].rstrip("}")
            + "}}"
        ),
    )


def pair_range(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A negative source."""
    return _substituted(
        lines,
        random_,
        _PAIRS,
        lambda m, r: re.sub(r"\d+", "-1", m[0], count=1),
    )


def wrong_dimension(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A dimension number or size out of range."""

    def change(match: re.Match[str], random_: random.Random) -> str:
        numbers = match[2].split(",")
        at = random_.randrange(len(numbers))
        numbers[at] = str(int(numbers[at]) + 1_000_003)
        return f"{match[1]}={{{','.join(numbers)}}}"

    return _substituted(lines, random_, _LIST, change)


def unknown_callee(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A computation that is not there."""
    return _substituted(
        lines, random_, _CALLEE, lambda m, r: f"{m[1]}=%no_such_computation"
    )


def wrong_callee(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """Another computation of the module."""
    names = [m[2] for s in lines for m in _CALLEE.finditer(s)]

    def change(match: re.Match[str], random_: random.Random) -> str | None:
        others = [n for n in names if n != match[2]]
        return f"{match[1]}=%{random_.choice(others)}" if others else None

    return _substituted(lines, random_, _CALLEE, change)


def repeated_attribute(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """An attribute twice."""
    places = _instruction_lines(lines, lambda s: "channel_id=" in s or "index=" in s)
    if not places:
        return None
    at = random_.choice(places)
    match = re.search(r", (?:channel_id|index)=\d+", lines[at])
    if not match:
        return None
    line = lines[at][: match.end()] + match[0] + lines[at][match.end() :]
    return at, _replaced(lines, at, line)


def missing_attribute(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A required attribute left out."""
    pattern = re.compile(
        r", (?:index|direction|to_apply|calls|condition|body|iota_dimension|"
        r"source_target_pairs|kind|custom_call_target)=(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"
        r'|"[^"]*"|[^,\s]+)'
    )
    return _substituted(lines, random_, pattern, lambda m, r: "")


def tuple_index(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A get-tuple-element past the end of the tuple."""
    return _substituted(
        lines,
        random_,
        re.compile(r", index=(\d+)"),
        lambda m, r: ", index=100000",
        lambda s: " get-tuple-element(" in s,
    )


def parameter_number(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A parameter number twice."""
    return _substituted(
        lines,
        random_,
        re.compile(r" parameter\((\d+)\)"),
        lambda m, r: f" parameter({int(m[1]) - 1 if m[1] != '0' else 1})",
    )


def unreadable_literal(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A literal of another form than the shape's."""
    return _substituted(
        lines,
        random_,
        re.compile(r" constant\(([^()]*)\)"),
        lambda m, r: " constant({{1}, {2, 3}})",
    )


def reordered_layout(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A layout that names a dimension twice."""
    return _substituted(
        lines,
        random_,
        re.compile(r"(?<=\])\{(\d+),(\d+)((?:,\d+)*)(?=[}:])"),
        lambda m, r: f"{{{m[1]},{m[1]}{m[3]}",
    )


def flattened_without_channel(
    lines: Lines, random_: random.Random
) -> tuple[int, str] | None:
    """Global ids without a channel."""
    return _substituted(
        lines,
        random_,
        re.compile(r", channel_id=\d+"),
        lambda m, r: "",
        lambda s: "use_global_device_ids=true" in s,
    )


def truncated(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """A line cut in the middle."""
    places = _instruction_lines(lines, lambda s: len(s) > 20)
    if not places:
        return None
    at = random_.choice(places)
    cut = lines[at][: random_.randrange(8, len(lines[at]) - 1)]
    return at, _replaced(lines, at, cut)


def removed_line(lines: Lines, random_: random.Random) -> tuple[int, str] | None:
    """An instruction left out although it is read."""
    places = _instruction_lines(lines, lambda s: "ROOT" not in s)
    if not places:
        return None
    at = random_.choice(places)
    return at, _replaced(lines, at, None)


FAULTS: Final = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        result_size, result_type, dropped_operand, repeated_operand, undefined_operand,
        swapped_order, duplicate_name, dropped_done, doubled_done, wrong_done,
        group_repeats, group_range, group_missing, iota_size, iota_transposed,
        pair_repeats, pair_range, wrong_dimension, unknown_callee, wrong_callee,
        repeated_attribute, missing_attribute, tuple_index, parameter_number,
        unreadable_literal, reordered_layout, flattened_without_channel, truncated,
        removed_line,
    )
}  # fmt: skip


def mutants(text: str, seed: int, *, each: int = 1) -> list[Mutant]:
    """One mutant (or several) of every kind that finds a place in the text."""
    lines = text.split("\n")
    found: list[Mutant] = []
    for kind, fault in FAULTS.items():
        for turn in range(each):
            random_ = random.Random(f"{seed}:{kind}:{turn}")
            changed = fault(lines, random_)
            if changed is not None:
                found.append(Mutant(kind, changed[0] + 1, changed[1]))
    return found
