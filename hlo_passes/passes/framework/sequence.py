"""Several passes under one name.

    gpu-schedule{parallel-collective-overlap-limit=4,xla=0.12}
        ->  async-collective-creator{xla=0.12},
            async-collective-annotator{xla=0.12},
            ...,
            latency-hiding-scheduler{parallel-collective-overlap-limit=4},
            ...

An option goes to every pass of the sequence that has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.errors import PipelineSpecError, nearest
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.passes.framework.spec import current_options, option_values

OptionTexts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PassSequence(Pass):
    """A list of passes that a pipeline runs in its place, one by one.

    Attributes:
        handed_on: options for the passes inside, as (name, text); in a pipeline's text
            they are among the sequence's own options.
    """

    #: Names of all passes that it may consist of, in order; one may occur twice.
    members: ClassVar[tuple[str, ...]] = ()
    #: What else the compiler does there, and the sequence does not; users are told.
    left_out: ClassVar[tuple[str, ...]] = ()

    handed_on: OptionTexts = ()

    def __post_init__(self) -> None:
        """Refuse options that no pass of the sequence has (U012)."""
        inside = {name for member in self.members for name in _options_of(member)}
        current = current_options(self.name, inside, self.handed_on)
        object.__setattr__(self, "handed_on", current)
        for name, _ in self.handed_on:
            if name not in inside:
                own = own_options(type(self))
                raise PipelineSpecError(
                    f"neither {self.name} nor a pass in it has an option {name}",
                    code="U012",
                    hint=nearest(name, [*own, *sorted(inside)])
                    or f"its own options: {', '.join(own) or 'none'}",
                )

    def passes(self) -> tuple[Pass, ...]:
        """The passes, options set; all members unless a subclass chooses."""
        return tuple(self.member(name) for name in self.members)

    def member(self, name: str, **fixed: object) -> Pass:
        """One pass with the options for it; others may be fixed.

        Raises PipelineSpecError U013 for a value that the pass refuses.
        """
        kind = find_pass(name)
        texts = tuple(o for o in self.handed_on if o[0] in _options_of(name))
        values = option_values(kind, name, texts)
        try:
            return kind(**(fixed | values))
        except ValueError as problem:
            raise PipelineSpecError(f"{name}: {problem}", code="U013") from problem

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Run all passes with one report; a pipeline runs them one by one instead."""
        changed = False
        for each in self.passes():
            changed |= each.run(module, context, report)
        return changed


def left_out_of(passes: Iterable[Pass]) -> tuple[str, ...]:
    """What the sequences among some passes leave out, as sentences."""
    sequences = {p.name: p for p in passes if isinstance(p, PassSequence)}
    return tuple(
        f"{name} leaves out {what}"
        for name, each in sequences.items()
        for what in each.left_out
    )


def own_options(kind: type[PassSequence]) -> dict[str, str]:
    """Fields by option name, without those for the passes inside."""
    return {
        f.name.replace("_", "-"): f.name
        for f in dataclasses.fields(kind)
        if f.name != "handed_on"
    }


def all_options(kind: type[PassSequence]) -> tuple[str, ...]:
    """Names of its own options, then of those for the passes inside."""
    inside = (name for member in kind.members for name in sorted(_options_of(member)))
    return tuple(dict.fromkeys([*own_options(kind), *inside]))


def split_options(
    kind: type[PassSequence], options: OptionTexts
) -> tuple[OptionTexts, OptionTexts]:
    """The sequence's own options, and those for the passes inside; some are both."""
    own = own_options(kind)
    inside = {name for member in kind.members for name in _options_of(member)}
    options = current_options(kind.name, {*own, *inside}, options)
    return (
        tuple(o for o in options if o[0] in own),
        tuple(o for o in options if o[0] in inside or o[0] not in own),
    )


def expanded(passes: Iterable[Pass]) -> tuple[Pass, ...]:
    """Passes, with every sequence replaced by its members."""
    found: list[Pass] = []
    for each in passes:
        found += expanded(each.passes()) if isinstance(each, PassSequence) else [each]
    return tuple(found)


def _options_of(name: str) -> frozenset[str]:
    return frozenset(
        f.name.replace("_", "-") for f in dataclasses.fields(find_pass(name)) if f.init
    )
