"""Solvers that close a model: HiGHS through scipy, CP-SAT of OR-Tools.

    HiGHS    the model of `exact_model`: pairs of one resource with limit 1
    CP-SAT   a job shop: one compute lane, streams, all overlap limits

Both leave memory out, so what they rule out is ruled out under every cap. Neither is in
the way of who does not ask for a proof: they are imported when one is asked for.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.scheduler.improver.atoms import STARTS, Atoms
from hlo_passes.scheduler.improver.exact_model import ExactModel
from hlo_passes.scheduler.sums import sequential_sum

HIGHS: Final = "highs"
CP_SAT: Final = "cp-sat"
#: How a user knows them.
SOLVER_NAMES: Final = {HIGHS: "HiGHS", CP_SAT: "CP-SAT"}
_PACKAGES: Final = {HIGHS: "scipy", CP_SAT: "ortools"}
_MODULES: Final = {HIGHS: "scipy.optimize", CP_SAT: "ortools.sat.python.cp_model"}
#: All times of a model together, in its own unit.
_TOTAL: Final = 1000.0
#: What a solution of HiGHS may be off, as a share of all times together.
TOLERANCE: Final = 1e-6
#: All times together in CP-SAT, in whole numbers.
_TICKS: Final = 2**36


@dataclass(frozen=True, slots=True)
class Limits:
    """When a solver gives up.

    Attributes:
        seconds: of the clock, None for none: then another run may end elsewhere.
        nodes: of HiGHS's tree, conflicts of CP-SAT, None for no limit.
        solver: HIGHS or CP_SAT.
    """

    seconds: float | None = None
    nodes: int | None = None
    solver: str = HIGHS


@dataclass(frozen=True, slots=True)
class Solved:
    """What a solver says.

    Attributes:
        bound_us: no order is below it.
        is_closed: whether it tried everything, so that nothing was cut short.
        seconds: how long it took.
        nodes: of the tree, or conflicts.
    """

    bound_us: float
    is_closed: bool
    seconds: float
    nodes: int


def require(solver: str) -> Any:
    """The module of a solver.

    Raises:
        UsageError: U229 if its package is not installed.
    """
    try:
        return importlib.import_module(_MODULES[solver])
    except ImportError as problem:
        package = _PACKAGES[solver]
        raise UsageError(
            f"a proof with {SOLVER_NAMES[solver]} needs {package}",
            code="U229",
            hint=f"pip install {package}, or pip install 'hlo-passes[prove]'",
        ) from problem


def highs(model: ExactModel, step_us: float, limits: Limits) -> Solved:
    """The bound that HiGHS proves.

    It is asked for an order that is faster than one known: if there is none, that one
    is the fastest.

    Args:
        model: of the computation.
        step_us: of a known order.
        limits: when it gives up.
    """
    optimize = require(HIGHS)
    array = importlib.import_module("numpy").array
    sparse = importlib.import_module("scipy.sparse")
    began = time.monotonic()
    unit = model.total_us / _TOTAL
    count = len(model.upper)
    rows = len(model.row_lower)
    # Times are in units of their own; entries of a row with times are divided too.
    hidden = set(model.hidden)
    timed = {
        model.places[k] for k, column in enumerate(model.columns) if column in hidden
    }
    factors = [
        factor / unit if place in timed and column not in hidden else factor
        for place, column, factor in zip(
            model.places, model.columns, model.factors, strict=True
        )
    ]
    row_upper = [
        high / unit if place in timed else high
        for place, high in enumerate(model.row_upper)
    ]
    upper = [
        most / unit if column in hidden else most
        for column, most in enumerate(model.upper)
    ]
    # More must be hidden than in the order that is known.
    known = _TOTAL - step_us / unit
    places = [*model.places, *[rows] * len(model.hidden)]
    columns = [*model.columns, *model.hidden]
    factors += [1.0] * len(model.hidden)
    matrix = sparse.csr_array((factors, (places, columns)), shape=(rows + 1, count))
    gain = array([-1.0 if column in hidden else 0.0 for column in range(count)])
    options: dict[str, Any] = {"mip_rel_gap": TOLERANCE / 10}
    if limits.seconds is not None:
        options["time_limit"] = max(0.01, limits.seconds)
    if limits.nodes is not None:
        options["node_limit"] = limits.nodes
    found = optimize.milp(
        gain,
        integrality=array([int(whole) for whole in model.is_whole]),
        bounds=optimize.Bounds(array(model.lower), array(upper)),
        constraints=optimize.LinearConstraint(
            matrix,
            array([*model.row_lower, known + TOLERANCE * _TOTAL]),
            array([*row_upper, math.inf]),
        ),
        options=options,
    )
    seconds = time.monotonic() - began
    nodes = int(found.get("mip_node_count") or 0)
    # 0: solved; 2: there is no such order.
    is_closed = found.status in (0, 2)
    dual = found.get("mip_dual_bound")
    if found.status == 2:
        bound = step_us
    elif dual is None or not math.isfinite(dual):
        bound = 0.0
    else:
        bound = (_TOTAL + dual) * unit
    bound -= TOLERANCE * model.total_us
    return Solved(max(0.0, min(bound, step_us)), is_closed, seconds, nodes)


def cp_sat(
    atoms: Atoms, order: Sequence[int], step_us: float, limits: Limits
) -> Solved:
    """The bound that CP-SAT proves, with all streams and limits.

    Args:
        atoms: of the computation.
        order: one that is known, from which it starts.
        step_us: of that order.
        limits: when it gives up.
    """
    cp = require(CP_SAT)
    began = time.monotonic()
    busy_us = sequential_sum(atoms.cost_us) + sequential_sum(atoms.latency_us)
    scale = _TICKS / busy_us
    # Rounded down, so that no order becomes longer than it is.
    cost = [math.floor(us * scale) for us in atoms.cost_us]
    latency = [math.floor(us * scale) for us in atoms.latency_us]
    begins, most = _walk(atoms, order, cost, latency)
    model = cp.CpModel()
    at = [model.new_int_var(0, most, "") for _ in begins]
    for variable, begin in zip(at, begins, strict=True):
        model.add_hint(variable, begin)
    for v, near in enumerate(atoms.preds):
        for p in near:
            model.add(at[v] >= at[p] + cost[p])
    # The lane runs one after the other; a start is never inside something else.
    lane = [
        model.new_fixed_size_interval_var(at[v], cost[v], "")
        for v, kind in enumerate(atoms.kind)
        if cost[v] or kind == STARTS
    ]
    model.add_no_overlap(lane)
    end = model.new_int_var(0, most, "")
    for v, variable in enumerate(at):
        model.add(end >= variable + cost[v])
    _add_pairs(model, atoms, at, cost, latency, most)
    model.minimize(end)
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    if limits.seconds is not None:
        solver.parameters.max_time_in_seconds = max(0.01, limits.seconds)
    if limits.nodes is not None:
        solver.parameters.max_number_of_conflicts = limits.nodes
    status = solver.solve(model)
    found = solver.best_objective_bound
    bound = found / scale if math.isfinite(found) else 0.0
    return Solved(
        bound_us=max(0.0, min(bound, step_us)),
        is_closed=status == cp.OPTIMAL,
        seconds=time.monotonic() - began,
        nodes=int(solver.num_conflicts),
    )


def _walk(
    atoms: Atoms, order: Sequence[int], cost: Sequence[int], latency: Sequence[int]
) -> tuple[list[int], int]:
    """When each atom begins in an order, and when the last one has ended."""
    begins = [0] * len(atoms)
    ends = [0] * len(atoms)
    free: dict[int, int] = {}
    now = 0
    for v in order:
        k = atoms.stream[v]
        if atoms.kind[v] == STARTS:
            ends[v] = free[k] = max(now, free.get(k, 0)) + latency[v]
        elif atoms.partner[v] >= 0:
            now = max(now, ends[atoms.partner[v]])
        begins[v] = now
        now += cost[v]
    return begins, now


def _add_pairs(
    model: Any,
    atoms: Atoms,
    at: Sequence[Any],
    cost: Sequence[int],
    latency: Sequence[int],
    most: int,
) -> None:
    """Streams run one pair after the other, and limits hold."""
    queues: dict[int, list[Any]] = {}
    windows: dict[int, list[tuple[Any, int]]] = {}
    for s, kind in enumerate(atoms.kind):
        if kind != STARTS:
            continue
        done, r = at[atoms.partner[s]], atoms.resource[s]
        begin = at[s]
        if r < 0 or atoms.limits[r] > 1:
            begin = model.new_int_var(0, most, "")  # it may wait for its stream
            model.add(begin >= at[s])
        model.add(done >= begin + latency[s])
        queue = queues.setdefault(atoms.stream[s], [])
        queue.append(model.new_fixed_size_interval_var(begin, latency[s], ""))
        if r >= 0:
            length = model.new_int_var(0, most, "")
            window = model.new_interval_var(at[s], length, done, "")
            windows.setdefault(r, []).append((window, 1))
    for queue in queues.values():
        model.add_no_overlap(queue)
    for v, needs in atoms.needs.items():
        if cost[v]:
            for r, count in needs:
                own = model.new_fixed_size_interval_var(at[v], cost[v], "")
                windows.setdefault(r, []).append((own, count))
    for r, found in windows.items():
        # What is in flight before the first atom is left out: it ends somewhere.
        counts = [count for _, count in found]
        if sum(counts) > atoms.limits[r]:
            intervals = [window for window, _ in found]
            model.add_cumulative(intervals, counts, atoms.limits[r])
