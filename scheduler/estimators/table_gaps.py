"""What a costs file has no cost for, where its estimator takes 0.

    {"node_cost_us": {"r": 3.0}, "latency_us": {"s": 100.0}}

    %body: ROOT %y = f32[1024,1024] dot(%x, %x), ...        no name of %body is there
    %main: %w = (...) while(%init), condition=%cond, body=%body
           ROOT %r = f32[1024,1024] add(%z, %d)             priced, as is %s

XLA's scheduler prices only computations that have something asynchronous. So a loop
without that counts 0, however long it takes. A few names may be missing elsewhere: XLA
gives some kernels no time. A file that names nothing of a module is of another one.
"""

from __future__ import annotations

from hlo_passes.analysis.module_state import WrongStateError
from hlo_passes.ir.async_form import is_collective, is_done, is_start
from hlo_passes.ir.calls import runs_callees, scheduled_computations
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.plurals import counted
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.choice import estimator_names
from hlo_passes.scheduler.estimators.table import TableEstimator, read_costs
from hlo_passes.scheduler.tpu.costs import tpu_costs
from hlo_passes.scheduler.tpu.unpriced import may_take_time


def require_table_of(module: Module, on: Pricing) -> tuple[str, ...]:
    """Refuse the costs of another module; returns what is to be said of gaps.

    Args:
        module: about to be priced.
        on: whose estimators may read costs by name; nothing is asked of others, nor of
            costs of a TPU (`require_costs_of`).

    Raises WrongStateError S019 if the file names nothing of the module, and UsageError
    as `estimator_names` and `read_costs` do.
    Complexity: linear in instructions.
    """
    path = on.costs
    if not path or not isinstance(on.estimator, str):
        return ()
    if "table" not in estimator_names(on) or tpu_costs(path) is not None:
        return ()
    table = read_costs(path)
    every = [i for c in scheduled_computations(module) for i in c.instructions]
    # One name is enough: a file may leave out what costs 0.
    named = {*table.node_costs, *table.latencies}
    first = next((i for i in every if _is_work(i) or is_collective(i)), None)
    if first and named and named.isdisjoint(i.name for i in every):
        raise WrongStateError(
            f"{path} has no cost for anything in the module, %{first.name} first: it "
            "is of another program or stage",
            code="S019",
            location=first.location,
            hint="costs name instructions as the module does; without --costs a model "
            "prices it",
        )
    missing = left_out(module, table)
    if not missing:
        return ()
    places = dict.fromkeys(i.computation.name for i in missing)
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return (
        f"{path} has no cost for {counted(len(missing), 'instruction')} of "
        f"%{missing[0].computation.name}{more}: 0 was taken",
    )


def left_out(module: Module, table: TableEstimator) -> list[Instruction]:
    """What takes time in computations of which a table names less than half.

    Collectives and starts are not among them: a note counts those without a latency.
    """
    found: list[Instruction] = []
    for computation in scheduled_computations(module):
        work = [i for i in computation.instructions if _is_work(i)]
        missing = [i for i in work if i.name not in table.node_costs]
        if len(missing) > len(work) - len(missing):
            found += missing
    return found


def _is_work(instruction: Instruction) -> bool:
    """Whether it may take time by itself: not what it calls, nor in flight."""
    if is_start(instruction) or is_done(instruction) or is_collective(instruction):
        return False
    return not runs_callees(instruction) and may_take_time(instruction)
