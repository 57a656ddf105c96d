"""Serialized HloModuleProto and HloProto, through jaxlib (proto_worker.py).

module = module_from_proto(pathlib.Path("m.pb").read_bytes())
data = module_to_proto(module)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from hlo_passes import proto_wire as wire
from hlo_passes.errors import ParseError, UnsupportedHloError
from hlo_passes.ir.device_tiles import MAXIMUM_DEVICES
from hlo_passes.ir.left_out import mark_left_out
from hlo_passes.ir.module import Module
from hlo_passes.proto_edit import edited
from hlo_passes.proto_messages import (
    HELD_MODULE,
    MODULE_ONLY,
    ModuleProto,
    by_number,
    device_counts,
    with_device_counts,
    without_sugar,
)
from hlo_passes.proto_process import run_apart
from hlo_passes.proto_worker import PROTO_OF_TEXT, REWRITTEN, SHORT_TEXT, TEXT
from hlo_passes.source import Location
from hlo_passes.text.reader import parse

#: A task of proto_worker.py and its data -> the result: `run_task`, `run_apart`.
RunTask = Callable[[int, bytes], bytes]


def _run(run: RunTask, task: int, data: bytes) -> bytes:
    try:
        return run(task, data)
    except ImportError as problem:
        raise UnsupportedHloError(
            "this release of jaxlib has no module _hlo, which reads protos",
            code="S001",
            hint="jaxlib 0.10.2 and 0.12.0.1 have it",
        ) from problem


@contextlib.contextmanager
def _refusing(filename: str) -> Iterator[None]:
    """P042 for whatever XLA or this package cannot read in a proto."""
    try:
        yield
    except UnsupportedHloError:
        raise
    except Exception as problem:
        said = problem.message if isinstance(problem, ParseError) else str(problem)
        reason = said.splitlines()[0] if said else "unreadable"
        raise ParseError(
            f"this is not a serialized HloModuleProto or HloProto: {reason}",
            code="P042",
            location=Location(filename, 1, 1),
        ) from problem


def module_text_from_proto(
    data: bytes, *, filename: str = "<proto>", run: RunTask = run_apart
) -> str:
    """HLO text of a serialized HloModuleProto, constants in full; P042 if none."""
    return _read(data, TEXT, filename=filename, run=run)[1]


def _read(data: bytes, task: int, *, filename: str, run: RunTask) -> tuple[bytes, str]:
    """The HloModuleProto itself, and its text."""
    with _refusing(filename):
        proto = _module_of(data)
        printed, stopper = without_sugar(proto)
        text = _run(run, task, printed).decode()
    if stopper:
        text = re.sub(rf"^.*%{stopper}.*\n", "", text, flags=re.MULTILINE)
    return proto, text


def module_from_proto(
    data: bytes,
    *,
    filename: str = "<proto>",
    large_constants: bool = True,
    run: RunTask = run_apart,
) -> Module:
    """Read a serialized HloModuleProto or HloProto.

    Args:
        data: the bytes; the module keeps them, `module_to_proto` needs them.
        filename: for messages.
        large_constants: give constants of more than ten elements in full; else they
            read `{...}`, and keep their value in the proto, from where their copies
            have it, too.
        run: runs XLA. A damaged proto can end the process in which XLA reads it;
            `run_task` reads in this one what XLA has written just now.

    Raises:
        ParseError: P042, the bytes are neither of the two.
        UnsupportedHloError: S001, jaxlib cannot read protos.
    """
    task = TEXT if large_constants else SHORT_TEXT
    proto, text = _read(data, task, filename=filename, run=run)
    # Text has no place for the device counts of the compilation: put them into the
    # header, where passes look for them.
    header, newline, rest = text.partition("\n")
    with _refusing(filename):
        counts = device_counts(proto)
    named = zip(("replica_count", "num_partitions"), counts, strict=True)
    for name, count in named:
        if count > 1 and f", {name}=" not in header:
            header += f", {name}={count}"
    module = parse(f"{header}{newline}{rest}", filename=filename)
    with _refusing(filename):
        known = ModuleProto(proto).computations
        if any(computation.name not in known for computation in module.computations):
            # XLA renames what text cannot name: go on with the proto that XLA writes.
            proto = _run(run, REWRITTEN, proto)
    module.proto = proto
    if not large_constants:
        mark_left_out(module)
    return module


def module_to_proto(module: Module, *, run: RunTask = run_apart) -> bytes:
    """The serialized HloModuleProto of a module; `run` as in `module_from_proto`.

    For one that came from a proto it is that proto, changed where the module was
    changed (see proto_edit.py); else XLA's reading of its text. The header's counts
    of replicas and partitions, of which XLA's reading keeps nothing, are written into
    the proto's device assignment.

    Raises:
        UnsupportedHloError: S015, a new constant without its value; S001.
        ParseError: P043, XLA cannot read the module's text, or its counts of devices
            are none that a proto can list. P042, P254, the proto that it was read from
            is damaged where reading does not look.
    """
    filename = module.source.filename if module.source else "<module>"

    def proto_of_text(text: str) -> bytes:
        return _proto_of_text(text, filename, run)

    def rewritten(proto: bytes) -> bytes:
        with _refusing(filename):
            return _run(run, REWRITTEN, proto)

    if module.proto is None:
        data = proto_of_text(module.to_text())
    else:
        with _naming(filename):
            data = edited(module, module.proto, proto_of_text, rewritten)
    counts = (module.replica_count, module.num_partitions)
    if counts == device_counts(data):
        return data
    if min(counts) < 1 or counts[0] * counts[1] > MAXIMUM_DEVICES:
        raise ParseError(
            f"a proto lists 1 to {MAXIMUM_DEVICES} devices, not {counts[0]} replicas x "
            f"{counts[1]} partitions",
            code="P043",
            location=Location(filename, 1, 1),
        )
    return with_device_counts(data, *counts)


@contextlib.contextmanager
def _naming(filename: str) -> Iterator[None]:
    """Errors about bytes name the file that they came from."""
    try:
        yield
    except ParseError as problem:
        if problem.location and problem.location.filename == wire.UNNAMED:
            problem.location = Location(filename, 1, 1)
        raise


def _proto_of_text(text: str, filename: str, run: RunTask) -> bytes:
    try:
        return _run(run, PROTO_OF_TEXT, text.encode())
    except UnsupportedHloError:
        raise
    except Exception as problem:
        raise ParseError(
            f"XLA cannot read the module: {problem}",
            code="P043",
            location=Location(filename, 1, 1),
        ) from problem


def _module_of(data: bytes) -> bytes:
    """The HloModuleProto that an HloProto holds, or that `data` are themselves.

    An HloModuleProto has fields that an HloProto does not have: the entry's name and
    more. XLA does not decide this: protobuf complains on stderr about a name that is a
    module.
    """
    places = by_number(wire.fields(data))
    if not MODULE_ONLY.isdisjoint(places) or HELD_MODULE not in places:
        return data
    # Several are one, with the fields of all.
    return b"".join(data[f.value : f.end] for f in wire.held(places[HELD_MODULE]))
