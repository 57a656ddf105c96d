"""Protos that XLA reads in spite of their damage are written back as XLA reads them."""

from __future__ import annotations

import pytest

from hlo_passes import Module, ParseError, Pipeline, parse
from hlo_passes import proto_messages as messages
from hlo_passes import proto_wire as wire
from hlo_passes.proto_messages import ModuleProto

SCHEDULED = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[8]) -> (f32[8], f32[8]) {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %n = f32[8]{0} negate(%p)
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%a, %n)
}
"""
CHAIN = """HloModule m

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %n = f32[8]{0} negate(%p)
  ROOT %t = f32[8]{0} tanh(%n)
}
"""
ASYNC = "async-collective-creator,latency-hiding-scheduler"


def _changed(proto: bytes) -> Module:
    """The module after passes, written and read again."""
    module = Module.from_proto(proto, filename="m.pb")
    assert Pipeline.parse(ASYNC).run(module).changed
    again = Module.from_proto(module.to_proto())
    assert [i.opcode for i in again.entry.instructions] == [
        i.opcode for i in module.entry.instructions
    ]
    return again


def test_a_schedule_of_a_computation_that_is_not_there() -> None:
    proto = parse(SCHEDULED).to_proto()
    module = ModuleProto(proto)
    (entry,) = module.sequences.values()
    order = messages.by_number(wire.fields(proto, entry.value, entry.end))
    value = order[messages.VALUE][0]
    other = wire.varint_field(messages.KEY, 99) + proto[value.start : value.end]
    whole = wire.bytes_field(
        messages.SCHEDULE, wire.bytes_field(messages.SEQUENCES, other)
    )
    damaged = proto.replace(module.bytes_of(messages.SCHEDULE), whole)
    assert ModuleProto(damaged).sequences == {}
    assert _changed(damaged).is_scheduled


@pytest.mark.parametrize("passes", [ASYNC, "hlo-memory-scheduler", "gpu-schedule"])
def test_an_unknown_field_of_a_schedule_is_no_order(passes: str) -> None:
    proto = parse(SCHEDULED).to_proto()
    module = ModuleProto(proto)
    (entry,) = module.sequences.values()
    stray = wire.bytes_field(messages.SCHEDULE, proto[entry.value : entry.end])
    whole = wire.bytes_field(messages.SCHEDULE, stray)
    damaged = proto.replace(module.bytes_of(messages.SCHEDULE), whole)
    assert ModuleProto(damaged).sequences == {}
    read = Module.from_proto(damaged, filename="m.pb")
    Pipeline.parse(passes).run(read)
    again = Module.from_proto(read.to_proto())
    assert [i.name for i in again.entry.instructions] == [
        i.name for i in read.entry.instructions
    ]


@pytest.mark.parametrize(
    "number",
    [
        messages.COMPUTATIONS,
        messages.SCHEDULE,
        messages.DEVICE_ASSIGNMENT,
        messages.STACK_FRAMES,
    ],
)
def test_a_message_of_another_wire_type_is_an_unknown_field(number: int) -> None:
    proto = parse(SCHEDULED).to_proto()
    stray = wire.varint_field(number, 21)
    assert _changed(proto + stray).to_text() == _changed(proto).to_text()
    assert [*ModuleProto(proto + stray).computations] == ["main"]


def test_an_instruction_whose_name_text_cannot_spell() -> None:
    """XLA renames it; its users keep their bytes, and with them its id."""
    proto = parse(SCHEDULED).to_proto()
    damaged = proto.replace(
        wire.bytes_field(messages.NAME, b"n"), wire.bytes_field(messages.NAME, b"'")
    )
    assert damaged != proto
    assert "_" in [i.name for i in _changed(damaged).entry.instructions]


def test_a_first_schedule_where_text_cannot_spell_a_name() -> None:
    """The schedule lists the ids that the proto gives, whatever XLA calls it."""
    proto = parse(CHAIN).to_proto()
    damaged = proto.replace(
        wire.bytes_field(messages.NAME, b"n"), wire.bytes_field(messages.NAME, b"'")
    )
    assert damaged != proto
    module = Module.from_proto(damaged, filename="m.pb")
    Pipeline.parse("hlo-memory-scheduler").run(module)
    assert not module.entry.touched, "no instruction of it moved"
    again = Module.from_proto(module.to_proto(), filename="m.pb")
    assert again.is_scheduled
    assert again.to_text() == module.to_text()


def test_of_several_numbers_the_last_one_counts() -> None:
    proto = parse(SCHEDULED).to_proto()
    negate = ModuleProto(proto).computations["main"].instructions["n"]
    twice = wire.bytes_field(
        messages.INSTRUCTIONS,
        wire.varint_field(messages.ID, 77)
        + wire.bytes_field(messages.OPCODE, b"tanh")
        + proto[negate.place.value : negate.place.end],
    )
    main = ModuleProto(proto).computations["main"]
    content = proto[main.place.value : main.place.end].replace(negate.whole, twice)
    damaged = proto.replace(
        main.whole,
        wire.bytes_field(messages.COMPUTATIONS, content),
    )
    found = ModuleProto(damaged).computations["main"].fields[messages.INSTRUCTIONS]
    assert len(found) == len(main.instructions)
    assert _changed(damaged).to_text() == _changed(proto).to_text()


def test_the_upper_half_of_an_id_says_nothing() -> None:
    """XLA tells instructions of a computation apart by the lower half alone."""
    proto = parse(SCHEDULED).to_proto()
    main = ModuleProto(proto).computations["main"]
    negate = main.instructions["n"]
    other = wire.varint_field(messages.ID, negate.id + (1 << 32))
    content = wire.bytes_field(
        messages.INSTRUCTIONS,
        proto[negate.place.value : negate.place.end] + other,
    )
    whole = proto[main.place.value : main.place.end].replace(negate.whole, content)
    damaged = proto.replace(main.whole, wire.bytes_field(messages.COMPUTATIONS, whole))
    assert ModuleProto(damaged).computations["main"].instructions["n"].id >> 32 == 1
    found = _changed(damaged)
    assert [i.name for i in found.entry.instructions] == [
        i.name for i in _changed(proto).entry.instructions
    ]


def test_of_numbers_of_another_wire_type_nothing_is_read() -> None:
    double = wire.double_field(messages.ENTRY_ID, 1.0)
    assert wire.numbers(double, wire.fields(double)) == []


def test_what_cannot_be_written_names_the_file() -> None:
    module = Module.from_proto(parse(SCHEDULED).to_proto(), filename="m.pb")
    assert module.proto is not None
    module.proto = module.proto[:-1]
    assert Pipeline.parse(ASYNC).run(module).changed
    with pytest.raises(ParseError, match=r"m\.pb:1:1: error\[P042\]"):
        module.to_proto()
    module = parse(SCHEDULED, filename="m.hlo")
    module.entry.root.set_attribute("no_such_attribute", "1")
    with pytest.raises(ParseError, match=r"m\.hlo:1:1: error\[P043\]"):
        module.to_proto()
