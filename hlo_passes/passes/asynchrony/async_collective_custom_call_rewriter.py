"""Replaces custom calls that spell asynchronous collectives with the real ones.

Before:  %s = f32[32] custom-call(%x), custom_call_target="all-gather-start",
              backend_config={"all_gather_dimension":0,"replica_groups":[[0,1,2,3]]}
         %d = f32[32] custom-call(%s), custom_call_target="all-gather-done"
After:   %t = ((f32[8]), f32[32]) async-start(%x), calls=%async_computation
         %e = f32[32] async-done(%t)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.errors import PassError
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.asynchrony.async_wrapping import async_pair
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.verify.verifier import findings

#: Frontend attribute with the JSON of a collective, in place of its backend config.
_CONFIG: Final = "async_collective_config"


@dataclass(frozen=True, slots=True)
class AsyncCollectiveCustomCallRewriter(Pass):
    """Turn pairs of custom calls such as `all-gather-start` into asynchronous pairs.

    The pass knows the custom calls for all-gather, all-reduce, reduce-scatter,
    all-to-all and collective-permute. The start describes its collective in JSON,
    either in the frontend attribute `async_collective_config` or in its backend config.
    The pass writes this description as attributes, the way XLA spells a collective. It
    leaves a pair alone if anything besides the done reads the start.

    Some results need more than the done: a reshape follows a reduce-scatter that is not
    tiled, and reshapes and a transpose follow an all-to-all that joins along another
    dimension than it splits. XLA does this from 0.11 on.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/service/async_collective_custom_call_rewriter.cc`.
    """

    name: ClassVar[str] = "async-collective-custom-call-rewriter"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit dones in post order.

        Raises PassError E027 if the JSON does not say what the collective needs.
        """
        version = module.version
        rewritten: dict[Instruction, _Call] = {}
        for computation in module.computations:
            pairs = [
                (done.operands[0], done, kind)
                for done in post_order(computation)
                if done.operands
                and (kind := _spelled(done, "-done"))
                and _spelled(done.operands[0], "-start")
            ]
            for start, done, _ in pairs:
                kind = _spelled(start, "-start")
                if start.user_count != 1 or start.is_root:
                    report.remark(
                        f"not rewritten: %{start.name} is read by more than its done"
                    )
                    continue
                call = _Call(start, done, kind)
                rewritten |= dict.fromkeys(_rewrite(call), call)
                report.count("pairs-rewritten")
            if pairs:
                restore_text_order(computation)
        if rewritten:
            _require_valid(module, rewritten)
        return module.version != version


def _require_valid(module: Module, rewritten: Mapping[Instruction, _Call]) -> None:
    """Refuse calls whose JSON does not fit their shapes, or the other collectives.

    Args:
        module: valid but for what was rewritten.
        rewritten: each new instruction, and the call that it stands for.
    """
    call_of = {
        (i.computation.name, i.name): call
        for made, call in rewritten.items()
        for i in (made, *(b for c in made.called_computations for b in c.instructions))
    }
    for finding in findings(module):
        if finding.severity != "unknown":
            place = (finding.computation, finding.instruction)
            call = call_of.get(place) or next(iter(rewritten.values()))
            raise call.problem(
                f"stands for a collective that is refused: {finding.message} "
                f"[{finding.code}]"
            )


def _spelled(call: Instruction, half: str) -> str:
    """The collective of which a custom call is a half; '' for other instructions."""
    if call.opcode != "custom-call":
        return ""
    target = call.attributes.get("custom_call_target", "").strip('"')
    kind = target.removesuffix(half)
    return kind if kind != target and kind in _WRITERS else ""


class _Call:
    """A pair of custom calls, and what its JSON says."""

    def __init__(self, start: Instruction, done: Instruction, kind: str) -> None:
        self.start = start
        self.done = done
        self.kind = kind
        self.config: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        text = self.start.frontend_attributes.get(_CONFIG)
        if text is None:
            config = self.start.backend_config
            text = "" if config is None else config.value
        if not text:
            return {}
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.problem("has a config that is not a JSON object")
        return found

    def problem(self, what: str) -> PassError:
        return PassError(
            f"%{self.start.name} {what}",
            code="E027",
            location=self.start.location,
            hint=f"see the options of {self.kind} in async_collective_config",
        )

    def number(self, name: str, limit: int | None = None) -> int:
        """A number of the config that must be there, below a limit if any."""
        found = self.config.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise self.problem(f"has a config without {name}")
        if limit is not None and found >= limit:
            raise self.problem(f"has {name}={found}, but {limit} dimensions")
        return found

    def lists(self, name: str) -> list[list[int]]:
        """Lists of numbers; none if the config does not have them."""
        found = self.config.get(name, [])
        if not isinstance(found, list) or not all(
            isinstance(inner, list)
            and all(isinstance(n, int) and not isinstance(n, bool) for n in inner)
            for inner in found
        ):
            raise self.problem(f"has a config whose {name} are no lists of numbers")
        return found

    @property
    def shape(self) -> Shape:
        """Of the first operand."""
        if not self.start.operands:
            raise self.problem("has no operand")
        return self.start.operands[0].shape


def _rewrite(call: _Call) -> tuple[Instruction, ...]:
    """Replace a pair of calls; returns start and done, and what follows them."""
    start, done = call.start, call.done
    computation = start.computation
    attributes: dict[str, str] = {}
    shape, finish = _WRITERS[call.kind](call, attributes)
    if call.kind != "collective-permute":
        attributes["replica_groups"] = lists_text(call.lists("replica_groups"))
        if call.config.get("use_global_device_ids") is True and (
            call.kind != "all-to-all"
        ):
            attributes["use_global_device_ids"] = "true"
    if "channel_id" in call.config:
        attributes["channel_id"] = str(call.number("channel_id"))
    collective = computation.new(
        call.kind, shape, start.operands, in_print_order(attributes, call.kind)
    )
    new_start, new_done = async_pair(collective, described=())
    computation.remove(collective)
    result = finish(new_done)
    # Descriptions and control edges of both custom calls.
    for new, old in ((new_start, start), (new_done, done), (result, done)):
        new.set_attribute("metadata", old.attributes.get("metadata"))
    for predecessor in start.control_predecessors:
        computation.add_control_edge(predecessor, new_start)
    for successor in done.control_successors:
        computation.add_control_edge(result, successor)
    computation.drop_control_edges(done)
    computation.drop_control_edges(start)
    computation.replace_uses(done, result)
    computation.remove(done)
    computation.remove(start)
    return new_start, new_done, result


Finish = Callable[[Instruction], Instruction]
#: Writes attributes; returns the shape of the collective, and what follows its done.
Writer = Callable[[_Call, dict[str, str]], tuple[Shape, Finish]]


def _as_it_is(done: Instruction) -> Instruction:
    return done


def _all_gather(call: _Call, attributes: dict[str, str]) -> tuple[Shape, Finish]:
    dimension = call.number("all_gather_dimension", call.shape.rank)
    attributes["dimensions"] = f"{{{dimension}}}"
    return call.done.shape, _as_it_is


def _all_reduce(call: _Call, attributes: dict[str, str]) -> tuple[Shape, Finish]:
    called = call.start.called_computations
    if len(called) != 1:
        raise call.problem("does not call one reduction")
    attributes["to_apply"] = f"%{called[0].name}"
    return call.done.shape, _as_it_is


def _reduce_scatter(call: _Call, attributes: dict[str, str]) -> tuple[Shape, Finish]:
    _all_reduce(call, attributes)
    shape, result = call.shape, call.done.shape
    dimension = call.number("scatter_dimension", shape.rank)
    attributes["dimensions"] = f"{{{dimension}}}"
    tiled = call.config.get("tiled")
    if not isinstance(tiled, bool):
        raise call.problem("has a config without tiled")
    if tiled:
        return result, _as_it_is
    groups = call.lists("replica_groups")
    members = len(groups[0]) if groups else 1
    if not members or shape.dimensions[dimension] % members:
        raise call.problem("scatters what its devices do not divide")
    sizes = list(shape.dimensions)
    sizes[dimension] //= members
    part = array_shape(shape.element_type, tuple(sizes))
    return part, lambda done: done.computation.new("reshape", result, (done,))


def _all_to_all(call: _Call, attributes: dict[str, str]) -> tuple[Shape, Finish]:
    shape, result = call.shape, call.done.shape
    split = call.number("split_dimension", shape.rank)
    joined = call.number("concat_dimension", shape.rank)
    parts = call.number("split_count")
    attributes["dimensions"] = f"{{{split}}}"
    if split == joined:
        return result, _as_it_is
    sizes = shape.dimensions
    if not parts or sizes[split] % parts:
        raise call.problem("splits a dimension that its split_count does not divide")
    # The parts become a dimension of their own, and move before the joined one.
    deep = (*sizes[:split], parts, sizes[split] // parts, *sizes[split + 1 :])
    order: list[int] = []
    for k in range(shape.rank):
        if k == joined:
            order.append(split)
        order.append(k + (k >= split))

    def finish(done: Instruction) -> Instruction:
        computation, kind = done.computation, shape.element_type
        parted = computation.new("reshape", array_shape(kind, deep), (done,))
        moved = computation.new(
            "transpose",
            array_shape(kind, tuple(deep[k] for k in order)),
            (parted,),
            {"dimensions": f"{{{','.join(map(str, order))}}}"},
        )
        return computation.new("reshape", result, (moved,))

    return shape, finish


def _permute(call: _Call, attributes: dict[str, str]) -> tuple[Shape, Finish]:
    pairs = call.lists("permutation")
    if any(len(pair) != 2 for pair in pairs):
        raise call.problem("has a config whose permutation is no list of pairs")
    attributes["source_target_pairs"] = lists_text(pairs)
    return call.done.shape, _as_it_is


_WRITERS: Final[dict[str, Writer]] = {
    "all-gather": _all_gather,
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-permute": _permute,
}
