"""A second, plain reading of HLO text, to judge planted faults by.

It shares nothing with the checker nor with the parser: lines, names, regular
expressions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r"^(?:ENTRY )?%(?P<name>[\w.-]+) .*\{$")
_NAME = re.compile(r"%([\w.-]+)")


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction as it is in the text."""

    name: str
    opcode: str
    operands: tuple[str, ...]
    controls: tuple[str, ...]
    text: str


def _closing(text: str) -> int:
    """Where the parenthesis around the text closes."""
    depth = 1
    for k, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if not depth:
            return k
    raise ValueError(text)


def _split(line: str) -> tuple[str, str] | None:
    """Name and everything from the opcode on; tuple shapes nest."""
    found = re.match(r"^\s+(?:ROOT )?%([\w.-]+) = (.*)$", line)
    if found is None:
        return None
    name, right = found.groups()
    if right.startswith("("):
        right = right[1 + _closing(right[1:]) + 1 :]
    else:
        right = right[right.index(" ") :]
    return name, right.strip()


def read(text: str) -> dict[str, list[Line]]:
    """Instructions by computation, in order."""
    found: dict[str, list[Line]] = {}
    current: list[Line] | None = None
    for line in text.split("\n"):
        head = _HEAD.match(line)
        if head:
            current = found.setdefault(head["name"], [])
            continue
        parts = _split(line) if current is not None else None
        if parts is None or current is None:
            continue
        name, right = parts
        opcode, rest = right.split("(", 1)
        end = _closing(rest)
        controls = re.search(r"control-predecessors=\{([^}]*)\}", rest[end:])
        current.append(
            Line(
                name,
                opcode,
                tuple(_NAME.findall(rest[:end])) if opcode != "constant" else (),
                tuple(_NAME.findall(controls[1])) if controls else (),
                line.strip(),
            )
        )
    return found


def late_operands(lines: list[Line]) -> list[tuple[str, str]]:
    """(user, operand) where the operand does not come before the user."""
    at = {line.name: k for k, line in enumerate(lines)}
    return [
        (line.name, o)
        for k, line in enumerate(lines)
        for o in line.operands
        if at[o] >= k
    ]


def late_controls(lines: list[Line]) -> list[tuple[str, str]]:
    """(successor, predecessor) in the wrong order."""
    at = {line.name: k for k, line in enumerate(lines)}
    return [
        (line.name, c)
        for k, line in enumerate(lines)
        for c in line.controls
        if at[c] >= k
    ]


_COLLECTIVE = re.compile(
    r"(all-gather|all-reduce|collective-permute|reduce-scatter|all-to-all)-(start|done)"
)


def most_in_flight(lines: list[Line], wrapped: set[str]) -> int:
    """Collectives open at once in one computation, those marked synchronous left out.

    `wrapped`: names of async-starts (and their dones) that wrap a collective.
    """
    opened: set[str] = set()
    most = 0
    for line in lines:
        named = _COLLECTIVE.fullmatch(line.opcode)
        if not named and line.name not in wrapped:
            continue
        if '"is_sync":true' in line.text:
            continue
        if line.opcode.endswith("-start"):
            opened.add(line.name)
            most = max(most, len(opened))
        else:
            opened.discard(line.operands[0])
    return most


def devices_of(line: Line) -> list[set[int]]:
    """The groups of a collective, written out or as rows of an iota."""
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[(\d+)\](?!T)", line.text)
    if iota:
        count, size, _ = map(int, iota.groups())
        return [set(range(k * size, (k + 1) * size)) for k in range(count)]
    listed = re.search(r"(?:replica_groups|source_target_pairs)=\{(.*?)\}\}", line.text)
    if not listed:
        return []
    return [set(map(int, re.findall(r"\d+", g))) for g in listed[1].split("}")]
