"""What a page holds: rows that do not overlap, times to the nanosecond, safe text."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hlo_passes import parse
from hlo_passes.scheduler.page.document import render_page
from hlo_passes.scheduler.page.encoding import Opcodes, Side, encode_side, sentence
from hlo_passes.scheduler.page.lanes import lanes_of, rows_of
from hlo_passes.scheduler.simulation.simulate import simulate
from hlo_passes.scheduler.simulation.timeline_data import Span
from tests.modules import REPOSITORY
from tests.scheduler.page.long_timelines import long_timeline
from tests.scheduler.schedules import LATE, module, write_costs
from tests.scheduler.simulation.loops import open_ended
from tests.scheduler.simulation.steps import Compute as Work
from tests.scheduler.simulation.steps import Loop, module_of

_TIMES = st.integers(0, 50)


@st.composite
def _spans(draw) -> list[Span]:
    found = [
        Span(
            "c",
            f"i{k}",
            "add",
            "compute",
            float(start),
            float(start + length),
            "compute",
        )
        for k, (start, length) in enumerate(draw(st.lists(st.tuples(_TIMES, _TIMES))))
    ]
    return sorted(found, key=lambda span: span.start_us)


@given(_spans())
def test_rows_hold_every_span_once_and_do_not_overlap(spans) -> None:
    rows = rows_of(spans)
    assert sorted(s.name for row in rows for s in row) == sorted(s.name for s in spans)
    for row in rows:
        for first, second in itertools.pairwise(row):
            assert first.end_us <= second.start_us


@given(_spans())
def test_rows_are_as_few_as_can_be(spans) -> None:
    deepest = max(
        (
            sum(o.start_us <= s.start_us < o.end_us for o in spans)
            for s in spans
            if s.end_us > s.start_us
        ),
        default=0,
    )
    # What takes no time may need a row where others run.
    assert len(rows_of([s for s in spans if s.end_us > s.start_us])) == deepest


def _encoded(tmp_path) -> dict:
    read = module(LATE)
    timeline = simulate(read, costs=write_costs(tmp_path))
    return encode_side(Side(timeline, module=read), Opcodes())


def _decoded(raw: dict) -> list[tuple[str, float, float]]:
    """Names with start and end, as data/model.js reads them."""
    found, at, k = [], 0, 0
    for lane in raw["lanes"]:
        for count in lane["rows"]:
            at = 0
            for _ in range(count):
                start = at + raw["gaps_ns"][k]
                at = start + raw["durations_ns"][k]
                found.append((raw["names"][k], start / 1000, at / 1000))
                k += 1
    return found


def test_times_come_back_to_the_nanosecond() -> None:
    timeline = long_timeline(500)
    raw = encode_side(Side(timeline), Opcodes())["computations"][0]
    wanted = {
        (s.name, round(s.start_us, 3), round(s.end_us, 3)) for s in timeline.spans
    }
    assert {(n, round(a, 3), round(b, 3)) for n, a, b in _decoded(raw)} == wanted


def test_the_entry_comes_first_and_loops_know_their_bodies(tmp_path) -> None:
    view = _encoded(tmp_path)
    names = [c["name"] for c in view["computations"]]
    assert names == ["main", "body"]
    loop = view["computations"][0]["callees"]["loop"]
    assert loop == {
        "names": ["body"],
        "trips": 3,
        "is_counted": True,
        "exposed_us": 5.0,
        "run_us": 6.0,
    }


def test_a_loop_that_counts_once_says_so_in_its_lane_and_in_the_verdict() -> None:
    text = module_of((Loop("loop", 4, (Work("part", 3.0),)),)).to_text()
    open_module = parse(open_ended(text.replace("known_trip_count", "other")))
    timeline = simulate(open_module)
    view = encode_side(Side(timeline, module=open_module), Opcodes())
    loop = view["computations"][0]["callees"]["loop"]
    assert (loop["trips"], loop["is_counted"]) == (1, False)
    page = render_page(Side(timeline, module=open_module))
    (data,) = re.findall(r'"verdict":"([^"]*)"', page)
    assert "Trip counts are not known, 1 was used: %loop." in data


def test_a_collective_knows_when_the_device_waits_for_it(tmp_path) -> None:
    (row,) = _encoded(tmp_path)["computations"][0]["collectives"]
    assert row["waits_us"] == [[58.0, 108.0]]
    assert row["exposed_us"] == 50.0
    assert row["op_name"] == "jit(step)/layer/gather"
    assert row["cause"].endswith(".")


def test_without_queues_all_in_flight_shares_a_lane() -> None:
    timeline = long_timeline(200)
    labels = [lane.label for lane in lanes_of(timeline, timeline.spans)]
    assert labels == ["Exposed", "Compute", "Communication 0", "Communication 1"]
    free = replace(timeline, streams=0)
    lanes = lanes_of(free, free.spans)
    assert [lane.label for lane in lanes] == ["Exposed", "Compute", "Communication"]
    assert sum(map(len, lanes[2].rows)) == len(free.collectives)


def test_a_synchronous_collective_is_work_and_wait_at_once(tmp_path) -> None:
    read = module(
        LATE.replace("all-gather-start(%y)", "all-gather(%y)")
        .replace("(f32[64]{0}, f32[512]{0}) all-gather(", "f32[512]{0} all-gather(")
        .replace("all-gather-done(%ag-start)", "copy(%ag-start)")
    )
    view = encode_side(
        Side(simulate(read, costs=write_costs(tmp_path)), module=read), Opcodes()
    )
    entry = view["computations"][0]
    wait, compute = entry["lanes"][:2]
    assert (wait["role"], wait["rows"]) == ("wait", [1])
    assert entry["names"][0] == "ag-start"
    (row,) = entry["collectives"]
    assert entry["names"][row["span"]] == "ag-start"
    assert row["span"] >= wait["rows"][0]
    assert row["stream"] == "none: synchronous"
    assert row["class"] == "exposed"
    assert compute["rows"][0] >= 3


def test_names_cannot_end_the_data(tmp_path) -> None:
    evil = "</script><script>alert(1)</script>@SCRIPT@"
    text = LATE.replace("jit(step)/layer/gather", evil)
    read = module(text)
    page = render_page(Side(simulate(read, costs=write_costs(tmp_path)), module=read))
    assert evil not in page
    held = re.search(r'<script id="data"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert held is not None
    told = json.loads(held[1])
    row = told["sides"][0]["computations"][0]["collectives"][0]
    assert row["op_name"] == evil


def test_the_page_names_no_other_place(tmp_path) -> None:
    page = render_page(Side(simulate(module(LATE), costs=write_costs(tmp_path))))
    assert "default-src 'none'" in page
    assert not re.search(r"https?://", page)
    assert not re.search(r"\b(src|href)=\"(?!data:)", page)


def test_sentences_have_units_that_suit() -> None:
    assert sentence("queued 1200.0 us behind %x") == "Queued 1.20 ms behind %x."
    assert sentence("waits 3.5 us") == "Waits 3.5 \N{MICRO SIGN}s."
    assert sentence("") == ""


_MAKE = """
import sys
sys.path.insert(0, {repository!r})
from hlo_passes.scheduler.page.document import render_page
from hlo_passes.scheduler.page.encoding import Side
from hlo_passes.scheduler.simulation.simulate import simulate
from tests.scheduler.schedules import EARLY, LATE, module
sides = []
for text in (LATE, EARLY):
    read = module(text)
    sides.append(Side(simulate(read, costs={costs!r}), "side", "file", read))
sys.stdout.write(render_page(sides[1], sides[0]))
"""


def test_the_same_bytes_under_every_hash_seed(tmp_path) -> None:
    code = _MAKE.format(repository=str(REPOSITORY), costs=write_costs(tmp_path))
    pages = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(pages) == 1
