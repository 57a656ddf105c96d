"""Planted faults by the hundred: how many of each kind the checker reports.

    python -m tests.scheduler.checker.fault_campaign [DIR...] [--each=200] [--seed=1]

Modules with a schedule below the directories (default: this project's corpus) are
mutated; every mutant is first judged by a plain reading of its text, and only real
faults count. Kinds for which a module is made follow, and legal changes, which must be
accepted. Exit code 1 when a fault was missed or a legal order refused.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.checker.participants import Machine
from hlo_passes.scheduler.checker.schedule_checker import (
    check_device_order,
    check_schedule,
    machine_of,
)
from tests.modules import CORPUS, module_files, read_text
from tests.scheduler.checker import generated_faults, schedule_faults
from tests.scheduler.checker import plain_reading as plain

#: Modules above this many bytes take too long to print and read per mutant.
_MAXIMUM_BYTES = 3_000_000


@dataclass(slots=True)
class Tally:
    """What came of the faults of one kind."""

    real: int = 0
    caught: int = 0
    missed: list[str] = field(default_factory=list)


def scheduled_modules(paths: list[pathlib.Path]) -> list[Module]:
    """Modules with a schedule and something asynchronous that the checker accepts."""
    found = []
    for file in module_files(*paths):
        text = read_text(file)
        if len(text) > _MAXIMUM_BYTES or "is_scheduled=true" not in text[:4000]:
            continue
        if "-start(" not in text:
            continue
        read = hlo_passes.parse(text, filename=file.name)
        # Spelled out, `%t#0` is a line of its own.
        module = hlo_passes.parse(read.to_canonical_text(), filename=file.name)
        if not check_schedule(module):
            found.append(module)
    return found


def judge(
    module: Module, mutator: schedule_faults.Mutator, draw: random.Random
) -> tuple[bool, str] | None:
    """Plant one fault: (caught, what for); None when there was no real one."""
    before = module.to_text()
    mutant = mutator(draw, module)
    if mutant is None:
        return None
    try:
        after = module.to_text()
        if not mutant.proof(before, after):
            return None
        given = hlo_passes.parse(before) if mutant.compare else None
        found = {f.code for f in check_schedule(module, given, **mutant.options)}
    finally:
        mutant.undo()
    if mutant.options and check_schedule(module, **mutant.options):
        return None  # the base breaks that limit already
    return mutant.code in found, f"{module.source and module.source.filename}: {found}"


def mutated(modules: list[Module], each: int, seed: int) -> Iterator[tuple[str, Tally]]:
    """Tallies of the mutators, by kind."""
    for kind, mutator in schedule_faults.MUTATORS.items():
        draw, tally = random.Random(f"{seed} {kind}"), Tally()
        for _ in range(20 * each):
            if tally.real >= each:
                break
            verdict = judge(draw.choice(modules), mutator, draw)
            if verdict is not None:
                tally.real += 1
                tally.caught += verdict[0]
                tally.missed += [] if verdict[0] else [verdict[1]]
        yield kind, tally


def made(each: int, seed: int) -> Iterator[tuple[str, Tally]]:
    """Tallies of the kinds for which modules are made."""
    for kind, maker in generated_faults.MAKERS.items():
        draw, tally = random.Random(f"{seed} {kind}"), Tally()
        while tally.real < each:
            case = maker(draw)
            if not case.code:
                continue
            found = check_schedule(hlo_passes.parse(case.text), **case.options)
            caught = {f.code for f in found} == {case.code}
            tally.real += 1
            tally.caught += caught
            tally.missed += [] if caught else [f"{found}\n{case.text}"]
        yield kind, tally


def devices_apart(modules: list[Module], each: int, seed: int) -> Tally:
    """C040, or C042 where both have one channel: device 0 has another order."""
    draw, tally = random.Random(f"{seed} apart"), Tally()
    for _ in range(20 * each):
        if tally.real >= each:
            break
        module = draw.choice(modules)
        swapped = _with_two_starts_swapped(module, draw)
        if swapped is None:
            continue
        others = [module] * (machine_of(module).devices - 1)
        found = {f.code for f in check_device_order([swapped, *others])}
        tally.real += 1
        tally.caught += bool(found & {"C040", "C042"})
        tally.missed += [] if found else [str(module)]
    return tally


def _with_two_starts_swapped(module: Module, draw: random.Random) -> Module | None:
    """A copy whose entry begins two collectives of device 0 in the other order.

    Both bring device 0 and one more device together, on one lane.
    """
    if machine_of(module).devices < 2:
        return None
    lines = plain.read(module.to_text())[module.entry.name]
    at = {line.name: k for k, line in enumerate(lines)}
    starts = [
        line
        for line in lines
        if plain._COLLECTIVE.fullmatch(line.opcode)
        and line.opcode.endswith("-start")
        and '"is_sync":true' not in line.text
        and "_xla_gpu_collective_stream" not in line.text
    ]
    pairs = [
        (one, other)
        for one, other in itertools.combinations(starts, 2)
        if all(at[n] < at[one.name] for n in (*other.operands, *other.controls))
        and _meet_twice(one, other, machine_of(module))
    ]
    if not pairs:
        return None
    one, other = draw.choice(pairs)
    copy = module.clone()
    by_name = {i.name: i for i in copy.entry.instructions}
    rest = [i for i in copy.entry.instructions if i.name != other.name]
    rest.insert(rest.index(by_name[one.name]), by_name[other.name])
    copy.entry.set_order(rest)
    return copy


def _meet_twice(one: plain.Line, other: plain.Line, machine: Machine) -> bool:
    if machine.replicas > 1:
        return False  # ids of groups are devices only without replicas
    return any(
        0 in mine & theirs and len(mine & theirs) > 1
        for mine in plain.devices_of(one)
        for theirs in plain.devices_of(other)
    )


def legal(modules: list[Module], each: int, seed: int) -> Iterator[tuple[str, Tally]]:
    """Legal orders: 'caught' counts those that were accepted."""
    draw, tally = random.Random(f"{seed} neighbours"), Tally()
    while tally.real < each:
        module = draw.choice(modules)
        undo = schedule_faults.legal_neighbors(draw, module)
        if undo is None:
            continue
        found = check_schedule(module, parallel_collective_overlap_limit=99)
        undo()
        tally.real += 1
        tally.caught += not found
        tally.missed += [str(found)] if found else []
    yield "independent neighbors swapped", tally
    for kind, maker in generated_faults.LEGAL.items():
        draw, tally = random.Random(f"{seed} {kind}"), Tally()
        for _ in range(each):
            case = maker(draw)
            found = check_schedule(hlo_passes.parse(case.text), **case.options)
            tally.real += 1
            tally.caught += not found
            tally.missed += [f"{found}\n{case.text}"] if found else []
        yield kind, tally


def show(line: str) -> None:
    """A line of the table, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run a campaign and print its table."""
    parser = argparse.ArgumentParser(description="Plant faults in schedules.")
    parser.add_argument("paths", nargs="*", type=pathlib.Path)
    parser.add_argument("--each", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    modules = scheduled_modules(options.paths or [CORPUS])
    show(f"{len(modules)} modules")
    totals: Counter[str] = Counter()

    def row(kind: str, tally: Tally, verb: str) -> None:
        show(f"{kind:34} {tally.caught:5} of {tally.real:5} {verb}")
        for text in tally.missed[:3]:
            show(f"    {text}")
        totals["wrong"] += tally.real - tally.caught
        totals[verb] += tally.caught

    for kind, tally in mutated(modules, options.each, options.seed):
        row(kind, tally, "caught")
    row("devices-apart", devices_apart(modules, options.each, options.seed), "caught")
    for kind, tally in made(options.each, options.seed):
        row(kind, tally, "caught")
    for kind, tally in legal(modules, options.each, options.seed):
        row(kind, tally, "accepted")
    show(", ".join(f"{n} {what}" for what, n in sorted(totals.items())))
    return 1 if totals["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
