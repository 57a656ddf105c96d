"""Estimators of other distributions, found by entry point, asked with care.

[project.entry-points."hlo_passes.estimators"]
by-bytes = "my_costs:by_bytes"          by_bytes(pricing) -> Estimator
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes import plugins
from hlo_passes.errors import HloError, PassError
from hlo_passes.ir.instruction import Instruction
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.latency.estimate import Estimate

_METHODS: Final = ("node_cost", "latency")


@dataclass(frozen=True, slots=True)
class PluginEstimator:
    """An estimator of another distribution, whose failures are errors of ours.

    Attributes:
        name: of its entry point.
        inner: what the entry point made.
    """

    name: str
    inner: Any

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """What the other one says. Raises PassError E005 if it fails."""
        return self._asked("node_cost", instruction)

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """What the other one says. Raises PassError E005 if it fails."""
        return self._asked("latency", start, user)

    def _asked(self, method: str, *instructions: Instruction) -> Estimate | None:
        try:
            found = getattr(self.inner, method)(*instructions)
        except HloError:
            raise
        except Exception as problem:  # another's code may raise anything
            text = f"{type(problem).__name__}: {problem}"
            raise self._failed(method, instructions, text) from problem
        if found is None:
            return None
        if not isinstance(found, Estimate):
            raise self._failed(method, instructions, f"{found!r} is not an Estimate")
        if not 0 <= found.us < math.inf:
            raise self._failed(method, instructions, f"{found.us} us is not a time")
        return found

    def _failed(
        self, method: str, instructions: tuple[Instruction, ...], problem: str
    ) -> PassError:
        names = ", ".join(f"%{i.name}" for i in instructions)
        return PassError(
            f"estimator {self.name}: {method}({names}): {problem}", code="E005"
        )


def find_estimator(name: str) -> plugins.Offer | None:
    """The offer of that name; None where there is none. Raises UsageError U014."""
    return plugins.find_offer(plugins.ESTIMATORS, name)


def make_plugin_estimator(offer: plugins.Offer, on: Pricing) -> Estimator:
    """The estimator that an offer makes for a pricing. Raises UsageError U015."""
    make = plugins.load(offer)
    try:
        inner = make(on)
    except HloError:
        raise
    except Exception as problem:  # another's code may raise anything
        raise offer.unusable(f"{type(problem).__name__}: {problem}") from problem
    missing = [m for m in _METHODS if not callable(getattr(inner, m, None))]
    if missing:
        raise offer.unusable(f"{type(inner).__name__} has no method {missing[0]}")
    return PluginEstimator(offer.name, inner)
