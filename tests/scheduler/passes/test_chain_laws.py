"""Chains of permutes compute what their collectives did, in the order they promise."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes import Pipeline
from hlo_passes.passes.decomposing.permute_chains import grid_columns
from tests.runtime.evaluator import Evaluator

DEVICES = 8
REDUCING = ("reduce-scatter", "all-reduce")


@dataclass(frozen=True)
class Collective:
    """One collective of a module, and the form that it shall have."""

    kind: str
    form: str
    groups: tuple[tuple[int, ...], ...]
    by: str
    type: str
    operation: str
    rows: int
    columns: int

    @property
    def size(self) -> int:
        return len(self.groups[0])

    def text(self) -> str:
        """The module; all-reduces have any number of rows, others one for each."""
        rows = self.rows if self.kind == "all-reduce" else self.rows * self.size
        whole = f"{self.type}[{rows},{self.columns}]"
        part = f"{self.type}[{self.rows},{self.columns}]"
        given = part if self.kind == "all-gather" else whole
        made = part if self.kind == "reduce-scatter" else whole
        groups = "{" + ",".join(f"{{{','.join(map(str, g))}}}" for g in self.groups)
        more = f"replica_groups={groups}}}"
        if self.kind != "all-reduce":
            more += ", dimensions={0}"
        if self.by == "partitions":
            more = f"channel_id=3, {more}"
            if self.kind != "all-to-all":
                more += ", use_global_device_ids=true"
        if self.kind in REDUCING:
            more += ", to_apply=%both"
        header = "num_partitions" if self.by == "partitions" else "replica_count"
        return f"""HloModule m, {header}={DEVICES}

%both (a: {self.type}[], b: {self.type}[]) -> {self.type}[] {{
  %a = {self.type}[] parameter(0)
  %b = {self.type}[] parameter(1)
  ROOT %r = {self.type}[] {self.operation}(%a, %b)
}}

ENTRY %main (x: {given}) -> {made} {{
  %x = {given} parameter(0)
  ROOT %y = {made} {self.kind}(%x), {more}
}}
"""


@st.composite
def collectives(draw: st.DrawFn) -> Collective:
    devices = draw(st.permutations(range(DEVICES)))
    size = draw(st.sampled_from((2, 4, 8)))
    return Collective(
        draw(st.sampled_from(("all-gather", "all-to-all", *REDUCING))),
        draw(st.sampled_from(("ring", "bidirectional", "2d"))),
        tuple(tuple(devices[k : k + size]) for k in range(0, DEVICES, size)),
        draw(st.sampled_from(("partitions", "replicas"))),
        draw(st.sampled_from(("f32", "s32"))),
        draw(st.sampled_from(("add", "maximum", "multiply"))),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
    )


def order(form: str, size: int, owner: int) -> list[list[int]]:
    """Runs of members that are reduced from left to right, and then with each other."""
    runs = [range(1, size + 1)]
    if form == "bidirectional":
        runs = [range(-(size // 2), 1), range((size - 1) // 2, 0, -1)]
    return [[(owner + k) % size for k in run] for run in runs if run]


def promised(one: Collective, given: np.ndarray) -> np.ndarray:
    """What each device has after a reduction in the order of the documents."""
    apply = {"add": np.add, "maximum": np.maximum, "multiply": np.multiply}
    operation = apply[one.operation]
    size = one.size
    result = np.zeros_like(given)
    parts = []
    for group in one.groups:
        flat = [given[device].reshape(-1) for device in group]
        padding = -len(flat[0]) % size
        blocks = [np.pad(x, (0, padding)).reshape(size, -1) for x in flat]
        sums = []
        for owner in range(size):
            row = [x[owner] for x in blocks]
            if one.form == "2d":
                # Along each column of the grid, then along the owner's row.
                wide = grid_columns(size)
                high = size // wide
                row = [
                    functools.reduce(
                        operation,
                        [row[k * wide + column]
                         for k in order("ring", high, owner // wide)[0]],
                    )
                    for column in range(wide)
                ]  # fmt: skip
                runs = order("ring", wide, owner % wide)
            else:
                runs = order(one.form, size, owner)
            runs = [functools.reduce(operation, [row[k] for k in run]) for run in runs]
            sums.append(functools.reduce(operation, runs))
        parts.append(sums)
    if one.kind == "reduce-scatter":
        result = result[:, : one.rows]
    for group, sums in zip(one.groups, parts, strict=True):
        for device, own in zip(group, sums, strict=True):
            if one.kind == "all-reduce":
                own = np.concatenate(sums)[: given[0].size]
            result[device] = own.reshape(result[device].shape)
    return result


@settings(max_examples=60, deadline=None)
@given(one=collectives(), seed=st.integers(0, 99))
def test_chains_mean_what_the_collective_means(one: Collective, seed: int) -> None:
    before, after = (hlo_passes.parse(one.text()) for _ in range(2))
    options = f"always=true,form={one.form}"
    result = Pipeline.parse(f"collective-ring-decomposer{{{options}}}").run(after)
    if one.form == "2d" and one.kind != "all-to-all" and not grid_columns(one.size):
        assert result.remarks == (
            f"not decomposed: %y has groups of {one.size}, which make no such grid",
        )
        return
    assert result.changed
    hlo_passes.verify(hlo_passes.parse(after.to_text()))
    shape = before.entry.parameters[0].shape
    chance = np.random.default_rng(seed)
    values = chance.standard_normal((DEVICES, *shape.dimensions)) * 9
    given = values.astype(np.float32 if one.type == "f32" else np.int32)
    counts = (DEVICES, 1) if one.by == "replicas" else (1, DEVICES)
    (wanted,), (found,) = (
        Evaluator(module, *counts).run([given]) for module in (before, after)
    )
    if one.kind in REDUCING and one.type == "f32" and one.operation != "maximum":
        if one.operation == "add":
            rounding = (one.size - 1) * 2.0**-24
            size = np.abs(given.astype(float)).sum(0).max()
            most = 2 * rounding / (1 - rounding) * size
            assert np.abs(wanted.astype(float) - found).max() <= most
        wanted = promised(one, given)
    assert found.tobytes() == wanted.tobytes()


@settings(max_examples=30, deadline=None)
@given(size=st.integers(2, 400))
def test_the_grid_is_the_most_nearly_square_one(size: int) -> None:
    columns = grid_columns(size)
    wide = [k for k in range(2, size) if size % k == 0 and k * k >= size]
    assert columns == (min(wide) if wide else 0)
