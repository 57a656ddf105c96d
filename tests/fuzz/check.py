"""What must hold for any text at all.

Reading gives a module or an HloError. A module is the same whichever reader made it,
prints back to its own bytes, has attributes or an HloError for each, and is verified or
refused. A module that the verifier accepts goes through all passes, in an order that
the case decides, each with XLA's quirks or without: every pass leaves a module that the
verifier accepts, or refuses it with an error that is documented.
"""

from __future__ import annotations

import random
from typing import Any, Final

import hlo_passes
from hlo_passes.errors import HloError
from hlo_passes.ir import shape_parser
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.passes.framework.sequence import PassSequence
from hlo_passes.text.reader import parse_completely
from tests.fuzz.documented import require_documented
from tests.own_passes import TARGET, own_passes

#: Every pass runs on every mutant that the verifier accepts, except these: sequences
#: run passes of the list, and a search for better orders takes longest; of each,
#: a mutant has one in so many cases.
_SEQUENCES: Final = tuple(
    name
    for name in own_passes()
    if issubclass(find_pass(name), PassSequence) or name == "schedule-improver"
)
_SINGLE: Final = tuple(name for name in own_passes() if name not in _SEQUENCES)
_ONE_IN: Final = 10
#: A search of full length may take longer than a case.
_PART_OF: Final = {"schedule-improver": "schedule-improver{effort=0.1}"}
#: A module that passes have made this many times as large has shown enough.
_MOST_GROWTH: Final = 20


def structure(module: Module) -> tuple[Any, ...]:
    """Everything a module holds, as values that compare."""
    return (
        module.name,
        dict(module.attributes),
        module.tables,
        module.entry.name,
        [
            (
                c.name,
                c.root.name,
                c.execution_thread,
                c.line,
                [
                    (
                        i.name,
                        i.opcode,
                        i.shape.text,
                        i.literal,
                        i.line,
                        [o.name for o in i.operands],
                        [u.name for u in i.users],
                        [p.name for p in i.control_predecessors],
                        [s.name for s in i.control_successors],
                        _attributes(i),
                    )
                    for i in c.instructions
                ],
            )
            for c in module.computations
        ],
    )


def _attributes(instruction: Any) -> list[tuple[str, str]] | str:
    try:
        return list(instruction.attributes.items())
    except HloError as refused:
        return refused.code


def check(text: str, rng: random.Random) -> str:
    """Check one text; returns what became of it ('refused P004', 'verified' ...)."""
    try:
        module = hlo_passes.parse(text, filename="fuzz.hlo")
    except HloError as refused:
        _check_place(refused)
        # What was read before must not matter.
        shape_parser._PARSED.clear()
        _must_be_refused_completely(text)
        return f"refused {refused.code}"
    shape_parser._PARSED.clear()
    try:
        complete = parse_completely(text, filename="fuzz.hlo")
    except HloError as refused:
        return f"refused {_refused_later(module, refused)}"
    assert structure(module) == structure(complete), "the two readers differ"
    for read in (complete, module):
        # Put together from the pieces, not the kept source.
        read.version = 0 if module.single_instruction else 1
        assert read.to_text() == text, "not printed back byte for byte"
        read.version = 0
    try:
        hlo_passes.verify(module)
    except HloError as refused:
        _check_place(refused)
        return f"unverified {refused.code}"
    return _through_all_passes(module, rng)


def _through_all_passes(module: Module, rng: random.Random) -> str:
    """Run all passes in a random order; 'verified', and which codes passes refused."""
    names = rng.sample(_SINGLE, len(_SINGLE))
    if not rng.randrange(_ONE_IN):
        chosen = rng.choice(_SEQUENCES)
        names.append(_PART_OF.get(chosen, chosen))
    context = PassContext(xla_quirks=rng.random() < 0.5, target=TARGET)
    most = _MOST_GROWTH * module.instruction_count
    refusals: set[str] = set()
    for name in names:
        before = module.clone()
        try:
            hlo_passes.Pipeline.parse(name, context).run(module)
        except HloError as refused:
            require_documented(refused, "")
            refusals.add(refused.code)
            module = before
        if module.instruction_count > most:
            refusals.add("large")
            break
    again = hlo_passes.parse(module.to_text())
    assert again.instruction_count == module.instruction_count
    return " ".join(("verified", *sorted(refusals)))


def _refused_later(module: Module, refused: HloError) -> str:
    """`parse` leaves attributes and signatures for later; then they are refused."""
    try:
        hlo_passes.verify(module)
    except HloError as later:
        _check_place(later)
        return refused.code
    raise AssertionError(f"accepted: {refused.render()}")


def _check_place(refused: HloError) -> None:
    assert refused.render().startswith("fuzz.hlo:"), refused.render()


def _must_be_refused_completely(text: str) -> None:
    try:
        parse_completely(text)
    except HloError:
        return
    raise AssertionError("refused by `parse`, accepted by the complete parser")
