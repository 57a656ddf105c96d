"""What must hold for any text at all.

Reading gives a module or an HloError. A module is the same whichever reader made it,
prints back to its own bytes, has attributes or an HloError for each, and is verified or
refused; a pipeline leaves a module that the verifier accepts.
"""

from __future__ import annotations

from typing import Any

import hlo_passes
from hlo_passes.errors import HloError
from hlo_passes.ir.module import Module
from hlo_passes.text.reader import parse_completely

#: Passes that run on every mutant which the verifier accepts.
PIPELINE = (
    "tuple-simplifier,collective-permute-combiner,hlo-cse,"
    "collective-permute-splitter,async-collective-creator,"
    "convert-async-collectives-to-sync,hlo-dce"
)


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


def check(text: str) -> str:
    """Check one text; returns what became of it ('refused: P004', 'verified' ...)."""
    try:
        module = hlo_passes.parse(text, filename="fuzz.hlo")
    except HloError as refused:
        _check_place(refused)
        _must_be_refused_completely(text)
        return f"refused {refused.code}"
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
    hlo_passes.Pipeline.parse(PIPELINE).run(module)
    again = hlo_passes.parse(module.to_text())
    assert again.instruction_count == module.instruction_count
    return "verified"


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
