"""Shardings: every form, the normal form, and what XLA prints."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_passes.errors import ParseError
from hlo_passes.ir.shape_parser import parse_shape
from hlo_passes.ir.sharding import for_shape, parse_domain, parse_sharding
from tests.ir.xla_text import xla_attribute


def printed_by_xla(text: str) -> str | None:
    return xla_attribute(f"f32[4,4] add(a, a), sharding={text}", "sharding")


@pytest.mark.parametrize(
    "text",
    """\
{replicated}
{maximal device=1}
{manual}
{unknown}
{devices=[2,1]1,0}
{devices=[2,2]<=[4]}
{devices=[2,2]<=[2,2]T(1,0)}
{devices=[2,1,2]<=[4] last_tile_dim_replicate}
{devices=[1,1,2]<=[2] last_tile_dim_replicate}
{devices=[2,1,2]0,1,2,3 last_tile_dims={manual}}
{devices=[2,1,2,2]<=[8] last_tile_dims={replicated, manual}}
{devices=[2,1,2,2]<=[8] last_tile_dims={replicated,replicated}}
{devices=[2,1,1,2]<=[4] last_tile_dims={manual,replicated}}
{devices=[2,1]<=[2] shard_as 3}
{replicated shard_like 4}
{devices=[2,1,2]3,2,1,0 last_tile_dim_replicate}
{devices=[2,1,4]<=[2,2,2]T(1,2,0) last_tile_dim_replicate}
{replicated metadata={op_name="x"}}
{devices=[2,1]<=[2] metadata={{op_name="x"}, {op_name="y"}}}
{mesh['x'=2,'y'=2], [{'x'}, {'y', ?}]}
{mesh['x'=2,'y'=2], [{'x'}, {}], replicated={'y'}}
{mesh['x'=2,'y'=2], [{'x'}, {}], unreduced={'y'}, metadata={op_name="k"}}
{mesh['x'=2,'y'=2], replicated}
{mesh['x'=2,'y'=2], manual}
{mesh['x'=2,'y'=2] [{}, {}]}
{mesh['x'=8], [{'x':(2)2}, {'x':(1)2}]}
{mesh['x'=2,'y'=2], device_ids=(3,2,1,0), [{'x'}, {}]}
{manual replicated}
{devices=[2,1]<=[2] manual}
{device=1 maximal}
{{replicated}, {devices=[2,1]<=[2]}, {manual}, {manual}, {manual}, {manual}}
{}""".splitlines(),
)
def test_xla_prints_the_same(text: str) -> None:
    written = parse_sharding(text).to_text()
    assert written == printed_by_xla(text)
    assert parse_sharding(written).to_text() == written


@given(st.data())
def test_normal_form_agrees_with_xla(data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=4))
    total = prod(dims)
    if total == 1:
        dims[0] = total = 2
    kinds = st.lists(st.sampled_from(["manual", "replicated"]), max_size=len(dims) - 1)
    types = data.draw(kinds)
    if data.draw(st.booleans()):
        devices = ",".join(map(str, data.draw(st.permutations(range(total)))))
    else:
        parts = [2] * (total.bit_length() - 1)
        order = data.draw(st.permutations(range(len(parts))))
        suffix = f"T({','.join(map(str, order))})" if len(parts) > 1 else ""
        devices = f"<=[{','.join(map(str, parts))}]{suffix}"
    last = f" last_tile_dims={{{','.join(types)}}}" if types else ""
    text = f"{{devices=[{','.join(map(str, dims))}]{devices}{last}}}"
    assert parse_sharding(text).to_text() == printed_by_xla(text)


def test_value_does_not_depend_on_the_form() -> None:
    assert parse_sharding("{devices=[2,1]0,1}") == parse_sharding(
        "{devices=[2,1]<=[2]}"
    )


def test_unreduced() -> None:
    for text in (
        "{unreduced}",
        "{mesh['x'=2,'y'=2], unreduced}",
        "{mesh['x'=2,'y'=2], unreduced=max}",
        "{mesh['x'=2,'y'=2], [{'x'}, {}], unreduced=max{'y'}}",
        "{single_device[device_id=3]}",
        "{maximal_mesh[device_id=3]}",
    ):
        assert parse_sharding(text).to_text() == text


def test_one_sharding_stands_for_every_leaf() -> None:
    shape = parse_shape("(f32[2], (s32[], token[]))")
    whole = for_shape(parse_sharding("{replicated}"), shape)
    assert whole.to_text() == "{{replicated}, {replicated}, {replicated}}"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("{devices=[2,1]0}", 2),
        ("{devices=[2,1]0,1,2}", 2),
        ("{devices=[2,2]<=[5]}", 2),
        ("{maximal}", 2),
        ("{replicated device=1}", 2),
        ("{maximal device=0, replicated}", 18),
        ("{foo}", 2),
        ("{foo=1}", 2),
        ("{devices=[2,2]<=[4]T(0)}", 20),
        ("{{}}", 3),
        ("{{replicated}", 14),
        ("{devices=[2,2]<=[4] last_tile_dims={foo}}", 37),
        ("{devices=[2]<=[2] last_tile_dims={manual,manual}}", 2),
        ("{mesh['x'=2], [{'y'}]}", 17),
        ("{mesh['x'=2], [{'x'}, {'x'}]}", 2),
        ("{mesh['x'=2,'y'=2], [{?, 'x'}]}", 26),
        ("{mesh['x'=2,'y'=2], [{}], replicated={'y','x'}}", 2),
        ("{mesh['x'=2], unreduced={'x'}}", 25),
    ],
)
def test_error_place(text: str, column: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_sharding(text)
    assert caught.value.code == "P220"
    assert caught.value.location is not None
    assert caught.value.location.column == column


def test_domain() -> None:
    text = '{kind="sharding", entry={replicated}, exit={maximal device=1}}'
    assert parse_domain(text).to_text() == text
    assert xla_attribute(f"f32[4,4] domain(a), domain={text}", "domain") == text
    with pytest.raises(ParseError, match="kind="):
        parse_domain("{entry={replicated}, exit={replicated}}")
