"""Cuts dots beside a collective, so that steps of a ring run beside the parts.

    n devices of a group, `me` the position of a device among them, blocks 0 ... n-1

    gathered    w = x;  n times: out[me-s] = dot(w, y),  w = permute(w, j -> j+1)
    scattered   a = dot(x[me-1], y);
                n-1 times: a = permute(a, j -> j+1) + dot(x[me-1-s], y)

`bidirectional` sends two windows against each other: half as many steps, with two
permutes and two parts each. A loop does the steps that are alike. It does two of them
in each iteration, so that no permute writes what a dot reads. The steps before and
after them stay outside the loop. If a group has devices in several domains, the ring
runs once for each domain, on the shards of that domain. One permute per round brings
these shards from the domain before. Sums travel the same way.

The order of reduction is fixed. Inside a domain, block b of a `ring` is the sum, from
left to right, of the devices in places b+1, b+2, ..., b-1, b. With `bidirectional`, it
is the sum of the devices in b-u, ..., b-1, b, plus the sum of those in b+d, ..., b+1,
where u = n/2 and d = (n-1)/2. The sums of the domains are added from the domain after
the owner's to the owner's. If a dot sums over the gathered dimension, it adds its parts
as they arrive: me, me-1, me-2, ... or me, me-1, me+1, me-2, ..., first those of its own
domain, then those of the domain before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.ir.shapes import Shape, array_shape, tuple_shape
from hlo_passes.passes.decomposing.chain_pieces import ChainPieces
from hlo_passes.passes.decomposing.matmul_sites import Product, Site
from hlo_passes.passes.rewriting.cloning import clone_instruction, element_of
from hlo_passes.passes.rewriting.constants import zeros

MatmulForm = Literal["ring", "bidirectional"]
MATMUL_FORMS: Final[tuple[MatmulForm, ...]] = ("ring", "bidirectional")
#: Least number of iterations for which there is a loop, and steps of each.
_LEAST_TRIPS: Final = 2
_STEPS: Final = 2
#: Not the names of XLA's windowed einsums: their passes expect shards in another order.
_BODY: Final = "collective_matmul_body"
_CONDITION: Final = "collective_matmul_condition"
_COUNTER: Final = array_shape("u32")

#: One step: pieces of the computation, the step's number, what it has from the step
#: before and what no step changes -> what the next step has.
_Step = Callable[
    [ChainPieces, "int | Instruction", Sequence[Instruction], Sequence[Instruction]],
    list[Instruction],
]


def directions(form: MatmulForm, size: int) -> list[tuple[int, int]]:
    """By how many members each window moves in a step, and how many steps it takes."""
    if form == "ring":
        return [(1, size - 1)]
    return [(d, n) for d, n in ((1, size // 2), (-1, (size - 1) // 2)) if n]


def trips_of(site: Site, form: MatmulForm) -> int:
    """How many iterations a loop would run; 0 if there would be no loop."""
    if len(site.levels.far[0]) > 1 or not site.dots_are_independent():
        return 0
    steps = [n for _, n in directions(form, len(site.levels.near[0]))]
    is_ring = len(steps) == 1 and site.collective.opcode == "reduce-scatter"
    trips = (steps[0] if is_ring else min(steps) - 1) // _STEPS
    return trips if trips >= _LEAST_TRIPS else 0


def write_matmul(
    site: Site, form: MatmulForm, channels: Iterator[int], *, loop: bool = False
) -> list[Instruction]:
    """Replace a collective and the dots beside it; returns all that is new.

    The new instructions are the last ones of the computation; the caller restores the
    text order (`restore_text_order`). Every permute has the metadata and the frontend
    attributes of the collective, and every part has those of its dot.

    Args:
        site: the site, as `site_of` finds it.
        form: the form of the rings; with fewer than three devices both forms are one.
        channels: new channel ids; permutes between replicas have none.
        loop: write a loop if `trips_of` says that there is one.
    """
    trips = trips_of(site, form) if loop else 0
    chains = _Gathered if site.collective.opcode == "all-gather" else _Scattered
    return chains(site, form, channels, trips).write()


class _Matmul(ChainPieces):
    """Writes one site."""

    def __init__(
        self, site: Site, form: MatmulForm, channels: Iterator[int], trips: int
    ) -> None:
        super().__init__(site.collective, site.members.identity, channels)
        self.site = site
        self.levels = site.levels
        self.trips = trips
        self.directions = directions(form, len(site.levels.near[0]))

    def steps(
        self,
        count: int,
        step: _Step,
        state: list[Instruction],
        fixed: Sequence[Instruction],
    ) -> list[Instruction]:
        """Do steps that are alike, one by one or in a loop."""
        if self.trips:
            state = self._loop(step, state, fixed)
        for number in range(self.trips * _STEPS, count):
            state = step(self, number, state, fixed)
        return state

    def _loop(
        self, step: _Step, state: Sequence[Instruction], fixed: Sequence[Instruction]
    ) -> list[Instruction]:
        module, outside = self.computation.module, self.computation
        shape = tuple_shape([*(i.shape for i in (*state, *fixed)), _COUNTER])
        names = map(module.fresh_computation_name, (_CONDITION, _BODY))
        condition, body = (
            Computation(name, execution_thread=outside.execution_thread)
            for name in names
        )
        for each in (condition, body):
            module.add_computation(each, before=outside)
        last = len(shape.elements) - 1

        given = condition.new("parameter", shape, literal="0")
        most = condition.new("constant", _COUNTER, literal=str(self.trips * _STEPS))
        condition.set_root(
            condition.new(
                "compare",
                array_shape("pred"),
                (element_of(given, last), most),
                {"direction": "LT"},
            )
        )

        given = body.new("parameter", shape, literal="0")
        elements = [element_of(given, k) for k in range(last + 1)]
        inside = ChainPieces(self.collective, self.identity, self.channels, body)
        after, kept, number = (
            elements[: len(state)],
            elements[len(state) : last],
            elements[last],
        )
        for _ in range(_STEPS):
            after = step(inside, number, after, kept)
            number = inside.make("add", _COUNTER, (number, inside.scalar("u32", 1)))
        body.set_root(body.new("tuple", shape, [*after, *kept, number]))
        self.made += inside.made

        start = self.scalar("u32", 0)
        begin = outside.new("tuple", shape, [*state, *fixed, start])
        loop = outside.new(
            "while",
            shape,
            [begin],
            {"condition": f"%{condition.name}", "body": f"%{body.name}"},
        )
        loop.backend_config = BackendConfig.of_json(
            {"known_trip_count": {"n": str(self.trips)}}
        )
        return [element_of(loop, k) for k in range(len(state))]


class _Gathered(_Matmul):
    """Multiplies shards as they arrive."""

    def write(self) -> list[Instruction]:
        """Replace the dots, and the collective where only they read it."""
        site, computation = self.site, self.computation
        # What each dot reads beside the shard.
        fixed = [p.dot.operands[1 - p.side] for p in site.products]
        shard = self.collective.operands[0]
        results: list[Instruction] = []
        for domain in range(len(self.levels.far[0])):
            if domain:
                shard = self.permute(shard, self.levels.far, 1)
            results = self._ring(shard, -domain, results, fixed)
        for product, result in zip(site.products, results, strict=False):
            computation.replace_uses(product.dot, result)
            computation.remove(product.dot)
        if site.others:
            computation.replace_uses(self.collective, results[-1])
        computation.remove(self.collective)
        return self.made

    def _ring(
        self,
        shard: Instruction,
        domain: int,
        results: list[Instruction],
        fixed: Sequence[Instruction],
    ) -> list[Instruction]:
        ways, near = self.directions, self.levels.near

        def step(
            pieces: ChainPieces,
            number: int | Instruction,
            state: Sequence[Instruction],
            kept: Sequence[Instruction],
        ) -> list[Instruction]:
            windows, made = list(state[: len(ways)]), list(state[len(ways) :])
            for k, (way, _) in enumerate(ways):
                window, windows[k] = windows[k], pieces.permute(windows[k], near, way)
                ahead = _ahead(pieces, number, -way, -way, len(near[0]))
                made = self._store(pieces, window, ahead, domain, made, kept)
            return [*windows, *made]

        results = self._store(self, shard, 0, domain, results, fixed)
        state = [self.permute(shard, near, way) for way, _ in ways]
        alike = min(count for _, count in ways) - 1
        state = self.steps(alike, step, [*state, *results], fixed)
        windows, results = state[: len(ways)], state[len(ways) :]
        for number in range(alike, max(count for _, count in ways)):
            for k, (way, count) in enumerate(ways):
                if number < count:
                    ahead = -way * (number + 1)
                    results = self._store(
                        self, windows[k], ahead, domain, results, fixed
                    )
                if number + 1 < count:
                    windows[k] = self.permute(windows[k], near, way)
        return results

    def _store(
        self,
        pieces: ChainPieces,
        window: Instruction,
        ahead: int | Instruction,
        domain: int,
        results: Sequence[Instruction],
        fixed: Sequence[Instruction],
    ) -> list[Instruction]:
        """With what a shard contributes; without results, the first one."""
        place = self.levels.place(ahead, domain)
        found: list[Instruction] = []
        for k, product in enumerate(self.site.products):
            other = fixed[k]
            if product.result < 0:
                size = window.shape.dimensions[product.dimension]
                other = pieces.block(other, product.other, place, size)
            part = _part(pieces, product, window, other)
            if product.result >= 0:
                whole = results[k] if results else self._empty(product.dot.shape)
                part = pieces.put(whole, part, product.result, place)
            elif results:
                part = pieces.make("add", part.shape, (results[k], part))
            found.append(part)
        if self.site.others:
            (dimension,) = self.collective.integers("dimensions")
            whole = results[-1] if results else self._empty(self.collective.shape)
            found.append(pieces.put(whole, window, dimension, place))
        return found

    def _empty(self, shape: Shape) -> Instruction:
        empty = zeros(self.computation, shape)
        self.made += [*empty.operands, empty]
        return empty


class _Scattered(_Matmul):
    """Adds parts to sums that travel."""

    def write(self) -> list[Instruction]:
        """Replace the collective and its dot."""
        (product,) = self.site.products
        domains = len(self.levels.far[0])
        result: Instruction | None = None
        for domain in range(1, domains + 1):
            # The last sum is for the own domain.
            own = self._ring(product, -domain % domains)
            if result is not None:
                result = self.permute(result, self.levels.far, 1)
                own = self.make("add", own.shape, (result, own))
            result = own
        assert result is not None, "there is a domain"
        self.computation.replace_uses(self.collective, result)
        self.computation.remove(self.collective)
        self.computation.remove(product.dot)
        return self.made

    def _ring(self, product: Product, domain: int) -> Instruction:
        ways, near = self.directions, self.levels.near
        size = len(near[0])
        fixed = product.dot.operands

        def part(
            pieces: ChainPieces,
            ahead: int | Instruction,
            operands: Sequence[Instruction],
        ) -> Instruction:
            place = self.levels.place(ahead, domain)
            whole = operands[product.side]
            rows = whole.shape.dimensions[product.dimension] // self.site.members.size
            block = pieces.block(whole, product.dimension, place, rows)
            return _part(pieces, product, block, operands[1 - product.side])

        def step(
            pieces: ChainPieces,
            number: int | Instruction,
            state: Sequence[Instruction],
            kept: Sequence[Instruction],
        ) -> list[Instruction]:
            sums: list[Instruction] = []
            for (way, count), value in zip(ways, state, strict=True):
                moved = pieces.permute(value, near, way)
                ahead = _ahead(pieces, number, way * (count - 1), -way, size)
                sums.append(_sum(pieces, moved, part(pieces, ahead, kept)))
            return sums

        # What starts here belongs to the member that is `count` further on.
        state = [part(self, way * count, fixed) for way, count in ways]
        alike = ways[0][1] if len(ways) == 1 else min(n for _, n in ways) - 1
        state = self.steps(alike, step, state, fixed)
        for number in range(alike, max(count for _, count in ways)):
            for k, (way, count) in enumerate(ways):
                if number >= count:
                    continue
                state[k] = self.permute(state[k], near, way)
                left = count - 1 - number
                # The owner adds its own block once.
                if left or not k:
                    state[k] = _sum(self, state[k], part(self, way * left, fixed))
        first, *others = state
        for other in others:
            first = self.make("add", first.shape, (first, other))
        return first


def _part(
    pieces: ChainPieces, product: Product, block: Instruction, other: Instruction
) -> Instruction:
    """The dot of a block."""
    operands = [block, other] if product.side == 0 else [other, block]
    shape = product.dot.shape
    if product.result >= 0:
        sizes = list(shape.dimensions)
        sizes[product.result] = block.shape.dimensions[product.dimension]
        shape = shape.with_dimensions(tuple(sizes))
    part = clone_instruction(product.dot, pieces.computation, operands, shape=shape)
    return pieces.note(part)


def _sum(pieces: ChainPieces, moved: Instruction, part: Instruction) -> Instruction:
    """What has arrived plus a dot.

    Without the barrier XLA adds inside the matrix product, which then has to wait for
    the permute that it could hide.
    """
    kept = pieces.make("opt-barrier", part.shape, (part,))
    return pieces.make("add", part.shape, (moved, kept))


def _ahead(
    pieces: ChainPieces, number: int | Instruction, first: int, slope: int, size: int
) -> int | Instruction:
    """First + slope * number; where a loop counts, as a number of 0 or more."""
    if isinstance(number, int):
        return first + slope * number
    steps = number
    if slope % size != 1:
        factor = pieces.scalar("u32", slope % size)
        steps = pieces.make("multiply", _COUNTER, (number, factor))
    if first % size == 0:
        return steps
    return pieces.make("add", _COUNTER, (steps, pieces.scalar("u32", first % size)))
