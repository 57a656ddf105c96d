"""A computation as a search problem: flat lists, an index is a place in its order.

    %a = fusion(...)          cost 40             runs on the compute lane
    %s = all-gather-start     latency 50          goes to stream 0, partner %d
    %w = while(...)           cost 12 x its body  needs what its body has in flight
    %d = all-gather-done      waits for %s

Edges, resources and limits are those of the latency-hiding scheduler, times those of
the simulator, buffers those of the memory model: nothing is derived here a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.latency_hiding.edges import connect_all
from hlo_passes.scheduler.latency_hiding.gpu_tracker import is_stream_collective
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.groups import find_groups
from hlo_passes.scheduler.latency_hiding.in_flight import (
    HARMLESS_SHARED_RANKS,
    Groups,
    groups_of,
    most_shared_ranks,
)
from hlo_passes.scheduler.latency_hiding.resources import (
    UNLIMITED,
    Holdings,
    Resource,
    Usage,
    limits,
)
from hlo_passes.scheduler.latency_hiding.statistics import latency_us
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from hlo_passes.scheduler.memory.pressure import ComputationMemory, ModuleMemory
from hlo_passes.scheduler.passes.stream_values import Stream
from hlo_passes.scheduler.simulation.program import (
    Call,
    Compute,
    Done,
    OuterDone,
    Program,
    Start,
    Sync,
)
from hlo_passes.scheduler.sums import sequential_sum

#: A limit from here on is none.
_NO_LIMIT: Final = 2**30
#: Changes of a resource: (its number, by how many), or what is needed of it.
Counts = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Environment:
    """What all problems of a module share.

    Attributes:
        estimator: of XLA's statistic and of the graph's edges, us.
        tracker: of resources, under the settings of the run.
        memory: of the module, in the order given.
        steps: time of each computation that is known already, us: callees first.
    """

    estimator: Estimator
    tracker: AsyncTracker
    memory: ModuleMemory
    steps: dict[Computation, float]

    @property
    def limits(self) -> list[int]:
        """Instances of every resource, by its number."""
        return limits(self.tracker.settings)


@dataclass(slots=True, eq=False)
class Problem:
    """A computation in the order given.

    Attributes:
        computation: to be improved.
        instructions: in the order given; the index into all lists.
        preds, succs: neighbors that must come before and after, each once.
        cost_us: on the compute lane: with what it calls, and with a synchronous
            collective's time.
        latency_us: of a start: how long its stream is busy; else 0.
        stream: number of a start's stream, -1 for what is no start.
        partner: the done of a start and the start of a done in it, else -1.
        is_start, is_done: asynchronous halves that take part in time.
        changes: by node, what is in flight after it by resource.
        needs: by node, what it has in flight inside by resource.
        limits: by resource.
        memory: buffers that each instruction begins and ends.
        groups: members of each scheduling group.
        clashes: by start, those that must not be in flight with it.
        handed_over: starts and dones whose other half is in another run.
        xla_cost_us: of each node in XLA's statistic.
        xla_pairs: by done, its start and its latency in XLA's statistic.
        stream_names: by number of a stream.
        breaks_edge: an edge that the order given does not respect, else None.
        is_exact: whether the simulator's step follows from these numbers alone.
    """

    computation: Computation
    instructions: tuple[Instruction, ...]
    preds: list[list[int]]
    succs: list[list[int]]
    cost_us: list[float]
    latency_us: list[float]
    stream: list[int]
    partner: list[int]
    is_start: bytearray
    is_done: bytearray
    changes: dict[int, Counts]
    needs: dict[int, Counts]
    limits: list[int]
    memory: ComputationMemory
    groups: dict[int, list[int]]
    clashes: dict[int, frozenset[int]]
    handed_over: list[int]
    xla_cost_us: list[float]
    xla_pairs: dict[int, tuple[int, float]]
    stream_names: list[str] = field(default_factory=list)
    breaks_edge: tuple[int, int] | None = None
    is_exact: bool = True

    def __len__(self) -> int:
        """Number of instructions."""
        return len(self.instructions)

    def name(self, n: int) -> str:
        """Name of a node's instruction."""
        return self.instructions[n].name


def make_problem(program: Program, environment: Environment) -> Problem:
    """The problem of a computation.

    Args:
        program: of the computation, as the simulator runs it.
        environment: with the steps of everything that it calls.
    """
    computation = program.computation
    costs = [environment.estimator.node_cost(i) for i in computation.instructions]
    xla_cost = [0.0 if c is None else c.us for c in costs]
    graph = ScheduleGraph(
        computation,
        computation.instructions,
        environment.estimator,
        environment.tracker,
        dict(zip(computation.instructions, xla_cost, strict=True)),
    )
    connect_all(graph, environment.memory.alias_hazards())
    count = len(graph)
    problem = Problem(
        computation=computation,
        instructions=graph.instructions,
        preds=[sorted(set(near)) for near in graph.preds],
        succs=[sorted(set(near)) for near in graph.succs],
        cost_us=list(program.costs_us),
        latency_us=[0.0] * count,
        stream=[-1] * count,
        partner=[-1] * count,
        is_start=bytearray(count),
        is_done=bytearray(count),
        changes={},
        needs={},
        limits=[UNLIMITED if r >= _NO_LIMIT else r for r in environment.limits],
        memory=environment.memory.of(computation),
        groups=find_groups(graph),
        clashes={},
        handed_over=[],
        xla_cost_us=xla_cost,
        xla_pairs=_xla_pairs(graph, environment),
        breaks_edge=_backward_edge(graph),
    )
    silent = _fill_times(problem, program, graph.index, environment.steps)
    _fill_resources(problem, graph, silent)
    if environment.tracker.settings.enable_collective_multi_streaming:
        problem.clashes = _clashes(problem, graph)
    return problem


def run_us(program: Program, steps: Mapping[Computation, float]) -> float:
    """The step of a computation in its own order, all streams idle before it, us."""
    now = 0.0
    free: dict[Stream, float] = {}
    ends: dict[int, float] = {}
    for item in program.items:
        if isinstance(item, Compute):
            now += item.cost_us
        elif isinstance(item, Sync):
            now += item.work.price.us
        elif isinstance(item, Call):
            now += called_us(item, steps)
        elif isinstance(item, Start):
            work = item.work
            assert work.stream is not None
            took = work.price.us if work.body is None else steps[work.body]
            end = max(now, free.get(work.stream, 0.0)) + took
            free[work.stream] = ends[work.number] = end
        elif isinstance(item, Done):
            now = max(now, ends[item.work.number])
    return now


def called_us(call: Call, steps: Mapping[Computation, float]) -> float:
    """How long a caller takes, us; of branches the longest one runs."""
    inner = [steps[callee] for callee in call.callees]
    if call.probabilities:
        shares = zip(inner, call.probabilities, strict=True)
        return sequential_sum(us * share for us, share in shares)
    if len(inner) > 1:
        return max(inner)
    return sum((us * call.trip_count for us in inner), 0.0)


def _fill_times(
    problem: Problem,
    program: Program,
    index: Mapping[Instruction, int],
    steps: Mapping[Computation, float],
) -> set[int]:
    """Times and pairs; returns halves that run in place and are never in flight."""
    streams: dict[Stream, int] = {}
    silent: set[int] = set()
    for item in program.items:
        if isinstance(item, Sync):
            work = item.work
            problem.cost_us[work.position] += work.price.us
            silent.add(work.position)
            silent.update(index[u] for u in work.instruction.users)
            problem.is_exact = problem.is_exact and work.groups is None
        elif isinstance(item, Call):
            problem.cost_us[item.position] += called_us(item, steps)
        elif isinstance(item, OuterDone):
            problem.handed_over.append(item.position)
        elif isinstance(item, Start):
            work, n = item.work, item.work.position
            assert work.stream is not None
            problem.is_start[n] = 1
            problem.stream[n] = streams.setdefault(work.stream, len(streams))
            problem.latency_us[n] = (
                work.price.us if work.body is None else steps[work.body]
            )
            problem.is_exact = problem.is_exact and work.groups is None
            if work.done is None:
                problem.handed_over.append(n)
                continue
            done = index[work.done]
            problem.partner[n], problem.partner[done] = done, n
            problem.is_done[done] = 1
    problem.stream_names = [str(stream) for stream in streams]
    problem.is_exact = problem.is_exact and not problem.handed_over
    return silent


def _fill_resources(problem: Problem, graph: ScheduleGraph, silent: set[int]) -> None:
    limited = [r < UNLIMITED for r in problem.limits]
    for n, entries in graph.net.items():
        found = _changes(entries, limited)
        if found and n not in silent:
            problem.changes[n] = found
    for n, needed in graph.needs.items():
        if graph.is_start[n] or graph.is_done[n]:
            continue  # the changes say it
        inside = tuple((int(r), count) for r, count in needed if limited[r])
        if inside:
            problem.needs[n] = inside


def _changes(entries: Holdings, limited: list[bool]) -> Counts:
    return tuple(
        (int(r), 1 if usage is Usage.RELEASE else -1)
        for r, usage in entries
        if usage is not Usage.NONE and limited[r]
    )


def _xla_pairs(
    graph: ScheduleGraph, environment: Environment
) -> dict[int, tuple[int, float]]:
    """The pairs that XLA's statistic counts."""
    found: dict[int, tuple[int, float]] = {}
    for done, is_done in enumerate(graph.is_done):
        start = graph.start_of(done) if is_done else None
        if start is not None and graph.is_start[start]:
            us = latency_us(
                environment.estimator,
                graph.instructions[start],
                graph.instructions[done],
            )
            found[done] = (start, us)
    return found


def _backward_edge(graph: ScheduleGraph) -> tuple[int, int] | None:
    if not graph.runs_backwards:
        return None
    return next(
        ((n, s) for n, succs in enumerate(graph.succs) for s in succs if n >= s), None
    )


@dataclass(slots=True)
class _Ranks:
    """Whether collectives may be in flight together; alike ones are compared once."""

    known: dict[tuple[Groups, Groups], bool] = field(default_factory=dict)

    def clash(self, one: Groups | None, other: Groups | None) -> bool:
        if not one or not other:
            return True  # unknown, or all devices
        key = one, other
        found = self.known.get(key)
        if found is None:
            found = most_shared_ranks(one, other) > HARMLESS_SHARED_RANKS
            self.known[key] = found
        return found


def _clashes(problem: Problem, graph: ScheduleGraph) -> dict[int, frozenset[int]]:
    """By start, the collectives with which it shares more than one rank."""
    alike: dict[Groups | None, list[int]] = {}
    for n, entries in graph.resources.items():
        start = graph.instructions[n]
        if (
            problem.is_start[n]
            and entries
            and entries[0][0] is Resource.GPU_COLLECTIVES
            and not is_stream_collective(start)
        ):
            alike.setdefault(groups_of(start), []).append(n)
    ranks = _Ranks()
    found: dict[int, frozenset[int]] = {}
    for one, starts in alike.items():
        others = [k for two, ks in alike.items() if ranks.clash(one, two) for k in ks]
        together = frozenset(others)
        for n in starts:
            found[n] = together
    return found
