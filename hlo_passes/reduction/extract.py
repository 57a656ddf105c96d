"""Some instructions of one computation as a module of their own.

%f {                                          ENTRY %f {
  %a = f32[8] parameter(0)                      %b = f32[8] parameter(0)
  %b = f32[8] cosine(%a)          keep %c       ROOT %c = f32[8] negate(%b)
  %c = f32[8] negate(%b)                      }
  ROOT %d = f32[8] sine(%c)
}

An operand that is not kept becomes a parameter; values that others read become the
result. Computations that kept instructions call come along.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from hlo_passes.errors import HloError, VerificationError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.text.printer import signature_text
from hlo_passes.text.reader import parse
from hlo_passes.verify.verifier import verify

#: Attributes that say nothing about values.
DECORATION: Final = frozenset({"metadata", "origin", "statistics", "sharding"})
#: What the header may keep: aliases and layouts are about the old parameters.
_HEADER: Final = ("replica_count", "num_partitions", "is_scheduled")


def extract(
    module: Module,
    computation: Computation,
    keep: Collection[Instruction],
    outputs: Iterable[Instruction] = (),
    *,
    drop: Collection[str] = (),
) -> Module | None:
    """A module of its own; None where the parts do not make a valid one.

    Args:
        module: left as it is.
        computation: becomes the entry.
        keep: instructions of it, parameters do not count.
        outputs: instructions whose values are the result; the kept ones that others
            read if none are given.
        drop: attributes to leave out.
    """
    kept = [i for i in computation.instructions if i in keep and _can_stay(i)]
    if not kept:
        return None
    inside = set(kept)
    results = [i for i in outputs if i in inside] or _read_outside(computation, kept)
    results = [i for i in results if _has_value(i)]
    if not results:
        return None
    given = dict.fromkeys(o for i in kept for o in i.operands if o not in inside)
    if not all(map(_has_value, given)):
        return None
    lines = [
        f"  %{i.name} = {i.shape.text} parameter({k})" for k, i in enumerate(given)
    ]
    lines += [_line(i, inside, drop) for i in kept]
    lines = _with_root(lines, kept, results, computation)
    return read_valid("\n".join(_module_lines(module, kept, given, results, lines)))


def whole(module: Module, *, drop: Collection[str] = ()) -> Module | None:
    """The module as it is, except for aliases, layouts of the entry and `drop`."""
    entry = module.entry
    keep = [i for i in entry.instructions if i.opcode != "parameter"]
    return extract(module, entry, keep, [entry.root], drop=drop)


def read_valid(text: str) -> Module | None:
    """The module that a text spells; None if reader or verifier refuse it."""
    try:
        module = parse(text)
        verify(module, allow_unknown=True)
    except (HloError, VerificationError):
        return None
    return module


def _can_stay(instruction: Instruction) -> bool:
    return instruction.opcode != "parameter"


def _has_value(instruction: Instruction) -> bool:
    """Whether its result can become a parameter: arrays, and tuples of them."""
    return all(leaf.is_array for _, leaf in instruction.shape.leaves())


def _read_outside(
    computation: Computation, kept: list[Instruction]
) -> list[Instruction]:
    inside = set(kept)
    return [
        i
        for i in kept
        if i is computation.root or not i.users or not inside.issuperset(i.users)
    ]


def _line(
    instruction: Instruction, inside: set[Instruction], drop: Collection[str]
) -> str:
    operands = instruction.literal
    if operands is None:
        operands = ", ".join(f"%{o.name}" for o in instruction.operands)
    attributes = "".join(
        f", {name}={text}"
        for name, text in instruction.attributes.items()
        if name not in drop
    )
    controls = [p.name for p in instruction.control_predecessors if p in inside]
    if controls:
        listed = ", ".join(f"%{name}" for name in controls)
        attributes += f", control-predecessors={{{listed}}}"
    return (
        f"  %{instruction.name} = {instruction.shape.text} "
        f"{instruction.opcode}({operands}){attributes}"
    )


def _with_root(
    lines: list[str],
    kept: list[Instruction],
    results: list[Instruction],
    computation: Computation,
) -> list[str]:
    if len(results) == 1:
        at = len(lines) - len(kept) + kept.index(results[0])
        return [
            *lines[:at], lines[at].replace("  %", "  ROOT %", 1), *lines[at + 1 :]
        ]  # fmt: skip
    taken = {i.name for i in computation.instructions}
    name = next(n for n in _names("result") if n not in taken)
    shape = tuple_shape([i.shape for i in results])
    listed = ", ".join(f"%{i.name}" for i in results)
    return [*lines, f"  ROOT %{name} = {shape.text} tuple({listed})"]


def _names(stem: str) -> Iterator[str]:
    yield stem
    number = 1
    while True:
        yield f"{stem}.{number}"
        number += 1


def _module_lines(
    module: Module,
    kept: list[Instruction],
    given: Collection[Instruction],
    results: list[Instruction],
    lines: list[str],
) -> Iterator[str]:
    header = "".join(
        f", {name}={text}"
        for name, text in module.attributes.items()
        if name in _HEADER
    )
    yield f"HloModule {module.name}{header}\n"
    for callee in needed_computations(module, kept):
        yield signature_text(callee).removeprefix("ENTRY ")
        inside = set(callee.instructions)
        for i in callee.instructions:
            line = _line(i, inside, ())
            yield line if i is not callee.root else line.replace("  %", "  ROOT %", 1)
        thread = callee.execution_thread
        yield "}\n" if thread == "main" else f'}}, execution_thread="{thread}"\n'
    parameters = ", ".join(f"{i.name}: {i.shape.text_without_layout}" for i in given)
    shapes = [i.shape for i in results]
    result = shapes[0] if len(shapes) == 1 else tuple_shape(shapes)
    yield f"ENTRY %main ({parameters}) -> {result.text_without_layout} {{"
    yield from lines
    yield "}\n"


def needed_computations(
    module: Module, instructions: Iterable[Instruction]
) -> list[Computation]:
    """What instructions call, directly or not, in the module's order."""
    needed: set[Computation] = set()
    work = [c for i in instructions for c in i.called_computations]
    while work:
        computation = work.pop()
        if computation not in needed:
            needed.add(computation)
            work += [c for i in computation.instructions for c in i.called_computations]
    return [c for c in module.computations if c in needed]
