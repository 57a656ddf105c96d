"""Collectives beside dots that can be cut, so that steps of a ring hide under parts.

    %d = f32[64,16] dot(all-gather(%x), %w)         gathered: %d is cut along its rows
    reduce-scatter(dot(%x, %w))                     scattered: %x is cut along its rows

The devices of a group are in fast domains. A ring runs within each domain. Between
domains, permutes go from each device to the device in the same place of the next
domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.device_offsets import Groups
from hlo_passes.analysis.devices import device_counts
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.asynchrony.explicit_stream_annotation_async_wrapper import (
    GROUP_ANNOTATION,
)
from hlo_passes.passes.decomposing.chain_pieces import Term
from hlo_passes.passes.decomposing.permute_chains import Members, members_of
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.reductions import reduction_of, reduction_opcode

#: Collectives beside which dots are cut.
KINDS: Final = ("all-gather", "reduce-scatter")


@dataclass(frozen=True, slots=True)
class Product:
    """A dot, and how it is cut.

    Attributes:
        dot: the dot that the collective feeds, or that feeds the collective.
        side: the number of the operand that arrives in parts, or that is cut.
        dimension: the dimension of that operand along which the parts follow one
            another.
        result: that dimension in the result; -1 if the dot sums over it.
        other: that dimension in the other operand, if the dot sums over it.
    """

    dot: Instruction
    side: int
    dimension: int
    result: int
    other: int = -1


@dataclass(frozen=True, slots=True)
class Levels:
    """The rings of a group of devices.

    Attributes:
        near: the rings inside domains; each is inside one domain.
        far: the rings across domains; each device alone if there is one domain.
    """

    near: Groups
    far: Groups

    def place(self, near: int | Instruction, far: int) -> list[Term]:
        """The terms of the number of the block whose owner is so many members ahead."""
        terms = [Term(self.near, near)]
        if len(self.far[0]) > 1:
            terms.append(Term(self.far, far, stride=len(self.near[0])))
        return terms


@dataclass(frozen=True, slots=True)
class Site:
    """A collective, its devices and the dots beside it."""

    collective: Instruction
    members: Members
    levels: Levels
    products: tuple[Product, ...]

    @property
    def others(self) -> bool:
        """Whether anything besides the dots reads what is gathered."""
        read = set(self.collective.users) - {p.dot for p in self.products}
        return self.collective.opcode == "all-gather" and (
            bool(read) or self.collective is self.collective.computation.root
        )

    def dots_are_independent(self) -> bool:
        """Whether one loop can hold all of the dots, with nothing between them."""
        dots = {product.dot for product in self.products}
        work = [o for dot in dots for o in dot.operands if o is not self.collective]
        seen = set(work)
        while work:
            current = work.pop()
            if current in dots or current is self.collective:
                return False
            for needed in (*current.operands, *current.control_predecessors):
                if needed not in seen:
                    seen.add(needed)
                    work.append(needed)
        return True


def site_of(collective: Instruction, domain: int) -> Site | str:
    """What to cut beside a collective, or why it is not cut; '' if there is no dot.

    Args:
        collective: an all-gather or reduce-scatter.
        domain: the number of devices that a fast fabric joins; their ids follow one
            another.
    """
    gathers = collective.opcode == "all-gather"
    beside = collective.users if gathers else collective.operands
    dots = [i for i in dict.fromkeys(beside) if i.opcode == "dot"]
    if not dots:
        return ""
    if len(collective.operands) != 1:
        return "has several operands"
    members = members_of(collective)
    if isinstance(members, str):
        return members
    if has_control_edges(collective):
        return "has control edges"
    levels = _levels_of(collective, members, domain)
    if isinstance(levels, str):
        return levels
    products = _gathered(collective, dots) if gathers else _scattered(collective, dots)
    if isinstance(products, str):
        return products
    return Site(collective, members, levels, products)


def _gathered(
    collective: Instruction, dots: Sequence[Instruction]
) -> tuple[Product, ...] | str:
    """The dots that keep their bits, if there are any; else those that sum over it."""
    (dimension,) = collective.integers("dimensions")
    free: list[Product] = []
    summed: list[Product] = []
    why = ""
    for dot in dots:
        found = _obstacle(dot)
        if not found and dot.operands[0] is dot.operands[1]:
            found = "is both operands"
        if found:
            why = why or f"feeds %{dot.name}, which {found}"
            continue
        side = dot.operands.index(collective)
        product = _product(dot, side, dimension)
        if product is None:
            why = why or f"is gathered along a batch dimension of %{dot.name}"
        elif product.result < 0:
            summed.append(product)
        else:
            free.append(product)
    return tuple(free or summed) or why


def _scattered(
    collective: Instruction, dots: Sequence[Instruction]
) -> tuple[Product, ...] | str:
    (dot,) = dots
    if obstacle := _obstacle(dot):
        return f"reads %{dot.name}, which {obstacle}"
    if reduction_opcode(reduction_of(collective)) != "add":
        return "does not add"
    if len(dot.users) != 1 or dot is dot.computation.root:
        return f"shares %{dot.name} with others"
    (dimension,) = collective.integers("dimensions")
    for side in (0, 1):
        for k in range(dot.operands[side].shape.rank):
            product = _product(dot, side, k)
            if product is not None and product.result == dimension:
                return (product,)
    return f"is scattered along a batch dimension of %{dot.name}"


def _obstacle(dot: Instruction) -> str:
    if unknown := unknown_attribute(dot):
        return f"has the unknown attribute {unknown}"
    if "sharding" in dot.attributes:
        return "has a sharding"
    if len(dot.operands) != 2:
        return "is sparse"
    if has_control_edges(dot):
        return "has control edges"
    if dot.mentions(GROUP_ANNOTATION):
        return "is in a scheduling group"
    shapes = [dot.shape, *(operand.shape for operand in dot.operands)]
    if not all(shape.element_count for shape in shapes):
        return "has no elements"
    if any(shape.is_dynamic for shape in shapes):
        return "has a dynamic size"
    return ""


def _product(dot: Instruction, side: int, dimension: int) -> Product | None:
    """How a dot is cut along a dimension of an operand; not along batch dimensions."""
    names = ("lhs", "rhs") if side == 0 else ("rhs", "lhs")
    batch = dot.integers(f"{names[0]}_batch_dims")
    summed = dot.integers(f"{names[0]}_contracting_dims")
    if dimension in batch:
        return None
    if dimension in summed:
        theirs = dot.integers(f"{names[1]}_contracting_dims")
        return Product(dot, side, dimension, -1, theirs[summed.index(dimension)])
    free = [
        k
        for k in range(dot.operands[side].shape.rank)
        if k not in batch and k not in summed
    ]
    # The result has the batch dimensions, what is left of lhs, what is left of rhs.
    start = len(batch) if side == 0 else dot.shape.rank - len(free)
    return Product(dot, side, dimension, start + free.index(dimension))


def _levels_of(collective: Instruction, members: Members, domain: int) -> Levels | str:
    """One ring for each group in one domain, or in as many as it has devices."""
    replicas, partitions = device_counts(collective.computation.module)
    groups, size = members.groups, members.size
    if members.identity == "partition-id":
        copies = [range(r * partitions, (r + 1) * partitions) for r in range(replicas)]
    else:
        copies = [
            range(p, replicas * partitions, partitions) for p in range(partitions)
        ]
    runs = {together([[of[k] for k in g] for g in groups], domain) for of in copies}
    run = runs.pop() if len(runs) == 1 else 0
    if not run:
        return "has groups with unlike parts in the fast domains"
    if run in (1, size):
        return Levels(groups, tuple((device,) for g in groups for device in g))
    near = [g[k : k + run] for g in groups for k in range(0, size, run)]
    far = [g[k::run] for g in groups for k in range(run)]
    return Levels(tuple(near), tuple(far))


def together(groups: Sequence[Sequence[int]], domain: int) -> int:
    """Members of each group in each domain; 0 if they do not follow one another.

    Args:
        groups: groups of device ids, all of one size.
        domain: the number of devices of a domain; their ids follow one another.
    """
    sizes: set[int] = set()
    for group in groups:
        domains = [device // domain for device in group]
        run = next(
            (k for k, each in enumerate(domains) if each != domains[0]), len(domains)
        )
        if len(domains) % run or any(
            len(set(domains[k : k + run])) != 1 for k in range(0, len(domains), run)
        ):
            return 0
        sizes.add(run)
    return sizes.pop() if len(sizes) == 1 else 0
