"""Starts all collectives that have the same key as one asynchronous pair.

Before:  %a = f32[32] all-gather(%x), frontend_attributes={collective_group_key="k"}
         %b = f32[8] all-reduce(%y), frontend_attributes={collective_group_key="k"}
After:   %g-start = ((f32[8], f32[8]), (f32[32], f32[8])) async-start(%x, %y),
             calls=%collectives_group, frontend_attributes={_collectives_group="", ...}
         %g-done = (f32[32], f32[8]) async-done(%g-start), ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.errors import PassError
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.passes.asynchrony.async_wrapping import DESCRIPTION, calling
from hlo_passes.passes.asynchrony.explicit_collectives_group_async_wrapper import (
    GROUP_MARK,
)
from hlo_passes.passes.asynchrony.explicit_stream_annotation_async_wrapper import (
    GROUP_ANNOTATION,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.merging import merged_frontend_attributes
from hlo_passes.passes.rewriting.reductions import group_key
from hlo_passes.passes.rewriting.replacement import relay_control

_GROUPED: Final = frozenset({"all-gather", "all-reduce", "reduce-scatter"})
_NAME: Final = "collectives_group"


@dataclass(frozen=True, slots=True)
class GroupCollectivesByKey(Pass):
    """Group collectives with one `collective_group_key` into one asynchronous pair.

    The key is a frontend attribute. In each computation, the pass groups the
    all-gathers, all-reduces and reduce-scatters that have the same key, if there are at
    least two of them. It makes the groups in the order of their keys. The pair has the
    frontend attributes of all members, and the metadata and backend config of the first
    member. It waits for everything that any member waited for.

    It is an error if members of a group need one another, or if groups need one
    another. XLA 0.10.2 does not know these keys, so the pass changes nothing when it
    follows that release.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and edges.
    Source: openxla/xla `xla/backends/gpu/transforms/group_collectives_by_key.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "group-collectives-by-key"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit every computation except bodies of fusions and asynchronous pairs.

        Raises PassError E026 if a group would wait for itself.
        """
        version = module.version
        release = context.release_for(module, self.xla)
        if not release.keys_by_group:
            report.remark(f"nothing grouped: XLA {release} knows no keys")
            return False
        graph = build_call_graph(module)
        for computation in module.computations:
            if graph.is_fusion_body(computation) or graph.is_async_body(computation):
                continue
            groups = list(_groups(computation, report))
            _check_independence(computation, groups)
            for group in groups:
                _group(group)
                report.count("groups-formed")
            if groups:
                restore_text_order(computation)
        return module.version != version


def _groups(computation: Computation, report: Report) -> Iterator[list[Instruction]]:
    """Collectives of each key, in order of keys; those alone are left out."""
    by_key: dict[str, list[Instruction]] = {}
    for instruction in computation.instructions:
        if instruction.opcode in _GROUPED and (key := group_key(instruction)):
            by_key.setdefault(key, []).append(instruction)
    for key in sorted(by_key, key=str.encode):
        if len(by_key[key]) > 1:
            yield by_key[key]
        else:
            (alone,) = by_key[key]
            report.remark(f"not grouped: %{alone.name} is the only one of key {key}")


def _check_independence(
    computation: Computation, groups: Sequence[Sequence[Instruction]]
) -> None:
    """Raise PassError E026 if a group, taken as one instruction, waits for itself."""
    group_of = {i: k for k, group in enumerate(groups) for i in group}
    # Count what each node waits for, then take away what waits for nothing.
    node_of = {i: group_of.get(i, i) for i in computation.instructions}
    waits: dict[int | Instruction, int] = dict.fromkeys(node_of.values(), 0)
    members: dict[int | Instruction, list[Instruction]] = {}
    for instruction, node in node_of.items():
        members.setdefault(node, []).append(instruction)
        needed = (*instruction.operands, *instruction.control_predecessors)
        waits[node] += len(set(needed))
    ready = [node for node, number in waits.items() if not number]
    while ready:
        node = ready.pop()
        for member in members[node]:
            followers = (*member.users, *member.control_successors)
            for follower in dict.fromkeys(followers):
                waits[node_of[follower]] -= 1
                if not waits[node_of[follower]]:
                    ready.append(node_of[follower])
    stuck = [k for k in range(len(groups)) if waits[k]]
    if not stuck:
        return
    for k in stuck:
        if pair := _dependent_pair(groups[k]):
            needed, one = pair
            raise PassError(
                f"%{one.name} needs %{needed.name}, but both have the "
                f"collective_group_key {group_key(one)}",
                code="E026",
                location=one.location,
                hint="give them different keys",
            )
    keys = ", ".join(group_key(groups[k][0]) for k in stuck)
    raise PassError(
        f"groups of collectives with the keys {keys} wait for one another",
        code="E026",
        location=groups[stuck[0]][0].location,
        hint="give the same key only to collectives that can start together",
    )


def _dependent_pair(
    members: Sequence[Instruction],
) -> tuple[Instruction, Instruction] | None:
    """A member of a group, and one that needs it; None if there are no such two."""
    origin: dict[Instruction, Instruction] = {}
    work = list(members)
    wanted = set(members)
    while work:
        current = work.pop()
        source = origin.get(current, current)
        for follower in (*current.users, *current.control_successors):
            if follower in wanted:
                return source, follower
            if follower not in origin:
                origin[follower] = source
                work.append(follower)
    return None


def _group(members: Sequence[Instruction]) -> None:
    computation, first = members[0].computation, members[0]
    body = _body(members)
    operands = [operand for member in members for operand in member.operands]
    results = tuple_shape([member.shape for member in members])
    marked = merged_frontend_attributes(members).with_value(GROUP_MARK, "")
    described = {n: first.attributes[n] for n in DESCRIPTION if n in first.attributes}
    described["frontend_attributes"] = marked.to_text()
    body.root.frontend_attributes = marked
    start = computation.new(
        "async-start",
        tuple_shape([tuple_shape([o.shape for o in operands]), results]),
        operands,
        in_print_order({**described, **calling(body)}, "async-start"),
        name=f"{body.name}-start",
    )
    done = computation.new(
        "async-done",
        results,
        (start,),
        in_print_order(described, "async-done"),
        name=f"{body.name}-done",
    )
    _share_out(members, operands, (body.root, start, done))
    # Readers of a member read an element of what the group returns.
    for k, member in enumerate(members):
        element = computation.new(
            "get-tuple-element", member.shape, (done,), {"index": str(k)}
        )
        element.set_attribute("sharding", member.attributes.get("sharding"))
        relay_control(member, start, done)
        computation.drop_control_edges(member)
        computation.replace_uses(member, element)
        computation.remove(member)


def _body(members: Sequence[Instruction]) -> Computation:
    """A computation of copies of all members, which returns what they return."""
    owner = members[0].computation
    module = owner.module
    body = Computation(
        module.fresh_computation_name(_NAME), execution_thread=owner.execution_thread
    )
    module.add_computation(body, before=owner)
    number = 0
    copies: list[Instruction] = []
    for k, member in enumerate(members):
        parameters: list[Instruction] = []
        for place, operand in enumerate(member.operands):
            parameters.append(
                body.new(
                    "parameter",
                    operand.shape,
                    name=f"c{k}_operand_{place}",
                    literal=str(number),
                )
            )
            number += 1
        attributes = {n: t for n, t in member.attributes.items() if n != "origin"}
        copy = body.new(
            member.opcode, member.shape, parameters, attributes, name=member.name
        )
        if GROUP_ANNOTATION in copy.frontend_attributes:
            kept = copy.frontend_attributes.without(GROUP_ANNOTATION)
            copy.frontend_attributes = kept
        copies.append(copy)
    root = body.new("tuple", tuple_shape([c.shape for c in copies]), copies)
    body.set_root(root)
    restore_text_order(body)
    return body


def _share_out(
    members: Sequence[Instruction],
    operands: Sequence[Instruction],
    new: tuple[Instruction, Instruction, Instruction],
) -> None:
    """Give the shardings of members and operands to the tuple, start and done."""
    if not any("sharding" in i.attributes for i in (*members, *operands)):
        return
    root, start, done = new
    results = [part for i in members for part in _leaf_shardings(i)]
    sent = [part for i in operands for part in _leaf_shardings(i)]
    if any("sharding" in member.attributes for member in members):
        for each in (root, done):
            each.set_attribute("sharding", f"{{{', '.join(results)}}}")
    start.set_attribute("sharding", f"{{{', '.join((*sent, *results))}}}")


def _leaf_shardings(instruction: Instruction) -> list[str]:
    text = instruction.attributes.get("sharding", "{unknown}")
    if text.startswith("{{"):
        return [text[1:-1]]
    return [text] * max(1, _leaf_count(instruction.shape))


def _leaf_count(shape: Shape) -> int:
    return sum(1 for _ in shape.leaves())
