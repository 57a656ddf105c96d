"""`table`: costs by instruction name from a file, instead of any model.

    {"node_cost_us": {"fusion.1": 12.5}, "latency_us": {"all-gather-start": 310.0},
     "latency_fallback": {"all-reduce-start": 5000.0}}

A missing name costs 0: XLA prices only computations with async operations. So this
estimator always answers. However, XLA's log never lists a send or recv, whose latency
its scheduler takes from the coarse estimator; `transfers_as_xla` does the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.files import LARGER, TooLargeError, opened, read_file
from hlo_passes.ir.async_form import is_start, is_transfer
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.approximate import GpuApproximateEstimator
from hlo_passes.scheduler.estimators.base import LOW, MOST_US
from hlo_passes.scheduler.latency.estimate import Estimate

_LATENCIES: Final = ("latency_us", "latency_fallback")
_KEYS: Final = ("node_cost_us", *_LATENCIES)
_COARSE: Final = GpuApproximateEstimator()
#: Characters that are shown of a value that is refused.
_SHOWN_LETTERS: Final = 40


@dataclass(frozen=True, slots=True)
class TableEstimator:
    """Costs and latencies by name, us.

    Attributes:
        node_costs: by instruction.
        latencies: by start.
        transfers_as_xla: missing sends and recvs have XLA's coarse latency, not 0.
        absent: the cost of a name that is missing.
        to_others: the latency of a start to what is not its done, as a control
            successor; None for that of the start.
        edges: by start, its latency to others by name, where `to_others` is too little.
        has_whole_loops: whether the cost of a loop, branch or call counts what it runs.
    """

    node_costs: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[str, float] = field(default_factory=dict)
    name: str = "table"
    transfers_as_xla: bool = False
    absent: float = 0.0
    to_others: float | None = None
    edges: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    has_whole_loops: bool = False

    def node_cost(self, instruction: Instruction) -> Estimate:
        """The cost of that name, `absent` if there is none."""
        return Estimate(self.node_costs.get(instruction.name, self.absent), self.name)

    def latency(self, start: Instruction, user: Instruction) -> Estimate:
        """The latency of a start, 0 if it is missing; 1 for edges out of the others.

        Of a start whose done is elsewhere, the user is the start itself.
        """
        known = self.latencies.get(start.name)
        is_pair = user is start or start in user.operands
        if self.to_others is not None and not is_pair:
            known = self.edges.get(start.name, {}).get(user.name, self.to_others)
        elif known is None:
            if self.transfers_as_xla and is_transfer(start):
                return _COARSE.latency(start, user)
            if is_start(start):
                return Estimate(0.0, self.name, f"the costs lack %{start.name}")
            known = LOW
        return Estimate(known, self.name)


def is_priced_whole(
    caller: Instruction,
    node_costs: Mapping[str, float],
    latencies: Mapping[str, float],
) -> bool:
    """Whether a loop, branch or call has a cost, and nothing that it runs has one.

    XLA:TPU's scheduler prices a loop in its caller. It looks into a computation only if
    that has something asynchronous.
    """
    if not runs_callees(caller) or caller.name not in node_costs:
        return False
    reached = dict.fromkeys(bodies_of(caller))
    for computation in (left := [*reached]):
        if has_costs(computation, node_costs, latencies):
            return False
        for inner in computation.instructions:
            if runs_callees(inner):
                new = [each for each in bodies_of(inner) if each not in reached]
                reached |= dict.fromkeys(new)
                left += new
    return True


def has_costs(
    computation: Computation,
    node_costs: Mapping[str, float],
    latencies: Mapping[str, float],
) -> bool:
    """Whether an instruction of a computation, itself, has a cost."""
    return any(
        i.name in node_costs or i.name in latencies for i in computation.instructions
    )


def bodies_of(caller: Instruction) -> tuple[Computation, ...]:
    """What a caller runs, without the condition of a loop."""
    callees = caller.called_computations
    # XLA's order of a loop's callees: the body, then the condition.
    return callees[:1] if caller.opcode == "while" else callees


def read_costs(path: str) -> TableEstimator:
    """Read a costs file, possibly `.gz`.

    Raises UsageError U001 (no such file), U206 (not a costs file).
    """
    view = costs_view(path)
    if not isinstance(view, dict) or not any(key in view for key in _KEYS):
        raise _refuse(path, f"it has none of the keys {', '.join(_KEYS)}")
    tables = {key: _numbers(path, key, view.get(key) or {}) for key in _KEYS}
    latencies = {n: us for key in _LATENCIES for n, us in tables[key].items()}
    return TableEstimator(tables["node_cost_us"], latencies)


def costs_view(path: str) -> Any:
    """The JSON of a costs file, possibly `.gz`; UsageError U001, U206."""
    data = read_file(path)
    try:
        return json.loads(opened(data).decode())
    except TooLargeError as problem:
        raise UsageError(f"{path}: {problem}", code="U206", hint=LARGER) from problem
    except (OSError, ValueError, RecursionError) as problem:
        raise _refuse(path, f"not JSON: {problem}") from problem


def _numbers(path: str, key: str, table: Any) -> dict[str, float]:
    if not isinstance(table, dict):
        raise _refuse(path, f"{key} is not a table of names")
    for name, us in table.items():
        is_number = isinstance(us, int | float) and not isinstance(us, bool)
        if not is_number or not 0 <= us <= MOST_US:
            shown = repr(us)[:_SHOWN_LETTERS]
            raise _refuse(path, f"{key}[{name!r}] is {shown}, not microseconds")
    return {name: float(us) for name, us in table.items()}


def _refuse(path: str, what: str) -> UsageError:
    return UsageError(
        f"{path}: {what}",
        code="U206",
        hint='{"node_cost_us": {name: us}, "latency_us": {start name: us}}; a TPU\'s '
        "has node_cost_cycles and latency_cycles, and `lower --write-costs` writes it",
    )
