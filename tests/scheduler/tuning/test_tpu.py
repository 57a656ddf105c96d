"""The search for TPUs: what it tries, and what it tells, on steps made by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from hlo_passes.scheduler.tuning.combination import Combination, compiler_options
from hlo_passes.scheduler.tuning.env_file import env_file
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.search import Search, Tried
from hlo_passes.scheduler.tuning.tpu_facts import tpu_choices_for, tpu_facts_of
from hlo_passes.scheduler.tuning.tpu_report import tpu_report_text
from hlo_passes.scheduler.tuning.tpu_result import Recompiled, TpuTuneResult
from hlo_passes.scheduler.tuning.tune_progress import TuneProgress
from hlo_passes.text.reader import parse
from hlo_passes.xla_release import xla_release
from tests.tpu.test_step import LOOPED

RELEASE = xla_release("0.12")
NOTHING = Combination(family="tpu")
GATHERS, STARTS, EINSUM = "all-gathers at once", "early starts", "windowed einsum"
CHOICES = {GATHERS: ("2", "4"), STARTS: ("on",), EINSUM: ("all", "none")}
DEVICE = 16 << 30


class Steps:
    """Two statistics by a formula; windowed einsum changes work alone."""

    def __init__(self, simulated_gain: float) -> None:
        self.simulated_gain = simulated_gain

    def compiled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        for chosen in batch:
            if chosen.get(EINSUM) == "none":
                yield chosen, Outcome.failed("XLA:TPU cannot compile step: no")
                continue
            exposed = 200.0 - 50.0 * bool(chosen.get(GATHERS))
            work = 800.0 - 100.0 * bool(chosen.get(EINSUM))
            ours = 1000.0 - self.simulated_gain * len(chosen.settings)
            step = work + exposed
            yield (
                chosen,
                Outcome(
                    step, exposed, 3 << 30, steps_us=(step, ours), module=f"{step}"
                ),
            )

    def scheduled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        del batch
        return iter(())


def result(
    simulated_gain: float = 40.0,
    budget: int = 20,
    memory_bytes: int = DEVICE,
    **more: Any,
) -> TpuTuneResult:
    steps = Steps(simulated_gain)
    search = Search(
        CHOICES, steps, budget, memory_bytes, baseline=NOTHING, best=NOTHING
    )
    search.run()
    told: dict[str, Any] = {
        "name": "train.py:step",
        "machine": "v5e 2x4 (8 devices)",
        "model": "costs: tpu-log",
        "release": RELEASE,
        "search": search,
        "dropped": {"scheduler": "no statistic"},
        "given_flags": "",
        "is_compiled": True,
        "pipelines": {},
        "compilations": 7,
        "seconds": 9.0,
        "libtpu": "0.0.52",
        "chip_bytes": DEVICE,
    }
    return TpuTuneResult(**{**told, **more})


def recompiled(step_us: float, problem: str = "", final_work_us: float = 500.0):
    outcome = Outcome(step_us, steps_us=(step_us, step_us))
    return Recompiled(outcome, problem, 2, 2, 1 << 30, final_work_us, 520.0, 3.0)


def test_the_families_keep_apart() -> None:
    gpu, tpu = Combination.of({STARTS: "on"}), Combination.of({STARTS: "on"}, "tpu")
    assert gpu != tpu
    assert tpu.with_(GATHERS, "2").without(GATHERS) == tpu
    assert list(compiler_options(tpu, RELEASE)) == [
        "xla_lhs_enable_release_start_policy"
    ]
    assert tpu.part("schedule") == tpu


def test_the_best_is_chosen_by_the_compilers_statistic() -> None:
    found = result()
    assert found.search.best == Combination.of({GATHERS: "2", EINSUM: "all"}, "tpu")
    assert math.isclose(found.change, -0.15)
    assert math.isclose(found.simulated_change, -0.08)
    assert math.isclose(found.work_change, -0.10)
    assert found.is_sure


def test_the_text_has_both_statistics() -> None:
    text = tpu_report_text(result())
    best = next(line for line in text.splitlines() if line.startswith("best"))
    assert "850.0 us   -15.0%   150.0 us    920.0 us    -8.0%    3.0 GiB" in best
    assert "of the change, -10.0% is work that the scheduler prices otherwise" in text
    flags = "--xla_max_concurrent_async_all_gathers=2"
    assert f'LIBTPU_INIT_ARGS="{flags} --xla_jf_spmd_threshold' in text
    assert 'compiler_options={"xla_max_concurrent_async_all_gathers": 2' in text
    assert "failed      windowed einsum none: XLA:TPU cannot compile step: no" in text
    assert "not tried   scheduler (no statistic)" in text
    assert "all times are estimates" in text
    assert "not sure" not in text


def test_levers_beyond_the_budget_are_told() -> None:
    found = result(budget=2)
    text = tpu_report_text(found)
    why = "the search ended after 2 of --budget=2"
    assert f"not tried   {STARTS}, {EINSUM} ({why}); scheduler (no" in text
    rows = {row["name"]: row for row in found.to_json()["levers"]}
    assert rows[EINSUM]["verdict"] == "untried"
    assert rows[EINSUM]["reason"] == why
    assert "the search ended" not in tpu_report_text(result())


def test_why_a_part_of_the_budget_is_left() -> None:
    note = "combinations compiled as far as the schedule, in 9 s (7 compilations)"
    text = tpu_report_text(result())
    assert f"13 of 20 {note}; no other combination was left to try\n" in text
    assert f"2 of 2 {note}\n" in tpu_report_text(result(budget=2))
    # A fifth is kept for the end, here one of five.
    found = result(budget=5)
    told = "the rest was kept to leave out parts of the best, and that took fewer"
    assert told in tpu_report_text(found)
    found.search.interrupted = True
    assert "kept to leave" not in tpu_report_text(found)


def test_every_lever_of_the_best_is_told() -> None:
    found = result(budget=2)
    search = found.search
    search.best = Combination.of({GATHERS: "2", STARTS: "on", EINSUM: "all"}, "tpu")
    search.tried[search.best] = next(Steps(40.0).compiled([search.best]))[1]
    text = tpu_report_text(found)
    assert f"  set: {GATHERS} 2" in text
    assert f"set together, not measured alone: {STARTS}; {EINSUM} all\n" in text
    names = ", without ".join((GATHERS, STARTS, EINSUM))
    assert f"the best was not measured without {names}\n" in text
    whole = tpu_report_text(result())
    assert "not measured" not in whole
    assert f"without {GATHERS}: " in whole


def test_a_step_that_does_not_fit_is_told() -> None:
    why = "does not fit: 3.0 GiB is more than 10.0 MiB\n"
    alone = result(budget=1, memory_bytes=10 << 20)
    assert f"even the baseline {why}" in tpu_report_text(alone)
    best = result(memory_bytes=10 << 20)
    assert f"even the best {why}" in tpu_report_text(best)
    assert "does not fit" not in tpu_report_text(result())


def test_the_progress_says_what_comes_after_the_search() -> None:
    progress = TuneProgress(20, "the best is compiled to the end")
    search = result(budget=2).search
    told = progress.text(search, 4.0)
    assert told.endswith("at most 36 s left, then the best is compiled to the end")
    # Nothing is compiled again for the baseline.
    search.best = NOTHING
    assert progress.text(search, 4.0).endswith("s left")


def test_statistics_that_disagree_are_not_sure() -> None:
    doubt = "not sure: the two statistics disagree"
    assert doubt in tpu_report_text(result(-1.0))
    assert f"# {doubt}\n" in env_file(result(-1.0))


def test_the_last_module_is_asked_too() -> None:
    # 520 + 200 before, 500 + 150 after.
    found = result(recompiled=recompiled(850.0))
    text = tpu_report_text(found)
    assert "last module, the step changes by -9.7%" in text
    assert "in a new process: the same step" in text
    assert "same statistic in 2 of the 2 computations" in text
    assert "it takes 1.0 GiB of a device's 16.0 GiB" in text
    assert "not sure" not in env_file(found)
    worse = result(recompiled=recompiled(850.0, final_work_us=590.0))
    doubt = (
        "not sure: with work by the estimates of the compiler's last module, the step "
        "changes by +2.8%"
    )
    assert doubt in tpu_report_text(worse)
    assert env_file(worse).splitlines()[1] == f"# {doubt}"


def test_another_step_from_scratch_is_told() -> None:
    text = tpu_report_text(result(recompiled=recompiled(900.0)))
    assert "beware: compiled again with these flags alone" in text
    assert "the step is 900.0 us" in text
    full = "RESOURCE_EXHAUSTED: no room"
    text = tpu_report_text(result(recompiled=recompiled(850.0, full)))
    assert f"beware: compiled to the end, {full}" in text


def test_json_and_variables() -> None:
    found = result(recompiled=recompiled(850.0), given_options={"xla_tpu_a": True})
    view = found.to_json()
    assert view["chosen_by"] == "compiler"
    assert view["xla_flags"] == ""
    assert view["libtpu_init_args"] == found.flags
    assert view["compiler_options"]["xla_tpu_a"] is True
    assert (view["baseline_step_us"], view["best_step_us"]) == (1000.0, 850.0)
    assert view["best_simulated_step_us"] == 920.0
    assert view["recompiled"]["equal_computations"] == 2
    rows = {(row["name"], row["setting"]): row for row in view["levers"]}
    assert rows[GATHERS, "2"]["simulated_step_us"] == 960.0
    assert rows[EINSUM, "none"]["simulated_step_us"] is None
    assert env_file(found).splitlines()[1] == f'LIBTPU_INIT_ARGS="{found.flags}"'


def test_fusions_are_looked_into() -> None:
    facts = tpu_facts_of(parse(LOOPED))
    assert facts.kinds == {"all-gather", "all-reduce", "reduce-scatter"}
    assert facts.looped == {"all-gather"}
    assert facts.loops == 1
    assert not facts.has_products


def test_pointless_levers_have_a_reason() -> None:
    facts = tpu_facts_of(parse(LOOPED))
    v5e, v6e = (tpu_choices_for(facts, chip) for chip in ("v5e", "v6e"))
    assert v5e.dropped["asynchronous all-to-alls"] == "it has no all-to-all"
    assert v5e.dropped["all-gather on SparseCores"] == "v5e does not have it"
    assert v6e.dropped["asynchronous all-gathers"] == "v6e does not have it"
    assert "no statistic" in v5e.dropped["scheduler"]
    assert "tiles" in v5e.dropped["VMEM of a fusion"]
    assert v6e.settings["all-gather on SparseCores"] == ("on", "off")
    # What is known to do something comes first.
    names = list(v5e.settings)
    assert names.index("merged pairs") < names.index("asynchronous all-reduces")
    assert names.index("reduce-scatters in fusions") < names.index("reruns")


def test_what_shortened_a_step_on_the_chip_comes_first() -> None:
    """It has to be within a small budget."""
    facts = tpu_facts_of(parse(LOOPED))
    for chip, first in (
        ("v5e", "all-gathers ahead in loops"),
        ("v6e", "all-gather on SparseCores"),
    ):
        assert next(iter(tpu_choices_for(facts, chip).settings)) == first
    v4 = list(tpu_choices_for(facts, "v4").settings)
    assert v4.index("early starts") < v4.index("all-gathers ahead in loops")
