"""The layouts chosen against all layouts there are, judged by where elements lie.

What is judged asks NumPy for the memory offset of every element and shares nothing with
the pass: an instruction moves nothing if each element of its result lies where it lay
in the operand, or, where elements are repeated or added up, in the same order.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from math import inf, prod

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.layouts.cut import SINK, SOURCE, Network
from hlo_passes.passes.layouts.elimination import Table, smallest
from tests.runtime.evaluator import Evaluator

SUM = """%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""
#: Layouts that the search through all of them may try.
MOST_TRIALS = 30_000
MOVING = ("copy", "reshape", "transpose")
SAME = ("add", "negate", "concatenate", "slice", "collective-permute")
ALONG = ("all-gather", "reduce-scatter", "all-to-all")

Order = tuple[int, ...]


# -- random modules ---------------------------------------------------------------


class Writer:
    """Writes a module of few instructions with layouts drawn at random."""

    def __init__(self, seed: int, most: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.values: list[tuple[str, Order]] = []
        for k in range(self.rng.choice((1, 1, 2))):
            self.add(
                self.rng.choice(((2, 3), (2, 4), (2, 2, 3), (1, 2, 3))),
                f"parameter({k})",
            )
        while len(self.lines) < most:
            self.step()

    def laid_out(self, sizes: Order) -> str:
        order = list(range(len(sizes)))[::-1]
        if self.rng.random() < 0.5:
            self.rng.shuffle(order)
        return f"f32[{numbers(sizes)}]{{{numbers(order)}}}"

    def add(self, sizes: Order, text: str) -> None:
        name = f"i{len(self.lines)}"
        self.lines.append(f"%{name} = {self.laid_out(sizes)} {text}")
        self.values.append((name, sizes))

    def step(self) -> None:
        rng = self.rng
        kind = rng.choice(
            (*SAME, *MOVING, *MOVING, *ALONG, "broadcast", "reduce", "custom")
        )
        name, sizes = rng.choice(self.values[-3:])
        rank, at = len(sizes), rng.randrange(len(sizes)) if sizes else 0
        if rank < 2:
            kind = "broadcast" if prod(sizes) <= 4 else "reshape"
        if kind == "add":
            others = [n for n, s in self.values if s == sizes]
            self.add(sizes, f"add(%{name}, %{rng.choice(others)})")
        elif kind in ("negate", "copy"):
            self.add(sizes, f"{kind}(%{name})")
        elif kind == "custom":
            self.add(sizes, f'custom-call(%{name}), custom_call_target="f"')
        elif kind == "collective-permute":
            pairs = "source_target_pairs={{0,1},{1,0}}"
            self.add(sizes, f"collective-permute(%{name}), channel_id=1, {pairs}")
        elif kind == "transpose":
            order = rng.sample(range(rank), rank)
            moved = tuple(sizes[d] for d in order)
            self.add(moved, f"transpose(%{name}), dimensions={{{numbers(order)}}}")
        elif kind == "reshape":
            shapes = (
                (prod(sizes),),
                (2, prod(sizes) // 2),
                (*sizes, 1),
                (1, *sizes[::-1]),
            )
            wanted = rng.choice(
                [s for s in shapes if prod(s) == prod(sizes) and len(s) < 4]
            )
            self.add(wanted, f"reshape(%{name})")
        elif kind == "slice":
            kept = replaced(sizes, at, max(1, sizes[at] // 2))
            bounds = ", ".join(f"[0:{n}]" for n in kept)
            self.add(kept, f"slice(%{name}), slice={{{bounds}}}")
        elif kind == "concatenate" and prod(sizes) < 16:
            whole = replaced(sizes, at, 2 * sizes[at])
            self.add(whole, f"concatenate(%{name}, %{name}), dimensions={{{at}}}")
        elif kind in ALONG:
            self.collective(kind, name, sizes, at)
        elif kind == "broadcast" and rank < 3 and prod(sizes) < 16:
            at = rng.randrange(rank + 1)
            kept = [d for d in range(rank + 1) if d != at]
            wide = (*sizes[:at], 2, *sizes[at:])
            self.add(wide, f"broadcast(%{name}), dimensions={{{numbers(kept)}}}")
        elif kind == "reduce":
            self.add(
                (*sizes[:at], *sizes[at + 1 :]),
                f"reduce(%{name}, %zero), dimensions={{{at}}}, to_apply=%sum",
            )

    def collective(self, kind: str, name: str, sizes: Order, at: int) -> None:
        reduction = ""
        if kind == "all-gather":
            if prod(sizes) > 12:
                return
            made = replaced(sizes, at, 2 * sizes[at])
        elif sizes[at] % 2:
            return
        elif kind == "reduce-scatter":
            made, reduction = replaced(sizes, at, sizes[at] // 2), ", to_apply=%sum"
        else:
            made = sizes
        where = f"replica_groups={{{{0,1}}}}, use_global_device_ids=true, dimensions={{{at}}}"
        if kind == "all-to-all":
            where = f"replica_groups={{{{0,1}}}}, dimensions={{{at}}}"
        self.add(made, f"{kind}(%{name}), channel_id=1, {where}{reduction}")

    def module(self) -> hlo_passes.Module:
        """The last value is the result, with one more in a tuple at times."""
        lines = ["%zero = f32[] constant(0)", *self.lines]
        if self.rng.random() < 0.5:
            names = [n for n, _ in (self.values[-1], self.rng.choice(self.values))]
            shapes = [self.laid_out(dict(self.values)[n]) for n in names]
            both = ", ".join(f"%{n}" for n in names)
            lines.append(f"%both = ({', '.join(shapes)}) tuple({both})")
        lines[-1] = f"ROOT {lines[-1]}"
        body = "\n  ".join(lines)
        return hlo_passes.parse(
            f"HloModule m, num_partitions=2\n\n{SUM}\nENTRY %main {{\n  {body}\n}}\n"
        )


def numbers(values: Order | list[int]) -> str:
    return ",".join(map(str, values))


def replaced(sizes: Order, at: int, size: int) -> Order:
    return (*sizes[:at], size, *sizes[at + 1 :])


# -- the judge --------------------------------------------------------------------


def offsets(sizes: Order, slowest_first: Order) -> np.ndarray:
    """Where each element lies in memory."""
    flat = np.arange(prod(sizes)).reshape([sizes[d] for d in slowest_first])
    return flat.transpose(np.argsort(slowest_first))


def slowest_first(shape: Shape) -> Order:
    assert shape.layout is not None
    return tuple(reversed(shape.layout.minor_to_major))


def spread(sizes: Order, order: Order) -> Order:
    """The same for all orders that differ only in dimensions of size 1."""
    return tuple(d for d in order if sizes[d] != 1)


def in_sequence(values: np.ndarray) -> list[int]:
    return np.argsort(values, axis=None).tolist()


def fits(i: Instruction, result: Order, operand: Order) -> bool:
    """Whether the first operand in this order makes the result in that one."""
    source, target = i.operands[0].shape.dimensions, i.shape.dimensions
    before, after = offsets(source, operand), offsets(target, result)
    if i.opcode == "transpose":
        return bool((before.transpose(i.integers("dimensions")) == after).all())
    if i.opcode == "reshape":
        return bool((before.reshape(target) == after).all())
    if i.opcode == "broadcast":
        kept = i.integers("dimensions")
        some = after[tuple(slice(None) if d in kept else 0 for d in range(len(target)))]
        return in_sequence(some) == in_sequence(before)
    assert i.opcode == "reduce"
    gone = i.integers("dimensions")
    some = before[tuple(0 if d in gone else slice(None) for d in range(len(source)))]
    return in_sequence(some) == in_sequence(after)


def orders(sizes: Order) -> list[Order]:
    """All orders of the dimensions larger than 1."""
    large = [d for d in range(len(sizes)) if sizes[d] != 1]
    return list(itertools.permutations(large))


def filled(sizes: Order, order: Order) -> Order:
    """An order of all dimensions, those of size 1 first."""
    return (*(d for d in range(len(sizes)) if d not in order), *order)


#: An order of the result, and one for every operand.
Way = tuple[Order, tuple[Order, ...]]


def as_given(i: Instruction) -> Way:
    shapes = [i.shape, *(o.shape for o in i.operands)]
    if i.opcode == "tuple":
        shapes = [i.operands[0].shape, *i.shape.elements]
    result, *operands = [spread(s.dimensions, slowest_first(s)) for s in shapes]
    return result, tuple(operands)


def is_slow_enough(i: Instruction, order: Order) -> bool:
    """Whether the dimension of a collective is the slowest of those larger than 1."""
    if i.opcode not in ALONG:
        return True
    (along,) = i.integers("dimensions")
    return along not in order or order[0] == along


def ways(i: Instruction) -> list[Way]:
    """All layouts that one instruction may have."""
    sizes, given_way = i.shape.dimensions, as_given(i)
    if i.opcode in (*SAME, *ALONG, "copy"):
        whole = range(len(sizes))
        found = []
        for order in itertools.permutations(whole):
            parts = tuple(spread(o.shape.dimensions, order) for o in i.operands)
            grown = {d for part in parts for d in part} | set(spread(sizes, order))
            if is_slow_enough(i, tuple(d for d in order if d in grown)):
                found.append((spread(sizes, order), parts))
        if given_way[0] not in [result for result, _ in found]:
            return [given_way]
        return list(dict.fromkeys(found))
    if i.opcode not in ("transpose", "reshape", "broadcast", "reduce"):
        return [given_way]
    source = i.operands[0].shape.dimensions
    rest = given_way[1][1:]
    found = [
        (result, (operand, *rest))
        for result in orders(sizes)
        for operand in orders(source)
        if fits(i, filled(sizes, result), filled(source, operand))
    ]
    if i.opcode == "reshape" and given_way[0] not in [result for result, _ in found]:
        return [(given_way[0], (operand,)) for operand in orders(source)]
    if i.opcode in ("broadcast", "reduce") and given_way not in found:
        return [given_way]
    return found


def is_moving_copy(i: Instruction) -> bool:
    return i.opcode == "copy" and as_given(i)[1] != (as_given(i)[0],)


def origin(i: Instruction) -> Instruction:
    """What is copied, through all copies into other layouts."""
    while is_moving_copy(i):
        i = i.operands[0]
    return i


def least(module: hlo_passes.Module) -> int:
    """The fewest bytes of copies over all layouts."""
    instructions = [
        i for i in module.entry.instructions if i.operands and not is_moving_copy(i)
    ]
    choices = [ways(i) for i in instructions]
    assume(prod(map(len, choices)) <= MOST_TRIALS)
    given_orders = {i: as_given(i)[0] for i in module.entry.instructions}
    return min(
        sum(
            copied(
                module, given_orders, dict(zip(instructions, some, strict=True))
            ).values()
        )
        for some in itertools.product(*choices)
    )


def copied(
    module: hlo_passes.Module,
    given_orders: dict[Instruction, Order],
    way: dict[Instruction, Way],
) -> dict[Instruction, int]:
    """Bytes of the copies of each array: one for every further order wanted."""
    wanted: dict[Instruction, set[Order]] = {}
    for i, order in given_orders.items():
        if i.opcode != "tuple" and not is_moving_copy(i):
            wanted[i] = {way[i][0] if i in way else order}
    for i, (_, operands) in way.items():
        for operand, order in zip(i.operands, operands, strict=True):
            wanted[origin(operand)].add(order)
    root = module.entry.root
    if origin(root) in wanted:
        wanted[origin(root)].add(given_orders[root])
    return {i: i.shape.byte_size * (len(some) - 1) for i, some in wanted.items()}


def moved(module: hlo_passes.Module) -> int:
    """Bytes that a module moves: what changes its order, and what XLA had to copy."""
    total = 0
    added: set[tuple[Instruction, Order]] = set()
    for i in module.entry.instructions:
        for k, operand in enumerate(
            i.operands if i.opcode in (*MOVING, *SAME, *ALONG, "tuple") else ()
        ):
            given_order = slowest_first(operand.shape)
            if i.opcode in ("transpose", "reshape"):
                moves = not fits(i, slowest_first(i.shape), given_order)
            else:
                result, _ = as_given(i)
                wanted = [way[1][k] for way in ways(i) if way[0] == result]
                moves = spread(operand.shape.dimensions, given_order) not in wanted
                if moves and i.opcode != "copy":
                    added.add((operand, wanted[0]))
                    continue
            total += operand.shape.byte_size * moves
    return total + sum(operand.shape.byte_size for operand, _ in added)


def shows_what_is_copied(module: hlo_passes.Module) -> bool:
    """Whether dimensions of size 1 in results leave no order of an operand open."""
    return all(
        len({w[1] for w in ways(i) if w[0] == as_given(i)[0]}) == 1
        for i in module.entry.instructions
        if i.opcode in (*SAME, *ALONG)
    )


def idle_copies(module: hlo_passes.Module) -> int:
    """Copies that change no layout."""
    return sum(
        i.opcode == "copy" and as_given(i)[1] == (as_given(i)[0],)
        for i in module.entry.instructions
    )


def mismatches(module: hlo_passes.Module) -> Iterator[str]:
    """Operands that do not have the layout that XLA's verifier asks for."""
    for i in module.entry.instructions:
        for k, operand in enumerate(i.operands):
            shape = i.shape.elements[k] if i.opcode == "tuple" else i.shape
            if (
                i.opcode in (*SAME, *ALONG, "tuple")
                and shape.layout != operand.shape.layout
            ):
                yield f"{i.name} reads {operand.shape}, not {shape}"


def values(module: hlo_passes.Module) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(-8, 8, (2, *p.shape.dimensions)).astype(np.float32)
        for p in module.entry.parameters
    ]
    return Evaluator(module, 1, 2).run(inputs)


def is_free_of_custom_calls(module: hlo_passes.Module) -> bool:
    return all(i.opcode != "custom-call" for i in module.entry.instructions)


# -- laws -------------------------------------------------------------------------


def constant_moves(module: hlo_passes.Module) -> int:
    """Bytes that reshapes move that keep their layouts whatever is chosen."""
    return sum(
        i.operands[0].shape.byte_size
        for i in module.entry.instructions
        if i.opcode == "reshape"
        and not any(
            fits(i, slowest_first(i.shape), filled(i.operands[0].shape.dimensions, o))
            for o in orders(i.operands[0].shape.dimensions)
        )
    )


def chosen(module: hlo_passes.Module, pipeline: str) -> hlo_passes.PipelineResult:
    return hlo_passes.Pipeline.parse(pipeline).run(module)


def judged(seed: int, options: str) -> tuple[int, int, int, bool]:
    """Bytes moved before, at best, and after; and whether the pass calls that the best."""
    module = Writer(seed, 6).module()
    best = least(module) + constant_moves(module)
    before, uneven = moved(module), set(mismatches(module))
    idle, is_certain = idle_copies(module), shows_what_is_copied(module)
    wanted = values(module) if is_free_of_custom_calls(module) else []
    result = chosen(module, f"layout-chooser{options}")
    counted = result.passes[0].statistics
    after = moved(module)
    said = [counted.get(f"bytes-moved-{when}", 0) for when in ("before", "after")]
    if is_certain:
        assert result.changed == (after < before)
        assert before - after == said[0] - said[1]
    assert not hlo_passes.verify(module)
    assert idle_copies(module) <= idle
    assert set(mismatches(module)) <= uneven
    if wanted:
        for one, other in zip(wanted, values(module), strict=True):
            assert (one == other).all()
    return before, best, after, not counted.get("parts-improved-by-cuts")


@settings(max_examples=200)
@given(st.integers(0, 10**9))
def test_no_layouts_need_fewer_bytes(seed: int) -> None:
    _, best, after, is_exact = judged(seed, "")
    assert is_exact
    assert after == best


@settings(max_examples=100)
@given(st.integers(0, 10**9), st.sampled_from((0, 1, 40)))
def test_cuts_find_no_worse_layouts_and_say_when_they_are_the_best(
    seed: int, limit: int
) -> None:
    before, best, after, is_exact = judged(seed, f"{{exact-limit={limit}}}")
    assert best <= after <= before
    assert after == best or not is_exact


@settings(max_examples=50)
@given(st.integers(0, 10**9))
def test_a_second_run_changes_nothing(seed: int) -> None:
    module = Writer(seed, 12).module()
    chosen(module, "layout-chooser")
    text = module.to_text()
    assert not chosen(module, "layout-chooser").changed
    assert module.to_text() == text


@given(st.integers(0, 10**9))
def test_a_cut_is_the_smallest_of_all(seed: int) -> None:
    rng = random.Random(seed)
    network = Network()
    count = rng.randint(1, 5)
    for _ in range(count):
        network.node()
    edges = [
        (*rng.sample(range(count + 2), 2), rng.choice((1, 2, 3, 7, inf)))
        for _ in range(rng.randint(1, 12))
    ]
    edges = [e for e in edges if e[:2] != (SOURCE, SINK)]
    for edge in edges:
        network.add(*edge)

    def cost(sink: tuple[bool, ...]) -> float:
        return sum(capacity for a, b, capacity in edges if not sink[a] and sink[b])

    sides = [(False, True, *r) for r in itertools.product((False, True), repeat=count)]
    smallest_cost = min(map(cost, sides))
    assume(smallest_cost < inf)
    found = tuple(network.sink_side())
    assert cost(found) == smallest_cost
    assert sum(found) == min(sum(s) for s in sides if cost(s) == smallest_cost)


@given(st.integers(0, 10**9))
def test_tables_have_the_smallest_sum(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(1, 3) for _ in range(rng.randint(1, 5))]
    tables = []
    for _ in range(rng.randint(1, 7)):
        scope = rng.sample(range(len(sizes)), rng.randint(1, min(3, len(sizes))))
        costs = [rng.choice((0, 1, 5)) for _ in range(prod(sizes[v] for v in scope))]
        shape = [sizes[v] for v in scope]
        tables.append(Table(tuple(scope), np.array(costs, dtype=float).reshape(shape)))

    def cost(states: Sequence[int]) -> float:
        return sum(t.values[tuple(states[v] for v in t.variables)] for t in tables)

    found = smallest(sizes, tables, 10**6)
    assert found is not None
    assert cost(found) == min(map(cost, itertools.product(*map(range, sizes))))
    assert smallest(sizes, tables, 0) is None
