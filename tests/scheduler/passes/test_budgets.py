"""`most-instructions` counts the module as it is: nothing is scheduled in vain."""

from __future__ import annotations

import pathlib

import pytest

import hlo_passes
from benchmarks.family_modules import family_text
from hlo_passes import Pipeline
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.passes.priced_chains import ChainTrials
from tests.passes.case_files import read_case

_CASES = sorted((pathlib.Path(__file__).parent / "cases").glob("*/budget_spent.hlo"))


def _given(path: pathlib.Path) -> tuple[str, Module]:
    """The name of the pass, and the module that it would change."""
    return path.parent.name, read_case(path).module()


def _run(name: str, module: Module, most: int) -> bool:
    return Pipeline.parse(f"{name}{{most-instructions={most}}}").run(module).changed


@pytest.mark.parametrize("path", _CASES, ids=lambda path: path.parent.name)
def test_nothing_is_scheduled_without_a_trial(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(*_: object, **__: object) -> None:
        raise AssertionError("scheduled")

    monkeypatch.setattr(ChainTrials, "step", step)
    name, module = _given(path)
    assert not _run(name, module, 2 * module.instruction_count - 1)


@pytest.mark.parametrize("path", _CASES, ids=lambda path: path.parent.name)
def test_one_trial_fits_into_twice_the_module(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    step = ChainTrials.step

    def noted(self: ChainTrials, copy: Module, *rest: object) -> object:
        sizes.append(copy.instruction_count)
        return step(self, copy, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ChainTrials, "step", noted)
    name, module = _given(path)
    _run(name, module, 2 * module.instruction_count)
    # The module as it is, and one change of it.
    assert len(sizes) == 2


def test_the_module_is_not_counted_for_each_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = 0
    count = Module.instruction_count.fget
    assert count is not None

    def noted(module: Module) -> int:
        nonlocal counted
        counted += 1
        return count(module)

    module = hlo_passes.parse(family_text(3000))
    monkeypatch.setattr(Module, "instruction_count", property(noted))
    assert len(module.computations) > 60
    assert not _run("loop-multi-buffer", module, 0)
    assert counted < 10
