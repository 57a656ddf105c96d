"""Whether a result may reuse the memory of an operand that dies there.

    y = f32[64] exponential(x)      y may: elementwise, same shape
    f = fusion(x), kind=kLoop       f may if it reads x in the order of its writes

`in_place` has the values that must share memory; they are one buffer from the start.

Source: openxla/xla `xla/hlo/analysis/hlo_dataflow_analysis.cc`
(CanShareOperandBufferWithUser), `xla/service/gpu/alias_info.cc`,
`xla/service/gpu/nvptx_alias_info.cc` (Aug 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_passes.ir.gpu_config import fusion_kind, gpu_config
from hlo_passes.ir.shapes import BITS, Shape
from hlo_passes.scheduler.fusions.fused_graph import FusedGraph, is_elementwise
from hlo_passes.scheduler.fusions.heroes import Heroes
from hlo_passes.scheduler.fusions.kernel import reduction_hero
from hlo_passes.scheduler.memory.buffer_sizes import parts_of

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction

Path = tuple[int, ...]

_CUBLAS_LT_MATMUL: Final = "__cublas$lt$matmul"
#: Operand C in D = alpha * A * B + beta * C.
_MATMUL_BIAS: Final = 2
#: Fusions of these kinds have their own emitters: no reduction kernel.
_OWN_EMITTERS: Final = (
    "__custom_fusion", "__triton", "__cudnn$fusion",
)  # fmt: skip
#: The only operand whose memory the result may use; None: that of its own part.
_ONLY_PLACE: Final = {
    "dynamic-update-slice": 0,
    "scatter": 0,
    "set-dimension-size": 0,
    "triangular-solve": 1,
    "sort": None,
}
#: Part k of the result may use the memory of operand k alone, if there are several.
_PART_BY_PART: Final = ("all-reduce", "collective-broadcast", "sort")
#: Others that share, besides elementwise ones.
_SHARING: Final = frozenset(
    [*_ONLY_PLACE, "conditional", "custom-call", "fusion", "while"]
)


def sharing_operands(user: Instruction, path: Path) -> tuple[Instruction, ...]:
    """All operands for which `may_share` can say yes: few, even if there are many."""
    opcode, operands = user.opcode, user.operands
    if opcode in _PART_BY_PART and len(operands) > 1:
        # The tuple of all parts, at path (), is no operand's.
        return operands[path[0] : path[0] + 1] if path else ()
    if opcode == "custom-call":
        return operands[_MATMUL_BIAS : _MATMUL_BIAS + 1]
    is_one = opcode in _PART_BY_PART or opcode in _SHARING or is_elementwise(user)
    return operands if is_one else ()


def may_share(operand: Instruction, user: Instruction, path: Path) -> bool:
    """Whether part `path` of `user` may use the memory of `operand`."""
    if operand.opcode == "constant":
        return False
    opcode = user.opcode
    if opcode == "fusion":
        return _fusion_may_share(operand, user, path)
    if opcode in ("all-reduce", "collective-broadcast"):
        return len(user.operands) == 1 or (
            len(path) == 1 and user.operands[path[0]] is operand
        )
    if opcode == "custom-call":
        return _is_matmul_bias(operand, user, path)
    if operand.shape != user.shape.at(path):
        return False
    return _same_shape_may_share(operand, user, path)


def _same_shape_may_share(operand: Instruction, user: Instruction, path: Path) -> bool:
    opcode = user.opcode
    if opcode in ("while", "conditional"):
        return True
    if opcode not in _ONLY_PLACE:
        return is_elementwise(user)
    place: int | None = _ONLY_PLACE[opcode]
    if place is None:
        if operand.user_count != 1:
            return False
        if len(user.operands) == 1:
            return True
        place = path[0]
    return (
        user.operands[place] is operand
        and sum(o is operand for o in user.operands) == 1
    )


def _is_matmul_bias(operand: Instruction, user: Instruction, path: Path) -> bool:
    """Whether a library GEMM may overwrite the matrix that it adds."""
    if user.attributes.get("custom_call_target", "").strip('"') != _CUBLAS_LT_MATMUL:
        return False
    gemm = gpu_config(user).get("gemm_backend_config")
    beta = gemm.get("beta", 0) if isinstance(gemm, dict) else 0
    return (
        beta != 0
        and len(user.operands) > _MATMUL_BIAS
        and user.operands[_MATMUL_BIAS] is operand
        and sum(o is operand for o in user.operands) == 1
        and path == (0,)
    )


# -- fusions ----------------------------------------------------------------


def _fusion_may_share(operand: Instruction, fusion: Instruction, path: Path) -> bool:
    """Whether a fusion reads an operand in the order in which it writes a result."""
    result = fusion.shape.at(path)
    if operand.shape != result and not _same_extent(operand.shape, result):
        return False
    graph = FusedGraph.of(fusion)
    hero = None
    if not fusion_kind(fusion).startswith(_OWN_EMITTERS):
        hero = reduction_hero(graph)
    walk = _Walk(graph, path, hero)
    place = fusion.operands.index(operand)
    # A body may take fewer values than its fusion has operands.
    if place >= len(graph.parameters) or not walk.run(graph.parameters[place]):
        return False
    if len(parts_of(fusion.shape).shapes) > 1 and not walk.others_agree():
        return False
    return walk.reached_output


def _same_extent(operand: Shape, result: Shape) -> bool:
    """Whether two arrays take the same space, element by element."""
    return (
        operand.is_array
        and result.is_array
        and operand.element_count == result.element_count
        and BITS[operand.element_type] == BITS[result.element_type]
    )


class _Walk:
    """Walks from a parameter of a fusion to everything that uses it."""

    def __init__(self, graph: FusedGraph, path: Path, hero: Instruction | None) -> None:
        self.graph = graph
        self.path = path
        self.hero = hero
        output = graph.root
        for k in path:
            if output.opcode != "tuple":
                break
            output = output.operands[k]
        self.output = output
        #: The op before the result, without a bitcast.
        self.writer = output.operands[0] if output.opcode == "bitcast" else output
        self.seen: dict[Instruction, None] = {}
        self.reached_output = False

    def run(self, parameter: Instruction) -> bool:
        """False if something on the way reads in another order."""
        self.seen = {parameter: None}
        queue = [parameter]
        for current in queue:
            self.reached_output |= current is self.output
            if current is self.hero:
                # The reduction finishes before anything else is written.
                continue
            for user in current.users:
                if user not in self.seen:
                    self.seen[user] = None
                    queue.append(user)
                if not self._keeps_order(current, user):
                    return False
        return True

    def _keeps_order(self, operand: Instruction, user: Instruction) -> bool:
        writer = self.writer
        places = [k for k, o in enumerate(user.operands) if o is operand]
        if user is writer and len(places) == 1:
            if user.opcode == "scatter":
                inputs = len(user.shape.elements) if user.shape.is_tuple else 1
                if places[0] < inputs:
                    return True
            if user.opcode == "sort":
                return self.path == (places[0],)
        if (
            writer.opcode == "dynamic-update-slice"
            and user.opcode == "dynamic-slice"
            and writer.operands[0] is user.operands[0]
            and user.shape == writer.operands[1].shape
        ):
            return _reads_what_is_written(user, writer)
        if user.opcode in ("bitcast", "tuple") or user is self.hero:
            return True
        if user.opcode != "copy" and _is_elementwise_on(user, places[0]):
            return True
        return (
            user is writer and user.opcode == "dynamic-update-slice" and places[0] == 1
        )

    def others_agree(self) -> bool:
        """Whether other results that the walk met are written in the same order."""
        met = [root for root in self.graph.roots if root in self.seen]
        if all(root is self.output for root in met):
            return True
        heroes = map(Heroes(self.graph).of, met)
        turned = any(hero.opcode in ("transpose", "copy") for hero in heroes)
        return is_elementwise(self.writer) and not turned


def _is_elementwise_on(user: Instruction, place: int) -> bool:
    if user.opcode == "dynamic-update-slice":
        return place == 0
    return is_elementwise(user)


def _reads_what_is_written(read: Instruction, write: Instruction) -> bool:
    """Whether a dynamic-slice reads the very slice that an update writes."""
    if all(d == 1 for d in read.shape.dimensions):
        return True
    return all(
        start is other
        for start, other in zip(read.operands[1:], write.operands[2:], strict=True)
    )
