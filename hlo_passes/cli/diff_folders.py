"""`hlo-passes diff DIR DIR`: two dump folders of XLA, module by module.

Modules are paired by name, and of one name in the order in which they were compiled.
Each pair is compared at the last stage that both have, or at `--stage`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_passes.analysis.module_diff import ModuleDiff, diff_modules
from hlo_passes.dump_folder import DumpedModule, DumpedStage, dumped_modules
from hlo_passes.errors import UsageError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.files import read_module
from hlo_passes.progress import say


@dataclass(frozen=True, slots=True)
class _Pair:
    before: DumpedModule
    after: DumpedModule
    stages: tuple[DumpedStage, DumpedStage]
    diff: ModuleDiff

    def heading(self) -> str:
        numbers = f"{self.before.number} and {self.after.number}"
        old, new = (stage.label for stage in self.stages)
        stage = old if old == new else f"{old} and {new}"
        return f"{self.before.name} ({numbers}), {stage}"

    def to_json(self) -> dict[str, Any]:
        return {
            "module": self.before.name,
            "numbers": [self.before.number, self.after.number],
            "stages": [stage.label for stage in self.stages],
            "files": [str(stage.file()) for stage in self.stages],
            "equal": self.diff.is_empty,
            "difference": self.diff.to_json(),
        }


def diff_folders(arguments: argparse.Namespace) -> int:
    """Print what differs between two folders; exit 4 with `--exit-code` if anything.

    Raises UsageError U050, U052 of the folders, and what reading a module raises.
    """
    before, after = (
        _wanted(dumped_modules(folder), arguments.module)
        for folder in (arguments.before, arguments.after)
    )
    pairs, alone = _paired(before, after)
    compared = [_compared(one, other, arguments.stage) for one, other in pairs]
    if arguments.json:
        content = {
            "pairs": [pair.to_json() for pair in compared],
            "only_before": [f"{m.number} {m.name}" for m in alone[0]],
            "only_after": [f"{m.number} {m.name}" for m in alone[1]],
        }
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        for pair in compared:
            if pair.diff.is_empty:
                say(f"{pair.heading()}: equal\n")
            else:
                text = pair.diff.to_text().rstrip("\n").replace("\n", "\n  ")
                say(f"{pair.heading()}:\n  {text}\n")
        for folder, modules in zip(
            (arguments.before, arguments.after), alone, strict=True
        ):
            for module in modules:
                say(f"{module.name} ({module.number}): only in {folder}\n")
        say(_summary(compared, alone))
    differ = any(alone) or any(not pair.diff.is_empty for pair in compared)
    return ExitCode.DIFFERENT if arguments.exit_code and differ else ExitCode.DONE


def _wanted(modules: list[DumpedModule], wanted: str) -> list[DumpedModule]:
    if not wanted:
        return modules
    found = [m for m in modules if wanted in (m.name, str(m.number), m.name[4:])]
    if not found:
        names = ", ".join(dict.fromkeys(m.name for m in modules))
        raise UsageError(
            f"--module={wanted}: no such module", code="U051", hint=f"one of {names}"
        )
    return found


def _paired(
    before: Sequence[DumpedModule], after: Sequence[DumpedModule]
) -> tuple[list[tuple[DumpedModule, DumpedModule]], tuple[list[DumpedModule], ...]]:
    """(pairs, (only before, only after))."""
    waiting: dict[str, list[DumpedModule]] = {}
    for module in after:
        waiting.setdefault(module.name, []).append(module)
    pairs: list[tuple[DumpedModule, DumpedModule]] = []
    lonely: list[DumpedModule] = []
    for module in before:
        others = waiting.get(module.name, [])
        if others:
            pairs.append((module, others.pop(0)))
        else:
            lonely.append(module)
    return pairs, (lonely, [m for others in waiting.values() for m in others])


def _compared(before: DumpedModule, after: DumpedModule, wanted: str) -> _Pair:
    stages = _common(before, after) if not wanted else None
    if stages is None:
        stages = before.stage(wanted), after.stage(wanted)
    old, new = (read_module(str(stage.file())) for stage in stages)
    return _Pair(before, after, stages, diff_modules(old, new))


def _common(
    before: DumpedModule, after: DumpedModule
) -> tuple[DumpedStage, DumpedStage] | None:
    """The last stage that both have."""
    for stage in reversed(before.stages):
        for other in reversed(after.stages):
            if stage.label == other.label:
                return stage, other
    return None


def _summary(compared: Sequence[_Pair], alone: tuple[list[DumpedModule], ...]) -> str:
    counts = Counter(pair.diff.is_empty for pair in compared)
    parts = [f"{counts[True]} equal", f"{counts[False]} differ"]
    parts += [
        f"{len(modules)} only {where}"
        for modules, where in zip(alone, ("before", "after"), strict=True)
        if modules
    ]
    count = len(compared) + sum(map(len, alone))
    return f"{count} module{'s' * (count != 1)}: {', '.join(parts)}\n"
