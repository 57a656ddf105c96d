"""Several levers set at once, and how a user spells that.

chosen = Combination.of({"overlap limit": "2", "pipelined all-gather": "on"})
xla_flags(chosen, release)          '--xla_gpu_pipeline_all_gather=on --xla_...=2'
compiler_options(chosen, release)   {"xla_gpu_pipeline_all_gather": "..."}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hlo_passes.scheduler.tuning.lever import OPTIMIZATION_LEVEL, Flag, Lever, Scope
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.tpu_levers import TPU_LEVERS
from hlo_passes.xla_release import XlaRelease

#: Whose levers they are.
Family = Literal["gpu", "tpu"]
_TABLES: Final[Mapping[Family, Mapping[str, Lever]]] = {
    "gpu": LEVERS,
    "tpu": {name: row.lever for name, row in TPU_LEVERS.items()},
}


@dataclass(frozen=True, slots=True)
class Combination:
    """Settings by lever, in the order of the table; a lever not named is as XLA has it.

    Two combinations of the same family with the same settings are equal.
    """

    settings: tuple[tuple[str, str], ...] = ()
    family: Family = "gpu"

    @classmethod
    def of(cls, settings: Mapping[str, str], family: Family = "gpu") -> Combination:
        """Of settings by lever, in any order; KeyError for an unknown lever."""
        table = _TABLES[family]
        for name, setting in settings.items():
            table[name].candidate(setting)
        rows = tuple((name, settings[name]) for name in table if name in settings)
        return cls(rows, family)

    @property
    def table(self) -> Mapping[str, Lever]:
        """All levers of its family, by name."""
        return _TABLES[self.family]

    def __bool__(self) -> bool:
        """Whether any lever is set."""
        return bool(self.settings)

    @property
    def levers(self) -> tuple[str, ...]:
        """Names of the levers that are set."""
        return tuple(name for name, _ in self.settings)

    def get(self, lever: str) -> str:
        """The setting of a lever, '' where it is not set."""
        return dict(self.settings).get(lever, "")

    def with_(self, lever: str, setting: str) -> Combination:
        """The same with a lever set otherwise; '' takes it back.

        What would mean nothing beside the new setting is taken back, and so is what
        the new setting would mean nothing beside.
        """
        settings = dict(self.settings) | {lever: setting}
        given_up = [
            name
            for name, other in self.settings
            if name != lever
            and (
                (lever, setting) in self.table[name].not_with
                or (setting and (name, other) in self.table[lever].not_with)
            )
        ]
        less = Combination.of(
            {n: s for n, s in settings.items() if s and n not in given_up}, self.family
        )
        return less.sound() if given_up else less

    def without(self, lever: str) -> Combination:
        """The same with a lever as XLA has it, and those that need it, too."""
        return self.with_(lever, "").sound()

    def sound(self) -> Combination:
        """The same without levers that mean nothing beside the others."""
        for name in self.levers:
            if not self.is_sound(name):
                return self.without(name)
        return self

    def is_sound(self, lever: str) -> bool:
        """Whether a lever has one that it needs, and none that makes it nothing."""
        row = self.table[lever]
        needed = not row.only_with or any(self.get(other) for other in row.only_with)
        return needed and not any(pair in self.settings for pair in row.not_with)

    def part(self, scope: Scope) -> Combination:
        """The levers of one scope."""
        rows = (row for row in self.settings if self.table[row[0]].scope == scope)
        return Combination(tuple(rows), self.family)

    def to_text(self) -> str:
        """'pipelined all-gather, overlap limit 2'."""
        return ", ".join(setting_text(*row) for row in self.settings) or "nothing"


def setting_text(lever: str, setting: str) -> str:
    """'overlap limit 2', 'combined all-gather off'; a switch that is on by its name."""
    return lever if setting == "on" else f"{lever} {setting}"


def flags_of(chosen: Combination, release: XlaRelease) -> tuple[Flag, ...]:
    """The flags of a combination; of two that say the same one, the later lever's."""
    flags: dict[str, Flag] = {}
    for name, setting in chosen.settings:
        for flag in chosen.table[name].candidate(setting).flags_in(release):
            flags[flag.name] = flag
    return tuple(flags.values())


def xla_flags(chosen: Combination, release: XlaRelease) -> str:
    """What to put into XLA_FLAGS, '' for nothing."""
    return " ".join(
        flag.setting
        for flag in flags_of(chosen, release)
        if flag.name != OPTIMIZATION_LEVEL
    )


def variables(chosen: Combination, release: XlaRelease) -> dict[str, str]:
    """Variables of the environment that JAX reads, XLA_FLAGS left out."""
    return dict(
        flag.setting.split("=", 1)
        for flag in flags_of(chosen, release)
        if flag.name == OPTIMIZATION_LEVEL
    )


def compiler_options(
    chosen: Combination, release: XlaRelease
) -> dict[str, bool | int | str]:
    """What to give to `jax.jit(..., compiler_options=...)`."""
    return {flag.name: flag.value for flag in flags_of(chosen, release)}
