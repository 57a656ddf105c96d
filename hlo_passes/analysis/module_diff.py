"""How a module's instructions changed: moved, changed, merged, split, added, removed.

    %main
      merged    %a, %b -> %collective-permute
      appeared  %get-tuple-element (get-tuple-element)
      moved     %start from place 4 to place 2

Instructions are the same when their names are. An instruction that disappeared and one
that appeared are one renamed instruction if they are equal and read the same operands.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Any

from hlo_passes.ir.async_form import half, is_collective, work_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module


@dataclass(frozen=True, slots=True)
class Moved:
    """An instruction at another place among those that both computations have.

    Places count from 0 among those, so that added and removed instructions move
    nothing. It names the fewest instructions that explain the new order.
    """

    name: str
    from_place: int
    to_place: int


@dataclass(frozen=True, slots=True)
class Changed:
    """An instruction of the same name that differs; `what` names the parts."""

    name: str
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Regrouped:
    """Collectives that became one (merged), or that one became (split)."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComputationDiff:
    """How one computation changed; names are in text order.

    `status` is 'kept', 'appeared' or 'went'.
    """

    name: str
    status: str = "kept"
    moved: tuple[Moved, ...] = ()
    merged: tuple[Regrouped, ...] = ()
    split: tuple[Regrouped, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    changed: tuple[Changed, ...] = ()
    appeared: tuple[tuple[str, str], ...] = ()
    went: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return self == ComputationDiff(self.name)


@dataclass(frozen=True, slots=True)
class ModuleDiff:
    """How a module changed: its header, and computations that are not as before."""

    header: tuple[tuple[str, str | None, str | None], ...] = ()
    computations: tuple[ComputationDiff, ...] = field(default_factory=tuple)

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not self.header and not self.computations

    def to_text(self, *, moves: bool = True) -> str:
        """For a reader; 'no differences' when there are none.

        Args:
            moves: report what moved, too. Without it the text may be empty.
        """
        if self.is_empty:
            return "no differences\n"
        lines = [
            f"header: {name}: {_shown(old)} -> {_shown(new)}"
            for name, old, new in self.header
        ]
        for computation in self.computations:
            shown = computation if moves else replace(computation, moved=())
            if not shown.is_empty:
                lines += _computation_lines(shown)
        return "".join(f"{line}\n" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """Keys: equal, header, computations (name, status, moved, merged, ...)."""
        return {
            "equal": self.is_empty,
            "header": [
                {"name": name, "before": old, "after": new}
                for name, old, new in self.header
            ],
            "computations": [_computation_json(c) for c in self.computations],
        }


def diff_modules(before: Module, after: Module) -> ModuleDiff:
    """Compare two states of a module; computations are the same when their names are.

    The entry is compared with the entry, whatever it is called.
    """
    header = tuple(
        (name, before.attributes.get(name), after.attributes.get(name))
        for name in dict.fromkeys((*before.attributes, *after.attributes))
        if before.attributes.get(name) != after.attributes.get(name)
    )
    if before.name != after.name:
        header = (("name", before.name, after.name), *header)
    computations: list[ComputationDiff] = []
    matched: set[Computation] = set()
    for new in after.computations:
        old = before.entry if new.is_entry else before.computation(new.name)
        if old is None or (old.is_entry and not new.is_entry):
            computations.append(ComputationDiff(new.name, status="appeared"))
            continue
        matched.add(old)
        found = diff_computations(old, new)
        if not found.is_empty:
            computations.append(found)
    computations += [
        ComputationDiff(old.name, status="went")
        for old in before.computations
        if old not in matched
    ]
    return ModuleDiff(header, tuple(computations))


def diff_computations(before: Computation, after: Computation) -> ComputationDiff:
    """Compare two states of a computation, instructions by name."""
    old = {i.name: i for i in before.instructions}
    new = {i.name: i for i in after.instructions}
    went = {n: i for n, i in old.items() if n not in new}
    appeared = {n: i for n, i in new.items() if n not in old}
    renamed = _take_renamed(went, appeared)
    renaming = dict(renamed)
    merged = _regroup(went, appeared)
    split = tuple(
        Regrouped(group.after, group.before) for group in _regroup(appeared, went)
    )
    for group in (*merged, *split):
        for name in group.before:
            went.pop(name, None)
        for name in group.after:
            appeared.pop(name, None)
    changed = tuple(
        Changed(name, what)
        for name, instruction in new.items()
        if name in old and (what := _changes(old[name], instruction, renaming))
    )
    return ComputationDiff(
        after.name,
        moved=_moved(list(old), list(new)),
        merged=merged,
        split=split,
        renamed=renamed,
        changed=changed,
        appeared=tuple((i.name, i.opcode) for i in appeared.values()),
        went=tuple((i.name, i.opcode) for i in went.values()),
    )


def _take_renamed(
    went: dict[str, Instruction], appeared: dict[str, Instruction]
) -> tuple[tuple[str, str], ...]:
    """Remove pairs that differ only in name from both."""
    waiting: dict[object, list[Instruction]] = {}
    for instruction in went.values():
        waiting.setdefault(_identity(instruction, {}), []).append(instruction)
    renaming: dict[str, str] = {}
    backward: dict[str, str] = {}
    for name in list(appeared):
        alike = waiting.get(_identity(appeared[name], backward))
        if alike:
            old = alike.pop(0)
            renaming[old.name] = name
            backward[name] = old.name
            del went[old.name], appeared[name]
    return tuple(renaming.items())


def _identity(instruction: Instruction, renaming: dict[str, str]) -> object:
    return (
        instruction.opcode,
        instruction.shape.text,
        instruction.literal,
        tuple(renaming.get(o.name, o.name) for o in instruction.operands),
        tuple(instruction.attributes.items()),
    )


def _kind(instruction: Instruction) -> str | None:
    """The collective that an instruction performs, None for anything else."""
    if half(instruction) in ("", "start") and is_collective(instruction):
        return work_of(instruction)
    return None


def _regroup(
    many: dict[str, Instruction], few: dict[str, Instruction]
) -> tuple[Regrouped, ...]:
    """Collectives of `many` whose operands one collective of `few` reads together."""
    readers: dict[tuple[str, str], list[Instruction]] = {}
    for instruction in many.values():
        kind = _kind(instruction)
        if kind is not None and len(instruction.operands) == 1:
            key = (kind, instruction.operands[0].name)
            readers.setdefault(key, []).append(instruction)
    groups: list[Regrouped] = []
    for combined in few.values():
        kind = _kind(combined)
        if kind is None or len(combined.operands) < 2:
            continue
        members: list[str] = []
        for operand in combined.operands:
            waiting = readers.get((kind, operand.name))
            if waiting:
                members.append(waiting.pop(0).name)
        if len(members) > 1:
            groups.append(Regrouped(tuple(members), (combined.name,)))
    return tuple(groups)


def _changes(
    old: Instruction, new: Instruction, renaming: dict[str, str]
) -> tuple[str, ...]:
    """What differs between two instructions of one name: 'shape', 'operands', ..."""
    found: list[str] = []
    if old.opcode != new.opcode:
        found.append("opcode")
    if old.shape != new.shape:
        found.append("shape")
    old_operands = [renaming.get(o.name, o.name) for o in old.operands]
    if old_operands != [o.name for o in new.operands]:
        found.append("operands")
    if old.literal != new.literal:
        found.append("value")
    if old.is_root != new.is_root:
        found.append("root")
    mine, yours = old.attributes, new.attributes
    found += [
        name
        for name in dict.fromkeys((*mine, *yours))
        if mine.get(name) != yours.get(name)
    ]
    old_control = {renaming.get(p.name, p.name) for p in old.control_predecessors}
    if old_control != {p.name for p in new.control_predecessors}:
        found.append("control-predecessors")
    return tuple(found)


def _moved(old: list[str], new: list[str]) -> tuple[Moved, ...]:
    """The fewest names whose moves turn one order into the other."""
    in_new = set(new)
    place = {name: k for k, name in enumerate(n for n in old if n in in_new)}
    common = [name for name in new if name in place]
    kept = set(_longest_increasing([place[name] for name in common]))
    return tuple(
        Moved(name, place[name], k) for k, name in enumerate(common) if k not in kept
    )


def _longest_increasing(values: list[int]) -> list[int]:
    """Indices of a longest increasing subsequence."""
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for index, value in enumerate(values):
        length = bisect_left(tails, value)
        previous.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(value)
            ends.append(index)
        else:
            tails[length] = value
            ends[length] = index
    found: list[int] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        found.append(index)
        index = previous[index]
    return found[::-1]


def _shown(text: str | None) -> str:
    return "none" if text is None else text


def _computation_lines(diff: ComputationDiff) -> list[str]:
    if diff.status != "kept":
        return [f"%{diff.name} {diff.status}"]
    rows: list[tuple[str, str]] = []
    for kind, groups in (("merged", diff.merged), ("split", diff.split)):
        for group in groups:
            before = ", ".join(f"%{name}" for name in group.before)
            after = ", ".join(f"%{name}" for name in group.after)
            rows.append((kind, f"{before} -> {after}"))
    rows += [("renamed", f"%{old} -> %{new}") for old, new in diff.renamed]
    rows += [("changed", f"%{c.name}: {', '.join(c.what)}") for c in diff.changed]
    rows += [("appeared", f"%{name} ({opcode})") for name, opcode in diff.appeared]
    rows += [("went", f"%{name} ({opcode})") for name, opcode in diff.went]
    rows += [
        ("moved", f"%{m.name} from place {m.from_place} to place {m.to_place}")
        for m in diff.moved
    ]
    return [f"%{diff.name}", *(f"  {kind:9} {text}" for kind, text in rows)]


def _computation_json(diff: ComputationDiff) -> dict[str, Any]:
    return {
        "name": diff.name,
        "status": diff.status,
        "moved": [
            {"name": m.name, "from": m.from_place, "to": m.to_place} for m in diff.moved
        ],
        "merged": [{"from": list(g.before), "into": g.after[0]} for g in diff.merged],
        "split": [{"from": g.before[0], "into": list(g.after)} for g in diff.split],
        "renamed": [{"from": old, "to": new} for old, new in diff.renamed],
        "changed": [{"name": c.name, "what": list(c.what)} for c in diff.changed],
        "appeared": [{"name": n, "opcode": opcode} for n, opcode in diff.appeared],
        "went": [{"name": n, "opcode": opcode} for n, opcode in diff.went],
    }
