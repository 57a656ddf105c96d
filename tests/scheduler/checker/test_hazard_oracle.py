"""C060 against a buffer model of the test's own, on edited orders of random programs.

A program is a list of plain records; nothing of the checker is asked how it works. Only
programs with one order in which no value is lost count. Then every demand can be met,
so each edited order in which a value is lost must be refused, and each other accepted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.schedule_checker import check_schedule

_PAIRS = "source_target_pairs={{0,1},{1,0}}"
_GROUPS = "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%sum"


@dataclass(frozen=True)
class _Line:
    """One instruction: `kind` is its opcode, `reads` are names."""

    name: str
    kind: str
    reads: tuple[str, ...]

    def text(self) -> str:
        operands = ", ".join(f"%{name}" for name in self.reads)
        tail = ""
        shape = "f32[8]"
        if self.kind.startswith("collective-permute-start"):
            shape, tail = "(f32[8], f32[8])", f", channel_id={self.name[1:]}, {_PAIRS}"
        elif self.kind == "all-reduce-start":
            tail = f", channel_id={self.name[1:]}, {_GROUPS}"
        elif self.kind == "parameter":
            operands = self.name[1:]
        return f"  %{self.name} = {shape} {self.kind}({operands}){tail}"


@dataclass(frozen=True)
class _Program:
    lines: tuple[_Line, ...]
    results: tuple[str, ...]

    def text(self) -> str:
        """The HLO text, with a tuple of the results as its last line."""
        shape = f"({', '.join('f32[8]' for _ in self.results)})"
        results = ", ".join(f"%{name}" for name in self.results)
        body = "\n".join(line.text() for line in self.lines)
        return (
            "HloModule m, is_scheduled=true, num_partitions=2\n\n"
            "%sum (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
            "  %y = f32[] parameter(1)\n  ROOT %s = f32[] add(%x, %y)\n}\n\n"
            f"ENTRY %main {{\n{body}\n  ROOT %result = {shape} tuple({results})\n}}\n"
        )

    def loses_a_value(self) -> bool:
        """Whether a value is read while, or after, its buffer is written anew."""
        at = {line.name: k for k, line in enumerate(self.lines)}
        by_name = {line.name: line for line in self.lines}
        done = {
            line.reads[0]: k for k, line in enumerate(self.lines) if "done" in line.kind
        }

        def value(name: str) -> str:
            line = by_name[name]
            return line.reads[0] if line.kind.endswith("-done") else name

        def buffer(name: str) -> str:
            line = by_name[value(name)]
            return (
                buffer(line.reads[0]) if line.kind == "all-reduce-start" else line.name
            )

        # A permute reads until it is done; results are read at the end.
        reads = [
            (value(name), done.get(line.name, k) if "permute" in line.kind else k, k)
            for k, line in enumerate(self.lines)
            for name in line.reads
            if not line.kind.endswith("-done")
        ]
        end = len(self.lines)
        reads += [(value(name), end, end) for name in self.results]
        return any(
            buffer(writer) == buffer(read)
            and read != writer
            and at[read] < done[writer]
            and until > at[writer]
            and reader != at[writer]
            for read, until, reader in reads
            for writer in done
        )

    def is_ordered(self) -> bool:
        """Whether everything comes after what it reads."""
        seen: set[str] = set()
        for line in self.lines:
            if not seen.issuperset(line.reads):
                return False
            seen.add(line.name)
        return True


def _random_program(draw: random.Random) -> _Program:
    lines = [_Line("p0", "parameter", ()), _Line("p1", "parameter", ())]
    values = ["p0", "p1"]
    overwritten: set[str] = set()
    opened: list[_Line] = []
    for number in range(2, draw.randint(6, 18)):
        kind = draw.choice(
            ("add", "permute", "all-reduce", "all-reduce", "done", "done")
        )
        if kind == "done" and opened:
            start = opened.pop(draw.randrange(len(opened)))
            lines.append(_Line(f"d{number}", start.kind[:-5] + "done", (start.name,)))
            values.append(f"d{number}")
        elif kind in ("add", "done"):
            reads = (draw.choice(values), draw.choice(values))
            lines.append(_Line(f"n{number}", "add", reads))
            values.append(f"n{number}")
        else:
            # One value is overwritten once: a second time no order could allow.
            free = [v for v in values[2:] if v not in overwritten] or ["p0"]
            source = draw.choice(values if kind == "permute" else free)
            if kind == "all-reduce" and source == "p0":
                continue
            opcode = "collective-permute-start"
            if kind == "all-reduce":
                opcode = "all-reduce-start"
                overwritten.add(source)
            lines.append(_Line(f"b{number}", opcode, (source,)))
            opened.append(lines[-1])
    for start in opened:
        lines.append(_Line(f"e{start.name}", start.kind[:-5] + "done", (start.name,)))
        values.append(lines[-1].name)
    results = [v for v in values if v not in overwritten]
    return _Program(tuple(lines), tuple(draw.sample(results, min(4, len(results)))))


def _legal_program(draw: random.Random) -> _Program:
    """A random program, in the first of its random orders that loses no value."""
    while True:
        program = _random_program(draw)
        for _ in range(10):
            if not program.loses_a_value():
                return program
            program = next(_edited(draw, program))


def _edited(draw: random.Random, program: _Program) -> Iterator[_Program]:
    """Other orders: one line moved, two swapped, or a start as early as it can be."""
    while True:
        lines = list(program.lines)
        here, there = (draw.randrange(len(lines)) for _ in range(2))
        edit = draw.choice(("move", "swap", "hoist"))
        if edit == "swap":
            lines[here], lines[there] = lines[there], lines[here]
        else:
            line = lines.pop(here)
            if edit == "hoist":
                if not line.kind.endswith("-start"):
                    continue
                names = [other.name for other in lines]
                there = max(names.index(name) for name in line.reads) + 1
            lines.insert(there, line)
        edited = _Program(tuple(lines), program.results)
        if edited.is_ordered():
            yield edited


@pytest.mark.parametrize("seed", range(8))
def test_what_loses_a_value_is_refused_and_nothing_else(seed: int) -> None:
    draw = random.Random(seed)
    lost = kept = 0
    for _ in range(40):
        program = _legal_program(draw)
        edits = _edited(draw, program)
        for order in (program, *(next(edits) for _ in range(6))):
            text = order.text()
            codes = {f.code for f in check_schedule(hlo_passes.parse(text))}
            is_lost = order.loses_a_value()
            assert codes == ({"C060"} if is_lost else set()), text
            lost += is_lost
            kept += not is_lost
    assert lost
    assert kept > 60


def test_many_starts_that_overwrite_one_value_are_compared_as_one() -> None:
    # Pair by pair, these are nine million comparisons.
    count = 3000
    lines = [_Line("p0", "parameter", ()), _Line("n1", "add", ("p0", "p0"))]
    starts = [_Line(f"b{k}", "all-reduce-start", ("n1",)) for k in range(2, count)]
    dones = [_Line(f"d{s.name}", "all-reduce-done", (s.name,)) for s in starts]
    results = tuple(done.name for done in dones)
    program = _Program((*lines, *starts, *dones), results)
    assert check_schedule(hlo_passes.parse(program.text())) == []
