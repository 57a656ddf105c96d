"""A Ray cluster as an executor: `--executor=ray`, `--executor=ray://HOST:PORT`.

Without an address Ray starts on this machine, or finds the cluster that its environment
names. Its workers need this package.
"""

from __future__ import annotations

import importlib
from concurrent.futures import Executor, Future
from typing import Any

from hlo_passes.executors.named import unreachable


class RayExecutor(Executor):
    """Submits to the workers of a cluster.

    Attributes:
        width: its processors.
    """

    def __init__(self, ray: Any, *, is_ours: bool) -> None:
        """Use a Ray that is initialized; `is_ours`: shut it down at the end."""
        self.width = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._ray = ray
        self._is_ours = is_ours
        # A worker that dies is told to the caller, who asks again.
        self._call = ray.remote(max_retries=0)(_call)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on some worker."""
        return self._call.remote(fn, args, kwargs).future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let go of the cluster; it goes on, unless it began here."""
        del wait, cancel_futures
        if self._is_ours:
            self._ray.shutdown()


def executor(address: str) -> Executor:
    """The executor of a cluster; raises UsageError U241 without `ray`."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as problem:
        raise unreachable(
            f"ray://{address}", "ray is not installed", "pip install ray"
        ) from problem
    is_ours = not ray.is_initialized()
    if is_ours:
        where = {"address": f"ray://{address}"} if address else {}
        ray.init(**where, log_to_driver=False, include_dashboard=False)
    return RayExecutor(ray, is_ours=is_ours)


def _call(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)
