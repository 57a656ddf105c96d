"""Small schedules, written as lists, with their module text, costs, and a plain model.

    [Compute("c0", 3.0), Start("s0", 10.0), Compute("c1", 4.0), Done("s0")]

`plain_model` walks such a list as one would with a pencil: every iteration of a loop by
itself, one queue per stream. It shares no code with the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

import hlo_passes
from hlo_passes import Module
from hlo_passes.scheduler.estimators.table import TableEstimator


@dataclass(frozen=True)
class Compute:
    name: str
    us: float


@dataclass(frozen=True)
class Start:
    name: str
    us: float


@dataclass(frozen=True)
class Done:
    start: str


@dataclass(frozen=True)
class Sync:
    name: str
    us: float


@dataclass(frozen=True)
class Loop:
    name: str
    trips: int
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Branches:
    name: str
    bodies: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True)
class CallOf:
    name: str
    body: tuple[Step, ...]


Step = Compute | Start | Done | Sync | Loop | Branches | CallOf
Steps = tuple[Step, ...]


# -- text -------------------------------------------------------------------------

_HEADER = """HloModule m, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%never (x: f32[8]) -> pred[] {
  %x.never = f32[8]{0} parameter(0)
  ROOT %no = pred[] constant(false)
}
"""
_GROUPS = "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add"


def module_of(steps: Steps) -> Module:
    """The module, read from its text."""
    return hlo_passes.parse(text_of(steps))


def text_of(steps: Steps) -> str:
    """Everything computes on f32[8], each step on what the step before made."""
    writer = _Writer()
    writer.computation("main", steps, is_entry=True)
    return _HEADER + "".join(writer.computations)


@dataclass
class _Writer:
    computations: list[str] = field(default_factory=list)
    channel: int = 0

    def computation(self, name: str, steps: Steps, *, is_entry: bool = False) -> None:
        last = f"x.{name}"
        lines = [f"  %{last} = f32[8]{{0}} parameter(0)"]
        for step in steps:
            made, line = self.line(step, last)
            lines.append(f"  {line}")
            if not isinstance(step, Start):
                last = made
        lines.append(f"  ROOT %r.{name} = f32[8]{{0}} bitcast(%{last})")
        head = f"ENTRY %{name}" if is_entry else f"%{name}"
        body = "\n".join(lines)
        self.computations.append(f"\n{head} (x: f32[8]) -> f32[8] {{\n{body}\n}}\n")

    def line(self, step: Step, x: str) -> tuple[str, str]:
        if isinstance(step, Compute):
            return step.name, f"%{step.name} = f32[8]{{0}} negate(%{x})"
        if isinstance(step, Done):
            name = f"{step.start}.done"
            return name, f"%{name} = f32[8]{{0}} all-reduce-done(%{step.start})"
        if isinstance(step, Start | Sync):
            self.channel += 1
            opcode = "all-reduce-start" if isinstance(step, Start) else "all-reduce"
            attributes = f"channel_id={self.channel}, {_GROUPS}"
            return step.name, f"%{step.name} = f32[8]{{0}} {opcode}(%{x}), {attributes}"
        if isinstance(step, Loop):
            self.computation(f"body.{step.name}", step.body)
            trips = f'{{"known_trip_count":{{"n":"{step.trips}"}}}}'
            return step.name, (
                f"%{step.name} = f32[8]{{0}} while(%{x}), condition=%never, "
                f"body=%body.{step.name}, backend_config={trips}"
            )
        if isinstance(step, CallOf):
            self.computation(f"called.{step.name}", step.body)
            return step.name, (
                f"%{step.name} = f32[8]{{0}} call(%{x}), to_apply=%called.{step.name}"
            )
        names = []
        for k, body in enumerate(step.bodies):
            names.append(f"%branch{k}.{step.name}")
            self.computation(names[-1][1:], body)
        operands = ", ".join([f"%{x}"] * len(names))
        index = f"{step.name}.index"
        return step.name, (
            f"%{index} = s32[] constant(0)\n"
            f"  %{step.name} = f32[8]{{0}} conditional(%{index}, {operands}), "
            f"branch_computations={{{', '.join(names)}}}"
        )


def costs_of(steps: Steps) -> TableEstimator:
    """The costs of the steps, as a costs file would give them."""
    nodes: dict[str, float] = {}
    latencies: dict[str, float] = {}
    for step in every(steps):
        if isinstance(step, Compute):
            nodes[step.name] = step.us
        elif isinstance(step, Start):
            # Halves have a node cost in XLA's statistic; here it must not count.
            nodes[step.name] = nodes[f"{step.name}.done"] = 1.0
            latencies[step.name] = step.us
        elif isinstance(step, Sync):
            nodes[step.name] = step.us
    return TableEstimator(nodes, latencies)


def every(steps: Steps) -> list[Step]:
    """All steps, those of bodies included."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        for body in bodies_of(step):
            found += every(body)
    return found


def bodies_of(step: Step) -> tuple[Steps, ...]:
    if isinstance(step, Loop | CallOf):
        return (step.body,)
    return step.bodies if isinstance(step, Branches) else ()


# -- the plain model --------------------------------------------------------------


@dataclass
class Plain:
    """Clock and queues, and what was added up on the way."""

    stream_of: Mapping[str, int]
    now: float = 0.0
    compute: float = 0.0
    communication: float = 0.0
    exposed: dict[str, float] = field(default_factory=dict)
    free: dict[int, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)


def plain_model(steps: Steps, stream_of: Mapping[str, int]) -> Plain:
    """Walk the steps, every iteration by itself."""
    state = Plain(stream_of)
    _walk(steps, state)
    state.now = max([state.now, *state.ends.values()])
    return state


def _walk(steps: Steps, at: Plain) -> None:
    for step in steps:
        if isinstance(step, Compute):
            at.now += step.us
            at.compute += step.us
        elif isinstance(step, Start):
            stream = at.stream_of[step.name]
            begin = max(at.now, at.free.get(stream, 0.0))
            at.free[stream] = at.ends[step.name] = begin + step.us
            at.communication += step.us
        elif isinstance(step, Done):
            wait = max(0.0, at.ends[step.start] - at.now)
            at.exposed[step.start] = at.exposed.get(step.start, 0.0) + wait
            at.now += wait
        elif isinstance(step, Sync):
            at.now += step.us
            at.communication += step.us
            at.exposed[step.name] = at.exposed.get(step.name, 0.0) + step.us
        elif isinstance(step, Loop):
            for _ in range(step.trips):
                _walk(step.body, at)
        elif isinstance(step, CallOf):
            _walk(step.body, at)
        else:
            costs = [plain_model(body, at.stream_of).now for body in step.bodies]
            _walk(step.bodies[costs.index(max(costs))], at)


# -- random steps -----------------------------------------------------------------

#: Halves of whole numbers: sums are exact, so that ties are ties.
times = st.integers(0, 40).map(lambda n: n / 2)


@st.composite
def step_lists(draw: st.DrawFn, *, depth: int = 2, prefix: str = "") -> Steps:
    """Any legal list: every start has its done after it, in the same computation."""
    steps: list[Step] = []
    open_starts: list[str] = []
    for k in range(draw(st.integers(1, 8))):
        name = f"{prefix}{k}"
        kinds = ["compute", "start", "start", "sync"]
        kinds += ["done"] * 2 * bool(open_starts)
        kinds += ["loop", "branches", "call"] * (depth > 0)
        kind = draw(st.sampled_from(kinds))
        if kind == "compute":
            steps.append(Compute(f"fusion{name}", draw(times)))
        elif kind == "start":
            steps.append(Start(f"start{name}", draw(times)))
            open_starts.append(f"start{name}")
        elif kind == "sync":
            steps.append(Sync(f"sync{name}", draw(times)))
        elif kind == "done":
            steps.append(
                Done(open_starts.pop(draw(st.integers(0, len(open_starts) - 1))))
            )
        else:
            inner = [
                draw(step_lists(depth=depth - 1, prefix=f"{name}.{b}."))
                for b in range(2 if kind == "branches" else 1)
            ]
            if kind == "loop":
                steps.append(Loop(f"while{name}", draw(st.integers(0, 5)), inner[0]))
            elif kind == "call":
                steps.append(CallOf(f"call{name}", inner[0]))
            else:
                steps.append(Branches(f"cond{name}", tuple(inner)))
    steps += [Done(start) for start in open_starts]
    return tuple(steps)
