"""From a `Pricing` to its estimators: `--estimator=sol`, `--estimator=profile+sol`.

An estimator of this package is a row of `_ESTIMATORS`. One that reads a file also has a
field in `hlo_passes.pricing.Pricing` and a flag in `command_arguments.py`, both named
as in `reads`; every command, `simulate`, `estimate`, sweeps and passes then have it.
Other distributions offer estimators by entry point (`plugin.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

from hlo_passes import plugins
from hlo_passes.analysis.followed_release import release_asked_for
from hlo_passes.analysis.module_state import (
    how_to_price_tpus,
    module_state,
    require_priceable,
)
from hlo_passes.errors import UsageError, nearest
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.approximate import (
    ApproximateEstimator,
    GpuApproximateEstimator,
)
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.plugin import (
    find_estimator,
    make_plugin_estimator,
)
from hlo_passes.scheduler.estimators.profile import ProfileEstimator, read_profile
from hlo_passes.scheduler.estimators.ring import RingEstimator
from hlo_passes.scheduler.estimators.sol import SolEstimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import read_costs
from hlo_passes.scheduler.estimators.tpu_final import TPU_FINAL, TpuFinalEstimator
from hlo_passes.scheduler.hardware.machine import machine_named, machine_of
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.collective_time import (
    CollectiveModel,
)
from hlo_passes.scheduler.latency.options import latency_options
from hlo_passes.scheduler.latency.perf_tables import (
    read_collective_table,
    read_matmul_table,
)
from hlo_passes.scheduler.tpu.chips import chip, chip_names, is_chip
from hlo_passes.scheduler.tpu.costs import require_tpu_costs, tpu_costs

DEFAULT_ESTIMATOR: Final = "sol"


def _sol(on: Pricing) -> Estimator:
    return SolEstimator(collective_model(on), always=on.always)


def collective_model(on: Pricing) -> CollectiveModel:
    """The analytical model of collectives and GEMMs that a pricing describes."""
    part = target(on.target)
    collectives, matmuls = on.collective_perf_table, on.matmul_perf_table
    return CollectiveModel(
        part,
        latency_options(on),
        machine_named(on),
        release_asked_for(None, on.xla),
        on.extended,
        collective_table=read_collective_table(collectives, part)
        if collectives
        else None,
        matmul_table=read_matmul_table(matmuls, part) if matmuls else None,
    )


def _profile(on: Pricing) -> Estimator:
    if not on.profile:
        raise UsageError(
            "the estimator profile needs a profile",
            code="U208",
            hint="--profile=FILE",
        )
    return ProfileEstimator(read_profile(on.profile))


def _table(on: Pricing) -> Estimator:
    if not on.costs:
        raise UsageError(
            "the estimator table needs costs", code="U208", hint="--costs=costs.json"
        )
    costs = tpu_costs(on.costs)
    return read_costs(on.costs) if costs is None else costs.in_us()


def _tpu_log(on: Pricing) -> Estimator:
    if not on.costs:
        raise UsageError(
            "the estimator tpu-log needs the costs of a compilation",
            code="U208",
            hint=how_to_price_tpus(),
        )
    return require_tpu_costs(on.costs).in_us()


def _tpu_final(on: Pricing) -> Estimator:
    if not is_chip(on.target):
        raise UsageError(
            f"the estimator {TPU_FINAL} needs a TPU as the target, and {on.target} is "
            "none",
            code="U250",
            hint=f"--target=, with one of {', '.join(chip_names())}",
        )
    return TpuFinalEstimator(chip(on.target))


@dataclass(frozen=True, slots=True)
class _Row:
    """How an estimator is made, and the field of `Pricing` that names its file."""

    make: Callable[[Pricing], Estimator]
    reads: str = ""


_ESTIMATORS: Final[dict[str, _Row]] = {
    "approximate": _Row(lambda _: ApproximateEstimator()),
    "gpu-approximate": _Row(lambda _: GpuApproximateEstimator()),
    "ring": _Row(lambda on: RingEstimator(target(on.target))),
    "sol": _Row(_sol),
    "profile": _Row(_profile, reads="profile"),
    "table": _Row(_table, reads="costs"),
    "tpu-log": _Row(_tpu_log, reads="costs"),
    "tpu-final": _Row(_tpu_final),
}
ESTIMATOR_NAMES: Final = tuple(_ESTIMATORS)
#: Field that names a file -> the estimator that reads it. Where files are given and no
#: estimator is named, the first one's reader answers.
_READERS: Final[Mapping[str, str]] = {
    row.reads: name for name, row in reversed(_ESTIMATORS.items()) if row.reads
}


def estimator_names(on: Pricing) -> tuple[str, ...]:
    """The list that `on.estimator` spells: one name or several joined by '+'.

    A profile leaves gaps, so `sol` (as in XLA) follows one that ends the list. An
    empty text is `table` where costs are given, else `profile` where a profile is, else
    `sol`.

    Raises UsageError U209, and U219 for a file that no estimator of the list reads.
    """
    given = {name: file for name in _READERS if (file := getattr(on, name))}
    names = on.estimator if isinstance(on.estimator, str) else on.estimator.name
    if not names:
        names = next((_READERS[field] for field in given), DEFAULT_ESTIMATOR)
    wanted = [part.strip() for part in names.split("+")]
    for name in wanted:
        if name not in _ESTIMATORS and find_estimator(name) is None:
            known = [*_ESTIMATORS, *plugins.offers(plugins.ESTIMATORS)]
            near = nearest(name, known)
            raise UsageError(
                f"unknown estimator {name}",
                code="U209",
                hint=f"{near} " * bool(near) + f"there are: {', '.join(known)}",
            )
    for field, file in given.items():
        if not any(_reads(name, field) for name in wanted):
            raise _unread(field, file, names)
    if wanted[-1] == "profile":
        wanted.append(DEFAULT_ESTIMATOR)
    return tuple(wanted)


def _reads(name: str, field: str) -> bool:
    row = _ESTIMATORS.get(name)
    return row is not None and row.reads == field


def prices_tpus(on: Pricing) -> bool:
    """Whether the prices are a TPU's; costs in microseconds are a GPU's.

    Raises UsageError U001, U206 for a costs file.
    """
    names = on.estimator if isinstance(on.estimator, str) else on.estimator.name
    if TPU_FINAL in names.split("+"):
        return True
    return bool(on.costs) and tpu_costs(on.costs) is not None


def require_priced(
    module: Module, on: Pricing, *, has_costs: bool | None = None
) -> None:
    """Refuse a module whose times or order on what it is priced on would mean nothing.

    Args:
        module: about to be priced or scheduled.
        on: the machine and the source of costs.
        has_costs: whether these are not a GPU's; None for what `prices_tpus` says.

    Raises WrongStateError S017, S018; UsageError U001, U206 for a costs file.
    """
    if has_costs is None:
        has_costs = module_state(module).stage != "tpu" or prices_tpus(on)
    require_priceable(
        module,
        has_costs=has_costs,
        tpu=on.target if is_chip(on.target) else "",
    )


def _unread(option: str, file: str, names: str) -> UsageError:
    reader = _READERS[option]
    both = f"profile+{names}" if option == "profile" else f"{names}+table"
    one_by_one = "profile" in (option, names)
    return UsageError(
        f"{option}={file} is given, but the estimator {names} does not read it",
        code="U219",
        hint=f"the estimator {reader} does"
        + (f"; {both} asks one after the other" if one_by_one else ""),
    )


def make_estimator(names: str = "", on: Pricing | None = None) -> EstimatorStack:
    """The stack that `names` spells, or `on.estimator` where there are none.

    Raises UsageError U207, U208, U209, U219 and those of the files.
    """
    on = on or Pricing()
    if names:
        on = replace(on, estimator=names)
    return EstimatorStack(tuple(_made(name, on) for name in estimator_names(on)))


def _made(name: str, on: Pricing) -> Estimator:
    row = _ESTIMATORS.get(name)
    if row is not None:
        return row.make(on)
    offer = find_estimator(name)
    assert offer is not None, "estimator_names refuses other names"
    return make_plugin_estimator(offer, on)


def settled(module: Module, on: Pricing) -> Pricing:
    """A pricing whose machine and release are those of a module, if `on` names none.

    Raises UsageError U202, U207, U218, U225.
    """
    release = release_asked_for(module, on.xla)
    machine = machine_of(module, on)
    return replace(
        on, topology=machine, hosts=None, gpus_per_host=None, xla=release.name
    )


def estimator_for(module: Module, on: Pricing) -> tuple[Estimator, Topology]:
    """The estimator that prices a module, and the machine it prices it for.

    Raises UsageError as `make_estimator` and `machine_of` do.
    """
    machine = machine_of(module, on)
    if isinstance(on.estimator, str):
        return make_estimator(on=settled(module, on)), machine
    for field in _READERS:
        if file := getattr(on, field):
            raise _unread(field, file, on.estimator.name)
    return cast(Estimator, on.estimator), machine


def priced_by(on: Pricing, own: Pricing) -> Pricing:
    """`on` with the estimator and the files of `own` in place of its own.

    Where `own` has any of them, files of `on` that its estimators do not read are left
    out; where it has none, `on` stays as it is.

    Raises UsageError as `estimator_names` does.
    """
    if not own.estimator and not any(getattr(own, field) for field in _READERS):
        return on
    wanted = estimator_names(own)
    files = {
        field: getattr(own, field)
        or (getattr(on, field) if any(_reads(n, field) for n in wanted) else "")
        for field in _READERS
    }
    return replace(on, estimator=own.estimator, **files)
