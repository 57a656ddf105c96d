"""The combiner's loop in its plain form: everything rebuilt in every round.

Shares no code with `hlo_passes.passes.combining.combining`; it works on names alone. Written after
the description of XLA's loop, to be compared with the fast one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Model:
    """A computation: `operands` by name in list order, `keys` and `sizes` of permutes."""

    operands: dict[str, tuple[str, ...]]
    keys: dict[str, int]
    sizes: dict[str, int]
    root: str
    combined: int = 0
    elements: int = 0
    batches: list[tuple[str, ...]] = field(default_factory=list)

    def post_order(self) -> list[str]:
        """Operands first, from what nobody reads, in list order."""
        read = {o for operands in self.operands.values() for o in operands}
        found: list[str] = []

        def visit(name: str) -> None:
            if name not in found:
                for operand in self.operands[name]:
                    visit(operand)
                found.append(name)

        for name in list(self.operands):
            if name not in read:
                visit(name)
        return found

    def ancestors(self, name: str) -> set[str]:
        """Everything that `name` needs, and itself."""
        found, work = {name}, [name]
        while work:
            for operand in self.operands[work.pop()]:
                if operand not in found:
                    found.add(operand)
                    work.append(operand)
        return found

    def run(self, max_bytes: int, max_count: int, *, past: bool) -> None:
        """All rounds; `batches` holds the operands of each combined permute."""
        left = dict(self.keys)
        while left:
            batch: list[str] = []
            total, key = 0, None
            for name in self.post_order():
                if name not in left:
                    continue
                if not batch:
                    key = left[name]
                if left[name] != key:
                    continue
                size = self.sizes[name]
                if size > max_bytes:
                    del left[name]
                    continue
                if total + size > max_bytes:
                    break
                if self.ancestors(name) & set(batch):
                    if past:
                        continue
                    break
                batch.append(name)
                total += size
                del left[name]
                if len(batch) >= max_count:
                    break
            if len(batch) > 1:
                self.combine(batch)

    def combine(self, batch: list[str]) -> None:
        """One permute with tuple result; an element for each member."""
        number = f".{self.combined}" if self.combined else ""
        combined = f"collective-permute{number}"
        self.combined += 1
        self.operands[combined] = tuple(self.operands[m][0] for m in batch)
        self.batches.append(self.operands[combined])
        for member in batch:
            number = f".{self.elements}" if self.elements else ""
            element = f"get-tuple-element{number}"
            self.elements += 1
            self.operands[element] = (combined,)
            for name, operands in self.operands.items():
                self.operands[name] = tuple(
                    element if o == member else o for o in operands
                )
            self.batches = [
                tuple(element if o == member else o for o in operands)
                for operands in self.batches
            ]
            if self.root == member:
                self.root = element
            del self.operands[member]
