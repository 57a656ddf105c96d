"""`most-instructions` counts the module as it is: nothing is scheduled in vain."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

import hlo_passes
from benchmarks.family_modules import family_text
from hlo_passes import Pipeline
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.scheduler.passes.priced_chains import ChainTrials
from hlo_passes.scheduler.passes.priced_pass import PricedRewrite
from tests.passes.case_files import read_case

_CASES = sorted((pathlib.Path(__file__).parent / "cases").glob("*/budget_spent.hlo"))


def _given(path: pathlib.Path) -> tuple[str, Module]:
    """The name of the pass, and the module that it would change."""
    return path.parent.name, read_case(path).module()


def _run(name: str, module: Module, most: int, more: str = "") -> bool:
    passes = f"{name}{{most-instructions={most}{more}}}"
    return Pipeline.parse(passes).run(module).changed


def _settings() -> Iterator[tuple[pathlib.Path, str, int]]:
    """A case of each pass, options, and how many copies one change takes.

    The module is scheduled as it is, and with the change; both once more after XLA's
    own passes, unless the pass does not ask for that.
    """
    for path in _CASES:
        if issubclass(find_pass(path.parent.name), PricedRewrite):
            yield path, "", 4
            yield path, ",after-xla=false", 2
        else:
            yield path, "", 2


_each_setting = pytest.mark.parametrize(
    ("path", "more", "copies"),
    list(_settings()),
    ids=lambda it: it.parent.name if isinstance(it, pathlib.Path) else None,
)


@_each_setting
def test_nothing_is_scheduled_without_a_trial(
    path: pathlib.Path, more: str, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(*_: object, **__: object) -> None:
        raise AssertionError("scheduled")

    monkeypatch.setattr(ChainTrials, "step", step)
    monkeypatch.setattr(ChainTrials, "followed_us", step)
    name, module = _given(path)
    assert not _run(name, module, copies * module.instruction_count - 1, more)


@_each_setting
def test_one_trial_fits_into_its_copies(
    path: pathlib.Path, more: str, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0
    after_xla = 0
    step, followed_us = ChainTrials.step, ChainTrials.followed_us

    def noted(self: ChainTrials, *rest: object) -> object:
        nonlocal tried
        tried += 1
        return step(self, *rest)  # type: ignore[arg-type]

    def noted_after(self: ChainTrials, *rest: object) -> float:
        nonlocal after_xla
        after_xla += 1
        return followed_us(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ChainTrials, "step", noted)
    monkeypatch.setattr(ChainTrials, "followed_us", noted_after)
    name, module = _given(path)
    changed = _run(name, module, copies * module.instruction_count, more)
    assert tried == 2
    # What does not pay is not asked about again.
    assert after_xla <= copies - 2
    if changed:
        assert after_xla == copies - 2


@pytest.mark.parametrize("more", ["", ",after-xla=false"])
@pytest.mark.parametrize(("most", "room"), [(600, None), (60_000, 600)])
def test_a_change_that_copies_too_much_is_left(
    most: int, room: int | None, more: str
) -> None:
    """A copy of the loop brings what its custom calls call: 2^8 times.

    Neither the trials may become so large, nor the module.
    """
    text = (_CASES[0].parent.parent / "loop-multi-buffer" / "pays.hlo").read_text()
    text = text.split("// output")[0]
    nest = "%c0 (p0: f32[]) -> f32[] {\n  ROOT %p0 = f32[] parameter(0)\n}\n"
    for k in range(1, 9):
        inside = f'custom_call_target="x", called_computations={{%c{k - 1}}}'
        nest += f"""%c{k} (p{k}: f32[]) -> f32[] {{
  %p{k} = f32[] parameter(0)
  %v{k} = f32[] custom-call(%p{k}), {inside}
  ROOT %q{k} = f32[] custom-call(%v{k}), {inside}
}}
"""
    call = '  %called = f32[] custom-call(), custom_call_target="x", '
    call += "called_computations={%c8}\n  ROOT %after"
    text = text.replace("%body (", f"{nest}%body (", 1)
    module = hlo_passes.parse(text.replace("  ROOT %after", call, 1))
    module.most_instructions = room
    options = f"min-gain=0,most-instructions={most}{more}"
    run = Pipeline.parse(f"loop-multi-buffer{{{options}}}").run(module)
    assert not run.changed
    (remark,) = run.passes[0].remarks
    assert "stays: the module would have" in remark
    assert remark.endswith("more than 600")


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
