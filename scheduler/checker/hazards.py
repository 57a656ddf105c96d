"""Is a buffer overwritten before its last reader has read it?

    %s = collective-permute-start(%x)     writes into the buffer of %g from here on
    %r = add(%g, %g)                      C060: reads what may be overwritten
    %d = collective-permute-done(%s)

    %u = dynamic-update-slice(%v, ...)    writes into the buffer of %v
    %r = add(%v, %v)                      C061: reads the updated value

C060 is checked for asynchronous operations that return one array, which is written from
start to done: a scheduler must keep readers out of there. Where several are returned,
XLA's looks at their table of pointers alone, and that is written at the done.
C061 replays every buffer with symbolic values and checks that each reader still finds
its value; this holds only after copy insertion.

Source: openxla/xla `latency_hiding_scheduler.cc` (alias hazards of dones).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_passes.ir.async_form import is_done, start_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import is_marked_sync
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.checker.asynchronous import flights
from hlo_passes.scheduler.checker.buffers import Buffers
from hlo_passes.scheduler.checker.demands import Contents, Demands, Use, Write
from hlo_passes.verify.finding import Report

#: They read no array: a tuple only records where its elements are.
_NO_READ: Final = frozenset({"tuple", "domain", "parameter"})
_TOP_LEVEL_ONLY: Final = frozenset({"get-tuple-element", "copy"})


def check_hazards(
    computation: Computation, buffers: Buffers, report: Report, *, in_place: bool
) -> None:
    """Report readers that may find another value than theirs."""
    if computation not in buffers.computations:
        return
    found = _contents(computation, buffers)
    if in_place:
        for contents in found.values():
            _replay(contents, report)
    elif found:
        _check_flights(computation, found, buffers, report)


def _contents(computation: Computation, buffers: Buffers) -> dict[int, Contents]:
    """The events of the buffers that hold more than one value.

    An array that a done returns is a value of its start, and written from there on.
    """
    instructions = computation.instructions
    value_of, buffer_of = buffers.value_of, buffers.buffer_of
    seen: set[int] = set()
    contents: dict[int, Contents] = {}
    for position, instruction in enumerate(instructions):
        is_parameter = instruction.opcode == "parameter"
        for place in buffers.places(instruction):
            value = value_of[place]
            if value in seen:
                continue
            seen.add(value)
            at = -1 if is_parameter else position
            contents.setdefault(buffer_of[place], Contents()).written.append(
                (at, None if is_parameter else instruction, value)
            )
    several = {b: c for b, c in contents.items() if len(c.written) > 1}
    for position, user, place in _reads(computation, buffers):
        found = several.get(buffer_of[place])
        if found is not None:
            found.uses.append(Use(position, user, value_of[place]))
    return several


def _reads(
    computation: Computation, buffers: Buffers
) -> Iterator[tuple[int, Instruction, int]]:
    """(position, user, place) of all reads; the root's result is read at the end."""
    for position, user in enumerate(computation.instructions):
        opcode = user.opcode
        if opcode in _NO_READ:
            continue
        for operand in dict.fromkeys(user.operands):
            places = buffers.places(operand)
            for place in places[:1] if opcode in _TOP_LEVEL_ONLY else places:
                yield position, user, place
    end = len(computation.instructions)
    for place in buffers.places(computation.root):
        yield end, computation.root, place


def _replay(contents: Contents, report: Report) -> None:
    """Walk one buffer's writes and reads in order: each read must find its value."""
    writes = sorted(contents.written, key=lambda w: w[0])
    for use in sorted(contents.uses, key=lambda u: u.position):
        mine = next((w for w in writes if w[2] == use.value), None)
        if mine is None:
            continue
        # Whoever overwrites a value may read it while doing so, from start to done.
        own = (None, use.user, start_of(use.user) if is_done(use.user) else None)
        for at, writer, value in writes:
            if writer in own or value == use.value:
                continue
            if writer is not None and mine[0] < at < use.position:
                report.add(
                    use.user, "C061",
                    f"reads what %{writer.name} has already overwritten: both values "
                    "share a buffer",
                )  # fmt: skip
                break


def _check_flights(
    computation: Computation,
    found: dict[int, Contents],
    buffers: Buffers,
    report: Report,
) -> None:
    """Readers of what a start overwrites must come before it, where some order can."""
    writes: dict[int, list[Write]] = {}
    for flight in flights(computation):
        if flight.start is None or flight.done is None or is_marked_sync(flight.start):
            continue
        if flight.done.shape.is_tuple:
            continue  # its table is written at the done alone
        place = buffers.first[flight.done]
        write = Write(flight.begin, flight.end, buffers.value_of[place])
        writes.setdefault(buffers.buffer_of[place], []).append(write)
    demands = Demands(computation)
    for buffer, contents in found.items():
        if buffer in writes:
            demands.add(contents, writes[buffer])
    for user, start in demands.avoidable():
        report.add(
            user, "C060",
            f"reads a buffer that %{start.name} overwrites from its start on",
        )  # fmt: skip
