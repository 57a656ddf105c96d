"""How its source spells a module, for when the module has its order back.

    %x = f32[4] add(%p, %p)      a pass tries     %y = f32[4] negate(%p)
                                 orders, and      %x = f32[4] add(%p, %p)
    %y = f32[4] negate(%p)       keeps none

A new order drops what only the old one can spell: the blanks of a text where several
instructions share a line, a root without `ROOT`, operands and bodies that are written
in the place of their use. A pass that puts every order back has changed nothing; its
module must read as before.

    spelling = Spelling(module)
    ...                          # orders are tried
    spelling.restore()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module


class _Spelled(NamedTuple):
    """How the source spells one computation."""

    edits: int
    touched: bool
    order: tuple[Instruction, ...]
    texts: list[str | None]
    root_is_marked: bool
    embedded_in: dict[Instruction, Instruction]
    spelled_elements: dict[Instruction, None]


class Spelling:
    """How the source spells a module at the time when this is made."""

    def __init__(self, module: Module) -> None:
        """Note it: one pass over the instructions."""
        self._module = module
        self._version, self._edits = module.version, module.edits
        self._is_as_read = module.is_as_read
        self._of = {c: _spelled(c) for c in module.computations}
        self._inline = [
            (owner, list(bodies)) for owner, bodies in module.inline_bodies()
        ]

    def restore(self) -> None:
        """Spell as before what nobody changed since, apart from orders put back."""
        module = self._module
        if module.version == self._version:
            return
        same = {c for c in module.computations if self._is_same(c)}
        self._leave_out_half_written(same)
        # Bodies first: what their callers spell depends on where they are written.
        for owner, bodies in self._inline:
            if owner.computation in same:
                module.release_inline_bodies(owner)
                for body in bodies:
                    module.keep_inline(body, owner)
        for computation in same:
            known = self._of[computation]
            for instruction, text in zip(known.order, known.texts, strict=True):
                instruction._text = text
            computation.root_is_marked = known.root_is_marked
            computation.set_embedded(known.embedded_in)
            computation.spelled_elements = dict(known.spelled_elements)
            computation.touched = known.touched
        module.version += 1
        if (
            self._is_as_read
            and module.edits == self._edits
            and len(same) == len(self._of)
        ):
            module.version_as_read = module.version

    def _is_same(self, computation: Computation) -> bool:
        known = self._of.get(computation)
        return (
            known is not None
            and known.edits == computation.edits
            and known.order == computation.instructions
        )

    def _leave_out_half_written(self, same: set[Computation]) -> None:
        """Leave out bodies and callers that are one text if a part of it changed."""
        together = [{o.computation, *bodies} for o, bodies in self._inline]
        changed = True
        while changed:
            changed = False
            for part in together:
                if not part <= same and part & same:
                    same -= part
                    changed = True


def _spelled(computation: Computation) -> _Spelled:
    order = computation.instructions
    return _Spelled(
        computation.edits,
        computation.touched,
        order,
        [i._text for i in order],
        computation.root_is_marked,
        computation.embedded(),
        dict(computation.spelled_elements),
    )
