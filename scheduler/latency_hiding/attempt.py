"""One attempt to schedule one computation: graph, state, policy, loop.

attempt = Attempt(computation, memory, run)
order = attempt.place_all()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.latency_hiding.edges import connect_all
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.groups import GroupState, find_groups
from hlo_passes.scheduler.latency_hiding.loop import run
from hlo_passes.scheduler.latency_hiding.pairs import PairScan, Policy, Watcher
from hlo_passes.scheduler.latency_hiding.rule import Rule
from hlo_passes.scheduler.latency_hiding.scan import policy
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker
from hlo_passes.scheduler.memory.pressure import ModuleMemory

#: Numbers by instruction that a search procedure prefers, kPreference.
Preferences = Callable[[Computation], dict[Instruction, float]]


@dataclass(frozen=True, slots=True)
class Environment:
    """What all attempts of a run share.

    Attributes:
        estimator: of costs and latencies, us.
        settings: of the run.
        tracker: of the settings' flavour.
        rules: those that settings leave on, in order.
        preferences: of a search procedure, None for none.
    """

    estimator: Estimator
    settings: SchedulerSettings
    tracker: AsyncTracker
    rules: tuple[Rule, ...]
    preferences: Preferences | None = None


class Attempt:
    """A graph with a state, ready to be placed.

    Attributes:
        graph: of the computation.
        state: empty until `place_all`.
        start_reasons: by start, the reason of the rule that preferred it to the last
            other candidate; filled while nodes are placed.
    """

    def __init__(
        self,
        computation: Computation,
        memory: ModuleMemory,
        environment: Environment,
        *,
        memory_limit_bytes: int | None,
        costs_us: Mapping[Instruction, float] | None = None,
        watch: Callable[[ScheduleGraph], Watcher] | None = None,
    ) -> None:
        """Build the graph.

        Args:
            computation: in its base order.
            memory: of the module, in that order.
            environment: of the run.
            memory_limit_bytes: of this round.
            costs_us: node costs, if they are known already.
            watch: creates the watcher of all comparisons from the graph.
        """
        settings = environment.settings
        self._environment = environment
        graph = self.graph = ScheduleGraph(
            computation,
            computation.instructions,
            environment.estimator,
            environment.tracker,
            costs_us,
        )
        connect_all(graph, memory.alias_hazards())
        state = self.state = SchedulingState(
            graph,
            memory=memory.of(computation),
            memory_limit_bytes=memory_limit_bytes,
            delays_starts=settings.delays_starts(environment.estimator.name),
        )
        if environment.preferences is not None:
            wanted = environment.preferences(computation)
            state.prefer({graph.index[i]: v for i, v in wanted.items()})
        self._watcher = None if watch is None else watch(graph)
        groups = find_groups(graph)
        self._groups = GroupState(state, groups, self._watcher) if groups else None
        state.groups = self._groups
        self.start_reasons: dict[Instruction, str] = {}

    def place_all(
        self,
        decides: Policy | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Instruction]:
        """Place everything; returns the instructions in program order.

        Args:
            decides: in place of the environment's rules.
            progress: called with the number placed, now and then.
        """
        graph, state = self.graph, self.state
        state.seed()
        chosen = decides or self.policy()

        def note_start(n: int, runner_up: int | None) -> None:
            reason = ""
            if runner_up is not None:
                rule, _ = compare.compare(n, runner_up)
                reason = rule.reason
            self.start_reasons[graph.instructions[n]] = reason

        compare = PairScan(state, self._environment.rules)
        order = run(
            state, chosen, self._groups, note_start=note_start, progress=progress
        )
        return [graph.instructions[n] for n in order]

    @property
    def peak_delta_bytes(self) -> int:
        """Growth of memory at its peak, above what is live outside the computation."""
        memory = self.state.memory
        assert memory is not None  # an attempt always tracks it
        return memory.peak_delta_bytes

    def policy(self) -> Policy:
        """What decides unless another policy is given: the environment's rules."""
        return policy(self.state, self._environment.rules, self._watcher)
