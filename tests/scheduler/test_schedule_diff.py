"""What is said of two schedules: moves, their times, what they bought."""

from __future__ import annotations

import json

import pytest

from hlo_passes.cli.main import main
from hlo_passes.scheduler.schedule_moves import SAME_US, Simulated, schedule_moves
from hlo_passes.scheduler.simulation.simulate import simulate
from tests.modules import SHARED, read_text
from tests.scheduler.schedules import EARLY, HEAD, LATE, module, write_costs


@pytest.fixture
def simulated(tmp_path):
    costs = write_costs(tmp_path)

    def of(text: str) -> Simulated:
        read = module(text)
        return Simulated(read, simulate(read, costs=costs))

    return of


@pytest.fixture
def files(tmp_path):
    for name, text in (("late", LATE), ("early", EARLY)):
        (tmp_path / f"{name}.hlo").write_text(text)
    costs = f"--costs={write_costs(tmp_path)}"
    return str(tmp_path / "late.hlo"), str(tmp_path / "early.hlo"), costs


def test_a_start_that_goes_up_buys_the_time_of_what_it_passed(simulated) -> None:
    moves = schedule_moves(simulated(LATE), simulated(EARLY))
    gather = next(m for m in moves if m.name == "ag-start")
    assert (gather.position_before, gather.position_after) == (7, 6)
    assert (gather.done_before, gather.done_after) == (8, 8)
    assert gather.starts_earlier_us == pytest.approx(40.0)
    assert gather.exposed_before_us == pytest.approx(50.0)
    assert gather.exposed_after_us == pytest.approx(10.0)
    assert gather.bought == "40.0 us less exposed: now overlaps %dot"


def test_the_way_back_loses_what_the_way_there_bought(simulated) -> None:
    moves = schedule_moves(simulated(EARLY), simulated(LATE))
    gather = next(m for m in moves if m.name == "ag-start")
    assert gather.saved_us == pytest.approx(-40.0)
    assert gather.bought == "40.0 us more exposed: no longer overlaps %dot"


_GOLDEN = SHARED / "golden"
_PAIRS = sorted(_GOLDEN.glob("llama*_1[0-9]x8/sol")) + sorted(
    _GOLDEN.glob("llama3_8b*/sol")
)


@pytest.mark.parametrize("folder", _PAIRS, ids=lambda folder: folder.parent.name)
def test_what_moves_bought_is_what_the_step_gained(folder) -> None:
    sides = []
    for which in ("before", "after"):
        file = folder / f"latency-hiding-scheduler.{which}.hlo.gz"
        read = module(read_text(file))
        sides.append(
            Simulated(read, simulate(read, costs=str(folder / "costs.json.gz")))
        )
    before, after = sides
    there, back = schedule_moves(before, after), schedule_moves(after, before)
    gained = before.timeline.exposed_us - after.timeline.exposed_us
    slack = SAME_US * len(before.timeline.collectives)
    assert sum(m.saved_us for m in there) == pytest.approx(gained, abs=slack)
    assert sum(m.saved_us for m in back) == pytest.approx(-gained, abs=slack)
    for move in there:
        assert move.positions_earlier == move.position_before - move.position_after


def test_equal_schedules_have_no_moves(simulated) -> None:
    assert schedule_moves(simulated(EARLY), simulated(EARLY)) == ()


def test_what_is_no_collective_says_beside_what_it_runs(simulated) -> None:
    # Three against one: the dot is what moved.
    tail = LATE[len(HEAD) :].splitlines(keepends=True)
    dot, start, done, *rest = tail
    first = HEAD + "".join([dot, start, done, *rest])
    second = HEAD + "".join([start, dot, done, *rest])
    moved = schedule_moves(simulated(first), simulated(second))
    assert [m.name for m in moved][:1] == ["ag-start"]
    later = HEAD + "".join([start, done, dot, *rest])
    back = schedule_moves(simulated(later), simulated(second))
    told = {m.name: m.bought for m in back}
    assert told["ag-start"] == "40.0 us less exposed: now overlaps %dot"
    assert told.get("dot", "now overlaps %ag-start") == "now overlaps %ag-start"


def test_diff_tells_the_move_and_not_the_text(files, capsys) -> None:
    assert main(["diff", *files]) == 0
    assert capsys.readouterr().out == (
        "module   scheduled, for which machine is unknown\n"
        "schedule: step 110.0 us -> 70.0 us (40.0 us less), "
        "exposed 65.0 us -> 25.0 us (40.0 us less); "
        "h100_sxm 1x1x8 (8 GPUs in one host), XLA 0.10.2\n"
        "range: faster holds in 27 of 27 settings; the step is 24.1% to 40.5% shorter\n"
        "memory: 18.8 KiB at the peak with parameters, as before\n"
        "%main\n"
        "  %ag-start (all-gather): start 7 -> 6, 40.0 us earlier; done 8 -> 8\n"
        "    40.0 us less exposed: now overlaps %dot\n"
    )


def test_diff_as_json(files, capsys) -> None:
    assert main(["diff", *files, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["computations"][0]["moved"]
    schedule = told["schedule"]
    assert schedule["exposed_us"]["before"] == pytest.approx(65.0)
    assert schedule["exposed_us"]["after"] == pytest.approx(25.0)
    (move,) = [m for m in schedule["moves"] if m["name"] == "ag-start"]
    assert move["exposed_saved_us"] == pytest.approx(40.0)
    assert move["positions_earlier"] == 1


def test_without_a_schedule_the_order_is_told_as_before(tmp_path, capsys) -> None:
    names = []
    for name, text in (("late", LATE), ("early", EARLY)):
        file = tmp_path / f"{name}.hlo"
        file.write_text(text.replace(" is_scheduled=true,", ""))
        names.append(str(file))
    assert main(["diff", *names]) == 0
    out = capsys.readouterr().out
    assert "moved" in out
    assert "schedule:" not in out


def test_modules_for_other_numbers_of_devices_are_told(tmp_path, capsys) -> None:
    for count in (2, 4):
        group = ",".join(map(str, range(count)))
        (tmp_path / f"{count}.hlo").write_text(
            f"HloModule m, is_scheduled=true, num_partitions={count}\n\n"
            "%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
            "  %y = f32[] parameter(1)\n  ROOT %s = f32[] add(%x, %y)\n}\n\n"
            "ENTRY %main (p: f32[64]) -> f32[64] {\n  %p = f32[64] parameter(0)\n"
            "  ROOT %r = f32[64] all-reduce(%p), channel_id=1, to_apply=%add, "
            f"use_global_device_ids=true, replica_groups={{{{{group}}}}}\n}}\n"
        )
    two, four = (str(tmp_path / f"{count}.hlo") for count in (2, 4))
    assert main(["simulate", two, f"--against={four}"]) == 0
    said = capsys.readouterr().out
    assert "beware: before is a module for 2 GPUs, after one for 4" in said
    assert main(["simulate", two, f"--against={two}"]) == 0
    assert "GPUs, after" not in capsys.readouterr().out


def test_rows_limit_the_text(files, capsys) -> None:
    assert main(["diff", *files, "--rows=0"]) == 0
    assert "... 1 more; --rows=1 shows them" in capsys.readouterr().out
