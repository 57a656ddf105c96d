"""Proves the order of a scheduled module legal, without knowing how it was made.

%d = all-gather-done(%s)       error[C020]: all-gather-done comes before its
%s = all-gather-start(%p)                   all-gather-start %s
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.devices import device_counts
from hlo_passes.errors import PassError, UsageError
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import SYNC_COLLECTIVES
from hlo_passes.passes.framework.base import CheckingPass, PassContext
from hlo_passes.passes.framework.base import Report as PassReport
from hlo_passes.scheduler.checker.against import compare_with
from hlo_passes.scheduler.checker.buffers import Buffers
from hlo_passes.scheduler.checker.device_order import Fault, run_devices
from hlo_passes.scheduler.checker.hazards import check_hazards
from hlo_passes.scheduler.checker.memory import peak_memory
from hlo_passes.scheduler.checker.order import check_groups, check_order
from hlo_passes.scheduler.checker.overlap import (
    HOST_TRANSFERS,
    TRANSFERS,
    Limits,
    OverlapCheck,
)
from hlo_passes.scheduler.checker.participants import Machine
from hlo_passes.scheduler.checker.tpu_lanes import COPIES, CORES
from hlo_passes.verify.finding import Finding, Report

Hazards = Literal["off", "async", "all"]
#: Devices that are followed; more than any machine has.
MOST_DEVICES: Final = 2**20
#: What a queue of calls on SparseCores leaves without a limit.
_QUEUED: Final = ("all-gather", "all-reduce", "reduce-scatter")


class IllegalScheduleError(PassError):
    """An order that the checker refuses; `findings` holds all its findings."""

    default_code = "C000"

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        """`findings` has at least one element."""
        self.findings = findings
        first = findings[0]
        super().__init__(
            first.message, code=first.code, location=first.location, hint=first.hint
        )

    def render(self) -> str:
        """All findings, one after another."""
        return "\n".join(f.render() for f in self.findings)


@dataclass(frozen=True, slots=True)
class ScheduleChecker(CheckingPass):
    """Refuse a schedule that is not legal; change nothing.

    ```
    Refused:  %u = f32[8] negate(%d)                         its operand is made later
              %d = f32[8] all-gather-done(%s)
              %s = (f32[4], f32[8]) all-gather-start(%p)     comes after its done
    ```

    In every computation, the pass checks operands and control predecessors, pairs of
    starts and dones, how much is in flight together, and whether anything is
    overwritten while an older value is still read. In the whole module, it checks
    whether all devices finish their communication in the order in which they reach it,
    and how much memory is in use at most. The codes are C001 to C070 in docs/errors.md.

    After a scheduler (`opt --verify-each`), the pass uses that scheduler's limits and
    requires that nothing but the order has changed.

    Attributes:
        flavour: how to count what is in flight: by the lanes of the GPU (`gpu`), by
            kind of operation (`generic`), or by kind and SparseCore (`tpu`).
        parallel_collective_overlap_limit: the most collectives in flight together on
            the GPU. For this limit and those below, 0 means no check.
        parallel_async_compute_limit: the most computations in flight beside the GPU's
            program.
        all_gather_overlap_limit: the most all-gathers in flight together (generic,
            tpu). The following limits do the same for their kinds.
        copy_overlap_limit: the same for copies (tpu).
        sparse_core_overlap_limit: the most calls in flight on one SparseCore (tpu);
            none: no check.
        sparse_core_queue: calls on SparseCores wait for each other (tpu), so
            all-gathers, all-reduces and reduce-scatters have no limit.
        enable_collective_multi_streaming: collectives in flight together may share at
            most one device. If they share two and run on two streams, they could wait
            for each other in a cycle. The pass always checks this where two streams
            were assigned.
        device_order: run every device's queues, and report a cycle of waits.
        memory_limit_bytes: the most bytes of buffers in use together; none: no check.
        hard_memory_limit: `off`: the limit was only advice; `fail`: a schedule above
            the limit is an error; `input-order`: if the order is unchanged, check only
            that it can run.
        alias_hazards: 'async': check what asynchronous operations write; 'all': also
            check updates in place (for a module after copy insertion); 'off'.
        scheduling_groups: the members of a scheduling group must be together.
    """

    name: ClassVar[str] = "schedule-checker"
    flavour: Literal["gpu", "generic", "tpu"] = "gpu"
    parallel_collective_overlap_limit: int = 0
    parallel_async_compute_limit: int = 0
    all_gather_overlap_limit: int = 0
    all_reduce_overlap_limit: int = 0
    all_to_all_overlap_limit: int = 0
    collective_broadcast_overlap_limit: int = 0
    collective_permute_overlap_limit: int = 0
    ragged_all_to_all_overlap_limit: int = 0
    reduce_scatter_overlap_limit: int = 0
    send_recv_overlap_limit: int = 0
    send_recv_host_overlap_limit: int = 0
    copy_overlap_limit: int = 0
    sparse_core_overlap_limit: int | None = 0
    sparse_core_queue: bool = False
    enable_collective_multi_streaming: bool = False
    device_order: bool = True
    memory_limit_bytes: int | None = None
    hard_memory_limit: Literal["off", "fail", "input-order"] = "fail"
    alias_hazards: Hazards = "async"
    scheduling_groups: bool = False

    def __post_init__(self) -> None:
        """Refuse limits below 0 (U013)."""
        for name in self.__dataclass_fields__:
            limit = getattr(self, name)
            is_number = isinstance(limit, int) and name.endswith(("_limit", "_bytes"))
            if is_number and limit < 0:
                option = name.replace("_", "-")
                raise ValueError(f"{option} must not be negative")

    def check(
        self,
        module: Module,
        before: Module | None,
        context: PassContext,
        report: PassReport,
    ) -> None:
        """Raise IllegalScheduleError with all findings, if there are any."""
        found = self.findings(module, before)
        if found:
            raise IllegalScheduleError(tuple(found))
        report.count("computations-checked", len(module.computations))

    def findings(self, module: Module, before: Module | None = None) -> list[Finding]:
        """Everything that is wrong with a schedule."""
        found = [] if before is None else compare_with(before, module)
        if not module.is_scheduled:
            report = Report()
            report.add(
                None, "C001", "the module has no schedule",
                "a scheduler writes is_scheduled=true into the header",
            )  # fmt: skip
            return [*report.findings(module), *found]
        ordered = self._order(module)
        if ordered:
            return [*found, *ordered]  # other findings would mean little
        machine = machine_of(module)
        if machine.devices > MOST_DEVICES:
            return [*found, *_too_many_devices(module, machine)]
        found += self._device_order(module)
        if self.hard_memory_limit == "input-order" and _same_order(before, module):
            return found  # nobody made that order for any limits
        return [*found, *self._flights(module), *self._memory(module)]

    def _order(self, module: Module) -> list[Finding]:
        found: list[Finding] = []
        graph = build_call_graph(module)
        for computation in module.computations:
            report = Report(computation)
            check_order(computation, report)
            if self.scheduling_groups and not graph.is_fusion_body(computation):
                check_groups(computation, report)
            found += report.findings(module)
        return found

    def _flights(self, module: Module) -> list[Finding]:
        overlap = OverlapCheck(
            machine_of(module),
            self._limits(),
            rank_overlap=self.enable_collective_multi_streaming,
        )
        hazards = self.alias_hazards
        buffers = Buffers(module) if hazards != "off" else None
        found: dict[str, list[Finding]] = {}
        for computation in build_call_graph(module).post_order:
            report = Report(computation)
            overlap.check(computation, report)
            if buffers is not None:
                check_hazards(computation, buffers, report, in_place=hazards == "all")
            found[computation.name] = list(report.findings(module))
        return [f for c in module.computations for f in found[c.name]]

    def _limits(self) -> Limits:
        if self.flavour == "gpu":
            limits = Limits.of_gpu(
                self.parallel_collective_overlap_limit,
                self.parallel_async_compute_limit,
            )
        else:
            kinds = {
                kind: getattr(self, f"{kind.replace('-', '_')}_overlap_limit")
                for kind in SYNC_COLLECTIVES
            }
            host = self.send_recv_host_overlap_limit
            limits = Limits(
                {
                    **kinds,
                    TRANSFERS: self.send_recv_overlap_limit,
                    **dict.fromkeys(HOST_TRANSFERS, host),
                },
                by_kind=True,
                of_tpu=self.flavour == "tpu",
            )
            if limits.of_tpu:
                limits = self._with_limits_of_tpu(limits)
        asked = {lane: limit for lane, limit in limits.by_lane.items() if limit}
        return dataclasses.replace(limits, by_lane=asked)

    def _with_limits_of_tpu(self, limits: Limits) -> Limits:
        """With those of copies and SparseCores."""
        free = dict.fromkeys(_QUEUED, 0) if self.sparse_core_queue else {}
        return dataclasses.replace(
            limits,
            by_lane={
                **limits.by_lane,
                **free,
                COPIES: self.copy_overlap_limit,
                **dict.fromkeys(CORES, self.sparse_core_overlap_limit or 0),
            },
        )

    def _device_order(self, module: Module) -> list[Finding]:
        if not self.device_order:
            return []
        machine = machine_of(module)
        return _of_fault(run_devices([module] * machine.devices, machine))

    def _memory(self, module: Module) -> list[Finding]:
        limit = self.memory_limit_bytes
        if limit is None or self.hard_memory_limit == "off":
            return []
        peak = peak_memory(module)
        if peak.size_bytes <= limit:
            return []
        report = Report(module.entry)
        report.add(
            peak.instruction, "C050",
            f"{peak.size_bytes} bytes are in use together, but the limit is {limit}",
        )  # fmt: skip
        return list(report.findings(module))


def check_device_order(modules: Sequence[Module]) -> list[Finding]:
    """Check whether devices that run different modules complete their communications.

    Args:
        modules: one per device, as each host compiled it; several devices may share
            one. All modules must ask for that number of devices.

    Returns:
        One finding (C040 to C042), or none. Collectives meet by name.

    Raises:
        UsageError: U230 if the modules ask for another number of devices.
    """
    machine = machine_of(modules[0])
    if any(machine_of(module) != machine for module in modules) or (
        machine.devices != len(modules)
    ):
        raise UsageError(
            f"{len(modules)} modules, one per device, for {machine.devices} devices",
            code="U230",
            hint="give the module of every device, in order of devices",
        )
    return _of_fault(run_devices(modules, machine))


def _too_many_devices(module: Module, machine: Machine) -> tuple[Finding, ...]:
    report = Report()
    report.add(
        None, "C043",
        f"the module is for {machine.devices} devices; at most {MOST_DEVICES} can be "
        "checked",
        "see the counts of the header, or else the ids in groups and pairs",
    )  # fmt: skip
    return report.findings(module)


def _of_fault(fault: Fault | None) -> list[Finding]:
    if fault is None:
        return []
    computation = fault.instruction.computation
    report = Report(computation)
    report.add(fault.instruction, fault.code, fault.message)
    return list(report.findings(computation.module))


def _same_order(before: Module | None, module: Module) -> bool:
    """Whether every computation kept its order, as far as can be known."""
    if before is None or not before.is_scheduled:
        return before is not None
    return all(
        [i.name for i in c.instructions]
        == [i.name for i in getattr(before.computation(c.name), "instructions", ())]
        for c in module.computations
    )


def machine_of(module: Module) -> Machine:
    """The devices that a module asks for."""
    return Machine(*device_counts(module))


def check_schedule(
    module: Module, before: Module | None = None, **options: object
) -> list[Finding]:
    """All findings about the order of a scheduled module; [] if there are none.

    Args:
        module: with `is_scheduled=true`.
        before: the module before scheduling; only the order may differ.
        options: those of `ScheduleChecker`.

    Raises TypeError for an unknown option.
    """
    checker = dataclasses.replace(ScheduleChecker(), **options)
    return checker.findings(module, before)
