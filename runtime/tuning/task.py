"""One evaluation: a compiler makes a module of a program, and the module is priced.

    compiled, outcome = task.answer()         in whichever process it runs

What differs between the compilers is in `evaluation` and `tpu_evaluation`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from hlo_passes.ir.module import Module
from hlo_passes.runtime.tuning.compile_process import CompileProcess, process_for
from hlo_passes.runtime.tuning.program import Tuned
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.text.reader import parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(ABC):
    """A combination as a compiler made it.

    Attributes:
        COMPILER: its name.
        problem: why there is no module.
        seconds: that the compiler took.
        is_certain: whether the next attempt would give the same.
    """

    COMPILER: ClassVar[str]

    problem: str = ""
    seconds: float = 0.0
    is_certain: bool = True

    @property
    @abstractmethod
    def text(self) -> str:
        """Of the scheduled module, '' where there is none."""

    @property
    def digest(self) -> str:
        """The sha256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def to_module(self) -> Module:
        """The scheduled module."""
        return parse(self.text, filename=f"<scheduled by {self.COMPILER}>")


AnyCompiled = TypeVar("AnyCompiled", bound=Compiled)


class Question(Protocol):
    """What a worker is asked."""

    def answer(self) -> Any:
        """Find it out, in whichever process it runs."""
        ...


def answer(question: Question) -> Any:
    """What a worker does."""
    return question.answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(ABC, Generic[AnyCompiled]):
    """What one evaluation needs to know.

    Attributes:
        program: to compile.
        rules: of the simulation.
        chosen: the combination.
        options: its flags by name.
        known: what was compiled before; None for nothing.
    """

    program: Tuned
    rules: Rules
    chosen: Combination
    options: tuple[tuple[str, Any], ...]
    known: AnyCompiled | None

    def answer(self) -> tuple[AnyCompiled, Outcome]:
        """Compile, unless that is known, and price."""
        compiled = self.known
        if compiled is None:
            compiled = self.compile(process_for(self.program))
        return compiled, self.price(compiled)

    def price(self, compiled: AnyCompiled) -> Outcome:
        """The step of what was compiled."""
        if compiled.problem:
            return Outcome.failed(compiled.problem)
        return self.step(compiled)

    @abstractmethod
    def compile(self, process: CompileProcess) -> AnyCompiled:
        """Compile in a process."""

    @abstractmethod
    def step(self, compiled: AnyCompiled) -> Outcome:
        """The step of a module that is there."""
