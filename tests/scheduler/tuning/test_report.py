"""What `tune` tells, of searches that formulas decide."""

from __future__ import annotations

from typing import Any

from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.env_file import env_file
from hlo_passes.scheduler.tuning.outcome import Outcome, Source
from hlo_passes.scheduler.tuning.plugged_in import PassLever, PluggedIn
from hlo_passes.scheduler.tuning.report import report_text
from hlo_passes.scheduler.tuning.result import TuneResult
from hlo_passes.scheduler.tuning.search import Search
from hlo_passes.xla_release import xla_release
from tests.scheduler.tuning.test_search import CHOICES, Formulas, additive


def result(
    formula=additive, *, steps=None, memory=lambda chosen: 1 << 30, **more: Any
) -> TuneResult:
    class Ranged(Formulas):
        def outcome(self, chosen, source: Source = "xla"):
            step = 1000.0 * self.formula(chosen)
            ranged = steps(chosen, step) if steps else (step, 1.1 * step)
            return Outcome(
                step,
                0.2 * step,
                self.memory(chosen),
                60_000.0,
                "compute",
                ranged,
                source,
                module=f"{step}",
            )

    search = Search(
        CHOICES,
        Ranged(formula, memory),
        more.pop("budget", 60),
        memory_bytes=more.pop("limit", None),
    )
    search.run()
    told: dict[str, Any] = {
        "name": "train.py:step",
        "machine": "h100_sxm 2x1x8 (2 hosts of 8 GPUs), XLA 0.12",
        "model": "costs: sol",
        "release": xla_release("0.12"),
        "search": search,
        "dropped": {"all-reduce in steps": "it has no all-reduce"},
        "given_flags": "",
        "is_compiled": True,
        "pipelines": {},
        "compilations": 12,
        "seconds": 34.0,
    }
    return TuneResult(**{**told, **more})


def test_the_whole_text() -> None:
    found = result()
    text = report_text(found)
    lines = text.splitlines()
    assert lines[0] == "train.py:step on h100_sxm 2x1x8 (2 hosts of 8 GPUs), XLA 0.12"
    assert (
        lines[1]
        == "baseline    step 100.00 ms, exposed 20.00 ms (20.0%), memory 1.0 GiB"
    )
    assert lines[2] == (
        "best        step 89.00 ms (-11.0%, range -11.0% to -11.0%, faster in 2 of 2 settings), "
        "exposed 17.80 ms (20.0%), memory 1.0 GiB"
    )
    assert lines[3].startswith(
        'set         XLA_FLAGS="--xla_gpu_pipeline_all_gather=on '
    )
    assert "pipelined all-gather -4.0% alone, +4.5% without it" in text
    assert "leave       windowed einsum all +50.0%" in text
    assert "not tried   all-reduce in steps (it has no all-reduce)" in text
    assert (
        "no flag goes below it with these bytes and flops; 32.6% of the best step"
        in text
    )
    assert "nothing ran on a GPU" in text


def test_what_holds_in_some_settings_only_is_not_sure() -> None:
    def steps(chosen: Combination, step: float) -> tuple[float, ...]:
        return step, 100_000.0 + 1000 * len(chosen.settings)

    found = result(steps=steps)
    text = report_text(found)
    assert "best        not sure: step " in text
    assert "faster in 1 of 2 settings" in text
    told = env_file(found).splitlines()
    assert told[1] == "# not sure: faster in 1 of 2 settings of the range"
    assert "not sure" not in env_file(result())


def test_nothing_helps() -> None:
    found = result(lambda chosen: 100.0 + len(chosen.settings))
    text = report_text(found)
    assert "best        the baseline: none of " in text
    assert "XLA_FLAGS=" not in text
    assert found.to_json()["xla_flags"] == ""
    assert env_file(found) == (
        "# train.py:step on h100_sxm 2x1x8 (2 hosts of 8 GPUs), XLA 0.12: "
        "+0.0% of the step, predicted\n"
    )


def test_only_a_slower_step_fits() -> None:
    def memory(chosen: Combination) -> int:
        return (1 if chosen.get("combined all-gather") == "off" else 2) << 30

    found = result(lambda c: 100.0 + 5 * len(c.settings), memory=memory, limit=1 << 30)
    text = report_text(found)
    assert "memory 2.0 GiB, more than 1.0 GiB" in text
    assert (
        "best        fits, where the baseline does not: step 105.00 ms (+5.0%" in text
    )


def test_flags_of_the_environment_stay() -> None:
    found = result(given_flags="--xla_gpu_autotune_level=0")
    assert found.flags.startswith(
        "--xla_gpu_autotune_level=0 --xla_gpu_pipeline_all_gather=on"
    )
    assert f'\nXLA_FLAGS="{found.flags}"\n' in env_file(found)


def test_another_step_from_the_flags_alone_is_told() -> None:
    for alone, words in (
        (89_000.0, "with these flags alone, in a new process: the same step"),
        (
            90_000.0,
            "beware: compiled again with these flags alone, in a new process, the step is 90.00 ms",
        ),
    ):
        assert words in report_text(result(alone=Outcome(alone)))


def test_levers_beyond_the_budget_are_told() -> None:
    """Also those that were tried with others alone; with the reason each time."""
    assert "--budget" not in report_text(result())
    text = report_text(result(budget=4))
    line = next(line for line in text.splitlines() if line.startswith("not tried"))
    assert "(the search ended after 4 of --budget=4)" in line
    assert "all-reduce in steps (it has no all-reduce)" in line


def test_an_interrupted_search_says_so() -> None:
    found = result()
    found.search.interrupted = True
    assert "note: interrupted: this is the best so far" in report_text(found)
    assert found.to_json()["interrupted"] is True


def test_verdicts() -> None:
    found = result()
    verdicts = {(row.lever, row.setting): row.verdict for row in found.rows}
    assert verdicts["overlap limit", "2"] == "set"
    assert verdicts["overlap limit", "4"] == "helps alone"
    assert verdicts["windowed einsum", "all"] == "leave"
    assert verdicts["all-reduce in steps", ""] == "pointless"
    assert {row["verdict"] for row in found.to_json()["levers"]} <= {
        "set", "helps alone", "leave", "no effect", "pointless"
    }  # fmt: skip


def test_a_lever_without_all_prices_is_no_gain() -> None:
    found = result()
    alone = found.search.baseline.with_("windowed einsum", "all")
    found.search.tried[alone] = Outcome(1.0, memory_bytes=1 << 30, unpriced=1)
    row = next(row for row in found.rows if row.lever == "windowed einsum")
    assert (row.verdict, row.change) == ("not priced", 0.0)
    text = report_text(found)
    assert "not priced  windowed einsum all: 1 operation without a price\n" in text
    assert "leave       windowed einsum" not in text


def test_neither_is_one_whose_products_count_several_times() -> None:
    found = result()
    alone = found.search.baseline.with_("windowed einsum", "all")
    once = (
        "2 matrix products that XLA's table counts several times (--extended does once)"
    )
    for without, words in ((0, once), (1, f"1 operation without a price, {once}")):
        found.search.tried[alone] = Outcome(1.0, unpriced=without, overcounted=2)
        assert f"not priced  windowed einsum all: {words}\n" in report_text(found)


def test_what_our_passes_make_of_the_best() -> None:
    def plugged(
        step_us: float, *, changes: bool = True, unpriced: int = 0
    ) -> PluggedIn:
        lever = PassLever("collective-matmul")
        outcome = Outcome(step_us, 100.0, 1 << 30, unpriced=unpriced)
        return PluggedIn(lever, outcome, changes, lever.install_text("gb200", "1x2x4"))

    stopped = Outcome.failed("the passes failed")
    found = result(
        plugged_in=(
            plugged(80_100.0),
            plugged(89_000.0, changes=False),
            plugged(90_000.0),
            plugged(1.0, unpriced=1),
            PluggedIn(PassLever("scratch-budget-fusion"), stopped, False, "install"),
        )
    )
    lines = report_text(found).splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("our passes"))
    assert lines[at : at + 5] == [
        "our passes  collective-matmul: step 80.10 ms (-10.0%), exposed 100.0 us "
        '(0.1%), memory 1.0 GiB; runtime.install("collective-matmul", '
        'stage="pre-scheduler", platforms="cuda", '
        'context=PassContext(target="gb200", topology="1x2x4"))',
        "            collective-matmul: changes nothing",
        "            collective-matmul: step 90.00 ms (+1.1%), exposed 100.0 us "
        "(0.1%), memory 1.0 GiB",
        "            collective-matmul: not priced: 1 operation without a price",
        "            scratch-budget-fusion: XLA stops: the passes failed",
    ]
    entries = found.to_json()["plugged_in"]
    assert [each["step_us"] for each in entries] == [
        80100.0,
        89000.0,
        90000.0,
        1.0,
        None,
    ]
    assert entries[0]["change"] == 80_100.0 / 89_000.0 - 1.0
    assert entries[4]["problem"] == "the passes failed"
