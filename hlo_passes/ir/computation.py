"""A computation: instructions in text order, and the methods that change the graph.

    %body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
      ...                       instructions, in text order: the schedule, when the
      ROOT %t = ... tuple(...)  module says is_scheduled=true
    }

Insertions and removals are noted and take effect when the order is next read, so that
a pass that makes thousands of them stays linear. So are the replaced operands of an
instruction that has many: they take effect when its operands are next read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from hlo_passes.ir.instruction import Instruction, RewiredInstruction

if TYPE_CHECKING:
    from hlo_passes.ir.module import Module
    from hlo_passes.ir.shapes import Shape

#: Attributes that `replace` hands on to a replacement that lacks them.
_INHERITED = ("metadata", "frontend_attributes", "sharding")
#: Replaced operands are noted where there are more than this many.
_MANY_OPERANDS = 32
#: What the first parameters hold where they are in order, as most are.
NUMBERS = [str(k) for k in range(1000)]


class Computation:
    """A named list of instructions with one root.

    Attributes:
        name: without `%`, unique in the module.
        module: the owner.
        root: the instruction whose value is the result.
        execution_thread: 'main' unless the text says otherwise.
        edits: grows with every change except a new order.
        line: 1-based line of the header in the source, 0 when made here.
    """

    #: Whether an instruction may be removed once nothing uses it. The answer is known
    #: above the IR: `hlo_passes/connections.py` sets it, see analysis/effects.py.
    is_removable: ClassVar[Callable[[Instruction], bool]]

    def __init__(self, name: str, *, execution_thread: str = "main") -> None:
        """An empty computation; `Module.add_computation` puts it into a module."""
        self.name = name
        self.module: Module = None  # type: ignore[assignment]  # set by the module
        self.root: Instruction = None  # type: ignore[assignment]  # set by add
        self.execution_thread = execution_thread
        self.line = 0
        self.root_is_marked = True
        self._order: list[Instruction] = []
        self._snapshot: tuple[Instruction, ...] | None = None
        # Asked for again and again while much is added; None until it is known.
        self._parameters: list[Instruction] | None = None
        self._before: dict[Instruction, list[Instruction]] = {}
        self._after: dict[Instruction, list[Instruction]] = {}
        self._appended: list[Instruction] = []
        self._has_removed = False
        # Operands to replace, by instruction; see `settle_operands`.
        self._replaced: dict[Instruction, dict[Instruction, Instruction]] = {}
        # Source text in pieces; None when made here. See text/printer.py.
        self.source_lead: str | None = None
        self.source_head: str | None = None
        self.source_foot = f"\n{foot_text(execution_thread)}"
        self.source_joiner = "\n"
        self.touched = True
        self.edits = 0
        # What `find` searched, and the names once it was asked again; by `edits`.
        self._searched_at = -1
        self._by_name: dict[str, Instruction] = {}
        # `token[] after-all()` as an operand: the instruction whose text spells it.
        self._embedded_in: dict[Instruction, Instruction] = {}
        self._embeds: dict[Instruction, list[Instruction]] = {}
        # `%t#0`: elements that only the text of their users spells.
        self.spelled_elements: dict[Instruction, None] = {}
        self.inline_owner: Instruction | None = None

    # -- reading ------------------------------------------------------------

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in text order: a snapshot, safe to change under."""
        if self._snapshot is None:
            self._settle()
            self._snapshot = tuple(self._order)
        return self._snapshot

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """Parameters by number."""
        if self._parameters is None:
            self._parameters = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(by_number(self._parameters))

    @property
    def is_entry(self) -> bool:
        """Whether this is the module's entry."""
        return self.module.entry is self

    def find(self, name: str) -> Instruction | None:
        """The instruction of that name (with or without `%`), or None."""
        name = name.removeprefix("%")
        if self._searched_at != self.edits:
            # Between changes most are asked for one name: no table is made for it.
            self._searched_at = self.edits
            self._by_name = {}
            return next((i for i in self.instructions if i.name == name), None)
        if not self._by_name:
            self._by_name = {i.name: i for i in self.instructions}
        return self._by_name.get(name)

    def __repr__(self) -> str:
        """<computation %name>."""
        return f"<computation %{self.name}>"

    # -- adding and removing ------------------------------------------------

    def new(
        self,
        opcode: str,
        shape: Shape,
        operands: Iterable[Instruction] = (),
        attributes: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        literal: str | None = None,
        before: Instruction | None = None,
        after: Instruction | None = None,
    ) -> Instruction:
        """Make an instruction with a fresh name and add it.

        Args:
            opcode: as printed.
            shape: of the result.
            operands: instructions of this computation.
            attributes: texts by name, in print order.
            name: stem of the fresh name; the opcode when not given.
            literal: see `Instruction.literal`.
            before: insert it directly before this one in text order, or
            after: directly after this one; at the end when neither is given.
        """
        fresh = self.module.fresh_name(name or opcode)
        instruction = Instruction(
            fresh, opcode, shape, tuple(operands), attributes, literal=literal
        )
        self.add(instruction, before=before, after=after)
        return instruction

    def add(
        self,
        instruction: Instruction,
        *,
        before: Instruction | None = None,
        after: Instruction | None = None,
    ) -> None:
        """Add a detached instruction whose name is free in the module."""
        instruction.computation = self
        instruction.removed = False
        for operand in instruction.operands:
            operand.user_table()[instruction] = None
            if operand in self._embedded_in:
                self.touch(operand)
        if before is not None:
            self._before.setdefault(before, []).append(instruction)
        elif after is not None:
            self._after.setdefault(after, []).append(instruction)
        else:
            self._appended.append(instruction)
        if self.root is None:
            self.root = instruction
        if instruction.opcode == "parameter":
            self.source_head = self._parameters = None
        self.module.note_name(instruction.name)
        self._changed()

    def remove(self, instruction: Instruction) -> None:
        """Remove an instruction without users, and its control edges.

        Raises ValueError when it has users or is the root.
        """
        if instruction._users or instruction is self.root:
            msg = f"%{instruction.name} is in use and cannot be removed"
            raise ValueError(msg)
        self.drop_control_edges(instruction)
        if instruction in self._embedded_in:
            self.touch(instruction)
        self.spelled_elements.pop(instruction, None)
        for operand in instruction.operands:
            operand.user_table().pop(instruction, None)
        if instruction.opcode == "parameter":
            self.source_head = self._parameters = None
        self.module.release_inline_bodies(instruction)
        instruction.removed = True
        self._has_removed = True
        self._changed()

    def remove_with_dead_operands(self, instruction: Instruction) -> int:
        """Remove it and operands that are then dead and removable; returns how many."""
        is_removable = Computation.is_removable
        count, work = 0, [instruction]
        while work:
            current = work.pop()
            if current.removed or current._users or current is self.root:
                continue
            if current is not instruction and not is_removable(current):
                continue
            self.remove(current)
            count += 1
            work.extend(current.operands)
        return count

    # -- edges --------------------------------------------------------------

    def set_operands(
        self, instruction: Instruction, operands: Iterable[Instruction]
    ) -> None:
        """Let an instruction read other operands."""
        old, new = instruction.operands, tuple(operands)
        if old == new:
            return
        for operand in old:
            operand.user_table().pop(instruction, None)
        for operand in new:
            operand.user_table()[instruction] = None
            if operand in self._embedded_in:
                self.touch(operand)
        instruction.operands = new
        self.touch(instruction)

    def replace_operand(
        self, instruction: Instruction, old: Instruction, new: Instruction
    ) -> None:
        """Let an instruction read `new` wherever it read `old`."""
        readers = old.user_table()
        if old is new or instruction not in readers:
            return
        noted = self._replaced.get(instruction)
        if noted is not None and new in noted:
            # It was read before: what is noted about it must not apply any more.
            self.settle_operands(instruction)
            noted = None
        if noted is not None:
            noted[old] = new
        elif len(instruction.operands) > _MANY_OPERANDS:
            self._replaced[instruction] = {old: new}
            instruction.__class__ = RewiredInstruction
        else:
            instruction.operands = tuple(
                [new if o is old else o for o in instruction.operands]
            )
        del readers[instruction]
        new.user_table()[instruction] = None
        if new in self._embedded_in:
            self.touch(new)
        self.touch(instruction)

    def settle_operands(self, instruction: Instruction) -> None:
        """Write the noted operands down; reading them does so."""
        noted = self._replaced.pop(instruction)
        instruction.__class__ = Instruction
        # What was replaced by `new` is what `new` was replaced by later.
        for old, new in reversed(noted.items()):
            noted[old] = noted.get(new, new)
        instruction.operands = tuple([noted.get(o, o) for o in instruction.operands])

    def replace_uses(self, old: Instruction, new: Instruction) -> None:
        """Let every user of `old` (but `new` itself) and the root be `new`'s."""
        for user in old.users:
            if user is not new:
                self.replace_operand(user, old, new)
        if self.root is old:
            self.set_root(new)

    def replace(self, old: Instruction, new: Instruction) -> bool:
        """XLA's ReplaceInstruction: `new` takes the place of `old`, which is removed.

        `new` inherits op metadata, frontend attributes and sharding where it has none,
        and the name if the opcodes are equal. Operands that are then dead are removed
        too. An instruction with control edges is left alone: False.

        Source: openxla/xla `xla/hlo/ir/hlo_computation.cc`.
        """
        if old._control_predecessors or old._control_successors:
            return False
        for name in _INHERITED:
            text = old.attributes.get(name)
            if text is None:
                continue
            if name == "metadata":
                if new.metadata.op_name or not old.metadata.op_name:
                    continue
            elif name in new.attributes:
                continue
            new.set_attribute(name, text)
        self.replace_uses(old, new)
        same_kind = old.opcode == new.opcode and (
            old.opcode != "custom-call"
            or old.attributes.get("custom_call_target")
            == new.attributes.get("custom_call_target")
        )
        name = old.name
        self.remove_with_dead_operands(old)
        if same_kind and not new.removed:
            self.rename(new, name)
        return True

    def rename(self, instruction: Instruction, name: str) -> None:
        """Give another name; it must be free in this computation."""
        instruction.name = name
        self.module.note_name(name)
        self.touch(instruction)
        for user in instruction._users:
            self.touch(user)
        for successor in instruction._control_successors:
            self.touch(successor)

    def set_shape(self, instruction: Instruction, shape: Shape) -> None:
        """Give an instruction another result shape; users are not checked."""
        if instruction.shape == shape:
            return
        instruction.shape = shape
        if instruction is self.root or instruction.opcode == "parameter":
            self.source_head = None
        self.touch(instruction)

    def set_root(self, instruction: Instruction) -> None:
        """Make another instruction the result."""
        if self.root is instruction:
            return
        if self.root is not None and not self.root.removed:
            self.touch(self.root)
        self.root = instruction
        self.root_is_marked = True
        self.source_head = None
        self.touch(instruction)

    def add_control_edge(self, first: Instruction, then: Instruction) -> None:
        """`first` must run before `then`; a second equal edge is not added."""
        if first.note_control_edge(then):
            self.touch(then)
            # What is named must have a line of its own.
            if first in self.spelled_elements or first in self._embedded_in:
                self.touch(first)

    def remove_control_edge(self, first: Instruction, then: Instruction) -> None:
        """Take the edge away; nothing happens when there is none."""
        if first.forget_control_edge(then):
            self.touch(then)

    def drop_control_edges(self, instruction: Instruction) -> None:
        """Take away all control edges of an instruction."""
        for predecessor in instruction.control_predecessors:
            self.remove_control_edge(predecessor, instruction)
        for successor in instruction.control_successors:
            self.remove_control_edge(instruction, successor)

    def set_execution_thread(self, thread: str) -> None:
        """Put the computation itself onto another thread, 'main' or a name."""
        if self.execution_thread == thread:
            return
        self.execution_thread = thread
        lead = self.source_foot.partition("}")[0]
        self.source_foot = f"{lead}{foot_text(thread)}"
        self._changed()

    # -- order --------------------------------------------------------------

    def set_order(self, order: Iterable[Instruction]) -> None:
        """Put the instructions into another order: the same ones, each once.

        Raises ValueError when it is not a permutation of them.
        """
        new = list(order)
        old = self.instructions
        if len(new) != len(old) or set(new) != set(old):
            msg = f"the new order of %{self.name} is not a permutation of the old one"
            raise ValueError(msg)
        if all(a is b for a, b in zip(new, old, strict=True)):
            return
        for instruction in old:
            # Blanks and comments before an instruction go with it, except where
            # several instructions share a line or an anonymous operand hides.
            if self.source_joiner != "\n":
                instruction._text = None
        if not self.root_is_marked:
            self._respell(self.root)
            self.root_is_marked = True
        for instruction in (*self._embedded_in, *self.spelled_elements):
            self._respell(instruction)
        self._order = new
        self._reordered()

    # -- bookkeeping --------------------------------------------------------

    def touch(self, instruction: Instruction) -> None:
        """Note that an instruction differs from its source text."""
        self._respell(instruction)
        self._changed()

    def _respell(self, instruction: Instruction) -> None:
        """Print an instruction, and what only its text spells, from the IR."""
        instruction._text = None
        self.module.release_inline_bodies(instruction)
        if self._embeds:
            owner = self._embedded_in.get(instruction, instruction)
            owner._text = None
            for anonymous in self._embeds.pop(owner, ()):
                anonymous._text = None
                del self._embedded_in[anonymous]
        if instruction in self.spelled_elements:
            del self.spelled_elements[instruction]
            for user in instruction._users:
                user._text = None

    def embed(self, anonymous: Instruction, owner: Instruction) -> None:
        """Note that the source spells an instruction inside the text of its user."""
        self._embedded_in[anonymous] = owner
        self._embeds.setdefault(owner, []).append(anonymous)

    def embedded(self) -> dict[Instruction, Instruction]:
        """Instructions that the source spells inside the text of others, by those."""
        return dict(self._embedded_in)

    def set_embedded(self, embedded: Mapping[Instruction, Instruction]) -> None:
        """Note which instructions the source spells inside the text of others."""
        self._embedded_in, self._embeds = {}, {}
        for anonymous, owner in embedded.items():
            self.embed(anonymous, owner)

    def _changed(self) -> None:
        self.edits += 1
        self.module.edits += 1
        self._reordered()

    def _reordered(self) -> None:
        self._snapshot = None
        self.touched = True
        if (owner := self.inline_owner) is not None:
            owner.computation._respell(owner)
            owner.computation._reordered()
        self.module.version += 1

    def _settle(self) -> None:
        """Bring noted insertions and removals into the order."""
        if not (self._before or self._after or self._appended or self._has_removed):
            return
        before, after = self._before, self._after
        settled: list[Instruction] = []
        # Explicit stack: (instruction, state) with state 0 = its predecessors first.
        for start in (*self._order, *self._appended):
            if start not in before and start not in after:
                if not start.removed:
                    settled.append(start)
                continue
            stack = [(start, 0)]
            while stack:
                instruction, state = stack.pop()
                if state == 0:
                    stack.append((instruction, 1))
                    stack.extend((i, 0) for i in reversed(before.get(instruction, ())))
                else:
                    if not instruction.removed:
                        settled.append(instruction)
                    stack.extend((i, 0) for i in reversed(after.get(instruction, ())))
        self._order = settled
        self._before, self._after, self._appended = {}, {}, []
        self._has_removed = False


def foot_text(thread: str) -> str:
    """`}`, and the execution thread unless it is the main one."""
    return "}" if thread == "main" else f'}}, execution_thread="{thread}"'


def by_number(parameters: Sequence[Instruction]) -> Sequence[Instruction]:
    """The same parameters, by number."""
    if [p.literal for p in parameters] == NUMBERS[: len(parameters)]:
        return parameters
    return sorted(parameters, key=lambda p: p.parameter_number)
