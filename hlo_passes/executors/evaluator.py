"""Runs one task on many items, here, in processes of this machine, or on a cluster.

    with Evaluator(task, processes=4) as evaluator:
        for result in evaluator.map(items):          in the order of the items
            ...
    with Evaluator(task, executor="dask://head:8786") as evaluator:
        ...

The results do not depend on where the task runs, nor on which worker ends first. A
worker that dies costs its evaluation: the item runs again on another worker, and where
that one dies too, the result is `Lost`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, Final, Generic, TypeVar

from hlo_passes.executors.named import connect
from hlo_passes.workers import end_with_parent

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: How often an item may cost a worker its life before it is given up.
_TRIES: Final = 2
#: Items that wait at each worker, so that none is idle while results travel.
_AHEAD: Final = 2
#: Tasks that a worker keeps, newest last.
_KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class Lost:
    """In place of a result: every worker that ran the item died.

    Attributes:
        reason: what the executor said.
    """

    reason: str

    @property
    def problem(self) -> str:
        """Why there is no result, as a clause."""
        return f"its worker died: {self.reason}"


@dataclass(slots=True)
class _Asked(Generic[_Item]):
    """An item, its place in the order, and how often it was lost."""

    place: int
    item: _Item
    losses: int = 0


@dataclass(slots=True)
class Evaluator(Generic[_Item, _Result]):
    """Runs a task on items; a context, so that its workers end.

    Attributes:
        task: a function of one item. For other processes task, items and results are
            pickled, the task once for each process of this machine.
        executor: where it runs, `NAME` or `NAME://ADDRESS` (`executors.named`); '' for
            this machine.
        processes: of this machine; None for one per core; with 1 it runs in this one.
    """

    task: Callable[[_Item], _Result]
    executor: str = ""
    processes: int | None = None
    _pool: Executor | None = field(default=None, init=False)
    _width: int = field(default=1, init=False)
    _digest: str = field(default="", init=False)
    _packed: bytes = field(default=b"", init=False)

    def __enter__(self) -> Evaluator[_Item, _Result]:
        """Nothing starts before the first item that needs it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers; what has not begun does not begin."""
        self.close()

    def close(self) -> None:
        """The same, for one that is no context."""
        self._close()

    @property
    def width(self) -> int:
        """Items that run at once."""
        if self.executor:
            self._open()
            return self._width
        return self.processes or os.cpu_count() or 1

    def map(self, items: Iterable[_Item]) -> Iterator[_Result | Lost]:
        """Yield results in the order of the items, each as soon as it can be.

        Whatever the task raises is raised here.

        Raises UsageError U240, U241 for an executor that does not exist or answer.
        """
        asked = map(_Asked, itertools.count(), items)
        if not self.executor:
            # A single item needs no other process.
            first = list(itertools.islice(asked, 2))
            asked = itertools.chain(first, asked)
            if self.width < 2 or len(first) < 2:
                yield from (self.task(each.item) for each in asked)
                return
        yield from self._elsewhere(asked)

    # -- elsewhere ----------------------------------------------------------

    def _elsewhere(self, asked: Iterator[_Asked[_Item]]) -> Iterator[_Result | Lost]:
        found: dict[int, _Result | Lost] = {}
        due = 0
        running: dict[Future[Any], _Asked[_Item]] = {}
        again: deque[_Asked[_Item]] = deque()
        # What was lost with others runs alone, to see which of them it was.
        suspects: deque[_Asked[_Item]] = deque()
        while True:
            # Give the workers something to do.
            if suspects:
                if not running:
                    each = suspects.popleft()
                    running[self._submit(each.item)] = each
            else:
                while len(running) < _AHEAD * self.width:
                    following = again.popleft() if again else next(asked, None)
                    if following is None:
                        break
                    running[self._submit(following.item)] = following
            if not running:
                return
            # Take what is ready.
            is_alone, is_broken = len(running) == 1, False
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                each = running.pop(future)
                answer, problem, breaks = _result_of(future)
                if problem is None:
                    found[each.place] = answer
                    continue
                # Of several in a pool that broke, nobody knows which one broke it.
                each.losses += is_alone or not breaks
                is_broken |= breaks
                if each.losses >= _TRIES:
                    found[each.place] = Lost(problem)
                else:
                    (suspects if breaks else again).append(each)
            if is_broken:
                suspects.extend(running.values())
                running.clear()
                self._close()
            while due in found:
                yield found.pop(due)
                due += 1

    def _submit(self, item: _Item) -> Future[Any]:
        pool = self._open()
        # A process of this machine has the task since it began.
        packed = self._packed if self.executor else b""
        try:
            return pool.submit(_answer, self._digest, packed, item)
        except BrokenExecutor as problem:
            # Its worker has died since the last result.
            future: Future[Any] = Future()
            future.set_exception(problem)
            return future

    def _open(self) -> Executor:
        if self._pool is not None:
            return self._pool
        if not self._packed:
            self._packed, self._digest = self._pack()
        if self.executor:
            self._pool, self._width = connect(self.executor)
        else:
            self._width = self.width
            # Start new processes instead of forking: threads and locks stay here.
            self._pool = ProcessPoolExecutor(
                self._width,
                get_context("spawn"),
                initializer=_begin,
                initargs=(self._digest, self._packed),
            )
        return self._pool

    def _pack(self) -> tuple[bytes, str]:
        """The task as bytes, and the name under which a worker keeps it."""
        packed = zlib.compress(pickle.dumps(self.task), 1)
        return packed, hashlib.sha256(packed).hexdigest()

    def _close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=not self.executor, cancel_futures=True)


def _result_of(future: Future[Any]) -> tuple[Any, str | None, bool]:
    """(result, why there is none, whether the pool is broken).

    Raises what the task raised.
    """
    try:
        is_done, answer = future.result()
    except BrokenExecutor as problem:
        return None, _said(problem), True
    except Exception as problem:  # an executor may say it in its own way
        return None, _said(problem), False
    if is_done:
        return answer, None, False
    raise answer


def _said(problem: BaseException) -> str:
    """The first line of an error, which names its kind where it says nothing."""
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__


# -- in a worker ---------------------------------------------------------------

#: What runs here, by the digest of its bytes.
_tasks: dict[str, Callable[[Any], Any]] = {}


def _begin(digest: str, packed: bytes) -> None:
    """Begin a process of this machine: it has one task, and ends with its parent."""
    _task(digest, packed)
    end_with_parent()


def _task(digest: str, packed: bytes) -> Callable[[Any], Any]:
    found = _tasks.get(digest)
    if found is None:
        found = _tasks[digest] = pickle.loads(zlib.decompress(packed))
        while len(_tasks) > _KEPT:
            del _tasks[next(iter(_tasks))]
    return found


def _answer(digest: str, packed: bytes, item: Any) -> tuple[bool, Any]:
    """(True, result) or (False, what the task raised)."""
    try:
        return True, _task(digest, packed)(item)
    except Exception as problem:  # it is raised again where the item came from
        return False, _portable(problem)


def _portable(problem: Exception) -> Exception:
    """The error itself, or its text where it cannot travel."""
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:  # pickling runs the error's own code
        return RuntimeError(f"{type(problem).__name__}: {problem}")
    return problem
