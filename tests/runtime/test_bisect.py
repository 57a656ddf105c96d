"""`hlo-passes bisect`: the guilty pass, the guilty rewrite, a small module."""

from __future__ import annotations

import json
import pathlib
import signal
import stat
import subprocess
import sys

import pytest

import hlo_passes
from hlo_passes.cli.main import main
from hlo_passes.passes.framework import registry
from hlo_passes.runtime.bisect.judgment import (
    GOOD,
    Judgment,
    TimeIsUpError,
    UndecidedError,
    bad,
    untried,
)
from hlo_passes.runtime.bisect.oracles import (
    CrashOracle,
    Oracle,
    RunOracle,
    ScriptOracle,
)
from hlo_passes.runtime.bisect.rewrites import Rewrite, first_bad_rewrite
from hlo_passes.runtime.bisect.search import Bisection, Search, bisect
from hlo_passes.runtime.work import operations_at_least
from tests.modules import REPOSITORY, SHARED, read_text
from tests.reduction import wrong_passes
from tests.reduction.test_extract import TEXT
from tests.reduction.wrong_passes import CommuteOperands, CountDown, FailOnDots


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
    found = _bisect(hlo_passes.parse(TEXT), CommuteOperands("divide"), RunOracle(2, 0))
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
    oracle = RunOracle(1, 0)
    try:
        rewrite = first_bad_rewrite(
            module, pipeline, lambda before, after: oracle.judge(before, after, 600.0)
        )
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


# -- slow programs, and time -----------------------------------------------------


def _loop(trips: int) -> hlo_passes.Module:
    """A loop of many trips with a collective inside, on two devices."""
    return hlo_passes.parse(f"""HloModule slow, num_partitions=2

%body (s: (s32[], f32[64])) -> (s32[], f32[64]) {{
  %s = (s32[], f32[64]{{0}}) parameter(0)
  %k = s32[] get-tuple-element(%s), index=0
  %x = f32[64]{{0}} get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%k, %one)
  %y = f32[64]{{0}} sine(%x)
  %p = f32[64]{{0}} collective-permute(%y), channel_id=1, \
source_target_pairs={{{{0,1}},{{1,0}}}}
  ROOT %t = (s32[], f32[64]{{0}}) tuple(%next, %p)
}}

%condition (s: (s32[], f32[64])) -> pred[] {{
  %s = (s32[], f32[64]{{0}}) parameter(0)
  %k = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant({trips})
  ROOT %less = pred[] compare(%k, %n), direction=LT
}}

ENTRY %main (x: f32[64]) -> f32[64] {{
  %x = f32[64]{{0}} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[64]{{0}}) tuple(%zero, %x)
  %loop = (s32[], f32[64]{{0}}) while(%start), condition=%condition, body=%body
  ROOT %r = f32[64]{{0}} get-tuple-element(%loop), index=1
}}
""")


#: More trips than any machine makes in `_TOO_SHORT_SECONDS`: 0.17 us for each, in which
#: two devices must meet.
_SLOW_TRIPS = 60_000
_TOO_SHORT_SECONDS = 0.01


def _judged(
    module: hlo_passes.Module, wrong: hlo_passes.Pass, oracle: RunOracle
) -> Judgment:
    after = module.clone()
    hlo_passes.Pipeline((wrong,)).run(after)
    try:
        return oracle.judge(module, after, 600.0)
    finally:
        oracle.close()


@pytest.mark.parametrize("timeout_seconds", [None, _TOO_SHORT_SECONDS])
def test_a_slow_program_is_not_called_endless(timeout_seconds: float | None) -> None:
    # A limit far below what either module takes, as a default on a busy machine is.
    (creator,) = hlo_passes.Pipeline.parse("async-collective-creator").passes
    oracle = RunOracle(2, 0, timeout_seconds, least_seconds=0.5)
    judgment = _judged(_loop(_SLOW_TRIPS), creator, oracle)
    if timeout_seconds is None:
        assert judgment.is_bad is False, judgment
    else:
        assert judgment == untried("the untouched module does not end in time")


def test_a_result_within_a_multiple_of_the_limit_is_unknown() -> None:
    # The untouched module ends within the limit, but so closely that a result which
    # does not end within it, too, may only be slow.
    class Slow(RunOracle):
        def _answer(self, limit: float, until: float, what: str):  # type: ignore[no-untyped-def]
            if what == "the untouched module runs":
                found = super()._answer(limit, until, what)
                return found and {**found, "seconds": 2.5}
            return super()._answer(limit, until, what)

    judgment = _judged(_loop(3), CountDown(), Slow(2, 0, 3))
    assert judgment.is_bad is None
    assert "as a slow program may" in judgment.what
    assert "2.5 s, 25 s would tell" in judgment.detail


def test_a_pass_that_makes_a_loop_endless_is_found() -> None:
    def progress(text: str) -> None:
        if text.endswith("reducing"):
            raise TimeIsUpError  # each trial takes seconds

    oracle = RunOracle(2, 0, least_seconds=1.0)
    pipeline = hlo_passes.Pipeline((CountDown(),))
    try:
        found = bisect(_loop(3), pipeline, oracle, progress)
    finally:
        oracle.close()
    assert found.passes == ("count-down",)
    assert found.what == "it does not end"
    assert "the untouched module takes" in found.detail
    assert found.ended == "time"


def test_an_untouched_module_that_does_not_end_accuses_nobody() -> None:
    endless = _loop(3)
    hlo_passes.Pipeline((CountDown(),)).run(endless)
    (creator,) = hlo_passes.Pipeline.parse("async-collective-creator").passes
    judgment = _judged(endless, creator, RunOracle(2, 0, 2))
    assert judgment == untried("the untouched module does not end in time")


class _Scripted:
    """An oracle that calls every module with a subtract bad, and then stops."""

    def __init__(self, trials: int, stop: BaseException) -> None:
        self.trials = trials
        self.stop = stop

    def judge(
        self, before: hlo_passes.Module, after: hlo_passes.Module, left_seconds: float
    ) -> Judgment:
        self.trials -= 1
        if self.trials < 0:
            raise self.stop
        has = any(i.opcode == "subtract" for i in after.entry.instructions)
        return bad("it has a subtract") if has else GOOD

    def close(self) -> None:
        pass


def _many_subtracts() -> hlo_passes.Module:
    lines = [f"  %v{k} = f32[4]{{0}} subtract(%v{k - 1}, %p)" for k in range(1, 40)]
    return hlo_passes.parse(
        "ENTRY %main {\n  %p = f32[4]{0} parameter(0)\n  %v0 = f32[4]{0} sine(%p)\n"
        + "\n".join(lines)
        + "\n  ROOT %r = f32[4]{0} negate(%v39)\n}\n"
    )


@pytest.mark.parametrize("trials", [1, 3, 6])
@pytest.mark.parametrize(
    ("stop", "ended"), [(TimeIsUpError(), "time"), (KeyboardInterrupt(), "interrupt")]
)
def test_the_best_finding_so_far_is_the_result(
    trials: int, stop: BaseException, ended: str
) -> None:
    wrong = CommuteOperands("subtract")
    module = _many_subtracts()
    search = Search()
    found = bisect(
        module, hlo_passes.Pipeline((wrong,)), _Scripted(trials, stop), search=search
    )
    assert found.ended == ended
    assert found.what == "it has a subtract"
    assert found.pipeline == "commute-operands{mistake=subtract}"
    assert "best so far: commute-operands: it has a subtract" in search.status()
    # The module that was written shows the failure.
    after = found.module.clone()
    hlo_passes.Pipeline((wrong,)).run(after)
    assert _Scripted(1, stop).judge(found.module, after, 1.0).is_bad
    if trials > 1:
        assert found.module.instruction_count < module.instruction_count


def test_time_without_a_finding_is_no_accusation() -> None:
    pipeline = hlo_passes.Pipeline((CommuteOperands("subtract"),))
    with pytest.raises(UndecidedError) as undecided:
        bisect(_many_subtracts(), pipeline, _Scripted(0, TimeIsUpError()))
    assert undecided.value.code == "R011"
    assert undecided.value.exit_code == 5
    # Passes take time, too: an oracle that is never asked ends no search.
    with pytest.raises(UndecidedError):
        bisect(_many_subtracts(), pipeline, CrashOracle(), budget_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        bisect(_many_subtracts(), pipeline, _Scripted(0, KeyboardInterrupt()))


def test_passes_that_cannot_be_told_are_skipped() -> None:
    class Untold(_Scripted):
        """Cannot tell of a module with an addition."""

        def judge(self, before, after, left_seconds):  # type: ignore[no-untyped-def]
            if any(i.opcode == "add" for i in before.entry.instructions):
                return untried("it has an add")
            return super().judge(before, after, left_seconds)

    module = hlo_passes.parse(
        "ENTRY %main {\n  %p = f32[4]{0} parameter(0)\n  %q = f32[4]{0} parameter(1)\n"
        "  %a = f32[4]{0} add(%p, %q)\n  %s = f32[4]{0} subtract(%a, %q)\n"
        "  %t = f32[4]{0} subtract(%p, %q)\n"
        "  ROOT %r = (f32[4]{0}, f32[4]{0}) tuple(%s, %t)\n}\n"
    )
    pipeline = hlo_passes.Pipeline((CommuteOperands("subtract"),))
    found = bisect(module, pipeline, Untold(100, TimeIsUpError()))
    assert found.passes == ("commute-operands",)
    assert "add" not in found.module.to_text()


def test_a_change_that_cannot_be_told_is_not_called_good() -> None:
    lines = [f"  %v{k} = f32[4]{{0}} add(%v{k - 1}, %p)" for k in range(1, 6)]
    lines[2] = lines[2].replace("add", "subtract")
    module = hlo_passes.parse(
        "ENTRY %main {\n  %p = f32[4]{0} parameter(0)\n"
        "  %v0 = f32[4]{0} sine(%p)\n" + "\n".join(lines) + "\n"
        "  ROOT %r = f32[4]{0} negate(%v5)\n}\n"
    )

    def judge(before: hlo_passes.Module, after: hlo_passes.Module) -> Judgment:
        swapped = after.to_text().count("(%p, %v")
        if swapped == 2:
            return untried("two swaps")
        wrong = "subtract(%p, %v2)" in after.to_text()
        return bad("a swapped subtract") if wrong else GOOD

    pipeline = hlo_passes.Pipeline((CommuteOperands("subtract"),))
    rewrite = first_bad_rewrite(module, pipeline, judge)
    assert rewrite is not None
    assert rewrite.change == 3
    assert "+ %v3 = f32[4]{0} subtract(%p, %v2)" in rewrite.lines


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("exit 1", "U040"),
        ('cmp -s "$1" "$2" && exit 0; sleep 5', "as slow"),
        ("sleep 5", "untouched"),
    ],
)
def test_a_script_is_measured_first(
    tmp_path: pathlib.Path, body: str, expected: str
) -> None:
    file = tmp_path / "check.sh"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    module = _many_subtracts()
    after = module.clone()
    hlo_passes.Pipeline((CommuteOperands("subtract"),)).run(after)
    if expected == "U040":
        with pytest.raises(hlo_passes.UsageError, match="refuses the untouched"):
            ScriptOracle(str(file)).judge(module, after, 60.0)
        return
    if expected == "as slow":
        judgment = ScriptOracle(str(file), least_seconds=0.5).judge(module, after, 60.0)
        assert judgment == bad("the script does not end")
        limited = ScriptOracle(str(file), 1, least_seconds=20).judge(
            module, after, 60.0
        )
        assert limited == untried("the script is too slow to tell")
        with pytest.raises(TimeIsUpError):
            ScriptOracle(str(file), least_seconds=60).judge(module, after, 1.0)
        return
    judgment = ScriptOracle(str(file), 0.5).judge(module, after, 60.0)
    assert judgment == untried("the script does not end for the untouched module")


def test_what_is_too_large_for_this_cpu_is_not_started() -> None:
    huge = hlo_passes.parse(
        "ENTRY %main {\n  %p = f32[1000000,1000000]{1,0} parameter(0)\n"
        "  ROOT %d = f32[1000000,1000000]{1,0} dot(%p, %p), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    assert operations_at_least(huge) == 2 * 10**18
    oracle = RunOracle(1, 0)
    judgment = oracle.judge(huge, huge, 600.0)
    assert judgment.what == "it is too large for this CPU"
    assert oracle._worker is None


def test_ctrl_c_writes_the_best_finding(tmp_path: pathlib.Path) -> None:
    """The command as a user sees it: progress, Ctrl-C, a module, exit code 130."""
    given, made = tmp_path / "m.hlo", tmp_path / "small.hlo"
    given.write_text(_many_subtracts().to_text())
    program = (
        "from hlo_passes.passes.framework import registry; import signal, sys\n"
        # A suite that runs in the background ignores this signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "registry.PASSES['commute-operands'] = "
        "'tests.reduction.wrong_passes:CommuteOperands'\n"
        "from hlo_passes.cli.main import main; sys.exit(main(sys.argv[1:]))\n"
    )
    script = tmp_path / "check.sh"
    script.write_text('#!/bin/sh\nsleep 0.2\ncmp -s "$1" "$2"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    with subprocess.Popen(
        [
            sys.executable, "-c", program, "bisect", str(given),
            "--passes=commute-operands{mistake=subtract}", f"--script={script}",
            "-o", str(made),
        ],
        stderr=subprocess.PIPE, text=True, cwd=REPOSITORY,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("trial 5"):
                process.send_signal(signal.SIGINT)
                break
        lines += process.stderr.readlines()
    shown = "".join(lines)
    assert process.returncode == 130, shown
    assert "the search may take 1800 s (--budget-seconds)" in shown
    assert "interrupted: this is the best finding so far" in shown
    assert f"again: hlo-passes bisect {made}" in shown
    assert "'--passes=commute-operands{mistake=subtract}'" in shown
    assert hlo_passes.parse(made.read_text()).instruction_count < 42
