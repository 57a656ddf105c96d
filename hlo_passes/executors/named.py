"""Executors by name, as a command line spells them: `dask://head:8786`, `NAME`.

    executor, width = connect("dask://head:8786")

Another distribution offers one in the entry-point group `hlo_passes.executors`: a
function from the address, the text after `://`, to a `concurrent.futures.Executor`.
Where the object says how many items it runs at once (`width`, or `_max_workers`, as
the executors of Python do), so many are in flight.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import Executor
from typing import Final

from hlo_passes import plugins
from hlo_passes.errors import HloError, UsageError, nearest

#: Those of this package: module:function.
_OWN: Final = {
    "dask": "hlo_passes.executors.dask_cluster:executor",
    "ray": "hlo_passes.executors.ray_cluster:executor",
}
_SEPARATOR: Final = "://"


def add_executor_argument(parser: argparse._ActionsContainer) -> None:
    """Add the argument that says where evaluations run."""
    parser.add_argument(
        "--executor", default="", metavar="NAME[://ADDRESS]",
        help="where evaluations run, as dask://HOST:PORT; default: on this machine",
    )  # fmt: skip


def executor_names() -> list[str]:
    """The names that `connect` knows."""
    return sorted({*_OWN, *plugins.offers(plugins.EXECUTORS)})


def check_executor(text: str) -> None:
    """Refuse, before any work, a name that nobody offers. Raises UsageError U240."""
    if text:
        _offer(text)


def connect(text: str) -> tuple[Executor, int]:
    """The executor that a text names, and how many items it runs at once.

    Raises UsageError: U240 for a name that nobody offers, U241 where the executor
    cannot be had, U014 and U015 as for other entry points.
    """
    offer = _offer(text)
    _, _, address = text.partition(_SEPARATOR)
    try:
        made = plugins.load(offer)(address)
    except HloError:
        raise
    except Exception as problem:  # the code of an extension may raise anything
        raise unreachable(text, f"{type(problem).__name__}: {problem}") from problem
    if not isinstance(made, Executor):
        raise offer.unusable(f"it made {made!r}, not a concurrent.futures.Executor")
    width = getattr(made, "width", None) or getattr(made, "_max_workers", None)
    return made, int(width or os.cpu_count() or 1)


def unreachable(text: str, why: str, hint: str = "") -> UsageError:
    """The error for an executor that cannot be had."""
    return UsageError(f"--executor={text}: {why}", code="U241", hint=hint)


def _offer(text: str) -> plugins.Offer:
    name, _, _ = text.partition(_SEPARATOR)
    if name in _OWN:
        return plugins.Offer(plugins.EXECUTORS, name, _OWN[name], "hlo-passes")
    offer = plugins.find_offer(plugins.EXECUTORS, name)
    if offer is None:
        known = executor_names()
        raise UsageError(
            f"--executor={text}: no executor is called {name}",
            code="U240",
            hint=nearest(name, known) or f"there are: {', '.join(known)}",
        )
    return offer
