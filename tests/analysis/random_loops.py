"""Random loops over scalars, as HLO text that XLA can run.

    loop(random.Random(7), "3")      the computations of a loop, and its lines in the entry

Every loop counts its iterations beside what decides when it ends: steps up and down,
all comparisons, bounds in the state, variables that follow others, products, shifts and
remainders, integers that wrap around, starts that are computed.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

#: More iterations than this are not run by tests.
MOST_ITERATIONS = 20_000
_TYPES = ("s32", "s32", "s32", "u32", "s8", "u8", "s64")
_DIRECTIONS = ("LT", "LT", "LE", "GT", "GE", "NE", "EQ")


@dataclass(slots=True)
class RandomLoop:
    """A loop: `computations` before the entry, `lines` in it, the loop's name."""

    computations: list[str]
    lines: list[str]
    name: str


@dataclass(slots=True)
class _Writer:
    """Writes scalars, each on a line of its own."""

    random: random.Random
    kind: str
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def line(self, text: str, kind: str = "") -> str:
        self.count += 1
        name = f"v{self.count}"
        self.lines.append(f"  {name} = {kind or self.kind}[] {text}")
        return name

    def constant(self, low: int, high: int) -> str:
        low = max(low, 0) if self.kind[0] == "u" else low
        return self.line(f"constant({self.random.randint(low, high)})")

    def next(self, mine: str, other: str) -> str:
        """What a variable is after an iteration."""
        choice = self.random.randrange(12)
        if choice < 6:
            step = self.constant(1, 3) if choice else self.constant(-3, 5)
            operands = [mine, step] if self.random.random() < 0.8 else [step, mine]
            return self.line(f"add({', '.join(operands)})")
        if choice == 6:
            return self.line(f"subtract({mine}, {self.constant(1, 3)})")
        if choice == 7:
            return self.line(
                f"copy({self.line(f'add({mine}, {self.constant(1, 2)})')})"
            )
        if choice == 8:
            opcode = self.random.choice(
                ("multiply", "divide", "remainder", "shift-left", "xor", "maximum")
            )
            return self.line(f"{opcode}({mine}, {self.constant(1, 7)})")
        if choice == 9:
            return self.line(f"add({other}, {self.constant(0, 2)})")
        if choice == 10:
            return mine
        inner = self.line(f"add({mine}, {self.constant(1, 4)})")
        return self.line(f"subtract({inner}, {self.constant(0, 2)})")

    def holds(self, mine: str, bound: str, other: str) -> str:
        """Whether another iteration runs."""
        direction = self.random.choice(_DIRECTIONS)
        operands = [mine, bound] if self.random.random() < 0.8 else [bound, mine]
        found = self.line(
            f"compare({', '.join(operands)}), direction={direction}", "pred"
        )
        if self.random.random() < 0.25:
            again = self.line(
                f"compare({other}, {self.constant(1, 40)}), direction=LT", "pred"
            )
            opcode = self.random.choice(("and", "and", "or"))
            found = self.line(f"{opcode}({found}, {again})", "pred")
        return found


def _section(name: str, lines: list[str], root: str, head: str = "") -> str:
    return "\n".join([f"{head}{name} {{", *lines, f"  ROOT {root}", "}", ""])


def loop(rng: random.Random, suffix: str) -> RandomLoop:
    """One loop with the state (variable, another, bound, iterations)."""
    kind = rng.choice(_TYPES)
    state = f"({kind}[], {kind}[], {kind}[], s32[])"
    elements = [f"  e{k} = {kind}[] get-tuple-element(p), index={k}" for k in range(3)]
    elements.append("  e3 = s32[] get-tuple-element(p), index=3")
    given = [f"  p = {state} parameter(0)", *elements]
    # The body: each variable of itself or the other, and one iteration more.
    body = _Writer(rng, kind, list(given))
    first, second = body.next("e0", "e1"), body.next("e1", "e0")
    body.lines.append("  one = s32[] constant(1)")
    body.lines.append("  more = s32[] add(e3, one)")
    # The condition: the bound is a constant or in the state.
    condition = _Writer(rng, kind, list(given))
    most = rng.choice((5, 20, 100, 120 if kind.endswith("8") else 5000))
    is_constant = rng.random() < 0.6
    bound = condition.constant(-3, most) if is_constant else "e2"
    decides = condition.holds("e0", bound, "e1")
    root = f"r = {state} tuple({first}, {second}, e2, more)"
    condition_root = f"r = pred[] and({decides}, {decides})"
    if rng.random() < 0.8:
        condition_root = condition.lines.pop().strip()
    computations = [
        _section(f"body{suffix}", body.lines, root),
        _section(f"condition{suffix}", condition.lines, condition_root),
    ]
    # Where it starts: constants, mostly, or one operation of them.
    start = _Writer(rng, kind)
    begins = [start.constant(-5, 10), start.constant(0, 6), start.constant(0, most)]
    if rng.random() < 0.2:
        begins[0] = start.line(f"add({begins[0]}, {begins[1]})")
    if rng.random() < 0.2:
        begins[0] = start.line(f"copy({begins[0]})")
    lines = [*start.lines, "  zero = s32[] constant(0)"]
    lines.append(f"  start = {state} tuple({', '.join(begins)}, zero)")
    call = f"while(start), condition=condition{suffix}, body=body{suffix}"
    lines.append(f"  loop = {state} {call}")
    lines.append("  ran = s32[] get-tuple-element(loop), index=3")
    # Names in the entry are the loop's own.
    renamed = [_renamed(line, suffix) for line in lines]
    return RandomLoop(computations, renamed, f"loop_{suffix}")


def _renamed(line: str, suffix: str) -> str:
    own = r"\b(v\d+|zero|start|loop|ran)\b(?=[ ,)])"
    return re.sub(own, rf"\1_{suffix}", line)


def module_text(loops: list[RandomLoop]) -> str:
    """A module that returns how often each loop ran."""
    types = ", ".join(["s32[]"] * len(loops))
    names = ", ".join(f"ran_{one.name.removeprefix('loop_')}" for one in loops)
    computations = "\n".join(text for one in loops for text in one.computations)
    lines = [line for one in loops for line in one.lines]
    root = f"r = ({types}) tuple({names})"
    entry = _section("main", lines, root, head="ENTRY ")
    return f"HloModule loops\n\n{computations}\n{entry}"


def unforeseen(loops: list[RandomLoop]) -> tuple[str, list[tuple[str, int]]]:
    """The same module with all starts as parameters, and (type, value) of each.

    No compiler can find out how often these loops run. XLA finds out for some of the
    others, and is wrong for some of them (`i > 10`).
    """
    given: list[tuple[str, int]] = []

    def parameter(match: re.Match[str]) -> str:
        given.append((match["type"], int(match["value"])))
        return f"= {match['type']}[] parameter({len(given) - 1})"

    start = re.compile(r"= (?P<type>\w+)\[\] constant\((?P<value>-?\d+)\)")
    changed = [
        RandomLoop(
            one.computations,
            [start.sub(parameter, line) for line in one.lines],
            one.name,
        )
        for one in loops
    ]
    return module_text(changed), given
