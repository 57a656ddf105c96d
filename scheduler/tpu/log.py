"""Reads what XLA:TPU's scheduler says in the log of a compilation.

    I0101 00:00:00.000000    1 latency_hiding_scheduler.cc:1] Just built graph:
    I0101 00:00:00.000000    1 latency_hiding_scheduler.cc:1] Instr: %f = fusion(...)
    I0101 00:00:00.000000    1 latency_hiding_scheduler.cc:1] Cost: 12

The log is that of the open scheduler, in cycles. One `Round` is one scheduling of one
computation; a rerun with less memory is a further one. The clock is in a line of the
cost model. Nothing of a log is kept but the numbers that a user asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.estimators.base import LOW
from hlo_passes.whole_numbers import number_of_digits

_LINE: Final = re.compile(r"I\d{4} \S+\s+\d+ latency_hiding_scheduler\.cc:\d+\] ?(.*)")
_CLOCK: Final = re.compile(r"TensorCore frequency: (\d+) MHz")
_NODE: Final = re.compile(r"Instr: (?:ROOT )?%?(\S+) = (.*)")
_OPCODE: Final = re.compile(r"([\w\-]+)\((?:%?([^\s,)]+))?")
_EDGE: Final = re.compile(r"Edge: (\S+) latency: (\S+)")
_RESOURCE: Final = re.compile(r"Resource: (\S+) usage: (\S+)")
_PAIR: Final = re.compile(r"Choosing from ready \((\S+)\) vs \((\S+)\) Reason: (\S+)")
_FIRST: Final = re.compile(r"Choosing from ready \((\S+)\) Reason: First Candidate")
_PRESSURE: Final = re.compile(r"Memory (pressure|peak) (before|after) schedule: (\d+)")
_FIGURE: Final = re.compile(
    r"(Total wasted cycles|Wasted cycles for [\w \-]+|Total cycles"
    r"|Memory pressure peak \(bytes\)): (\S+)"
)
_LIMIT: Final = re.compile(r"limit: (\d+)")
_INITIAL: Final = "Initial memory pressure for "
_COMPUTATION: Final = "For computation: "

Row = tuple[str, str, str]


@dataclass(slots=True)
class Round:
    """One scheduling of one computation.

    Attributes:
        computation: its name.
        cost_cycles: by node.
        latency_cycles: by start, to its done.
        edge_cycles: by start, latencies to others, where they are not the least.
        resources: (resource, usage) of the nodes that have any.
        decisions: (chosen, other, reason), '' and 'first' for the first candidate.
        placed: in the order of placing, the last instruction of the program first.
        memory_bytes: (pressure before, pressure after, peak after) of each placement.
        order: the new order.
    """

    computation: str = ""
    cost_cycles: dict[str, float] = field(default_factory=dict)
    latency_cycles: dict[str, float] = field(default_factory=dict)
    edge_cycles: dict[str, dict[str, float]] = field(default_factory=dict)
    resources: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    decisions: list[Row] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)
    memory_bytes: list[tuple[int, int, int]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SchedulerLog:
    """All that the scheduler said in one compilation.

    Attributes:
        rounds: in their order.
        statistics: 'before' and 'after' -> computation -> figure -> value.
        mhz: TensorCore clock, None where no line says it.
        memory_limit_bytes: of the first round, None where no line says it.
    """

    rounds: list[Round] = field(default_factory=list)
    statistics: dict[str, dict[str, dict[str, float]]] = field(
        default_factory=lambda: {"before": {}, "after": {}}
    )
    mhz: float | None = None
    memory_limit_bytes: int | None = None

    @property
    def node_cycles(self) -> Mapping[str, float]:
        """Costs of all nodes, by name."""
        return {n: c for each in self.rounds for n, c in each.cost_cycles.items()}

    @property
    def latency_cycles(self) -> Mapping[str, float]:
        """Latencies of all starts, by name."""
        return {n: c for each in self.rounds for n, c in each.latency_cycles.items()}

    @property
    def edge_cycles(self) -> Mapping[str, Mapping[str, float]]:
        """Latencies of starts to what is not their done, as far as they take time."""
        return {n: c for each in self.rounds for n, c in each.edge_cycles.items()}


def read_log(lines: Iterable[str]) -> SchedulerLog:
    """Read a log line by line; lines of others are left aside."""
    reader = _Reader()
    for line in lines:
        if reader.log.mhz is None and (match := _CLOCK.search(line)):
            reader.log.mhz = float(match[1])
        elif match := _LINE.match(line.rstrip("\n")):
            reader.read(match[1].strip())
    return reader.log


class _Reader:
    """What the lines so far mean for the next one."""

    def __init__(self) -> None:
        self.log = SchedulerLog()
        self._round: Round | None = None
        self._phase = self._computation = self._node = self._side = self._mode = ""
        self._is_start = False
        self._start_of: dict[str, str] = {}
        self._edges: list[tuple[str, str, float]] = []
        self._memory: dict[tuple[str, str], int] = {}

    def read(self, said: str) -> None:
        if said == "Just built graph:":
            self._round = Round()
            self.log.rounds.append(self._round)
            self._mode, self._node = "graph", ""
            self._start_of, self._edges = {}, []
        elif "Statistics before scheduling" in said:
            self._phase = "before"
        elif "Statistics after scheduling" in said:
            self._phase = "after"
        elif said.startswith(_COMPUTATION):
            self._computation = said[len(_COMPUTATION) :].split(",")[0]
        elif self._phase and (match := _FIGURE.match(said)):
            table = self.log.statistics[self._phase]
            table.setdefault(self._computation, {})[match[1].lower()] = float(match[2])
        elif "memory usage" in said and self.log.memory_limit_bytes is None:
            if match := _LIMIT.search(said):
                self.log.memory_limit_bytes = number_of_digits(match[1])
        elif self._round is not None:
            self._read_round(self._round, said)

    def _read_round(self, this: Round, said: str) -> None:
        if said.startswith(_INITIAL):
            this.computation = said[len(_INITIAL) :].split(":")[0]
            self._mode = "steps"
            for start, user, latency in self._edges:
                if self._start_of.get(user) == start:
                    this.latency_cycles[start] = latency
                elif latency > LOW:
                    this.edge_cycles.setdefault(start, {})[user] = latency
        elif match := _PAIR.match(said):
            this.decisions.append((match[1], match[2], match[3]))
        elif match := _FIRST.match(said):
            this.decisions.append((match[1], "", "first"))
        elif match := _PRESSURE.match(said):
            self._memory[match[1], match[2]] = number_of_digits(match[3])
        elif said.startswith("Scheduled: "):
            this.placed.append(said.split()[1])
            keys = (("pressure", "before"), ("pressure", "after"), ("peak", "after"))
            if all(key in self._memory for key in keys):
                first, then, peak = (self._memory[key] for key in keys)
                this.memory_bytes.append((first, then, peak))
            self._memory.clear()
            # The node is printed once more, with fewer edges.
            self._mode = "placed"
        elif said == "New order":
            self._mode = "order"
        elif said.startswith("Total time: "):
            self._mode = ""
        elif self._mode == "graph":
            self._read_node(this, said)
        elif self._mode == "order":
            name = said.removeprefix("ROOT ").partition(" = ")[0]
            if name.startswith("%"):
                this.order.append(name[1:])

    def _read_node(self, this: Round, said: str) -> None:
        if match := _NODE.match(said):
            self._node, self._side = match[1], ""
            found = _OPCODE.search(match[2])
            opcode = found[1] if found else ""
            half = facts(opcode).half
            self._is_start = half == "start"
            if found and half == "done":
                self._start_of[match[1]] = found[2]
        elif said in ("Predecessors:", "Successors:", "Resources:"):
            self._side = said
        elif match := _EDGE.match(said):
            if self._side == "Successors:" and self._is_start:
                self._edges.append((self._node, match[1], float(match[2])))
        elif match := _RESOURCE.match(said):
            entry = match[1], match[2]
            known = this.resources.get(self._node, ())
            if entry not in known:
                this.resources[self._node] = (*known, entry)
        elif said.startswith("Cost: ") and self._node:
            this.cost_cycles.setdefault(self._node, float(said.split()[1]))
