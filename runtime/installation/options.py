"""What an installation of passes is asked to do, apart from the passes themselves.

    InstallOptions(stage="post-scheduler", platforms="cuda", multiprocess="off")

`install`, `jit` and the tables of HLO_PASSES make one, and the installation keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.errors import UsageError
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.runtime.installation.module_filter import ModuleFacts, ModuleFilter

#: The values that a field may have, by the field's name.
_VALUES: Final = {
    "stage": ("pre-scheduler", "post-scheduler"),
    "on_error": ("fail", "pass-through"),
    "multiprocess": ("check", "rank0", "off"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """The arguments of `runtime.install` except the pipeline, which explains them."""

    stage: str = "pre-scheduler"
    platforms: str | Sequence[str] = "cpu"
    modules: str | Callable[[ModuleFacts], bool] | None = None
    min_instructions: int = 0
    max_instructions: int | None = None
    has_collectives: bool | None = None
    on_error: str = "fail"
    multiprocess: str = "check"
    context: PassContext | None = None

    def __post_init__(self) -> None:
        """Keep each platform once, in a tuple."""
        given = self.platforms
        names = (given,) if isinstance(given, str) else given
        object.__setattr__(self, "platforms", tuple(dict.fromkeys(names)))

    def check_values(self) -> None:
        """Raise UsageError U060 where a field has none of the values it may have."""
        for name, known in _VALUES.items():
            value = getattr(self, name)
            if value not in known:
                raise UsageError(
                    f"{name}={value!r}", code="U060", hint=f"one of {', '.join(known)}"
                )
        if not self.platform_names:
            raise UsageError("no platforms", code="U060", hint='as in platforms="cpu"')

    @property
    def platform_names(self) -> tuple[str, ...]:
        """The platforms, each once."""
        return tuple(self.platforms)

    @property
    def module_filter(self) -> ModuleFilter:
        """The filter that the fields describe; U060 for one that matches nothing."""
        return ModuleFilter(
            self.modules,
            self.min_instructions,
            self.max_instructions,
            needs_collectives=bool(self.has_collectives),
        )
