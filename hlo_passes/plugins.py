"""What other distributions offer by entry point: passes, rules, estimators, executors.

    [project.entry-points."hlo_passes.passes"]
    double-negation = "double_negation:DoubleNegation"

offers(PASSES)["double-negation"]       what the entry points say, nothing is imported
find_offer(PASSES, "double-negation")   the one that has the name
load(offer)                             the object itself
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.errors import PipelineSpecError, UsageError

#: Passes: classes derived from `hlo_passes.Pass`.
PASSES: Final = "hlo_passes.passes"
#: Rules of the scheduler: values of `scheduler.latency_hiding.rule.Rule`.
RULES: Final = "hlo_passes.rules"
#: Estimators: functions from a `Pricing` to a `scheduler.estimators.base.Estimator`.
ESTIMATORS: Final = "hlo_passes.estimators"
#: Executors: functions from an address to a `concurrent.futures.Executor`.
EXECUTORS: Final = "hlo_passes.executors"
_KINDS: Final = {
    PASSES: "pass",
    RULES: "rule",
    ESTIMATORS: "estimator",
    EXECUTORS: "executor",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """One entry point.

    Attributes:
        group: one of the above.
        name: as users spell it.
        target: 'module:object'.
        distribution: whose it is.
    """

    group: str
    name: str
    target: str
    distribution: str

    def unusable(self, problem: str) -> UsageError:
        """The error U015 for an object that cannot be used."""
        return _error(self.group)(
            f"{_KINDS[self.group]} {self.name} of {self.distribution} cannot be loaded "
            f"from {self.target}: {problem}",
            code="U015",
            hint="fix or uninstall that distribution",
        )


def offers(group: str) -> dict[str, list[Offer]]:
    """All offers of a group by name, sorted; what is installed now."""
    _offers_along.cache_clear()
    return _offers_along(group, tuple(sys.path))


def find_offer(group: str, name: str) -> Offer | None:
    """The offer of a name; None where there is none.

    Raises UsageError U014 (PipelineSpecError for passes) if two distributions have one.
    """
    found = _offers_along(group, tuple(sys.path)).get(name)
    if not found:
        # It was missing when they were read: perhaps it has been installed since.
        found = offers(group).get(name)
        if not found:
            return None
    if len(found) > 1:
        owners = " and ".join(offer.distribution for offer in found)
        raise _error(group)(
            f"{_KINDS[group]} {name} is offered twice: by {owners}",
            code="U014",
            hint="uninstall one of them",
        )
    return found[0]


def load(offer: Offer) -> Any:
    """The object that an offer names. Raises U015 for whatever keeps it away."""
    module_name, _, attribute = offer.target.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as problem:  # importing another's module may raise anything
        raise offer.unusable(f"{type(problem).__name__}: {problem}") from problem


def _error(group: str) -> type[UsageError]:
    return PipelineSpecError if group == PASSES else UsageError


@functools.cache
def _offers_along(group: str, path: tuple[str, ...]) -> dict[str, list[Offer]]:
    """Other distributions' offers; reading them takes longer than most rewrites."""
    from importlib.metadata import entry_points

    found: dict[str, list[Offer]] = {}
    for entry in sorted(entry_points(group=group), key=lambda e: (e.name, e.value)):
        owner = entry.dist.name if entry.dist else "?"
        offer = Offer(group, entry.name, entry.value, owner)
        offered = found.setdefault(entry.name, [])
        if all(offer.target != other.target for other in offered):
            offered.append(offer)
    return found
