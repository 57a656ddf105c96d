"""Lets the processes of one job agree on the result of passes for a module.

Each process of a multi-host job compiles the program for itself. If two of them arrive
at different programs, their collectives no longer meet, and the job hangs or computes
wrong results. Passes are deterministic; this module checks that, or enforces it:

    "check"   every process runs the passes; hashes of the results go over
              jax.distributed's key-value store, and a difference stops all of them
              with the first instruction that differs
    "rank0"   the first process that takes part runs the passes, the others receive its
              bytes

Only processes with devices that the module runs on take part, so that a module that one
process compiles for itself needs no other process. Metadata is not part of the hash:
source files may have other paths on another host.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax

from hlo_passes.errors import HloError
from hlo_passes.files import LARGER, TooLargeError, opened
from hlo_passes.proto import module_text_from_proto
from hlo_passes.proto_messages import device_ids
from hlo_passes.proto_worker import run_task
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.devices import RuntimeHostError
from hlo_passes.runtime.installation.fingerprint import MARK

#: How long one process waits for the others to compile the same module.
WAIT_SECONDS: Final = 300

#: A value of the key-value store; its messages must not exceed 4 MB.
_CHUNK_BYTES: Final = 1 << 20

_lock = threading.Lock()
#: How often a module with a name reached one pipeline, for the life of the process, as
#: the store remembers. The processes compile one program in the same order, with small
#: modules of their own in between.
_counters: dict[str, itertools.count[int]] = {}

_METADATA: Final = re.compile(r', metadata=\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}')
_COMPUTATION: Final = re.compile(r"^(?:ENTRY )?%(\S+) \(")
_INSTRUCTION: Final = re.compile(r"^\s*(?:ROOT )?%(\S+) = ")


class ProcessesDifferError(RuntimeHostError):
    """Processes of one job made different programs from one module."""

    default_code = "R030"


class ProcessMissingError(RuntimeHostError):
    """A process did not compile a module that the others compile."""

    default_code = "R031"


@dataclass(frozen=True, slots=True)
class _Meeting:
    """One module, and the processes that compile it.

    Attributes:
        store: the key-value store's client.
        key: of this module in the store, the same in every process.
        members: process indices, ascending.
        me: the index of this process.
    """

    store: Any
    key: str
    members: tuple[int, ...]
    me: int
    module_name: str

    def say(self, topic: str, value: str) -> None:
        self.store.key_value_set(f"{self.key}/{topic}/{self.me}", value)

    def hear(self, topic: str) -> dict[int, str]:
        """The messages of all members, once all have arrived."""
        self.wait(topic)
        said = self.store.key_value_dir_get(f"{self.key}/{topic}/")
        return {int(key.rpartition("/")[2]): value for key, value in said}

    def wait(self, topic: str) -> None:
        try:
            self.store.wait_at_barrier(
                f"{self.key}/{topic}", WAIT_SECONDS * 1000, list(self.members)
            )
        except jax.errors.JaxRuntimeError as problem:
            raise self.missing(problem) from problem

    def missing(self, problem: Exception) -> ProcessMissingError:
        others = ", ".join(str(m) for m in self.members if m != self.me)
        first = str(problem).partition("\n")[0]
        return ProcessMissingError(
            f"process {self.me} compiled {self.module_name}, and waited for "
            f"the processes {others} to do so: {first}",
            hint="a process that finds the program in a compilation cache of its own "
            'does not take part: share the cache, or install with multiprocess="off"',
        )

    def give(self, topic: str, data: bytes) -> None:
        """Put bytes of any length into the store."""
        packed = gzip.compress(data, mtime=0)
        starts = range(0, len(packed), _CHUNK_BYTES)
        for number, start in enumerate(starts):
            self.store.key_value_set_bytes(
                f"{self.key}/{topic}/{self.me}/{number}",
                packed[start : start + _CHUNK_BYTES],
            )
        self.store.key_value_set(f"{self.key}/{topic}/{self.me}", str(len(starts)))

    def take(self, topic: str, member: int) -> bytes:
        """The bytes that a member put; waits for them."""
        key, wait_ms = f"{self.key}/{topic}/{member}", WAIT_SECONDS * 1000
        try:
            count = int(self.store.blocking_key_value_get(key, wait_ms))
            parts = [
                self.store.blocking_key_value_get_bytes(f"{key}/{number}", wait_ms)
                for number in range(count)
            ]
        except jax.errors.JaxRuntimeError as problem:
            raise self.missing(problem) from problem
        try:
            return opened(b"".join(parts))
        except OSError as problem:
            raise ProcessMissingError(
                f"process {self.me} cannot read what process {member} compiled of "
                f"{self.module_name}: {problem}",
                hint=LARGER if isinstance(problem, TooLargeError) else "",
            ) from problem


class Agreement:
    """How the processes of a job agree, for all modules of one installation.

    Attributes:
        mode: "check", "rank0" or "off".
    """

    def __init__(self, mode: str, passes: str) -> None:
        """Agree by `mode`.

        Args:
            mode: as above.
            passes: names of the passes. All processes must find each other by them,
                also where what the passes do differs.
        """
        self.mode = mode
        self._prefix = f"hlo-passes/{passes}"

    def run(
        self, name: str, place: str, data: bytes, work: Callable[[], bytes | None]
    ) -> bytes | None:
        """Do `work` on a module, in agreement with the other processes.

        Args:
            name: the module's.
            place: stage and platform.
            data: the module's serialized proto.
            work: returns the module's new proto, None for no change.

        Returns:
            The result of `work`, here or in the process that does it for all.

        Raises:
            ProcessesDifferError: R030.
            ProcessMissingError: R031.
            HloError: an error of `work`, here or in another process.
        """
        meeting = None if self.mode == "off" else self._meeting(name, place, data)
        if meeting is None:
            return work()
        if self.mode == "check":
            return _checked(meeting, data, work)
        return _from_first(meeting, work)

    def _meeting(self, name: str, place: str, data: bytes) -> _Meeting | None:
        if jax.process_count() == 1:
            return None
        store = jax_private.key_value_store()
        processes = {d.id: d.process_index for d in jax.devices()}
        members = sorted({processes.get(i, -1) for i in device_ids(data)})
        if store is None or len(members) < 2 or members[0] < 0:
            return None
        topic = f"{self._prefix}/{place}/{MARK.sub('', name)}"
        with _lock:
            count = next(_counters.setdefault(topic, itertools.count()))
        return _Meeting(
            store,
            f"{topic}/{count}",
            tuple(members),
            jax.process_index(),
            name,
        )


def _comparable(proto: bytes) -> str:
    """A module's text, without what may differ between hosts."""
    text = _METADATA.sub("", module_text_from_proto(proto, run=run_task))
    start = re.search(r"^(?:ENTRY )?%", text, re.MULTILINE)
    return text[start.start() :] if start else text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _checked(
    meeting: _Meeting, data: bytes, work: Callable[[], bytes | None]
) -> bytes | None:
    result, failure = None, None
    try:
        result = work()
    except HloError as problem:
        failure = problem
    before = _comparable(data)
    after = before if result is None else _comparable(result)
    own = {"before": _digest(before), "after": _digest(after)}
    if failure is not None:
        own = {"failure": str(failure)}
    meeting.say("hash", json.dumps(own))
    heard = {m: json.loads(v) for m, v in meeting.hear("hash").items()}
    if failure is not None:
        raise failure
    for member, said in heard.items():
        if "failure" in said:
            raise ProcessesDifferError(
                f"a pass failed on {meeting.module_name} in process {member}: "
                f"{said['failure']}"
            )
    for topic, text in (("before", before), ("after", after)):
        groups: dict[str, list[int]] = {}
        for member, said in sorted(heard.items()):
            groups.setdefault(said[topic], []).append(member)
        if len(groups) > 1:
            raise _difference(meeting, topic, text, list(groups.values()))
    return result


def _difference(
    meeting: _Meeting, topic: str, text: str, groups: Sequence[Sequence[int]]
) -> ProcessesDifferError:
    meeting.give(topic, text.encode())
    first, second = groups[0][0], groups[1][0]
    texts = [meeting.take(topic, m).decode() for m in (first, second)]
    # Nobody leaves, and perhaps exits, while others still read.
    meeting.wait(f"{topic}-read")
    place, lines = first_difference(*texts)
    sides = "".join(
        f"\n  process {m}: {line.strip() or '(nothing)'}"
        for m, line in zip((first, second), lines, strict=True)
    )
    who = f"the processes {_listed(groups[0])} and {_listed(groups[1])}"
    if topic == "before":
        return ProcessesDifferError(
            f"{who} gave XLA different programs for {meeting.module_name}, "
            f"first at {place}{sides}",
            hint="this happens before the passes: trace the same program everywhere",
        )
    return ProcessesDifferError(
        f"the passes made different programs from {meeting.module_name}: {who} differ, "
        f"first at {place}{sides}",
        hint="a pass is not deterministic: an order taken from a set, a hash, an id, "
        "the time, the environment",
    )


def _listed(members: Sequence[int]) -> str:
    return ",".join(str(m) for m in members)


def first_difference(one: str, other: str) -> tuple[str, tuple[str, str]]:
    """Where two HLO texts differ: '%instruction in %computation', and both lines."""
    computation = ""
    pairs = itertools.zip_longest(one.split("\n"), other.split("\n"), fillvalue="")
    for left, right in pairs:
        if left != right:
            named = _INSTRUCTION.match(left) or _INSTRUCTION.match(right)
            header = _COMPUTATION.match(left) or _COMPUTATION.match(right)
            if named is not None:
                return f"%{named[1]} in %{computation}", (left, right)
            if header is not None:
                return f"%{header[1]}", (left, right)
            return f"the end of %{computation}", (left, right)
        found = _COMPUTATION.match(left)
        if found is not None:
            computation = found[1]
    return "nothing", ("", "")


def _from_first(meeting: _Meeting, work: Callable[[], bytes | None]) -> bytes | None:
    first = meeting.members[0]
    if meeting.me == first:
        try:
            result = work()
        except HloError as problem:
            meeting.give("result", b"!" + str(problem).encode())
            meeting.wait("taken")
            raise
        meeting.give("result", b"-" if result is None else b"+" + result)
        meeting.wait("taken")
        meeting.store.key_value_delete(f"{meeting.key}/result/")
        return result
    given = meeting.take("result", first)
    meeting.wait("taken")
    kind, content = given[:1], given[1:]
    if kind == b"!":
        raise ProcessesDifferError(
            f"a pass failed on {meeting.module_name} in process {first}: "
            f"{content.decode()}"
        )
    return content if kind == b"+" else None
