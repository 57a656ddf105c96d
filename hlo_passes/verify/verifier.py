"""The verifier: applies all rules to a module and remembers what it found.

A pipeline that verifies after every pass pays only for what the pass touched: a
computation keeps its findings if its instructions, callees and header counts are those
of the last run. (`Computation.instructions` is a new tuple after any change.) If it had
no findings and only the order of its instructions has changed, only the order is
checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlo_passes.errors import VerificationError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.ir.async_form import half, is_transfer
from hlo_passes.ir.shape_inference import Signature
from hlo_passes.verify import calls
from hlo_passes.verify.computation_check import (
    Call,
    Checked,
    ComputationCheck,
    CorrectKinds,
    Signatures,
)
from hlo_passes.verify.finding import Finding, Report
from hlo_passes.verify.groups import Devices
from hlo_passes.verify.handed_over import check_loop
from hlo_passes.verify.header import (
    check_header,
    check_host_transfers,
    check_mixed_layout,
)
from hlo_passes.verify.shardings import check_consistent
from hlo_passes.verify.structure import check_order

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module


@dataclass(frozen=True, slots=True)
class _CheckedHeader:
    """The findings in the header, and what they depend on."""

    attributes: dict[str, str]
    entry: Signature | None
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _Known:
    """What the last run over a module found; kept with the module."""

    computations: dict[Computation, Checked] = field(default_factory=dict)
    header: _CheckedHeader | None = None
    correct: CorrectKinds = field(default_factory=lambda: CorrectKinds(Devices()))


def findings(module: Module) -> tuple[Finding, ...]:
    """Every finding of a module, in text order."""
    with garbage_collection_paused():
        return _Run(module).findings()


def verify(module: Module, *, allow_unknown: bool = False) -> tuple[Finding, ...]:
    """Refuse a module that XLA would refuse; returns the findings that were allowed.

    Args:
        module: the module to check.
        allow_unknown: allow opcodes and attributes that XLA does not know (V101,
            V105, V201).

    Raises:
        VerificationError: with all findings.
    """
    found = findings(module)
    refused = found
    if allow_unknown:
        refused = tuple(f for f in found if f.severity != "unknown")
    if refused:
        raise VerificationError(refused)
    return found


class _Run:
    """One run over a module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.devices = _devices(module)
        self.order = {c: k for k, c in enumerate(module.computations)}
        self.checked_now: set[Computation] = set()
        known: _Known = module.kept.setdefault(_Known, _Known())
        self.known = known
        self.memory = known.computations
        self.signatures = Signatures(self.memory)
        if known.correct.devices != self.devices:
            known.correct = CorrectKinds(self.devices)

    def findings(self) -> tuple[Finding, ...]:
        module = self.module
        for gone in [c for c in self.memory if c not in self.order]:
            del self.memory[gone]
        checked = [self._computation(c) for c in module.computations]
        found = [*self._header()]
        for one in checked:
            found += one.findings
        across = self._across(checked)
        return tuple(self._in_text_order(found + across) if across else found)

    def _header(self) -> tuple[Finding, ...]:
        module = self.module
        entry = self.signatures.of(module.entry) if module.entry in self.order else None
        before = self.known.header
        if (
            before is None
            or before.attributes != module.attributes
            or before.entry != entry
        ):
            report = Report()
            check_header(module, entry, report)
            found = report.findings(module)
            before = _CheckedHeader(dict(module.attributes), entry, found)
            self.known.header = before
        return before.findings

    def _in_text_order(self, found: list[Finding]) -> list[Finding]:
        """The header first, then by computation and instruction."""
        computations = {c.name: k for c, k in self.order.items()}
        positions = {
            (c.name, i.name): k
            for c in self.order
            for k, i in enumerate(c.instructions)
        }
        return sorted(
            dict.fromkeys(found),
            key=lambda f: (
                computations.get(f.computation, -1),
                positions.get((f.computation, f.instruction), -1),
            ),
        )

    def _token(self, computation: Computation) -> tuple[object, ...]:
        return (
            computation.instructions,
            computation.root,
            computation.name,
            computation.execution_thread,
            computation.source_head,
            self.devices,
        )

    def _computation(self, computation: Computation) -> Checked:
        before = self.memory.get(computation)
        token = self._token(computation)
        if before is not None and self._unchanged(before, token):
            return before
        if before is not None and self._reordered(computation, before, token):
            return before
        checked = Checked(token, (), computation.edits, self.signatures.of(computation))
        self.checked_now.add(computation)
        check = ComputationCheck(
            computation, checked, self.known.correct, self.signatures
        )
        check.run()
        checked.findings = check.report.findings(self.module)
        checked.token = (*token, *self._callee_tokens(checked))
        self.memory[computation] = checked
        return checked

    def _callee_tokens(self, checked: Checked) -> list[object]:
        return [
            (callee.name, callee.execution_thread, self.signatures.of(callee),
             self.order.get(callee, -1))
            for call in checked.calls
            for callee in call.callees
        ]  # fmt: skip

    def _unchanged(self, before: Checked, token: tuple[object, ...]) -> bool:
        if before.token[0] is not token[0]:
            return False
        return self._same_but_order(before, token)

    def _same_but_order(self, before: Checked, token: tuple[object, ...]) -> bool:
        own = before.token[: len(token)]
        if before.depends_on_callers or own[1:] != token[1:]:
            return False
        return [*before.token[len(token) :]] == self._callee_tokens(before)

    def _reordered(
        self, computation: Computation, before: Checked, token: tuple[object, ...]
    ) -> bool:
        """Whether only the order has changed, and is right; the old findings then hold.

        Of the rules for one computation only `check_order` looks at the order: all
        others look at instructions, their neighbors in the graph and their callees.
        """
        if (
            before.edits != computation.edits
            or before.findings
            or not self._same_but_order(before, token)
        ):
            return False
        report = Report(computation)
        check_order(computation.instructions, report)
        if report.entries:
            return False
        before.token = (*token, *before.token[len(token) :])
        self.checked_now.add(computation)
        return True

    # -- across computations ----------------------------------------------------

    def _across(self, checked: list[Checked]) -> list[Finding]:
        """Report faults that concern more than one computation."""
        found: list[Finding] = []
        owners: dict[Computation, Instruction] = {}
        for one in checked:
            for call in one.calls:
                found += self._call(call, owners)
        if any(owner.opcode == "async-start" for owner in owners.values()):
            for one in checked:
                for call in one.calls:
                    found += self._shared(call, owners)
        reduces = [i for one in checked for i in one.reduces]
        for instruction in check_mixed_layout(reduces) if reduces else ():
            found += self._one(
                instruction, "V309",
                "all-reduces with and without constrain_layout in one module",
            )  # fmt: skip
        transfers = [i for one in checked for i in one.transfers]
        for instruction in check_host_transfers(transfers):
            found += self._one(
                instruction, "V509",
                "host transfers on one channel must be equal except for their operands",
            )  # fmt: skip
        return found

    def _one(self, instruction: Instruction, code: str, message: str) -> list[Finding]:
        report = Report(instruction.computation)
        report.add(instruction, code, message)
        return [*report.findings(self.module)]

    def _shared(
        self, call: Call, owners: dict[Computation, Instruction]
    ) -> list[Finding]:
        """Report computations that an async-start wraps and something else calls."""
        instruction = call.instruction
        if instruction.opcode == "fusion" or (
            half(instruction) and not is_transfer(instruction)
        ):
            return []  # refused in `_call` already
        report = Report(instruction.computation)
        for callee in call.callees:
            start = owners.get(callee)
            if start is not None and start.opcode == "async-start":
                report.add(
                    instruction, "V603", f"%{callee.name} is wrapped by %{start.name}"
                )  # fmt: skip
        return [*report.findings(self.module)] if report.entries else []

    def _call(
        self, call: Call, owners: dict[Computation, Instruction]
    ) -> list[Finding]:
        """Check the order of callee and caller, and bodies that only one may call."""
        instruction = call.instruction
        report = Report(instruction.computation)
        place = self.order[instruction.computation]
        for callee in call.callees:
            if self.order.get(callee, place) >= place:
                report.add(
                    instruction, "V010",
                    f"%{callee.name} is not before %{instruction.name}, which "
                    "calls it",
                    "computations are defined before they are called",
                )  # fmt: skip
        if instruction.opcode in ("fusion", "async-start") and call.callees:
            body = call.callees[0]
            other = owners.setdefault(body, instruction)
            if other is not instruction:
                report.add(
                    instruction, "V602" if instruction.opcode == "fusion" else "V603",
                    f"%{body.name} is called by %{other.name} already",
                )  # fmt: skip
        concerned = (instruction.computation, *call.callees)
        if call.bodies is None or not self.checked_now.isdisjoint(concerned):
            call.bodies = self._bodies(call)
        if not report.entries:
            return call.bodies
        return [*call.bodies, *report.findings(self.module)]

    def _bodies(self, call: Call) -> list[Finding]:
        """What is wrong with the computations that an instruction calls as its own."""
        instruction = call.instruction
        opcode = instruction.opcode
        report = Report(instruction.computation)
        inside: tuple[Finding, ...] = ()
        if opcode in ("while", "conditional"):
            report.add_faults(instruction, check_consistent(instruction, call.callees))
            if opcode == "while" and call.callees:
                check_loop(instruction, call.callees[0], report)
        elif opcode == "fusion" and call.callees:
            body_report = Report(call.callees[0])
            calls.check_fused_body(call.callees[0], body_report)
            inside = body_report.findings(self.module)
        elif opcode == "async-start" and call.callees:
            calls.check_wrapped_body(instruction, call.callees[0], report)
        return [*inside, *report.findings(self.module)]


def _devices(module: Module) -> Devices:
    try:
        replicas, partitions = module.replica_count, module.num_partitions
    except ValueError:
        return Devices()
    return Devices(max(1, replicas), max(1, partitions))
