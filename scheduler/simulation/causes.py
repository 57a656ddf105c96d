"""Why a collective is exposed: one word and one sentence.

    synchronous      the compute lane runs it itself
    queued           most of the wait comes from what its stream runs before it
    nothing-left     all independent compute already overlaps it
    start-waits      it starts as soon as its operand is ready and cannot start sooner
    done-needed      its result is needed at once
    start-and-done   both
    window-short     the order leaves room: it could start sooner or end later

A work is independent if it neither feeds the start nor needs the done and is in the
same computation; a loop in that computation counts with all its iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hlo_passes.ir.async_form import half
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.simulation.engine import Run
from hlo_passes.scheduler.simulation.placement import Placement
from hlo_passes.scheduler.simulation.program import Work
from hlo_passes.scheduler.simulation.timeline_data import CauseKind, overlap_class

#: Up to this share, an exposure, a slack or leftover compute counts as none.
_NEGLIGIBLE: Final = 0.05
#: From this share of an exposure on, a possible gain counts as its cause.
_MAIN_SHARE: Final = 0.5
_BITS_PER_BYTE: Final = 8
#: How a cause says that nothing could run beside a collective, whatever the order.
NOTHING_BESIDE: Final = "all compute here feeds it or needs it"
#: Instructions whose bits are unpacked together: thousands of works need a byte each.
_ROWS_AT_ONCE: Final = 1024


@dataclass(frozen=True, slots=True)
class Cause:
    """A word and a sentence."""

    kind: CauseKind
    text: str


@dataclass(slots=True)
class Causes:
    """Finds the causes for the works of one run."""

    run: Run
    placement: Placement
    _independent_us: dict[int, float] = field(default_factory=dict)
    _positions: dict[Instruction, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the independent work of every exposed work, all in one sweep."""
        order = self.run.program.order
        self._positions = {instruction: k for k, instruction in enumerate(order)}
        exposed = [
            work
            for work in self.run.program.works
            if (work.done is not None or work.stream is None)
            and self.placement.wait_us(work) > 0.0
        ]
        if exposed:
            costs = self.placement.busy_us
            for work, us in zip(
                exposed, self._independent(exposed, costs), strict=True
            ):
                self._independent_us[work.number] = us

    def of(self, work: Work, latency_us: float) -> Cause:
        """Why a work is exposed, or that it is hidden."""
        wait = self.placement.wait_us(work)
        if work.stream is None:
            return Cause("synchronous", self._why_synchronous(work, wait))
        if work.done is None:
            return Cause("hidden", "another iteration or computation waits for it")
        if overlap_class(latency_us, wait) == "hidden":
            shown = max(0.0, latency_us - wait)
            return Cause(
                "hidden", f"{_us(shown)} of {_us(latency_us)} overlap other work"
            )
        queued = self.placement.begin_us(work) - self.placement.issue_us(work)
        if min(queued, wait) >= _MAIN_SHARE * wait:
            return Cause("queued", self._why_queued(work, queued))
        beside = self.placement.busy_beside(work)
        left = self._independent_us[work.number] - beside
        if left <= _NEGLIGIBLE * wait:
            return Cause("nothing-left", _why_nothing_left(beside, latency_us))
        return self._window(work, wait, beside, latency_us, queued)

    def _why_queued(self, work: Work, queued: float) -> str:
        behind = self.run.tickets[work.number].behind
        if behind is None:
            return f"waits {_us(queued)} until all devices of its group have reached it"
        return (
            f"queued {_us(queued)} behind %{behind.instruction.name} on {work.stream}"
        )

    def _why_synchronous(self, work: Work, wait: float) -> str:
        """What makes it synchronous, and whether anything could run beside it."""
        if half(work.instruction):
            how = "the compiler left no work between its start and done (is_sync)"
        else:
            how = "it has no start and done"
        text = f"synchronous: {how}, so the compute stream runs it for {_us(wait)}"
        independent = self._independent_us.get(work.number)
        if independent is None:
            return text
        if independent <= _NEGLIGIBLE * wait:
            return f"{text}; {NOTHING_BESIDE}"
        return f"{text}; {_us(independent)} of compute do not depend on it"

    def _window(
        self, work: Work, wait: float, beside: float, latency_us: float, queued: float
    ) -> Cause:
        feeder, start_slack = self._start_slack(work)
        user, done_slack = self._done_slack(work)
        overlapped = f"overlapped only {_us(beside)} of {_us(latency_us)}"
        if queued > _NEGLIGIBLE * wait:
            overlapped += f" after {_us(queued)} in the queue"
        fed = f"%{feeder.name}" if feeder else "the parameters"
        needed = f"%{user.name}" if user else "the end of the computation"
        gain = min(start_slack, wait) + min(done_slack, wait)
        if gain >= _MAIN_SHARE * wait:
            room = []
            if start_slack > _NEGLIGIBLE * wait:
                room.append(
                    f"{_us(start_slack)} of compute are between {fed} and its start"
                )
            if done_slack > _NEGLIGIBLE * wait:
                room.append(
                    f"{_us(done_slack)} are between its done and {needed}"
                    + self._next_in_line(work)
                )
            text = f"{overlapped}, though " + ", and ".join(room)
            return Cause("window-short", text)
        tight_start = start_slack <= _NEGLIGIBLE * wait
        tight_done = done_slack <= _NEGLIGIBLE * wait
        if tight_start and not tight_done:
            return Cause("start-waits", f"its start waits for {fed}; {overlapped}")
        if tight_done and not tight_start:
            return Cause("done-needed", f"{needed} needs it at once; {overlapped}")
        return Cause(
            "start-and-done",
            f"its start waits for {fed} and {needed} needs it at once; {overlapped}",
        )

    def _next_in_line(self, work: Work) -> str:
        """The collective that starts as soon as this one is done, if one does.

        A scheduler that allows few of them in flight makes one wait for the next.
        """
        assert work.done is not None
        done_at = self._positions[work.done]
        following = next(
            (w for w in self.run.program.works if w.position > done_at), None
        )
        if following is None or (
            self.placement.busy_between(done_at, following.position) > 0.0
        ):
            return ""
        return f" (%{following.instruction.name} starts right after its done)"

    # -- dependences --------------------------------------------------------

    def _independent(
        self, works: Sequence[Work], costs: Sequence[float]
    ) -> Sequence[float]:
        """The time, in us, of all that neither feeds nor needs each work."""
        order, index = self.run.program.order, self._positions
        needs = [0] * len(order)  # bit w: needs the done of work w
        feeds = [0] * len(order)  # bit w: feeds the start of work w
        for bit, work in enumerate(works):
            feeds[work.position] |= 1 << bit
            if work.done is not None:
                needs[index[work.done]] |= 1 << bit
            else:
                # A synchronous one without a done gives its result itself.
                needs[work.position] |= 1 << bit
        for k, instruction in enumerate(order):
            mask = needs[k]
            for before in instruction.operands:
                mask |= needs[index[before]]
            for before in instruction.control_predecessors:
                mask |= needs[index[before]]
            needs[k] = mask
        for k in range(len(order) - 1, -1, -1):
            mask = feeds[k]
            if mask:
                for before in order[k].operands:
                    feeds[index[before]] |= mask
                for before in order[k].control_predecessors:
                    feeds[index[before]] |= mask
        size = -(-len(works) // _BITS_PER_BYTE)
        counted = [k for k, cost in enumerate(costs) if cost > 0.0]
        packed = b"".join(
            (needs[k] | feeds[k]).to_bytes(size, "little") for k in counted
        )
        rows = np.frombuffer(packed, np.uint8).reshape(len(counted), size)
        values = np.array([costs[k] for k in counted], np.float64)
        held = np.zeros(len(works))
        for k in range(0, len(counted), _ROWS_AT_ONCE):
            part = slice(k, k + _ROWS_AT_ONCE)
            bits = np.unpackbits(
                rows[part], axis=1, count=len(works), bitorder="little"
            )
            # Not `@`: its threads cost more, and its sums differ by how many there are.
            held += np.einsum("k,kw->w", values[part], bits)
        return (values.sum() - held).tolist()

    def _start_slack(self, work: Work) -> tuple[Instruction | None, float]:
        """The last thing a start waits for, and the compute between the two, us."""
        times, order = self.placement, self.run.program.order
        last = max(self._met(work.instruction, _needs, times.takes_time), default=-1)
        feeder = order[last] if last >= 0 else None
        return feeder, times.busy_between(last, work.position)

    def _done_slack(self, work: Work) -> tuple[Instruction | None, float]:
        """The first thing that needs a result, and the compute before it, us."""
        times, order = self.placement, self.run.program.order
        assert work.done is not None
        first = min(
            self._met(
                work.done,
                _needed_by,
                lambda k: times.takes_time(k) or times.hands_over(k),
            ),
            default=len(order),
        )
        user = order[first] if first < len(order) else None
        return user, times.busy_between(self._positions[work.done], first)

    def _met(
        self,
        origin: Instruction,
        neighbors: Callable[[Instruction], Sequence[Instruction]],
        stops: Callable[[int], bool],
    ) -> set[int]:
        """The positions at which all walks from an instruction stop first."""
        met: set[int] = set()
        seen: set[Instruction] = set()
        stack = [*neighbors(origin)]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            k = self._positions[node]
            if stops(k):
                met.add(k)
            else:
                stack += neighbors(node)
        return met


def _needs(instruction: Instruction) -> tuple[Instruction, ...]:
    return (*instruction.operands, *instruction.control_predecessors)


def _needed_by(instruction: Instruction) -> tuple[Instruction, ...]:
    return (*instruction.users, *instruction.control_successors)


def _why_nothing_left(beside: float, latency_us: float) -> str:
    if beside <= _NEGLIGIBLE * latency_us:
        nearly = "" if beside <= 0.0 else "nearly "
        return f"nothing to overlap: {nearly}{NOTHING_BESIDE}"
    return (
        f"nothing left to overlap: the {_us(beside)} of compute that does not depend "
        f"on it already overlaps its {_us(latency_us)}"
    )


def _us(value: float) -> str:
    return f"{value:.1f} us"
