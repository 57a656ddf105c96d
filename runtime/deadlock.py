"""Finds, in XLA's log of a run that hung, the collective and the missing devices.

XLA only counts the devices that arrive at a rendezvous. With the log of its collectives
switched on (`LOG_ENVIRONMENT`) every device logs where it arrives; a device waits at
the last place in its log, and is missing everywhere else.

    deadlock: %inner (all-reduce, channel 1) waits for device 3 of 0,1,2,3;
    %last (collective-permute, channel 2) waits for devices 0,1,2 of 0,1,2,3
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.runtime.plain.stand_ins import Collective

#: Environment in which XLA's CPU collectives log who arrives. Source: openxla/xla
#: `xla/backends/cpu/runtime/collective_thunk.cc` (Aug 2026), VLOG level 3.
LOG_ENVIRONMENT: Final = {
    "TF_CPP_VMODULE": "collective_thunk=3",
    "TF_CPP_MIN_LOG_LEVEL": "0",
}

#: XLA waits this long before it reports which rendezvous waits; then it waits as long
#: as its flag says before it ends the process. The report costs nothing.
_WARN_SECONDS: Final = 1

#: How many collectives a message lists if XLA's log does not say which one hangs.
_LISTED_COLLECTIVES: Final = 5

#: The run is a signed number: XLA hashes it.
_KEY = (
    r"RendezvousKey\{run_id=RunId: (?P<run>-?\d+), "
    r"global_devices=\[(?P<devices>[^\]]*)\],"
    r".*?op_id=(?P<op>-?\d+)\}"
)
_ARRIVAL = re.compile(rf"rank=(?P<rank>\d+), key={_KEY}")
_UNSTUCK = re.compile(rf"is unstuck waiting for `(?P<kind>[a-z -]+?) {_KEY}`")
_ENDED = re.compile(r"Termination timeout for `")
_STUCK = re.compile(rf"waiting for `(?P<kind>[a-z -]+?) {_KEY}` for")


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A collective that some devices wait in.

    Attributes:
        kind: opcode.
        op_id: the channel; for collectives without one, a number from XLA.
        devices: the devices that must arrive.
        missing: those that have not; empty if the log does not say.
    """

    kind: str
    op_id: int
    devices: tuple[int, ...]
    missing: tuple[int, ...]


def flags(timeout_seconds: int) -> str:
    """XLA flags with which a rendezvous gives up after a number of seconds."""
    return (
        f"--xla_cpu_collective_call_warn_stuck_timeout_seconds={_WARN_SECONDS} "
        f"--xla_cpu_collective_call_terminate_timeout_seconds={timeout_seconds} "
        f"--xla_cpu_collective_timeout_seconds={timeout_seconds}"
    )


def is_deadlock(log: str) -> bool:
    """Whether a run ended because devices waited for others."""
    return _ENDED.search(log) is not None


def stuck(log: str) -> tuple[Rendezvous, ...]:
    """The rendezvous that never took place, by channel."""
    stands_at: dict[int, tuple[str, str, str]] = {}
    for match in _ARRIVAL.finditer(log):
        devices = _numbers(match["devices"])
        device = devices[int(match["rank"])]
        stands_at[device] = (match["run"], match["devices"], match["op"])
    late = {m.group("kind", "run", "devices", "op") for m in _UNSTUCK.finditer(log)}
    found: dict[tuple[str, str, str, str], Rendezvous] = {}
    for match in _STUCK.finditer(log):
        key = (match["run"], match["devices"], match["op"])
        if (match["kind"], *key) in late:
            continue
        devices = _numbers(match["devices"])
        missing = tuple(d for d in devices if stands_at.get(d) != key)
        kind = match["kind"].replace(" ", "-")
        found[(kind, *key)] = Rendezvous(
            kind, int(match["op"]), devices, missing if stands_at else ()
        )
    return tuple(sorted(found.values(), key=lambda r: (r.op_id, r.kind, r.devices)))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word.strip())


def describe(
    rendezvous: Sequence[Rendezvous], collectives: Sequence[Collective]
) -> str:
    """The deadlock in words, with the module's names for collectives.

    Args:
        rendezvous: as `stuck` returns them; none if XLA's log has no line that says
            where the devices wait.
        collectives: of the modules that ran.
    """
    if rendezvous:
        return "deadlock: " + "; ".join(_sentence(r, collectives) for r in rendezvous)
    waiting = "deadlock: some devices wait for others"
    names = list(dict.fromkeys(f"%{c.source_name} ({c.opcode})" for c in collectives))
    if not names:
        return f"{waiting}, and XLA's log does not say where"
    if len(names) == 1:
        return f"{waiting} in {names[0]}"
    listed = ", ".join(names[:_LISTED_COLLECTIVES])
    more = len(names) - _LISTED_COLLECTIVES
    rest = f" and {more} more" if more > 0 else ""
    return f"{waiting}, and XLA's log does not say in which of {listed}{rest}"


def _sentence(rendezvous: Rendezvous, collectives: Sequence[Collective]) -> str:
    of_kind = [c for c in collectives if c.opcode == rendezvous.kind]
    in_channel = [
        c for c in of_kind if c.attributes.get("channel_id") == str(rendezvous.op_id)
    ]
    candidates = in_channel or [c for c in of_kind if "channel_id" not in c.attributes]
    names = dict.fromkeys(f"%{c.source_name}" for c in candidates)
    name = " or ".join(names) or f"channel {rendezvous.op_id}"
    group = ",".join(map(str, rendezvous.devices))
    if not rendezvous.missing:
        return f"{name} ({rendezvous.kind}) waits for some of the devices {group}"
    missing = ",".join(map(str, rendezvous.missing))
    plural = "s" * (len(rendezvous.missing) > 1)
    return f"{name} ({rendezvous.kind}) waits for device{plural} {missing} of {group}"
