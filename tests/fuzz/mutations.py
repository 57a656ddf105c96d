"""Ways to damage a module's text, each a function of a random source and texts."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

#: Pieces of the grammar that a random edit may put anywhere.
WORDS = (
    "%", "=", "(", ")", "{", "}", "[", "]", ",", "->", "ROOT", "ENTRY", "HloModule",
    "f32[8]{0}", "f32[", "(f32[2], s32[])", "token[]", "bf16[<=4,?]", "s4[3]{0:E(4)}",
    "parameter(0)", "constant({1, 2})", "constant({...})", "nan", "-inf", "1e999",
    "99999999999999999999", "-1", "replica_groups={{0,1},{1,0}}", "[2,4]<=[4,2]T(1,0)",
    "replica_groups=mesh['x'=2] {'x'}", "source_target_pairs={{0,1},{0,1}}",
    "channel_id=0", "to_apply=%nothing", "calls={", "control-predecessors={%a}",
    'metadata={op_name="', '"', "\\", "/*", "*/", "//", "\x00", "\r\n", "\t", "é", "#1",
    "all-gather-start", "negate-start", "frobnicate", "sharding={devices=[2,2]<=[4]}",
    "backend_config={\"a\":{", "is_scheduled=true", "num_partitions=8", "index=",
    'execution_thread="x"', "dimensions={0}", "window={size=3x3 pad=0_0x1_1}",
)  # fmt: skip

_TOKEN = re.compile(r"%?[\w.-]+|[^\w\s]|\s+")
_NUMBER = re.compile(r"\d+")

Mutation = Callable[[random.Random, str, str], str]


def _place(rng: random.Random, text: str) -> int:
    return rng.randrange(len(text) + 1)


def truncate(rng: random.Random, text: str, _: str) -> str:
    """Cut the end off."""
    return text[: _place(rng, text)]


def splice(rng: random.Random, text: str, other: str) -> str:
    """Go on with another module from somewhere."""
    return text[: _place(rng, text)] + other[_place(rng, other) :]


def delete_characters(rng: random.Random, text: str, _: str) -> str:
    """Leave a few characters out."""
    at = _place(rng, text)
    return text[:at] + text[at + rng.randrange(1, 8) :]


def insert_word(rng: random.Random, text: str, _: str) -> str:
    """Put a piece of the grammar somewhere."""
    at = _place(rng, text)
    return text[:at] + rng.choice(WORDS) + text[at:]


def replace_token(rng: random.Random, text: str, other: str) -> str:
    """Put a token of one module in place of a token of another."""
    match = _TOKEN.search(text, _place(rng, text))
    donor = _TOKEN.search(other, _place(rng, other))
    if not match or not donor:
        return text
    return text[: match.start()] + donor[0] + text[match.end() :]


def change_number(rng: random.Random, text: str, _: str) -> str:
    """Another number in place of one."""
    match = _NUMBER.search(text, _place(rng, text))
    if not match:
        return text
    number = rng.choice(("0", "1", "7", "8", "4294967296", str(int(match[0]) + 1)))
    return text[: match.start()] + number + text[match.end() :]


def drop_line(rng: random.Random, text: str, _: str) -> str:
    """Leave a line out."""
    lines = text.split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def repeat_line(rng: random.Random, text: str, _: str) -> str:
    """Put a line a second time, somewhere."""
    lines = text.split("\n")
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    return "\n".join(lines)


def swap_lines(rng: random.Random, text: str, _: str) -> str:
    """Exchange two lines."""
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def flip_byte(rng: random.Random, text: str, _: str) -> str:
    """Another character in place of one, any of the first 256."""
    at = _place(rng, text)
    return text[:at] + chr(rng.randrange(256)) + text[at + 1 :]


def nest(rng: random.Random, text: str, _: str) -> str:
    """Thousands of brackets of one kind."""
    at = _place(rng, text)
    return text[:at] + rng.choice("({[") * rng.randrange(1, 5000) + text[at:]


MUTATIONS: tuple[Mutation, ...] = (
    truncate, splice, delete_characters, insert_word, replace_token, change_number,
    drop_line, repeat_line, swap_lines, flip_byte, nest,
)  # fmt: skip


def mutate(rng: random.Random, text: str, other: str) -> tuple[str, str]:
    """At most four random edits; the text and the names of what was done."""
    names = []
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 4))):
        mutation = rng.choice(MUTATIONS)
        text = mutation(rng, text, other)
        names.append(mutation.__name__)
    return text, "+".join(names) or "unharmed"
