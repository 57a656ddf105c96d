"""The list of passes: this package's table, and entry points of others.

Other distributions offer passes in the entry-point group `hlo_passes.passes`, one
entry per pass: its name, and the class.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass
from typing import Final

from hlo_passes.errors import PipelineSpecError, nearest
from hlo_passes.passes.base import Pass

GROUP = "hlo_passes.passes"

_NAMES: Final = (
    "async-collective-annotator",
    "async-collective-creator",
    "async-stream-attribute-wrapper",
    "collective-permute-combiner",
    "collective-permute-splitter",
    "collectives-schedule-linearizer",
    "convert-async-collectives-to-sync",
    "explicit-collectives-group-async-wrapper",
    "explicit-stream-annotation-async-wrapper",
    "gpu-all-gather-combiner",
    "gpu-all-reduce-combiner",
    "gpu-convert-async-collectives-to-sync",
    "gpu-reduce-scatter-combiner",
    "hlo-cse",
    "hlo-dce",
    "latency-hiding-scheduler-preparation",
    "legalize-scheduling-annotations",
    "scheduling-instruction-annotator",
    "stream-attribute-annotator",
    "tuple-simplifier",
)
#: Passes that share a file with another: name -> module.
_ELSEWHERE: Final = {
    "gpu-convert-async-collectives-to-sync": "convert_async_collectives_to_sync"
}


def _target(name: str) -> str:
    """`hlo-dce` -> `hlo_passes.passes.hlo_dce:HloDce`."""
    module = _ELSEWHERE.get(name, name.replace("-", "_"))
    words = "".join(word.capitalize() for word in name.split("-"))
    return f"hlo_passes.passes.{module}:{words}"


#: Name -> module:class. A class is imported when it is asked for.
PASSES: Final = {name: _target(name) for name in _NAMES}


def pass_targets() -> dict[str, str]:
    """All passes by name, sorted: 'module:class'; what is installed now.

    A name of this package always refers to its own pass; if others offer a name twice,
    the first is listed, and `find_pass` refuses it.
    """
    _offers_along.cache_clear()
    offers = _offers_along(tuple(sys.path))
    others = {name: offered[0].target for name, offered in offers.items()}
    return dict(sorted({**others, **PASSES}.items()))


@dataclass(frozen=True, slots=True)
class _Offer:
    """One entry point: what it names, and its distribution."""

    target: str
    distribution: str


@functools.cache
def _offers_along(path: tuple[str, ...]) -> dict[str, list[_Offer]]:
    """Other distributions' passes; reading them takes longer than most rewrites."""
    from importlib.metadata import entry_points

    offers: dict[str, list[_Offer]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        offer = _Offer(entry.value, entry.dist.name if entry.dist else "?")
        offered = offers.setdefault(entry.name, [])
        if all(offer.target != other.target for other in offered):
            offered.append(offer)
    return offers


def find_pass(name: str) -> type[Pass]:
    """The class of a pass.

    Raises PipelineSpecError: U011 with the nearest name if it is unknown, U014 if two
    distributions offer it, U015 if an entry point names something that is not a pass.
    """
    if name in PASSES:
        return _load(name, _Offer(PASSES[name], "hlo-passes"))
    offered = _offers_along(tuple(sys.path)).get(name)
    if not offered:
        # It was missing when they were read: perhaps it has been installed since.
        known = pass_targets()
        offered = _offers_along(tuple(sys.path)).get(name)
        if not offered:
            raise PipelineSpecError(
                f"unknown pass {name}",
                code="U011",
                hint=nearest(name, known) or "`hlo-passes list` shows them all",
            )
    if len(offered) > 1:
        owners = " and ".join(o.distribution for o in offered)
        raise PipelineSpecError(
            f"pass {name} is offered twice: by {owners}",
            code="U014",
            hint="uninstall one of them",
        )
    return _load(name, offered[0])


def _load(name: str, offer: _Offer) -> type[Pass]:
    module_name, _, class_name = offer.target.partition(":")
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except Exception as problem:  # importing another's module may raise anything
        raise _unusable(
            name, offer, f"{type(problem).__name__}: {problem}"
        ) from problem
    if not (isinstance(kind, type) and issubclass(kind, Pass)):
        raise _unusable(name, offer, f"{class_name} is not a subclass of Pass")
    return kind


def _unusable(name: str, offer: _Offer, problem: str) -> PipelineSpecError:
    return PipelineSpecError(
        f"pass {name} of {offer.distribution} cannot be loaded from {offer.target}: "
        f"{problem}",
        code="U015",
        hint="fix or uninstall that distribution",
    )
