"""`profile`: measured costs by instruction name (PGLE), read and as bytes.

    costs { name: "fusion.1" cost_us: 12.5 }
    costs { name: "all-gather-start" cost_us: 310.0 }
    latencies { source: "cp-start" target: "cp-done" latency_us: 80.0 }

It handles the text and the binary form of XLA's ProfiledInstructionsProto. A profile
with our own costs steers XLA's scheduler
(`xla_gpu_pgle_profile_file_or_directory_path`); a profile from XLA or from a
measurement steers ours. XLA drops `latencies` when it filters a profile by fingerprint,
so a pair's time is written as the cost of its start.

Source: openxla/xla `profile_guided_latency_estimator.cc`, `gpu_hlo_schedule.cc`, and
the profiler's `profiled_instructions.proto`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes import proto_wire as wire
from hlo_passes.errors import ParseError, UsageError
from hlo_passes.files import read_file
from hlo_passes.ir.async_form import is_pair, start_of, work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import (
    LOW,
    MOST_US,
    is_async_collective,
)
from hlo_passes.scheduler.hardware.text_proto import (
    number,
    parse_text_proto,
    string,
    submessages,
)
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.sums import sequential_sum

#: The name of the estimator, and the model of its answers.
PROFILE: Final = "profile"
#: The same for times of a trace (`scheduler.measured`).
MEASURED: Final = "measured"
#: Suffixes of files that XLA reads; it ignores a profile with any other name.
TEXT_SUFFIX: Final = ".pbtxt"
BINARY_SUFFIX: Final = ".pb"
#: The end of a name that XLA gives to what it computes once more.
REMATERIALIZED: Final = re.compile(r"\.remat\d*$")
_FINGERPRINT: Final = "::"


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured costs by name, us, and latencies by (source, target)."""

    costs: Mapping[str, float] = field(default_factory=dict)
    latencies: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def to_text(self) -> str:
        """The text form."""
        lines = [
            f"costs {{ name: {_quoted(name)} cost_us: {us!r} }}\n"
            for name, us in self.costs.items()
        ]
        lines += [
            f"latencies {{ source: {_quoted(source)} target: {_quoted(target)} "
            f"latency_us: {us!r} }}\n"
            for (source, target), us in self.latencies.items()
        ]
        return "".join(lines)

    def to_bytes(self) -> bytes:
        """The binary form."""
        out = bytearray()
        for name, us in self.costs.items():
            row = _string(1, name) + wire.double_field(2, us)
            out += wire.bytes_field(1, row)
        for (source, target), us in self.latencies.items():
            row = _string(1, source) + _string(2, target) + wire.double_field(3, us)
            out += wire.bytes_field(2, row)
        return bytes(out)


@dataclass(frozen=True, slots=True)
class ProfileEstimator:
    """Returns what a profile holds, None for the rest."""

    profile: Profile
    name: str = PROFILE

    def node_cost(self, instruction: Instruction) -> Estimate | None:
        """The measured cost; 1 for starts and dones of collectives.

        For XLA a fusion around a collective, as jax 0.12 makes it, is not a collective
        here: its start costs what the profile says, in addition to the latency.
        """
        if is_async_collective(instruction) and not is_async_fusion(instruction):
            return Estimate(LOW, self.name)
        known = self.profile.costs.get(instruction.name)
        return None if known is None else Estimate(known, self.name)

    def latency(self, start: Instruction, user: Instruction) -> Estimate | None:
        """The measured latency, else for a pair the cost of its start."""
        pair = is_pair(start, user)
        for name in _names(start):
            for target in _names(user):
                known = self.profile.latencies.get((name, target))
                if known is not None:
                    return Estimate(known, self.name)
            cost = self.profile.costs.get(name)
            if cost is not None:
                return Estimate(cost, self.name) if pair else None
        return None


def is_async_fusion(instruction: Instruction) -> bool:
    """Whether it starts or ends an asynchronous fusion."""
    return (
        instruction.opcode in ("async-start", "async-done")
        and work_of(instruction) == "fusion"
    )


def _names(instruction: Instruction) -> Iterator[str]:
    """The possible names of an instruction: its own, and that of what it wraps."""
    yield instruction.name
    if instruction.opcode in ("async-start", "async-done"):
        for callee in start_of(instruction).called_computations:
            yield callee.root.name


def check_profile_name(path: str) -> None:
    """Raise UsageError U217 for a file name with which XLA ignores a profile."""
    if not path.endswith((TEXT_SUFFIX, BINARY_SUFFIX)):
        raise UsageError(
            f"XLA ignores a profile with the name {path}",
            code="U217",
            hint=f"use a name that ends in {TEXT_SUFFIX} or {BINARY_SUFFIX} (binary)",
        )


# -- reading -------------------------------------------------------------------


def read_profile(path: str, fingerprint: str = "") -> Profile:
    """Read a profile, text or binary.

    Costs named `fingerprint::name` count only for that fingerprint. Rematerialized
    clones (`name.remat2`) are averaged with the original, as XLA does.

    Raises:
        UsageError: U001 (no such file), U205 (not a profile, or not microseconds).
        ParseError: P400, broken text.
    """
    data = read_file(path)
    profile = _from_binary(data)
    if profile is None:
        try:
            text = data.decode()
        except UnicodeDecodeError as problem:
            raise _refuse(path) from problem
        profile = _from_text(text, path)
    if not profile.costs and not profile.latencies:
        raise _refuse(path)
    for what, table in (("cost", profile.costs), ("latency", profile.latencies)):
        for name, us in table.items():
            if not 0 <= us <= MOST_US:
                raise _refuse(path, f"the {what} of {name} is {us}, not microseconds")
    return _merge_clones(_filtered(profile, fingerprint))


def _refuse(path: str, what: str = "") -> UsageError:
    return UsageError(
        f"{path}: {what}" if what else f"{path} is not a profile",
        code="U205",
        hint="give a ProfiledInstructionsProto, in text or binary form",
    )


def _from_text(text: str, path: str) -> Profile:
    message = parse_text_proto(text, path)
    costs = {
        string(row, "name"): number(row, "cost_us")
        for row in submessages(message, "costs")
    }
    latencies = {
        (string(row, "source"), string(row, "target")): number(row, "latency_us")
        for row in submessages(message, "latencies")
    }
    return Profile(costs, latencies)


def _filtered(profile: Profile, fingerprint: str) -> Profile:
    costs: dict[str, float] = {}
    for name, us in profile.costs.items():
        prefix, separator, bare = name.partition(_FINGERPRINT)
        if not separator:
            costs[name] = us
        elif prefix == fingerprint or not fingerprint:
            costs[bare] = us
    return Profile(costs, profile.latencies)


def _merge_clones(profile: Profile) -> Profile:
    if not any(".remat" in name for name in profile.costs):
        return profile
    sums: dict[str, list[float]] = {}
    for name, us in profile.costs.items():
        sums.setdefault(REMATERIALIZED.sub("", name), []).append(us)
    return Profile(
        {name: sequential_sum(us) / len(us) for name, us in sums.items()},
        profile.latencies,
    )


# -- the binary form -----------------------------------------------------------


def _from_binary(data: bytes) -> Profile | None:
    """The profile in a serialized message; None if the bytes are not a profile."""
    costs: dict[str, float] = {}
    latencies: dict[tuple[str, str], float] = {}
    try:
        for message in wire.fields(data):
            if message.wire_type != wire.LENGTH_DELIMITED:
                return None
            row = {f.number: f for f in wire.fields(data, message.value, message.end)}
            if message.number == 1:
                costs[_text(data, row.get(1))] = _us(data, row.get(2))
            elif message.number == 2:
                pair = (_text(data, row.get(1)), _text(data, row.get(2)))
                latencies[pair] = _us(data, row.get(3))
            else:
                return None
    except (ParseError, ValueError):
        return None
    return Profile(costs, latencies)


def _text(data: bytes, found: wire.Field | None) -> str:
    return data[found.value : found.end].decode() if found else ""


def _us(data: bytes, found: wire.Field | None) -> float:
    return wire.double(data, found) if found else 0.0


def _string(number: int, text: str) -> bytes:
    return wire.bytes_field(number, text.encode())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
