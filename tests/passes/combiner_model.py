"""The combiner's loop in its plain form: everything rebuilt in every round.

Shares no code with `hlo_passes.passes.combining.combining`; it works on names alone. Written after
the description of XLA's loop, to be compared with the fast one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Model:
    """A computation: `operands` by name in list order, `keys` and `sizes` of permutes.

    `merged` says whether permutes of one operand became one permute.
    """

    operands: dict[str, tuple[str, ...]]
    keys: dict[str, int]
    sizes: dict[str, int]
    root: str
    combined: int = 0
    elements: int = 0
    batches: list[tuple[str, ...]] = field(default_factory=list)
    merged: bool = False

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
        """All rounds; `batches` holds the operands of each combined permute.

        With `past`, keys 2 and 3 are the same, and operands are passed once.
        """
        left = {
            name: 2 if past and key == 3 else key for name, key in self.keys.items()
        }
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
                self.combine(batch, once=past)

    def combine(self, batch: list[str], *, once: bool) -> None:
        """One permute with tuple result; an element for each member."""
        passed = [self.operands[m][0] for m in batch]
        if once:
            passed = list(dict.fromkeys(passed))
        combined = "collective-permute" + (f".{self.combined}" if self.combined else "")
        self.combined += 1
        self.operands[combined] = tuple(passed)
        if len(passed) == 1:
            # It takes the place of the members, and the name of each in turn.
            del self.operands[combined]
            for member in batch:
                self.replace(member, batch[-1])
            self.operands[batch[-1]] = tuple(passed)
            self.merged = True
            return
        self.batches.append(self.operands[combined])
        for member in batch:
            number = f".{self.elements}" if self.elements else ""
            element = f"get-tuple-element{number}"
            self.elements += 1
            self.operands[element] = (combined,)
            self.replace(member, element)

    def replace(self, member: str, by: str) -> None:
        """Let everything read another one."""
        self.operands.pop(member, None)
        for name, operands in self.operands.items():
            self.operands[name] = tuple(by if o == member else o for o in operands)
        self.batches = [
            tuple(by if o == member else o for o in operands)
            for operands in self.batches
        ]
        if self.root == member:
            self.root = by
