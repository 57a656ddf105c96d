"""Protos: unchanged bytes come back, changed modules keep what text cannot say.

Ten seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

from hlo_passes import (
    HloError,
    Module,
    ParseError,
    Pipeline,
    UnsupportedHloError,
    parse,
)
from hlo_passes import proto_messages as messages
from hlo_passes import proto_wire as wire
from hlo_passes.ir.shapes import array_shape, tuple_shape
from hlo_passes.proto import module_from_proto
from hlo_passes.proto_edit import edited
from hlo_passes.proto_messages import ModuleProto
from tests.modules import CORPUS, module_files, read_text

FILES = module_files(CORPUS / "modules" / jax.__version__)
STAGE = re.compile(r"\.(partitioned|scheduled|gpu-scheduled)\.hlo")
#: Every fourth module; all of them take two minutes and have passed.
SAMPLE = [f for f in FILES if STAGE.search(f.name)][::4]
PIPELINES = (
    "collective-permute-combiner",
    "gpu-all-gather-combiner,gpu-all-reduce-combiner,gpu-reduce-scatter-combiner",
    "async-collective-creator,async-collective-annotator",
    "convert-async-collectives-to-sync",
    "collective-permute-splitter,tuple-simplifier,hlo-cse,hlo-dce",
)

#: A field that no message of XLA's has: what text cannot say, and nobody decodes.
UNKNOWN = wire.bytes_field(4000, b"not in the text")

TWO = """HloModule two, is_scheduled=true, entry_computation_layout={(f32[8]{0})->(f32[8]{0}, f32[8]{0})}

ENTRY %main (p: f32[8]) -> (f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}, metadata={op_name="one"}
  %n = f32[8]{0} negate(%p)
  %b = f32[8]{0} collective-permute(%n), channel_id=2, source_target_pairs={{0,1},{1,0}}
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%a, %b)
}

"""


def proto_of(text: str) -> bytes:
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def printed(proto: bytes) -> str:
    module = _hlo.HloModule.from_serialized_hlo_module_proto(proto)
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return module.to_string(options)


def comparable(text: str, *, in_order: bool) -> list[str]:
    """Computations by text, without what XLA renumbers or renames as it reads."""
    start = re.search(r"^(?:ENTRY )?%\S+ \(", text, re.MULTILINE)
    assert start is not None
    text = re.sub(r" ?stack_frame_id=\d+", "", text[start.start() :])
    text = text.replace(", metadata={}", "")
    found = []
    for computation in text.strip().split("\n\n"):
        head, *lines = computation.strip().split("\n")
        if not in_order:
            lines = sorted(line.replace("ROOT ", "") for line in lines)
        found.append("\n".join([head, *lines]))
    return sorted(found)


def with_unknown_fields(proto: bytes) -> bytes:
    """The proto with a field that text cannot say in every message of ours."""
    parts = []
    for field in wire.fields(proto):
        content = proto[field.start : field.end]
        if field.number == messages.COMPUTATIONS:
            inner = b""
            for part in wire.fields(proto, field.value, field.end):
                piece = proto[part.start : part.end]
                if part.number == messages.INSTRUCTIONS:
                    body = proto[part.value : part.end] + UNKNOWN
                    piece = wire.bytes_field(messages.INSTRUCTIONS, body)
                inner += piece
            content = wire.bytes_field(messages.COMPUTATIONS, inner)
        parts.append(content)
    return b"".join(parts) + UNKNOWN


@pytest.mark.parametrize("file", SAMPLE, ids=lambda f: f.name)
def test_changed_modules_are_what_their_text_says(file: Any) -> None:
    proto = proto_of(read_text(file))
    assert Module.from_proto(proto).to_proto() == proto
    for pipeline in PIPELINES:
        module = Module.from_proto(proto)
        if not Pipeline.parse(pipeline).run(module).changed:
            assert module.to_proto() == proto
            continue
        expected = printed(proto_of(module.to_text()))
        ours = printed(module.to_proto())
        in_order = module.is_scheduled
        same = comparable(ours, in_order=in_order) == comparable(
            expected, in_order=in_order
        )
        # Where a sugared start hides a computation XLA renames what is called alike.
        assert same or "-start(" in module.to_text() or "-start(" in read_text(file)
        again = Module.from_proto(module.to_proto())
        assert again.instruction_count >= module.instruction_count


def test_what_text_cannot_say_survives() -> None:
    proto = with_unknown_fields(proto_of(TWO))
    module = Module.from_proto(proto)
    assert Pipeline.parse("collective-permute-combiner").run(module).changed
    changed = ModuleProto(module.to_proto())
    assert changed.bytes_of(4000) == UNKNOWN
    instructions = changed.computations["main"].instructions
    kept = {name for name, i in instructions.items() if i.bytes_of(4000) == UNKNOWN}
    assert kept == {"p", "n", "t"}
    old = ModuleProto(proto).computations["main"]
    assert changed.computations["main"].id == old.id
    for name in kept:
        assert instructions[name].id == old.instructions[name].id
    assert instructions["p"].whole == old.instructions["p"].whole
    # The tuple has other operands now, and else what it had.
    assert instructions["t"].operands != old.instructions["t"].operands
    assert len({i.id for i in instructions.values()}) == len(instructions)


def test_another_order_changes_the_schedule_and_nothing_else() -> None:
    proto = with_unknown_fields(proto_of(TWO))
    module = Module.from_proto(proto)
    p, a, n, b, t = module.entry.instructions
    module.entry.set_order([p, n, b, a, t])
    before, after = ModuleProto(proto), ModuleProto(module.to_proto())
    assert before.fields.keys() == after.fields.keys()
    for number in before.fields:
        same = before.bytes_of(number) == after.bytes_of(number)
        assert same == (number != messages.SCHEDULE)
    names = [i.name for i in after.sequence(after.computations["main"])]
    assert names == ["p", "n", "b", "a", "t"]
    module.entry.set_order([p, a, n, b, t])
    assert module.to_proto() == proto


ALIKE = """HloModule alike, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %one.7 = f32[8]{0} negate(%p), metadata={op_name="same"}
  %two.8 = f32[8]{0} negate(%one.7), metadata={op_name="same"}
  ROOT %last.9 = f32[8]{0} all-to-all(%two.8), channel_id=1, replica_groups={{0,1}}, dimensions={0}
}

"""


def _put_back(module: Module) -> None:
    """Every instruction but the parameter anew, under a name of its own."""
    entry = module.entry
    for old in entry.instructions[1:]:
        new = entry.new(old.opcode, old.shape, old.operands, old.attributes, before=old)
        entry.replace_uses(old, new)
        entry.remove(old)


CONFIG = '{"operation_queue_id":"5","reification_cost":[]}'


@pytest.mark.parametrize("config", [CONFIG, '"5"'])
def test_a_backend_config_is_what_xla_reads(config: str) -> None:
    proto = proto_of(ALIKE)
    module = Module.from_proto(proto)
    _put_back(module)
    module.entry.root.set_attribute("backend_config", config)
    name = module.entry.root.name
    ours, theirs = (
        ModuleProto(data).computations["main"].instructions[name]
        for data in (module.to_proto(), proto_of(module.to_text()))
    )
    number = messages.BACKEND_CONFIG
    assert ours.bytes_of(number) == theirs.bytes_of(number) != b""
    assert ours.fields.keys() == theirs.fields.keys()


def _never_asked(text: str | bytes) -> bytes:
    raise AssertionError(text)


def test_what_comes_back_under_another_name_keeps_its_proto() -> None:
    proto = with_unknown_fields(proto_of(ALIKE))
    module = Module.from_proto(proto)
    _put_back(module)
    changed = edited(module, proto, _never_asked, _never_asked)
    assert comparable(printed(changed), in_order=True) == comparable(
        printed(proto_of(module.to_text())), in_order=True
    )
    main = ModuleProto(changed).computations["main"]
    assert [*main.instructions] == ["p", "negate", "negate.1", "all-to-all"]
    assert all(i.bytes_of(4000) == UNKNOWN for i in main.instructions.values())
    assert len({i.id for i in main.instructions.values()}) == 4


def test_what_came_back_from_either_of_two_is_written_anew() -> None:
    """The two negates read the same, but one has a field that text cannot say."""
    proto = proto_of(ALIKE)
    content = bytearray()
    for field in wire.fields(proto):
        piece = proto[field.start : field.end]
        if field.number == messages.COMPUTATIONS:
            body = b""
            for part in wire.fields(proto, field.value, field.end):
                inner = proto[part.value : part.end]
                extra = UNKNOWN if b"one.7" in inner and b"negate" in inner else b""
                whole = proto[part.start : part.end]
                if extra:
                    whole = wire.bytes_field(part.number, inner + extra)
                body += whole
            piece = wire.bytes_field(field.number, body)
        content += piece
    module = Module.from_proto(bytes(content))
    _put_back(module)
    instructions = ModuleProto(module.to_proto()).computations["main"].instructions
    assert not any(i.bytes_of(4000) for i in instructions.values())


def test_another_root_of_another_shape_signs_the_computation_anew() -> None:
    module = Module.from_proto(proto_of(ALIKE))
    entry = module.entry
    pair = entry.new("tuple", tuple_shape([entry.root.shape]), [entry.root])
    entry.set_root(pair)
    module.set_attribute("entry_computation_layout", "{(f32[8]{0})->(f32[8]{0})}")
    again = Module.from_proto(module.to_proto())
    assert str(again.entry.root.shape) == "(f32[8]{0})"
    assert again.to_text().count("-> (f32[8]) {") == 1


def test_attributes_change_alone() -> None:
    module = Module.from_proto(with_unknown_fields(proto_of(TWO)))
    (a,) = (i for i in module.entry.instructions if i.name == "a")
    a.channel_id = 9
    changed = ModuleProto(module.to_proto()).computations["main"].instructions["a"]
    assert changed.bytes_of(4000) == UNKNOWN
    assert 'op_name="one"' in printed(module.to_proto())
    assert "channel_id=9" in printed(module.to_proto())


def test_the_header_changes_alone() -> None:
    module = Module.from_proto(with_unknown_fields(proto_of(TWO)))
    module.set_attribute("is_scheduled", None)
    changed = ModuleProto(module.to_proto())
    assert messages.SCHEDULE not in changed.fields
    assert changed.bytes_of(4000) == UNKNOWN
    module.set_attribute("is_scheduled", "true")
    names = [i.name for i in module.entry.instructions]
    restored = ModuleProto(module.to_proto())
    found = [i.name for i in restored.sequence(restored.computations["main"])]
    assert found == names


COUNTED = TWO.replace("entry_c", "replica_count=2, num_partitions=4, entry_c")


def test_counts_of_devices_stay() -> None:
    data = parse(COUNTED).to_proto()
    read = Module.from_proto(data)
    assert (read.replica_count, read.num_partitions) == (2, 4)
    assert messages.device_ids(data) == [*range(8)]
    assert read.to_proto() == data
    # As XLA itself writes it.
    xla = _hlo.HloModule.from_serialized_hlo_module_proto(data)
    again = ModuleProto(xla.as_serialized_hlo_module_proto())
    number = messages.DEVICE_ASSIGNMENT
    assert again.bytes_of(number) == ModuleProto(data).bytes_of(number) != b""
    assert number not in ModuleProto(parse(TWO).to_proto()).fields


def test_counts_of_devices_change_with_the_header() -> None:
    proto = parse(COUNTED).to_proto()
    module = Module.from_proto(proto)
    module.set_attribute("num_partitions", "3")
    changed = module.to_proto()
    assert messages.device_counts(changed) == (2, 3)
    module.set_attribute("num_partitions", "4")
    module.set_attribute("is_scheduled", None)
    number = messages.DEVICE_ASSIGNMENT
    kept = ModuleProto(module.to_proto()).bytes_of(number)
    assert kept == ModuleProto(proto).bytes_of(number)
    module.set_attribute("num_partitions", None)
    module.set_attribute("replica_count", None)
    assert number not in ModuleProto(module.to_proto()).fields


@pytest.mark.parametrize("count", ["0", "-3", "1000000000"])
def test_counts_that_no_proto_can_list(count: str) -> None:
    with pytest.raises(ParseError, match=r"P043.*2 replicas x"):
        parse(COUNTED.replace("partitions=4", f"partitions={count}")).to_proto()


def test_new_computations_get_ids_of_their_own() -> None:
    module = Module.from_proto(proto_of(TWO))
    assert Pipeline.parse("async-collective-creator").run(module).changed
    changed = ModuleProto(module.to_proto())
    ids = [i.id for c in changed.computations.values() for i in c.instructions.values()]
    assert len(ids) == len(set(ids))
    assert len(changed.computations_by_id) == len(changed.computations)


SUGAR = """HloModule sugar, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8]) -> f32[4] {
  %p = f32[8]{0} parameter(0)
  %s = ((f32[8]{0}), f32[4]{0}) reduce-scatter-start(%p), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}, to_apply=%add
  %n = f32[8]{0} negate(%p)
  ROOT %d = f32[4]{0} reduce-scatter-done(%s)
}
"""


def test_sugar_is_read_as_what_it_stands_for() -> None:
    proto = proto_of(SUGAR)
    module = Module.from_proto(proto)
    text = module.to_text()
    assert "async-start(" in text
    assert "reduce-scatter-start(" not in text
    assert "hlo_passes" not in text
    assert module.to_proto() == proto
    p, s, n, d = module.entry.instructions
    module.entry.set_order([p, n, s, d])
    assert printed(module.to_proto()).index("%n =") < printed(module.to_proto()).index(
        "%s ="
    )


def test_sugar_that_a_pass_writes_gets_its_computation() -> None:
    module = Module.from_proto(proto_of(SUGAR.replace("channel_id=1", "channel_id=7")))
    sugared = parse(SUGAR)
    start = next(i for i in sugared.entry.instructions if i.name == "s")
    entry = module.entry
    p, s, n, d = entry.instructions
    attributes = dict(start.attributes)
    new = entry.new("reduce-scatter-start", s.shape, [p], attributes, before=s)
    done = entry.new("reduce-scatter-done", d.shape, [new], before=d)
    entry.replace_uses(d, done)
    entry.remove(d)
    entry.remove(s)
    text = printed(module.to_proto())
    assert text.count("reduce-scatter-start(") == 1
    assert "channel_id=1," in text
    assert entry.instructions[2] is n


def test_large_constants_stay_in_the_proto() -> None:
    values = ", ".join(str(v) for v in range(4000))
    text = TWO.replace(
        "  %n = f32[8]{0} negate(%p)\n",
        "  %n = f32[8]{0} negate(%p)\n"
        f"  %c = f32[4000]{{0}} constant({{{values}}})\n",
    )
    proto = proto_of(text)
    module = module_from_proto(proto, large_constants=False)
    assert "constant({...})" in module.to_text()
    assert len(module.to_text()) < 2000
    Pipeline.parse("collective-permute-combiner").run(module)
    assert "3997, 3998, 3999" in printed(module.to_proto())
    first = module.entry.find("c")
    assert first is not None
    module.entry.new("constant", first.shape, literal="{...}")
    with pytest.raises(UnsupportedHloError, match="S015"):
        module.to_proto()


@pytest.mark.parametrize("taken_over", [False, True])
def test_copies_of_large_constants_have_their_values(taken_over: bool) -> None:
    rows = {name: range(first, first + 20) for name, first in (("c", 1), ("d", 501))}
    constants = "".join(
        f"  %{name} = s32[20]{{0}} constant({{{', '.join(map(str, row))}}})\n"
        for name, row in rows.items()
    )
    text = TWO.replace(
        "  %n = f32[8]{0} negate(%p)\n", f"  %n = f32[8]{{0}} negate(%p)\n{constants}"
    )
    module = module_from_proto(proto_of(text), large_constants=False)
    entry = module.entry
    first, second = (entry.find(name) for name in "cd")
    assert first is not None
    assert second is not None
    literal, shape = second.literal, second.shape
    if taken_over:
        # One constant goes, and another gets its name.
        entry.remove(second)
        entry.new("constant", shape, literal=first.literal, name="d")
        entry.new("constant", shape, literal=literal, name="e")
        expected = {"c": 1, "d": 1, "e": 501}
    else:
        entry.new("constant", shape, literal=first.literal, name="e")
        expected = {"c": 1, "d": 501, "e": 1}
    found = dict(
        re.findall(
            r"%(\w) = s32\[20\]\{0\} constant\(\{(\d+),", printed(module.to_proto())
        )
    )
    assert {name: int(value) for name, value in found.items()} == expected
    # Of another shape there is none.
    entry.new("constant", array_shape("s32", (21,)), literal=literal)
    with pytest.raises(UnsupportedHloError, match="S015"):
        module.to_proto()


def test_nan_bits_survive() -> None:
    text = """HloModule bits

ENTRY %main () -> (f32[2], f32[2]) {
  %c = f32[2]{0} constant({nan, -nan})
  %n = f32[2]{0} negate(%c)
  %a = f32[2]{0} collective-permute(%n), channel_id=1, source_target_pairs={{0,1}}
  %b = f32[2]{0} collective-permute(%c), channel_id=2, source_target_pairs={{0,1}}
  ROOT %t = (f32[2]{0}, f32[2]{0}) tuple(%a, %b)
}
"""
    proto = proto_of(text)
    quiet = np.array([np.nan, -np.nan], np.float32).tobytes()
    signalling = np.array([0x7F812345, 0xFF954321], np.uint32).tobytes()
    assert quiet in proto
    proto = proto.replace(quiet, signalling)
    module = Module.from_proto(proto)
    assert Pipeline.parse("collective-permute-combiner").run(module).changed
    assert signalling in module.to_proto()


def test_a_module_that_xla_cannot_read() -> None:
    module = parse(TWO)
    (n,) = (i for i in module.entry.instructions if i.name == "n")
    n.set_attribute("no_such_attribute", "1")
    with pytest.raises(ParseError, match="P043"):
        module.to_proto()


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda p: p[:-1], id="cut"),
        pytest.param(lambda p: b"\xff" * 30, id="noise"),
        pytest.param(lambda p: p[: len(p) // 2], id="half"),
    ],
)
def test_broken_bytes(broken: Callable[[bytes], bytes]) -> None:
    with pytest.raises(HloError, match="P042"):
        Module.from_proto(broken(proto_of(TWO)))


@pytest.mark.parametrize("filler", ["", "x" * 300], ids=["short", "long"])
def test_the_module_in_an_hlo_proto(
    filler: str, capfd: pytest.CaptureFixture[str]
) -> None:
    proto = parse(TWO.replace("two", f"two{filler}")).to_proto()
    other = wire.bytes_field(3, b"")  # what XLA knows about buffers
    for wrapped in (wire.bytes_field(1, proto), wire.bytes_field(1, proto) + other):
        assert Module.from_proto(wrapped).to_proto() == proto
    assert capfd.readouterr() == ("", "")


def test_a_module_without_the_name_of_its_entry_is_a_module_still() -> None:
    """Its own name is where an HloProto holds a module."""
    text = read_text(CORPUS / "handwritten" / "scheduled_async_pairs.hlo")
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    parts = messages.by_number(wire.fields(proto))
    nameless = b"".join(
        proto[f.start : f.end]
        for number, found in parts.items()
        for f in found
        if number not in (messages.ENTRY_NAME, messages.MODULE_ID)
    )
    held = module_from_proto(wire.bytes_field(messages.HELD_MODULE, nameless))
    assert held.to_proto() == nameless
    assert module_from_proto(nameless).to_text() == held.to_text()


def test_a_length_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(HloError, match=r"P042.*beyond its end"):
        wire.fields(b"\x0a" + b"\x80" * 3000 + b"\x01")


def test_varints() -> None:
    for value in (0, 1, 127, 128, 300, 1 << 32, (1 << 63) - 1):
        encoded = wire.encoded_varint(value)
        assert wire.varint(encoded, 0) == (value, len(encoded))
    assert wire.encoded_varint(-1) == b"\xff" * 9 + b"\x01"
    packed = wire.packed_field(3, [1, 300, 5])
    assert wire.numbers(packed, wire.fields(packed)) == [1, 300, 5]
    unpacked = b"".join(wire.varint_field(3, v) for v in (1, 300, 5))
    assert wire.numbers(unpacked, wire.fields(unpacked)) == [1, 300, 5]
    assert wire.varint_field(3, 0) == wire.packed_field(3, []) == b""
