"""The processes of a test on several emulated hosts: starts, watches and ends them.

Each process writes the test's outcome to a file; a process that ends without doing so
has failed the test. If a process stops early, the others may wait for it forever, in a
collective or at the end of `jax.distributed`: they receive some time and are then
ended. None outlives the process that started them, however that one ends: all hold one
end of a pipe, which closes with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from hlo_passes import workers

#: Limit for one test on all its hosts; JAX needs seconds to start on a busy machine.
_TIME_LIMIT_SECONDS: Final = 300
#: Limit for the others after one has stopped before its test ended well.
_GRACE_SECONDS: Final = 10
_POLL_SECONDS: Final = 0.05

#: How a process knows its identity, and where it reports the test's outcome.
_VARIABLE: Final = "HLO_PASSES_HOST"

#: pytest's exit codes if the test ran: no test failed, some did.
_RAN: Final = (0, 1)

PASSED, SKIPPED, XFAILED, FAILED = "passed", "skipped", "xfailed", "failed"
#: The outcome of a process that did nothing wrong but waited for one that stopped.
ENDED: Final = "ended"
#: The phase with the higher number decides the outcome of a test.
_BY_WEIGHT: Final = (PASSED, SKIPPED, XFAILED, FAILED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a test, and the reason of a skip or an xfail."""

    outcome: str = PASSED
    reason: str = ""

    def and_then(self, other: Verdict) -> Verdict:
        """The more serious of two; the first of equal ones."""
        return max(self, other, key=lambda v: _BY_WEIGHT.index(v.outcome))


@dataclass(frozen=True, slots=True)
class Host:
    """What a process of a test knows about itself.

    Attributes:
        index: of this process, from 0.
        count: of all processes.
        address: where they connect.
        verdict: the file to which it writes the test's outcome.
        parent: descriptor of a pipe that closes when nobody waits for it any more.
    """

    index: int
    count: int
    address: str
    verdict: str
    parent: int

    def say(self, verdict: Verdict) -> None:
        """Report the test's outcome, completely or not at all."""
        unfinished = f"{self.verdict}.unfinished"
        pathlib.Path(unfinished).write_text(json.dumps(asdict(verdict)))
        pathlib.Path(unfinished).replace(self.verdict)


@dataclass(frozen=True, slots=True)
class HostEnd:
    """How a process ended.

    Attributes:
        verdict: the test's outcome in it.
        how: the way in which it ended, for messages.
        output: everything that it wrote.
    """

    verdict: Verdict
    how: str
    output: str


@dataclass(frozen=True, slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    log: pathlib.Path
    verdict: pathlib.Path

    def said(self) -> Verdict | None:
        if not self.verdict.exists():
            return None
        return Verdict(**json.loads(self.verdict.read_text()))

    def end(self) -> HostEnd | None:
        """The way in which it ended; None while it runs."""
        code, said = self.popen.poll(), self.said()
        if code is None:
            return None
        if said is not None and code in _RAN:
            return HostEnd(said, said.outcome, self._output())
        how = workers.how_it_ended(code)
        when = "before" if said is None else "after"
        return HostEnd(Verdict(FAILED), f"{how} {when} the test's end", self._output())

    def stop(self, verdict: Verdict, how: str) -> HostEnd:
        """End it, unless it has ended."""
        end = self.end()
        if end is not None:
            return end
        workers.end(self.popen)
        # It may have reported already, and have waited to leave together with others.
        known = verdict.outcome if verdict == self.said() else how
        return HostEnd(verdict, known, self._output())

    def stopped_early(self) -> bool:
        """Whether the others may wait for it forever."""
        end, said = self.end(), self.said()
        verdict = end.verdict if end is not None else said
        return verdict is not None and verdict.outcome != PASSED

    def _output(self) -> str:
        return self.log.read_text(errors="replace")


def this_host() -> Host | None:
    """The identity of this process, if it was started for a test on several hosts.

    It then ends with the process that started it. Processes that it starts do not have
    this identity: it can be read only once.
    """
    text = os.environ.pop(_VARIABLE, None)
    if text is None:
        return None
    host = Host(**json.loads(text))
    threading.Thread(target=_end_with, args=(host.parent,), daemon=True).start()
    return host


def join(host: Host) -> None:
    """Make this process one of the hosts of a job, with collectives over gloo."""
    import jax

    if jax.distributed.is_initialized():
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=host.address,
        num_processes=host.count,
        process_id=host.index,
    )


def environment_of_hosts(devices_per_host: int) -> dict[str, str]:
    """This process's environment, for processes with so many emulated devices each."""
    from hlo_passes.runtime.devices import device_count_flag, without_device_count

    flags = without_device_count(os.environ.get("XLA_FLAGS", ""))
    return {
        **os.environ,
        "XLA_FLAGS": f"{flags} {device_count_flag(devices_per_host)}".strip(),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }


def _end_with(parent: int) -> None:
    """Wait for the end of a pipe that nobody writes to, and exit."""
    while os.read(parent, 1):
        continue
    os._exit(1)


def run_on_hosts(
    command: Sequence[str],
    *,
    count: int,
    environment: Mapping[str, str],
    folder: str,
    grace_seconds: float = _GRACE_SECONDS,
    time_limit_seconds: float = _TIME_LIMIT_SECONDS,
) -> tuple[HostEnd, ...]:
    """Run a command in `count` processes, each of which can ask for `this_host()`.

    Args:
        command: the same for every process.
        count: of processes.
        environment: of each process.
        folder: the working directory.
        grace_seconds: for the others, after one has stopped early.
        time_limit_seconds: for all of them.
    """
    address = f"127.0.0.1:{_free_port()}"
    processes: list[_Process] = []
    with (
        tempfile.TemporaryDirectory(prefix="hlo-passes-hosts-") as results,
        _pipe() as parent,
    ):
        try:
            for index in range(count):
                log = pathlib.Path(results, f"{index}.log")
                verdict = pathlib.Path(results, f"{index}.json")
                host = Host(index, count, address, str(verdict), parent)
                with log.open("wb") as output:
                    popen = subprocess.Popen(
                        command,
                        cwd=folder,
                        env={**environment, _VARIABLE: json.dumps(asdict(host))},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        pass_fds=(parent,),
                    )
                processes.append(_Process(popen, log, verdict))
            return _watch(processes, grace_seconds, time_limit_seconds)
        finally:
            for process in processes:
                workers.end(process.popen)


def _watch(
    processes: Sequence[_Process], grace_seconds: float, limit_seconds: float
) -> tuple[HostEnd, ...]:
    """The ends of all processes, by themselves or at the time limit."""
    too_late = time.monotonic() + limit_seconds
    enough: float | None = None
    while any(process.popen.poll() is None for process in processes):
        now = time.monotonic()
        if now > too_late:
            how = f"did not end in {limit_seconds:g} seconds"
            return tuple(p.stop(Verdict(FAILED), how) for p in processes)
        if enough is None and any(p.stopped_early() for p in processes):
            enough = now + grace_seconds
        if enough is not None and now > enough:
            waited = f"still ran {grace_seconds:g} seconds after another had stopped"
            return tuple(p.stop(p.said() or Verdict(ENDED), waited) for p in processes)
        time.sleep(_POLL_SECONDS)
    return tuple(p.stop(Verdict(FAILED), "") for p in processes)


@contextlib.contextmanager
def _pipe() -> Iterator[int]:
    """The reading end of a pipe that closes with this process."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def together(ends: Sequence[HostEnd]) -> Verdict:
    """The test's outcome on all its hosts.

    It failed if it failed on one of them, or if some skip it and some do not; the
    reason then is a report of how they ended, with those that failed first.
    """
    outcomes = {end.verdict.outcome for end in ends}
    for outcome in (FAILED, XFAILED):
        if outcome in outcomes:
            break
    else:
        outcome = outcomes.pop() if len(outcomes) == 1 else FAILED
    if outcome != FAILED:
        return next(e.verdict for e in ends if e.verdict.outcome == outcome)
    numbered = sorted(enumerate(ends), key=lambda e: e[1].verdict.outcome != FAILED)
    return Verdict(FAILED, "\n".join(
        f"host {index} of {len(ends)} {end.how}:\n{end.output}"
        for index, end in numbered
        if FAILED not in outcomes or end.verdict.outcome in (FAILED, ENDED)
    ))  # fmt: skip
