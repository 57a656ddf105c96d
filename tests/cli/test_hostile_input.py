"""Input that nobody means: a message and an exit code, soon, and little memory."""

from __future__ import annotations

import gzip
import json
import pathlib

import numpy as np
import pytest

import hlo_passes
from hlo_passes import files
from hlo_passes import proto_wire as wire
from hlo_passes.cli.main import main
from hlo_passes.errors import (
    HloError,
    ParseError,
    TooDeepError,
    UnsupportedHloError,
    UsageError,
)
from hlo_passes.exit_codes import ExitCode
from hlo_passes.ir.attribute_values import parse_value
from hlo_passes.ir.literals import parse_literal
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.proto import module_from_proto, module_to_proto
from hlo_passes.proto_messages import ModuleProto
from hlo_passes.runtime.arrays_file import read_arrays
from hlo_passes.scheduler import simulate
from hlo_passes.scheduler.estimators.table import read_costs

DEVICES = 1 << 20


def nested(levels: int, opcode: str, how: str) -> str:
    """Computations that call one another, of f32[8]."""
    lines = [
        "HloModule m, is_scheduled=true\n",
        "%c0 {\n  ROOT %p0 = f32[8]{0} parameter(0)\n}\n",
        "%until {\n  %z = f32[8]{0} parameter(0)\n  ROOT %f = pred[] custom-call(%z), "
        'custom_call_target="until"\n}\n',
    ]
    for k in range(1, levels):
        name = "ENTRY %e" if k == levels - 1 else f"%c{k}"
        lines.append(
            f"{name} {{\n  %p{k} = f32[8]{{0}} parameter(0)\n"
            f"  ROOT %r{k} = f32[8]{{0}} {opcode}(%p{k}), {how}%c{k - 1}\n}}\n"
        )
    return "\n".join(lines)


CALLS = nested(400, "call", "to_apply=")
LOOPS = nested(400, "while", "condition=%until, body=")
FUSIONS = nested(1500, "fusion", "kind=kLoop, calls=")


def permuted(pairs: str, header: str = "") -> str:
    return f"""HloModule m, is_scheduled=true{header}

ENTRY %e {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %r = f32[8]{{0}} collective-permute(%p), channel_id=1, source_target_pairs={pairs}
}}
"""


@pytest.mark.parametrize(
    "text",
    [
        permuted("{{0,2000000000}}"),
        permuted(f"{{{{0,{DEVICES}}}}}"),
        permuted("{{0,1}}", f", num_partitions={2**63 - 1}"),
        permuted("{{0,1}}", f", replica_count={2**31}, num_partitions={2**31}"),
    ],
)
def test_too_many_devices_to_simulate(text: str) -> None:
    with pytest.raises(UnsupportedHloError) as caught:
        simulate(hlo_passes.parse(text))
    assert caught.value.code == "S014"
    assert f"at most {DEVICES} are told apart" in caught.value.message


#: A loop in which a permute is read by an operation of all devices.
LOOP_OF_ALL = """HloModule m, num_partitions={devices}

%add {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

%body {{
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %v = f32[8] get-tuple-element(%p), index=1
  %d = f32[8] collective-permute(%v), channel_id=1, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}}}}
  %c = f32[8] all-reduce(%d), channel_id=2, to_apply=%add
  ROOT %t = (s32[], f32[8]) tuple(%next, %c)
}}
%cond {{
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(5)
  ROOT %c = pred[] compare(%i, %n), direction=LT
}}
ENTRY %main {{
  %x = f32[8] parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], f32[8]) tuple(%zero, %x)
  %w = (s32[], f32[8]) while(%init), condition=%cond, body=%body
  ROOT %out = f32[8] get-tuple-element(%w), index=1
}}
"""


def test_all_devices_are_not_listed_to_find_conflicts() -> None:
    context = PassContext(xla_quirks=False)
    name = "collective-permute-decomposer{threshold-bytes=0}"
    found = []
    for devices in (4, 2**32):
        module = hlo_passes.parse(LOOP_OF_ALL.format(devices=devices))
        assert hlo_passes.Pipeline.parse(name, context).run(module).changed
        found.append(module.to_text().replace(f"partitions={devices}", ""))
    assert found[0] == found[1]
    assert "control-predecessors={%d-send}" in found[0]


@pytest.mark.parametrize(
    "name",
    ["gpu-schedule", "collective-combiner-annotator", "collective-backend-choice"],
)
@pytest.mark.parametrize("header", ["replica_count", "num_partitions"])
def test_too_many_devices_to_price(name: str, header: str) -> None:
    text = LOOP_OF_ALL.format(devices=2**32).replace("num_partitions", header)
    with pytest.raises(UnsupportedHloError) as caught:
        hlo_passes.Pipeline.parse(name).run(hlo_passes.parse(text))
    assert caught.value.code == "S014"


@pytest.mark.parametrize(
    "name",
    [
        "collective-ring-decomposer",
        "all-reduce-blueconnect{devices-per-host=4}",
    ],
)
def test_too_many_devices_to_list(name: str) -> None:
    text = LOOP_OF_ALL.format(devices=2**32).replace("num_partitions", "replica_count")
    module = hlo_passes.parse(text.replace("channel_id=2, ", ""))
    result = hlo_passes.Pipeline.parse(name).run(module)
    assert not result.changed
    remarks = [remark for run in result.passes for remark in run.remarks]
    assert any(f"more than {DEVICES} devices" in remark for remark in remarks)


def test_too_many_devices_in_groups() -> None:
    groups = f"[1,{2 * DEVICES}]<=[{2 * DEVICES}]"
    with pytest.raises(ParseError, match=f"more than {DEVICES} devices"):
        parse_value("replica_groups", groups)


@pytest.mark.parametrize("text", [CALLS, LOOPS])
def test_calls_too_deep_to_simulate(text: str) -> None:
    with pytest.raises(TooDeepError) as caught:
        simulate(hlo_passes.parse(text))
    assert caught.value.code == "S016"


@pytest.mark.parametrize("text", [nested(2000, "call", "to_apply="), FUSIONS])
def test_calls_too_deep_for_a_pass(text: str) -> None:
    module = hlo_passes.parse(text.replace(", is_scheduled=true", ""))
    with pytest.raises(TooDeepError) as caught:
        hlo_passes.Pipeline.parse("hlo-memory-scheduler").run(module)
    assert caught.value.message.startswith("hlo-memory-scheduler: ")


@pytest.mark.parametrize("opcode", ["call", "while"])
def test_a_hundred_calls(opcode: str) -> None:
    how = "to_apply=" if opcode == "call" else "condition=%until, body="
    module = hlo_passes.parse(nested(100, opcode, how))
    assert simulate(module).step_time_us >= 0
    hlo_passes.Pipeline.parse("hlo-memory-scheduler,schedule-checker").run(module)


def test_calls_too_deep_for_a_command(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(FUSIONS)
    assert main(["estimate", str(file)]) == ExitCode.CANNOT_RUN
    assert capfd.readouterr().err.startswith("error[S016]: ")


def test_recursion_of_a_pass_is_its_own_fault() -> None:
    class Endless(hlo_passes.Pass):
        name = "endless"

        def run(self, module, context, report) -> bool:
            return self.run(module, context, report)

    module = hlo_passes.parse("f32[] negate(f32[] x)")
    with pytest.raises(HloError) as caught:
        hlo_passes.Pipeline((Endless(),)).run(module)
    assert caught.value.code == "E001"


@pytest.mark.parametrize(
    ("depth", "refused"), [(100, False), (101, True), (50_000, True)]
)
def test_nested_pipelines(depth: int, *, refused: bool) -> None:
    text = "fixed-point(" * depth + "hlo-dce" + ")" * depth
    if refused:
        with pytest.raises(HloError, match=r"deeper than 100"):
            hlo_passes.Pipeline.parse(text)
    else:
        module = hlo_passes.parse("f32[] negate(f32[] x)")
        assert not hlo_passes.Pipeline.parse(text).run(module).changed


def test_literal_of_more_dimensions_than_numpy_has() -> None:
    rank = 65
    shape = f"f32[{','.join('1' * rank)}]"
    literal = "{" * rank + "1" + "}" * rank
    module = hlo_passes.parse(f"ENTRY e {{\n  ROOT c = {shape} constant({literal})\n}}")
    hlo_passes.verify(module)
    with pytest.raises(UnsupportedHloError) as caught:
        parse_literal(module.entry.root.literal, module.entry.root.shape)
    assert caught.value.code == "S020"


# -- compressed input ----------------------------------------------------------


def bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), mtime=0)


@pytest.fixture
def one_mib(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("HLO_PASSES_MOST_OPENED_MIB", "1")
    return 1 << 20


def test_opened(one_mib: int) -> None:
    two_files = gzip.compress(b"a" * 10) + gzip.compress(b"b" * 10)
    assert files.opened(two_files) == b"a" * 10 + b"b" * 10
    assert files.opened(b"plain") == b"plain"
    assert len(files.opened(bomb(one_mib))) == one_mib


@pytest.mark.parametrize(
    "data",
    [
        bomb((1 << 20) + 1),
        bomb(1 << 26)[:-4] + bytes(4),
        bomb(1 << 19) + bomb(1 << 19) + bomb(1),
    ],
    ids=["honest", "with a false size", "in parts"],
)
def test_opened_up_to_a_limit(data: bytes, one_mib: int) -> None:
    with pytest.raises(files.TooLargeError, match="it holds more than 1 MiB"):
        files.opened(data)


@pytest.mark.parametrize("data", [bomb(100)[:-1], bomb(100)[:12], bomb(100) + b"x"],
                         ids=["cut", "cut early", "more"])  # fmt: skip
def test_opened_broken(data: bytes) -> None:
    with pytest.raises(OSError, match=r"."):
        files.opened(data)


def test_bomb_as_a_module(tmp_path: pathlib.Path, one_mib: int) -> None:
    file = tmp_path / "m.hlo.gz"
    file.write_bytes(bomb(2 * one_mib))
    with pytest.raises(ParseError) as caught:
        files.read_module(str(file))
    assert caught.value.code == "P041"
    assert "HLO_PASSES_MOST_OPENED_MIB" in caught.value.hint


def test_bomb_as_costs(tmp_path: pathlib.Path, one_mib: int) -> None:
    file = tmp_path / "costs.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"node_cost_us": {}}).encode()))
    assert not read_costs(str(file)).node_costs
    file.write_bytes(bomb(2 * one_mib))
    with pytest.raises(UsageError, match="it holds more than 1 MiB") as caught:
        read_costs(str(file))
    assert caught.value.code == "U206"
    assert "HLO_PASSES_MOST_OPENED_MIB" in caught.value.hint


def test_bomb_as_arrays(tmp_path: pathlib.Path, one_mib: int) -> None:
    file, zeros = tmp_path / "x.npz", np.zeros(one_mib, np.float32)
    np.savez(file, **{"0": zeros})
    assert read_arrays(str(file))[0].nbytes == 4 * one_mib
    np.savez_compressed(file, **{"0": zeros})
    with pytest.raises(UsageError, match="opens to more than 1 MiB"):
        read_arrays(str(file))


def test_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_PASSES_MOST_OPENED_MIB", "all")
    with pytest.raises(UsageError) as caught:
        files.opened(bomb(1))
    assert caught.value.code == "U007"


# -- protos --------------------------------------------------------------------

PROTO_TEXT = """HloModule m

FileNames
1 "a.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 end_column=2}
2 {file_name_id=1 function_name_id=1 line=2 end_line=2 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

%inner (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  ROOT %n = f32[] negate(%p)
}

ENTRY %e (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] sine(%x), metadata={op_name="y" stack_frame_id=1}
  ROOT %c = f32[] call(%y), to_apply=%inner, metadata={op_name="c" stack_frame_id=2}
}
"""


def changed(data: bytes, *names: str) -> ModuleProto:
    """The proto after a pass changed all instructions of some or all computations."""
    module = module_from_proto(data)
    for computation in module.computations:
        if names and computation.name not in names:
            continue
        for instruction in computation.instructions:
            instruction.set_attribute("frontend_attributes", '{a="b"}')
    return ModuleProto(module_to_proto(module))


@pytest.mark.parametrize("names", [(), ("e",), ("inn_r",)])
def test_names_that_text_cannot_spell(names: tuple[str, ...]) -> None:
    data = hlo_passes.parse(PROTO_TEXT).to_proto()
    found = changed(data.replace(b"inner", b"inn\x01r"), *names)
    assert list(found.computations) == ["inn_r", "e"]


@pytest.mark.parametrize(
    ("row", "broken"),
    [(b"\x08\x01\x10\x01\x18\x01", b"\x08\x05\x10\x09\x18\x01"),
     (b"\x22\x02\x08\x01", b"\x22\x02\x08\x07")],
    ids=["files and functions", "locations"],
)  # fmt: skip
def test_stack_frames_that_are_not_there(row: bytes, broken: bytes) -> None:
    data = hlo_passes.parse(PROTO_TEXT).to_proto()
    assert data.count(row) == 1
    assert len(changed(data.replace(row, broken)).computations) == 2


def test_stack_frame_around_itself() -> None:
    frame = wire.varint_field(2, 1)  # its parent is itself
    index = wire.bytes_field(17, wire.bytes_field(4, frame))
    with pytest.raises(ParseError) as caught:
        _ = ModuleProto(index).frames
    assert caught.value.code == "P254"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("verify NAME", "U001"),
        ("diff FILE NAME", "U001"),
        ("simulate FILE --costs=NAME", "U001"),
        ("simulate FILE --target=NAME", "U200"),
        ("conformance NAME", "U030"),
        ("opt FILE --passes=hlo-dce -o NAME", "U003"),
        ("opt FILE --passes=hlo-dce --report=NAME", "U003"),
    ],
)
def test_a_name_too_long_for_a_file(
    command: str, code: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(
        "HloModule m\n\nENTRY %e {\n  ROOT %p = f32[8]{0} parameter(0)\n}\n"
    )
    words = command.replace("NAME", "n" * 5000).replace("FILE", str(file)).split()
    assert main(words) in (1, 2)
    assert f"error[{code}]" in capsys.readouterr().err
