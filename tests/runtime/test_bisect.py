"""`hlo-passes bisect`: the guilty pass, the guilty rewrite, a small module."""

from __future__ import annotations

import json
import pathlib
import stat

import pytest

import hlo_passes
from hlo_passes.cli.main import main
from hlo_passes.passes import registry
from hlo_passes.runtime.bisect.oracles import (
    CrashOracle,
    Oracle,
    RunOracle,
    ScriptOracle,
)
from hlo_passes.runtime.bisect.rewrites import Rewrite, first_bad_rewrite
from hlo_passes.runtime.bisect.search import Bisection, bisect
from tests.modules import SHARED, read_text
from tests.reduction import wrong_passes
from tests.reduction.test_extract import TEXT
from tests.reduction.wrong_passes import CommuteOperands, FailOnDots


def _bisect(module: hlo_passes.Module, wrong, oracle: Oracle) -> Bisection:
    around = [
        hlo_passes.Pipeline.parse(t).passes for t in ("hlo-cse,hlo-dce", "hlo-dce")
    ]
    pipeline = hlo_passes.Pipeline((*around[0], wrong, *around[1]))
    try:
        return bisect(module, pipeline, oracle)
    finally:
        oracle.close()


def test_a_run_shows_the_wrong_rewrite_in_a_loop() -> None:
    found = _bisect(
        hlo_passes.parse(TEXT), CommuteOperands("divide"), RunOracle(2, 0, 60)
    )
    assert found.passes == ("commute-operands",)
    assert found.what == "the results differ"
    assert found.module.instruction_count == 3
    assert found.rewrite is not None
    assert found.rewrite.lines == (
        "- ROOT %less = f32[1]{0} divide(%twice, %v)",
        "+ ROOT %less = f32[1]{0} divide(%v, %twice)",
    )


def test_of_many_rewrites_the_wrong_one_is_named() -> None:
    # The reduced module is one that the pass changes in one place; so the rewrites of
    # the whole module are asked.
    lines = [f"  %v{k} = f32[4]{{0}} add(%v{k - 1}, %p)" for k in range(1, 6)]
    lines[3] = lines[3].replace("add", "subtract")
    module = hlo_passes.parse(
        "ENTRY %main {\n  %p = f32[4]{0} parameter(0)\n"
        "  %v0 = f32[4]{0} sine(%p)\n" + "\n".join(lines) + "\n"
        "  ROOT %r = f32[4]{0} negate(%v5)\n}\n"
    )
    pipeline = hlo_passes.Pipeline((CommuteOperands("subtract"),))
    oracle = RunOracle(1, 0, 60)
    try:
        rewrite = first_bad_rewrite(module, pipeline, oracle.judge)
    finally:
        oracle.close()
    assert rewrite == Rewrite(
        change=4,
        changes=5,
        lines=(
            "- %v4 = f32[4]{0} subtract(%v3, %p)",
            "+ %v4 = f32[4]{0} subtract(%p, %v3)",
        ),
    )


@pytest.fixture
def script(tmp_path: pathlib.Path) -> pathlib.Path:
    """Refuses a module in which something reads %v first and %twice second."""
    file = tmp_path / "check.sh"
    file.write_text('#!/bin/sh\n! grep -q "divide(%v, %twice)" "$1"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def test_a_script_decides(script: pathlib.Path) -> None:
    oracle = ScriptOracle(str(script), 10)
    found = _bisect(hlo_passes.parse(TEXT), CommuteOperands("divide"), oracle)
    assert found.what == "the script refuses it"
    assert found.module.instruction_count == 3


def test_nothing_to_look_for() -> None:
    with pytest.raises(hlo_passes.UsageError) as nothing:
        _bisect(hlo_passes.parse(TEXT), CommuteOperands("add"), CrashOracle())
    assert nothing.value.code == "U040"


def test_command_writes_the_small_module(
    script: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(
        registry.PASSES, "commute-operands", f"{wrong_passes.__name__}:CommuteOperands"
    )
    given, made = tmp_path / "m.hlo", tmp_path / "small.hlo"
    given.write_text(TEXT)
    wrong = "commute-operands{mistake=divide}"
    words = [
        "bisect", str(given), f"--passes=hlo-dce,{wrong}", f"--script={script}",
        "-o", str(made), "--json",
    ]  # fmt: skip
    assert main(words) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["passes"] == ["commute-operands"]
    assert found["module"] == made.read_text()
    assert main(["bisect", str(given), f"--passes={wrong}", "--script=no.sh"]) == 2
    assert main(["bisect", str(given), f"--passes={wrong}"]) == 2  # it does not fail


def test_a_pass_that_fails_on_a_real_model_is_reduced() -> None:
    file = SHARED / "corpus" / "llama3_8b_cp_bf16_1x4.hlo.gz"
    if not file.is_file():
        pytest.skip("no ../shared/corpus beside this checkout")
    found = _bisect(hlo_passes.parse(read_text(file)), FailOnDots(), CrashOracle())
    assert found.what == "KeyError"
    assert found.instructions_before == 2325
    assert found.module.instruction_count == 4
