"""How good the orders of a module are, by solvers that can rule all others out.

proved optimal   no order is faster, whatever the memory
bound raised     no order is faster than so many us; the solver gave up, or what is
                 faster needs more memory, or XLA's statistic calls it worse
no proof         the bound stays: the solver gave up, closed its model at the bound, or
                 has none

A proof changes no order: a search by moves is better at finding them. Computations with
the fewest pairs and operations come first, and what they leave of the time is for the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.improver.atoms import Atoms, make_atoms
from hlo_passes.scheduler.improver.bounds import lower_bound
from hlo_passes.scheduler.improver.evaluation import step_us
from hlo_passes.scheduler.improver.exact_model import exact_model
from hlo_passes.scheduler.improver.problem import Environment, make_problem, run_us
from hlo_passes.scheduler.improver.reach import reach_of
from hlo_passes.scheduler.improver.solvers import (
    CP_SAT,
    HIGHS,
    SOLVER_NAMES,
    TOLERANCE,
    Limits,
    Solved,
    cp_sat,
    highs,
)
from hlo_passes.scheduler.improver.whole_module import Conditions, module_bound_us
from hlo_passes.scheduler.improver.window import Window
from hlo_passes.scheduler.latency_hiding.driver import computations_to_schedule
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.simulation.step import run_step

#: A step this near to a bound is the bound; to one of HiGHS, with tolerances of both
#: sides of a sum of compute and pairs, which is at most twice the step.
_AT_BOUND: Final = 1e-6
_AT_BOUND_OF_HIGHS: Final = 4 * TOLERANCE
#: What a bound must gain to be called raised.
_RAISED: Final = 4 * TOLERANCE


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known about the order of one computation.

    Attributes:
        computation: its name.
        step_us: of its order.
        flow_us: the bound before, by what can overlap.
        bound_us: that no order is below, with any memory.
        solver: who was asked, '' for nobody.
        is_closed: whether the solver tried everything.
        seconds, nodes: what it took.
        why_not: why nobody was asked, '' if somebody was.
    """

    computation: str
    step_us: float
    flow_us: float
    bound_us: float
    solver: str = ""
    is_closed: bool = False
    seconds: float = 0.0
    nodes: int = 0
    why_not: str = ""

    @property
    def verdict(self) -> str:
        """'proved optimal', 'bound raised' or 'no proof'."""
        near = _AT_BOUND_OF_HIGHS if self.solver == HIGHS else _AT_BOUND
        if self.step_us <= self.bound_us * (1 + near):
            return "proved optimal"
        if self.bound_us > self.flow_us * (1 + _RAISED):
            return "bound raised"
        return "no proof"

    def text(self, limits: Limits) -> str:
        """One line for a user."""
        name, verdict = f"%{self.computation}", self.verdict
        own = SOLVER_NAMES.get(self.solver, "")
        if verdict == "proved optimal":
            by = f" ({own})" if own else ""
            return (
                f"{verdict}: no order of {name} takes less than its "
                f"{self.step_us:.6g} us, whatever the memory{by}"
            )
        end = f"{own} gave up after {_spent(self, limits)}"
        if self.is_closed:
            end = f"{own} closed its model, which leaves memory and other estimates out"
        if self.why_not:
            end = self.why_not
        if verdict == "bound raised":
            return (
                f"{verdict}: no order of {name} takes less than {self.bound_us:.6g} us "
                f"(it takes {self.step_us:.6g}, and {self.flow_us:.6g} was the bound "
                f"before): {end}"
            )
        return (
            f"{verdict}: {name} takes {self.step_us:.6g} us, and its bound is "
            f"{self.bound_us:.6g}: {end}"
        )

    def to_json(self) -> dict[str, Any]:
        """Its fields and its verdict."""
        return {
            "verdict": self.verdict,
            "step_us": self.step_us,
            "flow_bound_us": self.flow_us,
            "bound_us": self.bound_us,
            "solver": SOLVER_NAMES.get(self.solver),
            "is_closed": self.is_closed,
            "seconds": round(self.seconds, 3),
            "nodes": self.nodes,
            "why_not": self.why_not or None,
        }


def _spent(proof: Proof, limits: Limits) -> str:
    if limits.nodes is None or (
        limits.seconds is not None and proof.nodes < limits.nodes
    ):
        return f"{proof.seconds:.3g} s"
    what = "conflicts" if proof.solver == CP_SAT else "nodes"
    return f"{proof.nodes:,} {what}"


def prove_module(
    module: Module,
    conditions: Conditions,
    limits: Limits,
    *,
    progress: Callable[[str], None] | None = None,
) -> list[Proof]:
    """Prove what can be proven about the orders that a module has.

    Args:
        module: scheduled.
        conditions: costs, limits and machine.
        limits: `seconds` for all computations together, `nodes` for each.
        progress: receives a status line for each computation.
    """
    found: dict[int, Proof] = {}
    asked: list[tuple[int, int, Atoms, Proof]] = []
    for number, atoms in enumerate(_all_atoms(module, conditions)):
        proof = _unproved(atoms, lower_bound(atoms).us)
        if not proof.why_not and proof.verdict != "proved optimal":
            size = len(atoms) * len(atoms.dones)
            asked.append((size, number, atoms, proof))
        found[number] = proof
    asked.sort(key=lambda each: each[:2])
    seconds = limits.seconds
    for place, (_, number, atoms, proof) in enumerate(asked):
        if progress is not None:
            progress(f"proving %{proof.computation}")
        share = None if seconds is None else seconds / (len(asked) - place)
        found[number] = _proved(atoms, proof, replace(limits, seconds=share))
        if seconds is not None:
            seconds = max(0.0, seconds - found[number].seconds)
    if progress is not None:
        progress("")
    return [found[number] for number in sorted(found)]


def proven_bound_us(
    module: Module, conditions: Conditions, solvers: Sequence[Limits]
) -> float:
    """What the step of a module cannot be below, with any orders and any memory, us.

    Args:
        module: scheduled. The nearer its orders are to the fastest ones, the sooner a
            solver knows that nothing is faster.
        conditions: costs, limits and machine.
        solvers: which are asked about a computation, one after the other, until it is
            proved optimal; their limits are for each computation.
    """

    def raised(atoms: Atoms, flow_us: float) -> float:
        proof = _unproved(atoms, flow_us)
        if proof.why_not:
            return flow_us
        for limits in solvers:
            if proof.verdict != "proved optimal":
                proof = _proved(atoms, proof, limits)
        return proof.bound_us

    return module_bound_us(module, conditions, raised)


def _unproved(atoms: Atoms, flow_us: float) -> Proof:
    """What is known about a computation before a solver is asked."""
    problem = atoms.problem
    order = range(len(atoms))
    proof = Proof(problem.computation.name, step_us(atoms, order), flow_us, flow_us)
    if problem.breaks_edge is not None or not Window(atoms, 0).set_order(order):
        return replace(proof, why_not="its order is not within edges and limits")
    if not problem.is_exact:
        return replace(
            proof, why_not="it hands transfers over, or devices differ in it"
        )
    return proof


def _all_atoms(module: Module, conditions: Conditions) -> list[Atoms]:
    """The atoms of each computation with pairs, callees first."""
    step = run_step(module, conditions.topology, conditions.prices, conditions.rules)
    tracker = make_tracker(conditions.settings)
    memory = ModuleMemory(module, sizes=conditions.settings.part_sizes)
    environment = Environment(conditions.xla_prices, tracker, memory, steps={})
    chosen = {
        computation
        for computation in computations_to_schedule(module, tracker)
        if not conditions.why_kept(computation)
    }
    found = []
    for computation in computations_post_order(module, fusions=False):
        program = step.programs.get(computation)
        if program is None:
            continue
        if computation in chosen:
            atoms = make_atoms(make_problem(program, environment))
            if atoms.dones:
                found.append(atoms)
        environment.steps[computation] = run_us(program, environment.steps)
    return found


def _proved(atoms: Atoms, proof: Proof, limits: Limits) -> Proof:
    """Ask the solver about one computation."""
    if limits.solver == CP_SAT:
        solved: Solved | str = cp_sat(atoms, range(len(atoms)), proof.step_us, limits)
    else:
        model = exact_model(atoms, reach_of(atoms))
        solved = (
            model if isinstance(model, str) else highs(model, proof.step_us, limits)
        )
    if isinstance(solved, str):
        return replace(proof, why_not=solved)
    return replace(
        proof,
        bound_us=max(proof.bound_us, solved.bound_us),
        solver=limits.solver,
        is_closed=solved.is_closed,
        seconds=solved.seconds,
        nodes=solved.nodes,
    )
