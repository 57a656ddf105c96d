"""Runs many cases in processes that may die: counts, limits, reproducers.

    run(make, check, options_of(parser))

Every case has a number; its contents follow from the seed and the number alone. Cases
run in forked workers. A worker that raises, dies, takes too long or needs too much
memory is a failure of its case; the other cases still run.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import pathlib
import random
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Final

from hlo_passes.workers import how_it_ended

_NO_LIMIT: Final = resource.RLIM_INFINITY
#: A worker that has grown by this much gives way to a new one.
_WORKER_BYTES: Final = 2 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """What a case may take.

    Attributes:
        seconds: of processor time; more is a hang.
        silent_seconds: without a word of the worker; it hangs outside Python then.
        case_bytes: address space in addition to what the worker has; None: any.
    """

    seconds: float = 10
    silent_seconds: float = 120
    case_bytes: int | None = 1 << 30


class HangError(Exception):
    """A case took too long."""


@dataclass(frozen=True, slots=True)
class Case:
    """One input: what kind it is, its bytes, and how it was made."""

    kind: str
    suffix: str
    contents: bytes
    how: str


#: (source of random numbers) -> the case.
Make = Callable[[random.Random], Case]
#: The case, and a source of random numbers -> what became of it. Raises for a failure.
Check = Callable[[Case, random.Random], str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every campaign takes."""
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="without --cases: 10")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--failures", default="fuzz-failures", help="folder for cases")


#: In a worker: where its words go, and the number of its case.
_SPEAKING: list[tuple[IO[str], int]] = []


@contextlib.contextmanager
def outside(verdict: str) -> Iterator[None]:
    """What runs in this block is not ours: if it ends the process, that is no failure.

    Args:
        verdict: what the case is counted as then.
    """
    for answers, number in _SPEAKING:
        answers.write(f"outside\t{number}\t{verdict}\n")
        answers.flush()
    try:
        yield
    finally:
        for answers, number in _SPEAKING:
            answers.write(f"case\t{number}\n")
            answers.flush()


@dataclass(slots=True)
class _Worker:
    """A child process, and the numbers of its cases: first, first + step, ..."""

    process: int
    answers: IO[str]
    rest: range
    begun: int = -1
    busy: bool = False
    outside: str = ""
    heard: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Campaign:
    make: Make
    check: Check
    seed: str
    folder: pathlib.Path
    limits: Limits
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: collections.Counter[str] = field(default_factory=collections.Counter)
    slowest: float = 0.0
    done: int = 0

    def case(self, number: int) -> Case:
        return self.make(random.Random(f"{self.seed}:{number}"))

    # -- in the worker --------------------------------------------------------

    def start(self, rest: range) -> _Worker:
        """Fork a worker for these numbers."""
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        process = os.fork()
        if process:
            os.close(write)
            return _Worker(process, os.fdopen(read, encoding="utf-8"), rest)
        os.close(read)
        code = 1
        try:
            _limit_this_process()
            # XLA writes a stack trace for every proto that it refuses.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(write, "w", encoding="utf-8") as answers:
                self._work(rest, answers, parent)
            code = 0
        finally:
            os._exit(code)

    def _work(self, rest: range, answers: IO[str], parent: int) -> None:
        most = _address_space() + _WORKER_BYTES
        more = self.limits.case_bytes
        for number in rest:
            if os.getppid() != parent:  # it ended without a word
                return
            if more is not None:
                taken = _address_space()
                if taken > most:
                    return
                resource.setrlimit(resource.RLIMIT_AS, (taken + more, _NO_LIMIT))
            _SPEAKING[:] = [(answers, number)]
            answers.write(f"case\t{number}\n")
            answers.flush()
            begun = time.process_time()
            problem = ""
            outcome = ""
            try:
                case = self.case(number)
                signal.setitimer(signal.ITIMER_PROF, self.limits.seconds)
                outcome = self.check(case, random.Random(f"{self.seed}:{number}:check"))
            except Exception as raised:
                signal.setitimer(signal.ITIMER_PROF, 0)
                # The frames of what failed hold its memory.
                problem = "".join(traceback.format_exception(raised, limit=-12))
                raised.__traceback__ = None
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if problem:
                self.write_failure(number, problem)
                last = problem.strip().splitlines()
                outcome = f"FAILURE {_where(last)} {last[-1][:160]}"
            seconds = time.process_time() - begun
            line = outcome.replace("\n", " ").replace("\t", " ")
            answers.write(f"done\t{number}\t{seconds}\t{line}\n")
            answers.flush()

    # -- in the parent --------------------------------------------------------

    def write_failure(self, number: int, problem: str) -> None:
        """Write the case and what happened into the folder of failures."""
        case = self.case(number)
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.seed}-{number}"
        (self.folder / f"{stem}{case.suffix}").write_bytes(case.contents)
        story = f"{case.kind}: {case.how}\n{problem}"
        (self.folder / f"{stem}.txt").write_text(story, encoding="utf-8")

    def hear(self, worker: _Worker, line: str) -> None:
        """Take in one line of a worker."""
        worker.heard = time.monotonic()
        what, number, *rest = line.rstrip("\n").split("\t")
        worker.begun, worker.busy = int(number), what != "done"
        worker.outside = rest[0] if what == "outside" else ""
        if not worker.busy:
            self.count(int(number), float(rest[0]), rest[1])

    def count(self, number: int, seconds: float, outcome: str) -> None:
        """Count a case that is over."""
        self.done += 1
        self.slowest = max(self.slowest, seconds)
        if not outcome.startswith("FAILURE"):
            self.outcomes[outcome] += 1
            return
        what = outcome.removeprefix("FAILURE").strip()
        self.failures[what] += 1
        if self.failures[what] == 1:
            case = self.case(number)
            sys.stdout.write(
                f"case {number} of seed {self.seed} ({case.kind}: {case.how}): {what}\n"
            )
            sys.stdout.flush()

    def bury(self, worker: _Worker, why: str) -> _Worker | None:
        """Count a worker's death; its successor, if cases are left."""
        for line in worker.answers:
            self.hear(worker, line)
        worker.answers.close()
        _, status = os.waitpid(worker.process, 0)
        if worker.busy:
            ended = how_it_ended(os.waitstatus_to_exitcode(status))
            if worker.outside and not why:
                self.count(worker.begun, 0.0, f"{worker.outside}: it {ended}")
            else:
                died = why or f"the worker {ended}"
                self.write_failure(worker.begun, died)
                self.count(worker.begun, 0.0, f"FAILURE {died}")
        if worker.begun < 0:
            raise RuntimeError("a worker ended before its first case")
        left = worker.rest[worker.rest.index(worker.begun) + 1 :]
        return self.start(left) if left else None


def _where(lines: list[str]) -> str:
    """The innermost place of the product in a traceback's lines."""
    places = [line.strip() for line in lines if line.lstrip().startswith('File "')]
    own = [p for p in places if "/tests/" not in p and "hlo_passes" in p]
    if not own:
        return ""
    file, line, function = [*own[-1].split(", "), "", ""][:3]
    name = file.removeprefix('File "').rstrip('"').rpartition("hlo_passes/")[2]
    return f"{name}:{line.removeprefix('line ')} {function.removeprefix('in ')}"


def _on_alarm(_signal: int, _frame: object) -> None:
    raise HangError


def _limit_this_process() -> None:
    signal.signal(signal.SIGPROF, _on_alarm)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _address_space() -> int:
    """Bytes of address space that this process has."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def run(
    make: Make,
    check: Check,
    options: argparse.Namespace,
    about: str,
    limits: Limits = Limits(),
) -> int:
    """Run a campaign and print what became of its cases; 1 if any failed.

    Args:
        make: makes the case of a number.
        check: says what became of a case; whatever it raises is a failure.
        options: of `add_arguments`.
        about: what the cases were made from, for the last line.
        limits: of every case.
    """
    folder = pathlib.Path(options.failures)
    campaign = _Campaign(make, check, options.seed, folder, limits)
    seconds = options.seconds or (0 if options.cases else 10)
    last = options.first + (options.cases or sys.maxsize // 2)
    started = time.monotonic()
    jobs = max(1, options.jobs)
    # What was counted is printed also after Ctrl-C. A flag, since an exception that
    # arrives while a worker is forked would be lost.
    interrupted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    workers = [
        campaign.start(range(options.first + k, last, jobs)) for k in range(jobs)
    ]
    ends = contextlib.suppress(_TimeIsOver)
    with selectors.DefaultSelector() as selector, ends:
        for worker in workers:
            selector.register(worker.answers, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select(timeout=1):
                worker = key.data
                line = worker.answers.readline()
                if line:
                    campaign.hear(worker, line)
                    continue
                selector.unregister(key.fileobj)
                _replace(workers, worker, campaign.bury(worker, ""), selector)
            _kill_silent(campaign, workers, selector)
            is_over = seconds and time.monotonic() - started > seconds
            if is_over or interrupted:
                raise _TimeIsOver
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.process, signal.SIGKILL)
        os.waitpid(worker.process, 0)
    signal.signal(signal.SIGINT, before)
    elapsed = time.monotonic() - started
    for outcome, count in sorted(
        campaign.outcomes.items(), key=lambda item: (-item[1], item[0])
    ):
        sys.stdout.write(f"{count:8}  {outcome}\n")
    for failure, count in campaign.failures.most_common():
        sys.stdout.write(f"{count:8}  FAILED {failure}\n")
    sys.stdout.write(
        f"{campaign.done} cases {about} in {elapsed:.1f} s "
        f"({campaign.done / max(elapsed, 1e-9):.0f} a second), slowest "
        f"{campaign.slowest:.2f} s, {campaign.failures.total()} failures\n"
    )
    return 1 if campaign.failures else 0


class _TimeIsOver(Exception):  # noqa: N818  (not an error)
    """The seconds that were asked for have passed, or somebody interrupted."""


def _replace(
    workers: list[_Worker],
    old: _Worker,
    new: _Worker | None,
    selector: selectors.BaseSelector,
) -> None:
    workers.remove(old)
    if new is not None:
        workers.append(new)
        selector.register(new.answers, selectors.EVENT_READ, new)


def _kill_silent(
    campaign: _Campaign, workers: list[_Worker], selector: selectors.BaseSelector
) -> None:
    for worker in list(workers):
        if time.monotonic() - worker.heard > campaign.limits.silent_seconds:
            os.kill(worker.process, signal.SIGKILL)
            selector.unregister(worker.answers)
            why = f"said nothing for {campaign.limits.silent_seconds} s"
            new = campaign.bury(worker, why)
            _replace(workers, worker, new, selector)
