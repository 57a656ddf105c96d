"""A Dask cluster as an executor: `--executor=dask://HOST:PORT` of its scheduler.

    dask scheduler &
    dask worker tcp://head:8786 --nworkers=8 --nthreads=1 &
    hlo-passes simulate m.hlo --passes=... --sweep=... --executor=dask://head:8786

Its workers need this package, and the extra `distributed` is needed here.
"""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import Executor, Future
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from hlo_passes.executors.named import unreachable

#: How long a scheduler and its first worker may take to answer.
_SECONDS: Final = 10
_DEFAULT_PORT: Final = 8786


class DaskExecutor(Executor):
    """Submits to the workers of a cluster; Dask runs what a dead worker had again.

    Attributes:
        width: threads of all workers.
    """

    def __init__(self, client: Any, width: int) -> None:
        """Take over a client, which ends with the executor."""
        self.width = width
        self._client = client
        self._inner = client.get_executor(pure=False)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on some worker."""
        return self._inner.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let go of the cluster; it goes on."""
        del wait, cancel_futures
        self._client.close()


def executor(address: str) -> Executor:
    """The executor of the scheduler at HOST:PORT.

    Raises UsageError U241 without `distributed`, where nobody answers, and for workers
    of another Python or another version of this package.
    """
    text = f"dask://{address}"
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as problem:
        hint = "pip install 'hlo-passes[distributed]'"
        raise unreachable(text, "distributed is not installed", hint) from problem
    host = address or f"localhost:{_DEFAULT_PORT}"
    if ":" not in host:
        host = f"{host}:{_DEFAULT_PORT}"
    try:
        client = distributed.Client(
            f"tcp://{host}", timeout=_SECONDS, set_as_default=False
        )
    except (OSError, TimeoutError, ValueError) as problem:
        hint = f"is `dask scheduler` running at {host}?"
        raise unreachable(text, "no scheduler answers", hint) from problem
    try:
        try:
            client.wait_for_workers(1, timeout=_SECONDS)
        except TimeoutError as problem:
            hint = f"dask worker tcp://{host} --nworkers=8 --nthreads=1"
            raise unreachable(text, "the cluster has no worker", hint) from problem
        own = facts()
        for worker, theirs in client.run(facts).items():
            if theirs != own:
                raise unreachable(
                    text, f"{worker} has {theirs}, this process has {own}",
                    "install the same Python and hlo-passes there",
                )  # fmt: skip
        return DaskExecutor(client, max(1, sum(client.nthreads().values())))
    except BaseException:
        client.close()
        raise


def facts() -> str:
    """What a worker must have in common with us: Python, and this package."""
    try:
        package = version("hlo-passes")
    except PackageNotFoundError:
        package = "(not installed)"
    return f"Python {sys.version_info[0]}.{sys.version_info[1]}, hlo-passes {package}"
