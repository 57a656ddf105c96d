"""Ragged all-to-alls over two hosts move the rows that those over one move."""

from __future__ import annotations

import itertools
import random

import pytest

import hlo_passes
from hlo_passes import Pipeline, runtime
from hlo_passes.passes.framework.base import PassContext

Groups = tuple[tuple[int, ...], ...]

#: The CPU has none, so both are written as dense ones in the end.
_DENSE = "ragged-all-to-all-decomposer"
_SPLIT = "ragged-all-to-all-multi-host-decomposer{slice-size=2}"


def _module(groups: Groups, rows: int, room: int, updates: int) -> str:
    """Rows go from each device to each of its group, in numbers by chance."""
    chance = random.Random(f"{groups} {rows} {room} {updates}")
    members = len(groups[0])
    tables: dict[str, dict[int, list[int]]] = {name: {} for name in "ospq"}
    for group in groups:
        places = list(itertools.product(range(members), repeat=2))
        sent = {pair: [chance.randrange(3) for _ in range(updates)] for pair in places}
        begin: dict[tuple[int, int], list[int]] = {}
        for k, device in enumerate(group):
            out = [n for j in range(members) for n in sent[k, j]]
            inward = [n for j in range(members) for n in sent[j, k]]
            tables["o"][device] = list(itertools.accumulate(out, initial=0))[:-1]
            tables["s"][device], tables["q"][device] = out, inward
            starts = list(itertools.accumulate(inward, initial=0))
            for j in range(members):
                begin[j, k] = starts[j * updates : (j + 1) * updates]
        for k, device in enumerate(group):
            tables["p"][device] = [n for j in range(members) for n in begin[k, j]]
    count, size = sum(map(len, groups)), members * updates
    lines = ""
    for name, table in tables.items():
        listed = ", ".join(
            f"{{{', '.join(map(str, table[device]))}}}" for device in range(count)
        )
        lines += f"""
  %t{name} = s64[{count},{size}]{{1,0}} constant({{ {listed} }})
  %r{name} = s64[1,{size}]{{1,0}} dynamic-slice(%t{name}, %id, %zero), dynamic_slice_sizes={{1,{size}}}
  %{name} = s64[{size}]{{0}} reshape(%r{name})"""
    text = ",".join(f"{{{','.join(map(str, group))}}}" for group in groups)
    return f"""HloModule m, num_partitions={count}

ENTRY %main (x: f32[{rows},3], y: f32[{room},3]) -> f32[{room},3] {{
  %x = f32[{rows},3]{{1,0}} parameter(0)
  %y = f32[{room},3]{{1,0}} parameter(1)
  %id = u32[] partition-id()
  %zero = u32[] constant(0){lines}
  ROOT %r = f32[{room},3]{{1,0}} ragged-all-to-all(%x, %y, %o, %s, %p, %q), channel_id=1, replica_groups={{{text}}}
}}
"""


@pytest.mark.parametrize("groups", [((0, 1, 2, 3),), ((2, 0, 3, 1),), ((0, 2), (1, 3))])
@pytest.mark.parametrize(("rows", "room"), [(24, 32), (40, 24)])
def test_two_hosts_move_the_same_rows(groups: Groups, rows: int, room: int) -> None:
    """With xla_quirks the sizes of what is received would be those of other rows."""
    runtime.emulate(8)
    one, two = (hlo_passes.parse(_module(groups, rows, room, 2)) for _ in range(2))
    Pipeline.parse(_DENSE).run(one)
    context = PassContext(xla_quirks=False)
    assert Pipeline.parse(_SPLIT, context).run(two).changed
    Pipeline.parse(_DENSE, context).run(two)
    assert runtime.compare(one, two).bitwise_equal


@pytest.mark.parametrize(("rows", "room"), [(24, 32), (40, 24)])
def test_three_hosts_move_the_same_rows(rows: int, room: int) -> None:
    """As they are: the CPU runs both, and looks at the tables of the parts."""
    runtime.emulate(8)
    one = hlo_passes.parse(_module(((2, 0, 4, 3, 1, 5),), rows, room, 1))
    two = one.clone()
    context = PassContext(xla_quirks=False)
    assert not Pipeline.parse(_SPLIT, context).run(two).changed
    wide = _SPLIT.replace("}", ",any-hosts=true}")
    assert Pipeline.parse(wide, context).run(two).changed
    assert runtime.compare(one, two).bitwise_equal
