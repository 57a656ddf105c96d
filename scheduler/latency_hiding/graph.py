"""The dependence graph of one computation: nodes are integers, their data flat lists.

    node n is the instruction at position n of the base order
    preds[n], succs[n]      neighbors, duplicates kept: degrees count edges
    pred_us[n], succ_us[n]  their latencies, None if all of them are 1

The order of `preds[n]` is by position of the predecessor, data before control; a hazard
edge is where the done that causes it was visited. It decides in which order released
nodes become candidates, so it is part of the behavior.

Source: openxla/xla `latency_hiding_scheduler.cc`, HloScheduleGraph (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import facts
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.fusions.fused_graph import transpose_is_bitcast
from hlo_passes.scheduler.latency_hiding import hints
from hlo_passes.scheduler.latency_hiding.edge_latency import PLAIN_LATENCY_US
from hlo_passes.scheduler.latency_hiding.resources import Holdings, Resource, Usage
from hlo_passes.scheduler.latency_hiding.sent_after import SentAfter
from hlo_passes.scheduler.latency_hiding.statistics import latency_us, node_cost_us
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker, may_run_async

#: Opcodes that go through the stack of no-ops instead of being compared.
_NO_OPS: Final = frozenset(
    "get-tuple-element bitcast constant parameter broadcast iota".split()
)


class ScheduleGraph:
    """Nodes and edges of a computation; index of a node is its base position.

    Attributes:
        computation: whose graph this is.
        instructions: by node.
        index: node by instruction.
        cost: of each node, us.
        preds, succs: neighbors.
        pred_us, succ_us: latencies of those edges, None for 1 each.
        is_start, is_done: supported halves.
        occupies, releases: whether any resource entry has that usage.
        operand_is_done, user_is_start: whether a neighbor is a supported half.
        is_noop: placed without comparison.
        releases_nonextendable: whether it releases what must be released when due.
        force_early, force_delay: hints; `delay_priority`, 0 where absent.
        not_valuable: cannot hide copies inside the GPU.
        resources, net, needs: entries by node, for those that have any.
        runs_backwards: an edge goes against the base order.
        hazards: edges (user, start) that keep a reader out of a window.
        dropped_hazards: edges left out, as each would have closed a cycle.
    """

    def __init__(
        self,
        computation: Computation,
        instructions: Sequence[Instruction],
        estimator: Estimator,
        tracker: AsyncTracker,
        costs_us: Mapping[Instruction, float] | None = None,
    ) -> None:
        """Nodes without edges; `edges.connect_all` adds those.

        Args:
            computation: whose graph this is.
            instructions: in the base order.
            estimator: of costs and latencies, us.
            tracker: knows halves and resources.
            costs_us: node costs, if they are known already.
        """
        self.computation = computation
        self.instructions = tuple(instructions)
        count = len(self.instructions)
        self.index = {i: n for n, i in enumerate(self.instructions)}
        self.estimator = estimator
        self.tracker = tracker
        self.cost = (
            [node_cost_us(estimator, i) for i in self.instructions]
            if costs_us is None
            else [costs_us[i] for i in self.instructions]
        )
        self.preds: list[list[int]] = [[] for _ in range(count)]
        self.succs: list[list[int]] = [[] for _ in range(count)]
        self.pred_us: list[list[float] | None] = [None] * count
        self.succ_us: list[list[float] | None] = [None] * count
        self.is_start = bytearray(count)
        self.is_done = bytearray(count)
        self.occupies = bytearray(count)
        self.releases = bytearray(count)
        self.operand_is_done = bytearray(count)
        self.user_is_start = bytearray(count)
        self.is_noop = bytearray(count)
        self.force_early = bytearray(count)
        self.force_delay = bytearray(count)
        self.releases_nonextendable = bytearray(count)
        self.delay_priority = [0] * count
        self.not_valuable = bytearray(count)
        self.resources: dict[int, Holdings] = {}
        self.net: dict[int, Holdings] = {}
        self.needs: dict[int, tuple[tuple[Resource, int], ...]] = {}
        self.runs_backwards = False
        self.hazards: list[tuple[int, int]] = []
        self.dropped_hazards: list[tuple[int, int]] = []
        self._fill_nodes()

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.instructions)

    def _fill_nodes(self) -> None:
        tracker = self.tracker
        tracks_sync = tracker.tracks_synchronous()
        for n, instruction in enumerate(self.instructions):
            opcode = instruction.opcode
            if opcode in _NO_OPS or _is_other_noop(instruction, opcode):
                self.is_noop[n] = 1
            is_half = facts(opcode).half in ("start", "done")
            if is_half:
                self._note_half(n, instruction)
            if is_half or opcode == "while" or opcode == "after-all" or tracks_sync:
                self._note_resources(n, instruction)
            elif may_run_async(instruction):
                self._note_needs(n, instruction)
            hints.note(self, n, instruction)

    def _note_half(self, n: int, instruction: Instruction) -> None:
        index = self.index
        if self.tracker.is_supported_start(instruction):
            self.is_start[n] = 1
            for operand in instruction.operands:
                self.user_is_start[index[operand]] = 1
        elif self.tracker.is_supported_done(instruction):
            self.is_done[n] = 1
            for user in instruction.users:
                self.operand_is_done[index[user]] = 1

    def _note_resources(self, n: int, instruction: Instruction) -> None:
        entries = self.tracker.resources(instruction)
        if entries:
            self.resources[n] = entries
            usages = [usage for _, usage in entries]
            self.occupies[n] = Usage.OCCUPY in usages
            self.releases[n] = Usage.RELEASE in usages
            self.releases_nonextendable[n] = any(
                usage is Usage.RELEASE and self.tracker.is_nonextendable(resource)
                for resource, usage in entries
            )
            self.net[n] = self.tracker.net_resources(instruction)
        self._note_needs(n, instruction)

    def _note_needs(self, n: int, instruction: Instruction) -> None:
        needed = self.tracker.instances_needed(instruction)
        if needed:
            self.needs[n] = tuple(needed.items())

    # -- facts that few rules read --------------------------------------------

    @cached_property
    def host_sends(self) -> dict[int, int]:
        """Starts by done, of sends to the host."""
        found: dict[int, int] = {}
        for n, entries in self.resources.items():
            if self.instructions[n].opcode != "send-done":
                continue
            start = self.start_of(n)
            if start is not None and any(r is Resource.SEND_HOST for r, _ in entries):
                found[n] = start
        return found

    @property
    def starts_above(self) -> dict[int, int]:
        """Starts by done, where the start is the first predecessor."""
        above = (
            (n, self.preds[n][0])
            for n, is_done in enumerate(self.is_done)
            if is_done and self.preds[n]
        )
        return {done: n for done, n in above if self.is_start[n]}

    @cached_property
    def is_delayed_done(self) -> bytearray:
        """Whether a done's start has the hint force_delay, by node."""
        found = bytearray(len(self))
        for n, is_done in enumerate(self.is_done):
            start = self.start_of(n) if is_done else None
            if start is not None and self.force_delay[start]:
                found[n] = 1
        return found

    @cached_property
    def has_delayed_dones(self) -> bool:
        """Whether any done's start has the hint force_delay."""
        return any(self.is_delayed_done)

    @cached_property
    def has_nonextendable(self) -> bool:
        """Whether any node releases what must be released when due."""
        return any(self.releases_nonextendable)

    @cached_property
    def sent_after(self) -> SentAfter:
        """Which starts send what is computed from what others send."""
        return SentAfter(self.preds, self._senders(), self._given())

    def _senders(self) -> dict[int, int]:
        """Starts by done."""
        found = (
            (n, self.start_of(n)) for n, is_done in enumerate(self.is_done) if is_done
        )
        return {done: start for done, start in found if start is not None}

    def _given(self) -> bytearray:
        """Whether a node is a parameter."""
        return bytearray(i.opcode == "parameter" for i in self.instructions)

    @cached_property
    def done_kind(self) -> list[int]:
        """A number per opcode of dones, 0 for all other nodes."""
        kinds: dict[str, int] = {}
        return [
            kinds.setdefault(i.opcode, len(kinds) + 1) if self.is_done[n] else 0
            for n, i in enumerate(self.instructions)
        ]

    @cached_property
    def writes_to_host(self) -> bytearray:
        """Whether a node starts a fusion that updates a slice, by node."""
        return bytearray(map(self.tracker.writes_slice_to_host, self.instructions))

    # -- edges ----------------------------------------------------------------

    def connect(self, first: int, then: int, us: float = PLAIN_LATENCY_US) -> None:
        """Add an edge; `then` comes after `first`."""
        succs, preds = self.succs[first], self.preds[then]
        succ_us, pred_us = self.succ_us[first], self.pred_us[then]
        if us != PLAIN_LATENCY_US:
            if succ_us is None:
                succ_us = self.succ_us[first] = [PLAIN_LATENCY_US] * len(succs)
            if pred_us is None:
                pred_us = self.pred_us[then] = [PLAIN_LATENCY_US] * len(preds)
        if succ_us is not None:
            succ_us.append(us)
        if pred_us is not None:
            pred_us.append(us)
        succs.append(then)
        preds.append(first)
        if first > then:
            self.runs_backwards = True

    def connect_at(self, firsts: Sequence[int], then: int, place: int) -> None:
        """Add edges to one node; they come at a place among its predecessors."""
        self.preds[then][place:place] = firsts
        pred_us = self.pred_us[then]
        if pred_us is not None:
            pred_us[place:place] = [PLAIN_LATENCY_US] * len(firsts)
        for first in firsts:
            self.succs[first].append(then)
            succ_us = self.succ_us[first]
            if succ_us is not None:
                succ_us.append(PLAIN_LATENCY_US)
            if first > then:
                self.runs_backwards = True

    def disconnect_all(self) -> None:
        """Remove all edges."""
        for n in range(len(self)):
            self.preds[n], self.succs[n] = [], []
            self.pred_us[n] = self.succ_us[n] = None
        self.runs_backwards = False
        self.hazards.clear()

    def connect_estimated(self, first: int, then: int) -> None:
        """Add an edge with the estimator's latency."""
        us = latency_us(
            self.estimator, self.instructions[first], self.instructions[then]
        )
        self.connect(first, then, us)

    def latency_us(self, first: int, then: int) -> float:
        """Latency of the first edge between two nodes; KeyError if there is none."""
        latencies = self.succ_us[first]
        for k, n in enumerate(self.succs[first]):
            if n == then:
                return PLAIN_LATENCY_US if latencies is None else latencies[k]
        raise KeyError((first, then))

    def name(self, n: int) -> str:
        """Name of a node's instruction."""
        return self.instructions[n].name

    def start_of(self, done: int) -> int | None:
        """The node of a done's first operand; None if it has none."""
        operands = self.instructions[done].operands
        return self.index.get(operands[0]) if operands else None


def _is_other_noop(instruction: Instruction, opcode: str) -> bool:
    if opcode == "transpose":
        return transpose_is_bitcast(instruction)
    if opcode == "tuple" and instruction.user_count == 1:
        return instruction.users[0].opcode == "while"
    return False
