"""Times from traces: made-up files of each form, matched with a module's instructions.

Nsight's forms are made from its documented schema; no GPU made any of these.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import sqlite3
from typing import Any

import pytest

import hlo_passes
from hlo_passes import UsageError, scheduler
from hlo_passes.cli.main import main
from hlo_passes.proto_wire import bytes_field, varint_field
from hlo_passes.scheduler.measured.trace import Measured, measured_of, read_trace

TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=2

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%negated (p: f32[1024]) -> f32[1024] {
  %p = f32[1024]{0} parameter(0)
  ROOT %n = f32[1024]{0} negate(%p)
}

%halved (h: f32[1024]) -> f32[1024] {
  %h = f32[1024]{0} parameter(0)
  ROOT %m = f32[1024]{0} negate(%h)
}

%body (c: f32[1024]) -> f32[1024] {
  %c = f32[1024]{0} parameter(0)
  ROOT %fusion.2 = f32[1024]{0} fusion(%c), kind=kLoop, calls=%halved
}

%condition (q: f32[1024]) -> pred[] {
  %q = f32[1024]{0} parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (a: f32[1024]) -> f32[1024] {
  %a = f32[1024]{0} parameter(0)
  %all-reduce-start = f32[1024]{0} all-reduce-start(%a), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
  %fusion.1 = f32[1024]{0} fusion(%a), kind=kLoop, calls=%negated
  %all-reduce-done = f32[1024]{0} all-reduce-done(%all-reduce-start)
  %w = f32[1024]{0} while(%fusion.1), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %sum = f32[1024]{0} add(%all-reduce-done, %w)
}
"""

#: (device, name, begin, us) of two runs on two devices. The collective of device 0
#: waits for device 1; the loop runs three times.
RUN = [
    (0, "all-reduce-start", 0.0, 90.0), (0, "fusion.1", 1.0, 12.0),
    (0, "fusion.2", 100.0, 2.0), (0, "fusion.2", 102.0, 4.0), (0, "fusion.2", 106.0, 6.0),
    (1, "all-reduce-start", 50.0, 40.0), (1, "fusion.1", 51.0, 10.0),
    (1, "fusion.2", 100.0, 3.0), (1, "fusion.2", 103.0, 3.0), (1, "fusion.2", 106.0, 9.0),
]  # fmt: skip
EVENTS = [
    (device, name, begin + 1000.0 * run, us + run, run)
    for run in (0, 1, 2)
    for device, name, begin, us in RUN
]
#: Least device, median run (which takes 1 us longer for each event).
EXPECTED = {"all-reduce-start": 41.0, "fusion.1": 11.0, "fusion.2": 5.0}


def module() -> hlo_passes.Module:
    return hlo_passes.parse(TEXT)


def measured(path: pathlib.Path) -> Measured:
    return measured_of(module(), read_trace(str(path)))


# -- the forms ---------------------------------------------------------------------


def chrome(*, runs: bool = True, name: str = "jit_step") -> dict[str, Any]:
    rows: list[dict[str, Any]] = [
        {
            "ph": "M",
            "pid": d,
            "name": "process_name",
            "args": {"name": f"/device:GPU:{d}"},
        }
        for d in (0, 1)
    ]
    rows.append(
        {
            "ph": "M",
            "pid": 0,
            "tid": 9,
            "name": "thread_name",
            "args": {"name": "XLA Ops"},
        }
    )
    for device, op, begin, us, run in EVENTS:
        stats = {"hlo_op": op, "hlo_module": name} | (
            {"run_id": str(run)} if runs else {}
        )
        row = {
            "ph": "X",
            "pid": device,
            "tid": 1,
            "ts": begin,
            "dur": us,
            "name": "kernel",
            "args": stats,
        }
        rows += [row, row | {"tid": 9}] if device == 0 else [row]
    rows.append({"ph": "X", "pid": 0, "tid": 1, "ts": 0, "dur": 5, "name": "host"})
    return {"traceEvents": rows}


def xplane() -> bytes:
    names = {1: "hlo_op", 2: "hlo_module", 3: "run_id", 4: "jit_step", 5: "other"}
    space = b""
    for device in (0, 1):
        plane = bytes_field(2, f"/device:GPU:{device}".encode())
        ops = sorted({name for _, name, *_ in EVENTS})
        for number, name in names.items():
            entry = varint_field(1, number) + bytes_field(
                2, bytes_field(2, name.encode())
            )
            plane += bytes_field(5, entry)
        for number, op in enumerate(ops, 1):
            stat = bytes_field(5, varint_field(1, 1) + bytes_field(5, op.encode()))
            entry = varint_field(1, number) + bytes_field(
                2, bytes_field(2, b"k") + stat
            )
            plane += bytes_field(4, entry)
        events = b""
        for at, op, begin, us, run in EVENTS:
            if at == device:
                event = varint_field(1, ops.index(op) + 1)
                event += varint_field(2, round(begin * 1e6)) + varint_field(
                    3, round(us * 1e6)
                )
                event += bytes_field(4, varint_field(1, 2) + varint_field(7, 4))
                event += bytes_field(4, varint_field(1, 3) + varint_field(3, run + 1))
                events += bytes_field(4, event)
        plane += bytes_field(3, bytes_field(2, b"Stream #1") + events)
        plane += bytes_field(3, bytes_field(2, b"XLA Ops") + events)
        space += bytes_field(1, plane)
    return space


def nsight(path: pathlib.Path, *, ranges: bool = True) -> None:
    on = sqlite3.connect(path)
    on.executescript(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT,"
        " correlationId INT, shortName INT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT,"
        " correlationId INT);"
        "CREATE TABLE NVTX_EVENTS (start INT, end INT, globalTid INT, text TEXT, textId INT);"
    )
    for k, (device, op, begin, us, _) in enumerate(EVENTS):
        start = round(begin * 1000)
        on.execute(
            "INSERT INTO StringIds VALUES (?, ?)",
            (k, op.replace(".", "_").replace("-", "_")),
        )
        text = f"Thunk:#name=x,hlo_op={op}#" if k % 2 else None
        on.execute(
            "INSERT INTO StringIds VALUES (?, ?)", (k + 1000, f"Thunk:#hlo_op={op}#")
        )
        on.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)",
            (start, start + round(us * 1000), device, k, k),
        )
        launched = 10_000_000 + 100 * k
        on.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 7, ?)",
            (launched, launched + 5, k),
        )
        if ranges:
            on.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 7, ?, ?)",
                (launched - 20, launched + 20, text, None if text else k + 1000),
            )
            on.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 7, 'user range', NULL)",
                (launched - 10, launched + 10),
            )
    on.commit()
    on.close()


def table(*, projected: bool) -> str:
    if projected:
        head = "Name,Projected Start (ns),Projected Duration (ns),Style"
        rows = [
            f'"TSL:Thunk:#name=a,hlo_op={op}#",{begin * 1000:.0f},{us * 1000:.0f},PushPop'
            for device, op, begin, us, _ in EVENTS
            if device == 1
        ]
        rows.append('"TSL:XlaModule:#hlo_module=jit_step,program_id=3#",0,99,PushPop')
    else:
        head = "Start (ns),Duration (ns),CorrId,Device,Strm,Name"
        rows = [
            f'{begin * 1000:.0f},{us * 1000:.0f},1,GPU {device},7,"{op.replace(".", "_").replace("-", "_")}"'
            for device, op, begin, us, _ in EVENTS
        ]
        rows.append('5,7,1,GPU 0,7,"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x, y)"')
    return "\n".join(["", "Processing [x.sqlite] with [report.py]...", head, *rows])


def write(folder: pathlib.Path, form: str) -> pathlib.Path:
    path = folder / form
    if form == "trace.json.gz":
        path.write_bytes(gzip.compress(json.dumps(chrome()).encode()))
    elif form == "no_runs.json":
        path.write_text(json.dumps(chrome(runs=False)))
    elif form == "x.xplane.pb":
        path.write_bytes(xplane())
    elif form == "ranges.sqlite":
        nsight(path)
    elif form == "kernels.sqlite":
        nsight(path, ranges=False)
    else:
        path.write_text(table(projected=form == "projected.csv"))
    return path


FORMS = (
    "trace.json.gz", "no_runs.json", "x.xplane.pb", "ranges.sqlite", "kernels.sqlite",
    "kernels.csv", "projected.csv",
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(form, tmp_path) -> None:
    found = measured(write(tmp_path, form))
    assert found.runs == 3
    assert found.devices == (1 if form == "projected.csv" else 2)
    assert found.us == pytest.approx(
        EXPECTED | ({"fusion.2": 6.0} if found.devices == 1 else {})
    )


def test_another_module_s_instructions_are_not_taken(tmp_path) -> None:
    both = chrome()
    other = chrome(name="jit_other")["traceEvents"]
    both["traceEvents"] += [
        row | {"dur": 0.5} if "dur" in row else row for row in other
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(both))
    assert measured(path).us == EXPECTED
    path.write_text(json.dumps(chrome(name="jit_stop")))
    with pytest.raises(UsageError) as caught:
        measured(path)
    assert caught.value.code == "U228"
    assert "did you mean jit_stop?" in caught.value.hint


def test_several_kernels_of_an_instruction_add_up(tmp_path) -> None:
    trace = chrome(runs=False)
    more = [
        row | {"dur": 1.0}
        for row in trace["traceEvents"]
        if row.get("args", {}).get("hlo_op") == "fusion.1"
    ]
    trace["traceEvents"] += more
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    assert measured(path).us == EXPECTED | {"fusion.1": 12.0}


def test_kernels_before_each_kernel_are_no_runs(tmp_path) -> None:
    """A product of cuBLAS clears its workspace first."""
    trace = chrome(runs=False)
    kernels = [row for row in trace["traceEvents"] if "hlo_op" in row.get("args", {})]
    trace["traceEvents"] += [
        row | {"name": "Memset", "ts": row["ts"] - 0.5, "dur": 0.25} for row in kernels
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    found = measured(path)
    assert found.runs == 3
    assert found.us == {name: us + 0.25 for name, us in EXPECTED.items()}


def in_graphs(trace: dict[str, Any], kernels: dict[str, str]) -> dict[str, Any]:
    """The trace with some instructions in a CUDA graph, under names of kernels."""
    for row in trace["traceEvents"]:
        stats = row.get("args", {})
        if stats.get("hlo_op") in kernels:
            row["name"] = kernels[stats["hlo_op"]]
            stats["hlo_op"] = "command_buffer_1"
    return trace


def test_kernels_in_graphs_are_known_by_name(tmp_path, capsys) -> None:
    path, file = tmp_path / "t.json", tmp_path / "m.hlo"
    file.write_text(TEXT)
    words = ["simulate", str(file), f"--measured={path}"]
    known = {"fusion.1": "fusion_1", "fusion.2": "fusion_2"}
    path.write_text(json.dumps(in_graphs(chrome(runs=False), known)))
    found = measured(path)
    assert (found.runs, found.us, found.lost) == (3, EXPECTED, 0.0)
    assert main(words) == 0
    assert "CUDA graphs" not in capsys.readouterr().out
    # cuBLAS has names of its own.
    known["fusion.2"] = "nvjet_sm90_tst_128x256"
    path.write_text(json.dumps(in_graphs(chrome(runs=False), known)))
    found = measured(path)
    assert found.runs == 3
    assert set(found.us) == {"all-reduce-start", "fusion.1"}
    lost = sum(us for _, name, _, us, _ in EVENTS if name == "fusion.2")
    total = sum(us for *_, us, _ in EVENTS)
    assert found.lost == pytest.approx(lost / total)
    assert main(words) == 0
    told = f"{100 * lost / total:.0f}% of the time ran in CUDA graphs"
    assert told in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)["measured"]
    assert view["lost"] == found.lost


def test_a_trace_of_graphs_alone_says_how_to_take_another(tmp_path) -> None:
    names = {name: f"nvjet_{k}" for k, name in enumerate(EXPECTED)}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(in_graphs(chrome(), names)))
    with pytest.raises(UsageError) as caught:
        measured(path)
    assert caught.value.code == "U228"
    assert "ran in CUDA graphs" in caught.value.message
    assert "--xla_gpu_enable_command_buffer=" in caught.value.hint


# -- what becomes of them ----------------------------------------------------------


def test_measured_times_take_the_place_of_prices(tmp_path, capsys) -> None:
    path = write(tmp_path, "trace.json.gz")
    timeline = scheduler.simulate(module(), measured=str(path))
    (row,) = timeline.collectives
    assert (row.latency_us, row.model) == (41.0, "measured")
    assert timeline.estimator == "measured+sol"
    sizes = {
        s.name: s.end_us - s.start_us for s in timeline.spans if s.kind == "compute"
    }
    assert sizes["fusion.1"] == pytest.approx(11.0)
    assert sizes["fusion.2"] == pytest.approx(5.0)
    assert timeline.computations["body"].executions == 3.0

    file, page = tmp_path / "m.hlo", tmp_path / "p.html"
    file.write_text(TEXT)
    words = ["simulate", str(file), f"--measured={path}"]
    assert main([*words, f"--html={page}"]) == 0
    printed = capsys.readouterr().out
    assert "measured 3 instructions in 3 runs on 2 devices" in printed
    assert "kind        count  predicted  measured" in printed
    assert "in a step all-reduce 41.0 \N{MICRO SIGN}s (predicted " in page.read_text()
    assert main([*words, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)["measured"]
    assert (view["runs"], view["devices"]) == (3, 2)
    kinds = {kind["kind"]: kind for kind in view["kinds"]}
    assert kinds["fusion"]["count"] == 2
    assert kinds["fusion"]["measured_us"] == 11.0 + 3 * 5.0
    assert kinds["fusion"]["error"] == pytest.approx(
        kinds["fusion"]["predicted_us"] / 26.0 - 1.0
    )
    names = {row["name"]: row for row in view["instructions"]}
    assert names["fusion.2"]["executions"] == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", b"{"),
        ("b.json", b"[]"),
        ("c.json", b'{"traceEvents": 3}'),
        ("d.json", b"[" * 100_000),
        ("e.json", json.dumps({"traceEvents": [{"ph": "X", "ts": 1, "dur": -1, "args": {"hlo_op": "f"}}]}).encode()),
        ("f.json", json.dumps({"traceEvents": [{"ph": "X", "ts": 1, "dur": "soon", "args": {"hlo_op": "f"}}]}).encode()),
        ("g.json", b'{"traceEvents": [{"ph": "X", "ts": NaN, "dur": 1, "args": {"hlo_op": "f"}}]}'),
        ("h.pb", b"\xff\xfe\xff"),
        ("i.pb", b""),
        ("j.gz", b"\x1f\x8bnothing"),
        ("k.sqlite", b"SQLite format 3\0broken"),
        ("l.nsys-rep", b"report"),
        ("m.csv", b"Name,Duration (ns)\na,b\n"),
        ("n.csv", b"Name,Start (ns),Duration (ns)\na,1,long\n"),
        ("o.txt", b"nothing of the kind"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_no_trace_is_refused(name, content, tmp_path, capsys) -> None:
    path, file = tmp_path / name, tmp_path / "module.hlo"
    path.write_bytes(content)
    file.write_text(TEXT)
    assert main(["simulate", str(file), f"--measured={path}"]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert f"error[U228]: {path}: " in told.err


def test_damaged_traces_are_refused_or_read(tmp_path) -> None:
    """Every cut, and a byte changed here and there: an error with a code, or times."""
    whole, path = xplane(), tmp_path / "x.pb"
    for k in range(0, len(whole), 37):
        for data in (whole[:k], whole[:k] + b"\xff" + whole[k + 1 :]):
            path.write_bytes(data)
            try:
                measured(path)
            except UsageError as problem:
                assert problem.code == "U228"


def test_a_trace_that_is_not_there_is_told_first(tmp_path, capsys) -> None:
    assert main(["simulate", "absent.hlo", "--measured=absent.pb"]) == 2
    assert "error[U001]: no such file: absent.pb" in capsys.readouterr().err


def test_collectives_of_a_trace_calibrate(tmp_path, capsys) -> None:
    path, file = write(tmp_path, "x.xplane.pb"), tmp_path / "m.hlo"
    file.write_text(TEXT)
    words = ["calibrate", str(path), f"--module={file}", "--json"]
    assert main([*words, "--hosts=2", "--gpus-per-host=1"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["kind"], row["bytes"], row["measured_us"]) == ("all-reduce", 4096, 41.0)
    # Inside of one host there is no network to fit.
    assert main([*words, "--hosts=1"]) == 2
    assert "error[U228]" in capsys.readouterr().err


def test_a_sweep_takes_no_trace(tmp_path, capsys) -> None:
    path, file = write(tmp_path, "x.xplane.pb"), tmp_path / "m.hlo"
    file.write_text(TEXT)
    words = [str(file), "--passes=hlo-dce", "--sweep=simulate.streams=1,2"]
    assert main(["simulate", *words, f"--measured={path}"]) == 2
    assert "error[U222]: --measured" in capsys.readouterr().err
