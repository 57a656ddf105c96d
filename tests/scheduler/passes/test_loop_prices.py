"""Loops change only where no simulated step becomes longer and the memory suffices."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, UsageError, scheduler
from hlo_passes.ir.instruction import Instruction
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.passes.priced_chains import ChainTrials
from tests.modules import REPOSITORY
from tests.passes.case_files import read_case

CASES = REPOSITORY / "tests/scheduler/passes/cases"
BUFFER, HOIST = "loop-multi-buffer", "loop-invariant-collective-hoisting"
MACHINES = [Pricing(hosts=1), Pricing(hosts=2), Pricing(target="gb200")]


def program(name: str, case: str) -> str:
    return read_case(CASES / name / f"{case}.hlo").input


def on_two_hosts(text: str) -> str:
    """The same for 16 devices, where weights are cut into smaller shards."""
    for old, new in (
        ("512,8192", "256,8192"), ("1024,8192", "512,8192"), ("8192,1024", "8192,512"),
        ("1024,4096", "512,4096"), ("f32[64]", "f32[128]"),
    ):  # fmt: skip
        text = text.replace(old, new)
    groups = ",".join(map(str, range(16)))
    text = text.replace("{{0,1,2,3,4,5,6,7}}", f"{{{{{groups}}}}}")
    return text.replace("num_partitions=8", "num_partitions=16")


def step(text: str, on: Pricing, limit: int = 1) -> scheduler.Timeline:
    module = hlo_passes.parse(text)
    schedule = f"gpu-schedule{{parallel-collective-overlap-limit={limit}}}"
    Pipeline.parse(schedule, PassContext(on)).run(module)
    return scheduler.simulate(module, on)


def changed(text: str, passes: str, on: Pricing) -> str:
    module = hlo_passes.parse(text)
    Pipeline.parse(passes, PassContext(on)).run(module)
    return module.to_text()


@pytest.mark.parametrize("on", MACHINES, ids=("host", "hosts", "gb200"))
@pytest.mark.parametrize(
    ("name", "case"),
    [
        (BUFFER, "pays"),
        (BUFFER, "pays_with_four"),
        (HOIST, "pays"),
        (HOIST, "hidden_anyway"),
        (HOIST, "one_fits"),
    ],
)
def test_no_step_becomes_longer(name: str, case: str, on: Pricing) -> None:
    text = program(name, case)
    text = on_two_hosts(text) if on.hosts == 2 else text
    made = changed(text, name, on)
    before, after = (step(t, on).step_time_us for t in (text, made))
    assert after == before if made == text else after < before


def test_a_product_that_the_collective_needs_hides_nothing() -> None:
    text = program(BUFFER, "needs_the_product")
    for on in (MACHINES[0], MACHINES[2]):
        assert changed(text, BUFFER, on) == text


@pytest.mark.parametrize("buffers", [2, 3, 4, 12])
def test_layers_overlap_their_gathers(buffers: int) -> None:
    text, on = program(BUFFER, "pays"), MACHINES[0]
    made = changed(text, f"{BUFFER}{{buffers={buffers}}}", on)
    assert step(made, on).step_time_us < 0.84 * step(text, on).step_time_us


@pytest.mark.parametrize("limit", [400_000_000, 600_000_000, 700_000_000])
def test_no_step_needs_more_than_the_limit(limit: int) -> None:
    text, on = program(BUFFER, "pays"), MACHINES[0]
    for buffers in (2, 3, 4):
        passes = f"{BUFFER}{{buffers={buffers},memory-limit-bytes={limit}}}"
        needed = step(changed(text, passes, on), on).footprint.needed_bytes
        assert needed <= limit


def test_as_many_start_as_there_are_streams() -> None:
    text, on = program(BUFFER, "pays"), MACHINES[0]
    for streams in (1, 2, 3):
        passes = (
            f"{BUFFER}{{buffers=4,num-stream-buffers={streams},"
            f"parallel-collective-overlap-limit={streams}}}"
        )
        module = hlo_passes.parse(changed(text, passes, on))
        schedule = f"gpu-schedule{{parallel-collective-overlap-limit={streams}}}"
        Pipeline.parse(schedule, PassContext(on)).run(module)
        body = next(c for c in module.computations if c.name == "body")
        opcodes = [i.opcode for i in body.instructions]
        first_done = opcodes.index("all-gather-done")
        assert opcodes[:first_done].count("all-gather-start") == streams
        starts = [i for i in body.instructions if i.opcode == "all-gather-start"]
        found = [i.frontend_attributes.get("_xla_stream_annotation") for i in starts]
        wanted = [str(k % streams) for k in range(4)] if streams > 1 else [None] * 4
        assert found == wanted


def collectives(module: hlo_passes.Module) -> list[Instruction]:
    return [
        i for c in module.computations for i in c.instructions
        if i.opcode == "all-gather"
    ]  # fmt: skip


def test_hoisting_stays_within_the_limit() -> None:
    text, on = program(HOIST, "one_fits"), MACHINES[0]
    inside: list[int] = []
    for limit in (328_000_000, 330_000_000, 340_000_000):
        passes = f"{HOIST}{{memory-limit-bytes={limit}}}"
        made = changed(text, passes, on)
        assert step(made, on).footprint.needed_bytes <= limit
        module = hlo_passes.parse(made)
        gathers = collectives(module)
        inside.append(sum(i.computation is not module.entry for i in gathers))
        # A second run finds nothing more.
        assert changed(made, passes, on) == made
    assert inside == [2, 2, 0]


@pytest.mark.parametrize(
    "passes",
    [
        f"{BUFFER}{{buffers=1}}",
        f"{BUFFER}{{num-stream-buffers=0}}",
        f"{BUFFER}{{num-stream-buffers=2}}",
        f"{BUFFER}{{num-stream-buffers=3,parallel-collective-overlap-limit=3}}",
        f"{BUFFER}{{max-instructions=-1}}",
        f"{BUFFER}{{min-gain=2}}",
        f"{HOIST}{{memory-limit-bytes=-1}}",
        f"{HOIST}{{most-instructions=-1}}",
    ],
)
def test_options_out_of_range(passes: str) -> None:
    with pytest.raises(UsageError) as refused:
        Pipeline.parse(passes)
    assert refused.value.code == "U013"


def test_a_loop_stays_if_the_passes_of_xla_take_the_gain_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop of two bodies is larger, and here that is what XLA's step takes."""
    module = hlo_passes.parse(program(BUFFER, "pays"))
    before = module.to_text()
    monkeypatch.setattr(
        ChainTrials, "followed_us", lambda _, copy, follow: copy.instruction_count
    )
    result = Pipeline.parse(BUFFER).run(module)
    assert module.to_text() == before
    (remark,) = result.passes[0].remarks
    assert "stays: after XLA's own passes the step takes" in remark
