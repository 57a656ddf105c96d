"""From names to estimators: `--estimator=sol`, `--estimator=profile+sol`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_passes.analysis.followed_release import followed_release
from hlo_passes.errors import UsageError, nearest
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.approximate import (
    ApproximateEstimator,
    GpuApproximateEstimator,
)
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.profile import ProfileEstimator, read_profile
from hlo_passes.scheduler.estimators.ring import RingEstimator
from hlo_passes.scheduler.estimators.sol import SolEstimator
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import read_costs
from hlo_passes.scheduler.hardware.target import DEFAULT_TARGET, target
from hlo_passes.scheduler.hardware.topology import Topology, topology_for
from hlo_passes.scheduler.latency.collective_time import (
    CollectiveModel,
    CollectiveTimes,
    GemmTimes,
)
from hlo_passes.scheduler.latency.options import LatencyOptions
from hlo_passes.xla_release import XlaRelease

DEFAULT_ESTIMATOR: Final = "sol"


@dataclass(frozen=True, slots=True)
class EstimatorSettings:
    """What the estimators need to be made.

    Attributes:
        target: name or file of the GPU.
        topology: of the machine, None where it does not matter.
        options: of the analytical model.
        costs: file of the table estimator.
        profile: file of the profile estimator.
        extended: answer where XLA's model gives up.
        always: price modules that XLA leaves to the coarse estimator.
        release: of XLA, as of `CollectiveModel`.
        collective_table: measured collectives in place of the built-in table.
        matmul_table: measured GEMMs in place of the built-in table.
    """

    target: str = DEFAULT_TARGET
    topology: Topology | None = None
    options: LatencyOptions = field(default_factory=LatencyOptions)
    costs: str = ""
    profile: str = ""
    extended: bool = False
    always: bool = False
    release: XlaRelease = field(default_factory=followed_release)
    collective_table: CollectiveTimes | None = None
    matmul_table: GemmTimes | None = None


def _sol(settings: EstimatorSettings) -> Estimator:
    return SolEstimator(collective_model(settings), always=settings.always)


def collective_model(settings: EstimatorSettings) -> CollectiveModel:
    """The analytical model of collectives and GEMMs that the settings describe."""
    return CollectiveModel(
        target(settings.target),
        settings.options,
        settings.topology,
        settings.release,
        settings.extended,
        collective_table=settings.collective_table,
        matmul_table=settings.matmul_table,
    )


def _profile(settings: EstimatorSettings) -> Estimator:
    if not settings.profile:
        raise UsageError(
            "the estimator profile needs a profile",
            code="U208",
            hint="--profile=FILE",
        )
    return ProfileEstimator(read_profile(settings.profile))


def _table(settings: EstimatorSettings) -> Estimator:
    if not settings.costs:
        raise UsageError(
            "the estimator table needs costs", code="U208", hint="--costs=costs.json"
        )
    return read_costs(settings.costs)


_MAKERS: Final[dict[str, Callable[[EstimatorSettings], Estimator]]] = {
    "approximate": lambda _: ApproximateEstimator(),
    "gpu-approximate": lambda _: GpuApproximateEstimator(),
    "ring": lambda settings: RingEstimator(target(settings.target)),
    "sol": _sol,
    "profile": _profile,
    "table": _table,
}
ESTIMATOR_NAMES: Final = tuple(_MAKERS)
#: Option that names a file -> the estimator that reads it.
_READERS: Final = {"costs": "table", "profile": "profile"}


def estimator_names(
    names: str, *, costs: str = "", profile: str = ""
) -> tuple[str, ...]:
    """The list that `names` spells: one name or several joined by '+'.

    A profile leaves gaps, so `sol` (as in XLA) stands behind one that ends the list. An
    empty text is `table` where costs are given, else `profile` where a profile is, else
    `sol`.

    Raises UsageError U209, and U219 for a file that no estimator of the list reads.
    """
    if not names:
        names = "profile" if profile else DEFAULT_ESTIMATOR
        names = "table" if costs else names
    wanted = [part.strip() for part in names.split("+")]
    for name in wanted:
        if name not in _MAKERS:
            raise UsageError(
                f"there is no estimator {name}",
                code="U209",
                hint=nearest(name, _MAKERS) or f"one of {', '.join(_MAKERS)}",
            )
    given = {"costs": costs, "profile": profile}
    for option, reader in _READERS.items():
        if given[option] and reader not in wanted:
            raise _unread(option, given[option], names)
    if wanted[-1] == "profile":
        wanted.append(DEFAULT_ESTIMATOR)
    return tuple(wanted)


def _unread(option: str, file: str, names: str) -> UsageError:
    reader = _READERS[option]
    both = f"profile+{names}" if option == "profile" else f"{names}+table"
    one_by_one = "profile" in (option, names)
    return UsageError(
        f"{option}={file} is given, and the estimator {names} does not read it",
        code="U219",
        hint=f"the estimator {reader} does"
        + (f"; {both} asks one after the other" if one_by_one else ""),
    )


def make_estimator(
    names: str, settings: EstimatorSettings | None = None
) -> EstimatorStack:
    """The stack that `names` spells, as `estimator_names` reads them.

    Raises UsageError U208, U209, U219 and those of the files.
    """
    settings = settings or EstimatorSettings()
    wanted = estimator_names(names, costs=settings.costs, profile=settings.profile)
    return EstimatorStack(tuple(_MAKERS[name](settings) for name in wanted))


def estimator_for(
    module: Module,
    estimator: str | Estimator,
    settings: EstimatorSettings,
    *,
    topology: str | Topology = "",
    devices: int | None = None,
) -> tuple[Estimator, Topology]:
    """The estimator that prices a module, and the machine it prices it for.

    Args:
        module: to price.
        estimator: names joined by '+', or an estimator made elsewhere.
        settings: of estimators made here; their topology is the one found.
        topology: `PxHxG` or the machine; one host with the module's devices when empty.
        devices: in place of the number the module asks for.

    Raises UsageError as `make_estimator` and `topology_for` do.
    """
    machine = topology_for(module, topology, devices)
    if isinstance(estimator, str):
        estimator = make_estimator(estimator, replace(settings, topology=machine))
    elif settings.costs or settings.profile:
        option = "costs" if settings.costs else "profile"
        file = settings.costs or settings.profile
        raise _unread(option, file, estimator.name)
    return estimator, machine
