"""Where devices meet: orders that differ, one channel for several, who waits for whom."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.ir.module import Module
from tests.scheduler.checker.two_gathers import GATHER, TWO, codes, ordered


def test_hosts_with_two_orders_meet_in_different_things() -> None:
    one = hlo_passes.parse(TWO.replace("channel_id=2", "channel_id=1"))
    other = ordered(TWO.replace("channel_id=2", "channel_id=1"), "p", "work", "begin2")
    assert scheduler.check_device_order([one, one]) == []
    (found,) = scheduler.check_device_order([one, other])
    assert found.code == "C042"
    assert "device 1 in %begin2 meets device 0 in %begin" in found.message
    with pytest.raises(hlo_passes.UsageError):
        scheduler.check_device_order([one])


def test_a_synchronous_collective_waits_for_no_start_before_it() -> None:
    """It is no part of the stream on which starts follow one another."""
    text = TWO.replace(
        "%work = f32[8] negate(%p)",
        f"%work = f32[16] all-gather(%p), channel_id=3, {GATHER}",
    ).replace(
        "f32[8], f32[16]) all-gather-start(%work)",
        "f32[16], f32[32]) all-gather-start(%work)",
    )
    text = text.replace("%end2 = f32[16]", "%end2 = f32[32]")
    text = text.replace(
        "%r = f32[16] add(%end, %end2)", "%r = (f32[16], f32[32]) tuple(%end, %end2)"
    )
    module = hlo_passes.parse(text)
    other = ordered(text, "p", "work", "begin")
    assert scheduler.check_device_order([module, other]) == []


def test_a_cycle_is_named() -> None:
    other = ordered(TWO, "p", "work", "begin2")
    (found,) = scheduler.check_device_order([hlo_passes.parse(TWO), other])
    assert (found.code, found.message) == (
        "C040",
        "devices wait for each other in a cycle: device 0 waits for device 1 in "
        "%begin; device 1 waits for device 0 in %begin2",
    )


def test_of_those_that_a_device_waits_for_the_first_is_named() -> None:
    text = TWO.replace("{{0,1}}", "{{0,1,2}}").replace("partitions=2", "partitions=3")
    one, other = hlo_passes.parse(text), ordered(text, "p", "work", "begin2")
    (found,) = scheduler.check_device_order([one, other, other])
    assert found.message.endswith(
        "device 0 waits for device 1 in %begin; device 1 waits for device 0 in %begin2"
    )


def test_a_device_that_a_group_names_twice_comes_once() -> None:
    # The verifier refuses the group (V400); the checker may be asked without it.
    groups = "replica_groups={{0,1}}"
    module = hlo_passes.parse(TWO.replace(groups, "replica_groups={{0,1,1}}"))
    assert codes(module) == []


# -- several communications of one channel ------------------------------------------

_PAIRS = "frontend_attributes={_xla_send_recv_source_target_pairs=%s}"


def _transfers(order: str, pairs: dict[str, str], data: dict[str, str]) -> Module:
    """Transfers a, b... in an order such as 'ra sa ra! sa!' (! for a done)."""
    lines = [f"%p{n} = {data[n]} parameter({i})" for i, n in enumerate(data)]
    lines.append("%t = token[] after-all()")
    for word in order.split():
        role, name = word[0], word[1]
        kind = {"r": "recv", "s": "send"}[role]
        if word.endswith("!"):
            shape = f"({data[name]}, token[])" if role == "r" else "token[]"
            lines.append(
                f"%{role}{name}d = {shape} {kind}-done(%{role}{name}), channel_id=1"
            )
            continue
        operands = "%t" if role == "r" else f"%p{name}, %t"
        lines.append(
            f"%{role}{name} = ({data[name]}, u32[], token[]) {kind}({operands}), "
            f"channel_id=1, {_PAIRS % pairs[name]}"
        )
    lines.append("ROOT %o = () tuple()")
    body = "\n  ".join(lines)
    return hlo_passes.parse(
        f"HloModule m, is_scheduled=true, num_partitions=3\n\nENTRY %main {{\n  {body}\n}}\n"
    )


_FORTH_AND_BACK = {"a": "{{0,1},{1,2}}", "b": "{{1,0},{2,1}}"}
_BOTH_WAYS = {"a": "{{0,1},{1,0}}", "b": "{{0,1},{1,0}}"}
_TWO_SIZES = {"a": "f32[4]", "b": "f32[8]"}


@pytest.mark.parametrize(
    ("order", "pairs", "expected"),
    [
        # As XLA decomposes two permutes.
        ("ra sa rb sb ra! sa! rb! sb!", _FORTH_AND_BACK, []),
        # Between other devices the order is free.
        ("ra rb sb sa ra! sa! rb! sb!", _FORTH_AND_BACK, []),
        # A done waits for its own start, not for all of the channel.
        ("ra rb sa ra! sb rb! sa! sb!", _BOTH_WAYS, []),
        ("ra rb sa rb! sb ra! sa! sb!", _BOTH_WAYS, ["C040"]),
        ("ra ra! sa sa!", _BOTH_WAYS, ["C040"]),
        # The first receive takes what is sent first.
        ("ra rb sb sa ra! rb! sa! sb!", _BOTH_WAYS, ["C042"]),
    ],
)
def test_transfers_of_one_channel_meet_from_device_to_device(
    order: str, pairs: dict[str, str], expected: list[str]
) -> None:
    module = _transfers(order, pairs, _TWO_SIZES)
    assert [code for code, _ in codes(module)] == expected


def test_permutes_and_groups_of_one_channel_that_not_all_devices_enter() -> None:
    gather = "dimensions={0}, use_global_device_ids=true"
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true, num_partitions=3

ENTRY %main (a: f32[4]) -> f32[24] {{
  %a = f32[4] parameter(0)
  %b = f32[4] collective-permute(%a), channel_id=1, source_target_pairs={{{{0,1}}}}
  %c = f32[4] collective-permute(%b), channel_id=1, source_target_pairs={{{{1,2}}}}
  %d = f32[8] all-gather(%c), channel_id=1, replica_groups={{{{0,1}}}}, {gather}
  ROOT %e = f32[24] all-gather(%d), channel_id=1, replica_groups={{{{0,1,2}}}}, {gather}
}}
""")
    assert codes(module) == []


def test_a_collective_in_a_fusion_meets_as_any_other() -> None:
    # XLA puts all-reduces that a kernel of its own runs into fusions.
    module = hlo_passes.parse("""HloModule m, is_scheduled=true, num_partitions=2

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%fused (x.1: f32[4]) -> f32[4] {
  %x.1 = f32[4] parameter(0)
  ROOT %r = f32[4] all-reduce(%x.1), channel_id=2, to_apply=%add, \
    use_global_device_ids=true, replica_groups={{0,1}}
}

%wrapped (x.2: f32[4]) -> f32[4] {
  %x.2 = f32[4] parameter(0)
  ROOT %f = f32[4] fusion(%x.2), kind=kLoop, calls=%fused
}

%first (a: f32[4]) -> f32[4] {
  %a = f32[4] parameter(0)
  %s.1 = ((f32[4]), f32[4]) async-start(%a), calls=%wrapped
  %d.1 = f32[4] async-done(%s.1)
  ROOT %c = f32[4] collective-permute(%d.1), channel_id=1, source_target_pairs={{0,1}}
}

%second (b: f32[4]) -> f32[4] {
  %b = f32[4] parameter(0)
  %c.1 = f32[4] collective-permute(%b), channel_id=1, source_target_pairs={{0,1}}
  ROOT %f.1 = f32[4] fusion(%c.1), kind=kLoop, calls=%fused
}

ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  %id = u32[] partition-id()
  %zero = u32[] constant(0)
  %is_first = pred[] compare(%id, %zero), direction=EQ
  ROOT %k = f32[4] conditional(%is_first, %p, %p), true_computation=%first, \
    false_computation=%second
}
""")
    assert [code for code, _ in codes(module)] == ["C040"]
