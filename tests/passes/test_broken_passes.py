"""Passes of other people that fail, lie, write nonsense, or cannot be imported."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from hlo_passes import Module, Pass, PassContext, PassError, Pipeline, Report, parse
from hlo_passes.cli.main import main
from hlo_passes.errors import PipelineSpecError, PostconditionError
from hlo_passes.passes.framework.registry import find_pass

TEXT = """HloModule m

ENTRY %e (a: f32[2]) -> f32[2] {
  %a = f32[2] parameter(0)
  %u = f32[2] unheard-of(%a)
  ROOT %s = f32[2] sine(%u), unheard=1
}
"""


@dataclass(frozen=True, slots=True)
class Broken(Pass):
    """Does what a test asks for."""

    name: ClassVar[str] = "broken"
    work: Callable[[Module], Any] = lambda module: False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        return self.work(module)


def _exits(module: Module) -> bool:
    raise SystemExit(7)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda module: {}["oops"], "broken raised KeyError: 'oops'\n  at "),
        (_exits, "broken raised SystemExit: 7\n  at "),
        (lambda module: None, "broken returned None, not True or False"),
    ],
)
def test_what_a_pass_raises_is_an_error_that_names_it(work: Any, message: str) -> None:
    with pytest.raises(PassError) as failed:
        Pipeline((Broken(work),)).run(parse(TEXT))
    assert failed.value.code == "E001"
    assert message in str(failed.value)


def _write(opcode: str, **attributes: str) -> Callable[[Module], bool]:
    def work(module: Module) -> bool:
        root = module.entry.root
        new = module.entry.new(opcode, root.shape, root.operands, attributes, name="n")
        module.entry.set_root(new)
        return True

    return work


@pytest.mark.parametrize(
    ("opcode", "attributes", "code"),
    [
        ("cossine", {}, "V201"),
        ("sine", {"dimensions": "{0}"}, "V101"),
    ],
)
def test_unknown_things_that_a_pass_writes_are_refused(
    opcode: str, attributes: dict[str, str], code: str
) -> None:
    pipeline = Pipeline((Broken(_write(opcode, **attributes)),))
    with pytest.raises(PostconditionError, match=rf"E002(.|\n)*{code}"):
        pipeline.run(parse(TEXT))


def test_unknown_things_that_came_in_may_be_copied() -> None:
    pipeline = Pipeline((Broken(_write("unheard-of")),))
    assert pipeline.run(parse(TEXT)).changed


@pytest.fixture
def plugged_in(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two distributions with entry points of every bad kind, and a good one."""
    (tmp_path / "plugged.py").write_text(
        "from hlo_passes.passes.cleanup.hlo_dce import HloDce\nnumber = 3\n"
    )
    (tmp_path / "raising.py").write_text("1 / 0\n")
    offers = {
        "one": "gone = no_such_module:P\nlost = plugged:Lost\nnumber = plugged:number\n"
        "raises = raising:P\ntwice = plugged:HloDce\nmy-dce = plugged:HloDce\n",
        "two": "twice = plugged:Other\nhlo-dce = plugged:number\n",
    }
    for name, lines in offers.items():
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[hlo_passes.passes]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("plugged_in")
@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (
            "gone",
            "U015",
            "pass gone of one cannot be loaded from no_such_module:P: Mod",
        ),
        ("lost", "U015", "AttributeError"),
        ("number", "U015", "number is not a subclass of Pass"),
        ("raises", "U015", "ZeroDivisionError"),
        ("twice", "U014", "pass twice is offered twice: by one and two"),
    ],
)
def test_bad_entry_points_are_refused_when_asked_for(
    name: str, code: str, message: str
) -> None:
    with pytest.raises(PipelineSpecError) as refused:
        find_pass(name)
    assert refused.value.code == code
    assert message in refused.value.message


@pytest.mark.usefixtures("plugged_in")
def test_bad_entry_points_hide_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert find_pass("my-dce") is find_pass("hlo-dce")
    assert main(["list", "--json"]) == 0
    rows = {r["name"]: r for r in json.loads(capsys.readouterr().out)["passes"]}
    assert rows["gone"]["purpose"].startswith("error[U015]: ")
    assert rows["twice"]["purpose"].startswith("error[U014]: ")
    assert rows["hlo-dce"]["options"] == rows["my-dce"]["options"]
    assert "cannot" not in rows["hlo-dce"]["purpose"]
