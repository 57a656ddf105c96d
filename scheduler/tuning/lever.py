"""What a lever is: something that a user can set, with the settings worth trying.

    lever = LEVERS["overlap limit"]
    lever.candidates("0.12")[0].flags    (Flag("xla_gpu_..._overlap_limit", "2"),)

A lever that is not set is as XLA has it by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hlo_passes.whole_numbers import integer_of
from hlo_passes.xla_release import RELEASES, XlaRelease

#: What a lever changes: the order alone, so that our scheduler can price it; the
#: module; or the module by what JAX reads, not XLA.
Scope = Literal["schedule", "module"]
#: Not a flag of XLA, but an option of compilation and of JAX's environment.
OPTIMIZATION_LEVEL: Final = "optimization_level"
_OPTIMIZATION_VARIABLE: Final = "JAX_OPTIMIZATION_LEVEL"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of XLA with a value.

    Attributes:
        name: as in XLA_FLAGS, without hyphens; or `OPTIMIZATION_LEVEL`.
        text: the value as XLA_FLAGS spells it.
        option: the value as `compiler_options` needs it, where that is another text.
        first: the first release that has it.
        last: the last release in which to use it; '' for all later ones.
    """

    name: str
    text: str
    option: str = ""
    first: str = RELEASES[0].name
    last: str = ""

    def is_in(self, release: XlaRelease) -> bool:
        """Whether a release has it."""
        names = [each.name for each in RELEASES]
        at = names.index(release.name)
        last = names.index(self.last) if self.last else len(names)
        return names.index(self.first) <= at <= last

    @property
    def setting(self) -> str:
        """As a shell takes it: '--xla_...=true', or the variable that JAX reads."""
        if self.name == OPTIMIZATION_LEVEL:
            return f"{_OPTIMIZATION_VARIABLE}={self.text}"
        return f"--{self.name}={self.text}"

    @property
    def value(self) -> bool | int | str:
        """The value for `compiler_options`."""
        text = self.option or self.text
        if text in ("true", "false"):
            return text == "true"
        number = integer_of(text)
        return text if number is None else number


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting of a lever.

    Attributes:
        setting: for a reader, as in 'on', '128 MiB'.
        flags: that make it, by release; several that must be set together.
        options: of our passes that mean the same, (option, text); () where our passes
            do not have it.
    """

    setting: str
    flags: tuple[Flag, ...]
    options: tuple[tuple[str, str], ...] = ()

    def flags_in(self, release: XlaRelease) -> tuple[Flag, ...]:
        """The flags for a release; () where it does not have the setting."""
        return tuple(flag for flag in self.flags if flag.is_in(release))


#: What a program must have for a lever to matter: a quantity, and the kind of
#: collective that is meant, '' for any.
Quantity = Literal["any", "two", "looped", "loops", "products", "hosts", "async"]
Need = tuple[Quantity, str]


@dataclass(frozen=True, slots=True)
class Lever:
    """Something that can be set.

    Attributes:
        name: for a reader, as in 'pipelined all-gather'.
        what: what it does, in a sentence without a full stop.
        settings: worth trying, the most promising first.
        default: what XLA has by itself, for a reader.
        scope: what it changes.
        needs: what the program must have; all of them.
        only_with: levers of which one must be set for this one to matter.
        not_with: settings of other levers beside which this one means nothing.
        interacts: levers whose best setting depends on this one's.
        streams: communication streams of XLA's runtime with it; None for its own.
    """

    name: str
    what: str
    settings: tuple[Candidate, ...]
    default: str
    scope: Scope = "module"
    needs: tuple[Need, ...] = ()
    only_with: tuple[str, ...] = ()
    not_with: tuple[tuple[str, str], ...] = ()
    interacts: tuple[str, ...] = ()
    streams: int | None = None

    def candidates(self, release: XlaRelease) -> tuple[Candidate, ...]:
        """The settings that a release has."""
        return tuple(each for each in self.settings if each.flags_in(release))

    def candidate(self, setting: str) -> Candidate:
        """The candidate of that setting; KeyError if there is none."""
        for each in self.settings:
            if each.setting == setting:
                return each
        raise KeyError(setting)
