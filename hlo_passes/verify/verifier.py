"""The verifier: applies all rules to a module and remembers what it found.

A pipeline that verifies after every pass pays only for what the pass touched: a
computation keeps its findings if its instructions, callees and header counts are those
of the last run. (`Computation.instructions` is a new tuple after any change.) If it had
no findings and only the order of its instructions has changed, only the order is
checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_passes.errors import ParseError, VerificationError
from hlo_passes.ir.async_form import half, is_transfer
from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES, TRANSFERS, facts
from hlo_passes.ir.shape_inference import Signature, signature_of
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.ir.small_values import parse_small
from hlo_passes.verify import async_pairs, calls
from hlo_passes.verify.attributes import check_attributes
from hlo_passes.verify.buffers import buffer_paths, check_buffers, has_buffers
from hlo_passes.verify.finding import Finding, Report
from hlo_passes.verify.groups import Devices
from hlo_passes.verify.header import (
    check_header,
    check_host_transfers,
    check_mixed_layout,
)
from hlo_passes.verify.literal_checks import check_constant
from hlo_passes.verify.origins import check_origin
from hlo_passes.verify.shape_checks import (
    check_shape,
    check_wrapped,
    has_rule,
    shape_faults,
)
from hlo_passes.verify.shardings import check_consistent, check_sharding
from hlo_passes.verify.structure import check_order, check_structure

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

_CALLEE_ATTRIBUTES: Final = frozenset(CALLEE_ATTRIBUTES)


@dataclass(slots=True)
class _Call:
    """An instruction that calls, and the computations that it calls."""

    instruction: Instruction
    callees: tuple[Computation, ...]
    bodies: list[Finding] | None = (
        None  # what `_bodies` found; None before it was asked
    )


@dataclass(frozen=True, slots=True)
class _CheckedHeader:
    """The findings in the header, and what they depend on."""

    attributes: dict[str, str]
    entry: Signature | None
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _Checked:
    """The findings in one computation, and what they depend on."""

    token: tuple[object, ...]
    findings: tuple[Finding, ...]
    edits: int  # `Computation.edits` at that time
    signature: Signature | None
    calls: list[_Call] = field(default_factory=list)
    reduces: list[Instruction] = field(default_factory=list)
    transfers: list[Instruction] = field(default_factory=list)
    depends_on_callers: bool = False


@dataclass(slots=True)
class _Known:
    """What the last run over a module found; kept with the module."""

    computations: dict[Computation, _Checked] = field(default_factory=dict)
    header: _CheckedHeader | None = None


def findings(module: Module) -> tuple[Finding, ...]:
    """Every finding of a module, in text order."""
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
        self.signatures: dict[Computation, Signature | None] = {}
        self.checked_now: set[Computation] = set()
        known: _Known = module.kept.setdefault(_Known, _Known())
        self.known = known
        self.memory = known.computations

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
        entry = self.signature(module.entry) if module.entry in self.order else None
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

    def signature(self, computation: Computation) -> Signature | None:
        """The signature of a computation; None if it cannot be determined."""
        if computation not in self.signatures:
            before = self.memory.get(computation)
            if before is not None and before.edits == computation.edits:
                self.signatures[computation] = before.signature
                return before.signature
            try:
                self.signatures[computation] = signature_of(computation)
            except (ValueError, AttributeError):
                self.signatures[computation] = None
        return self.signatures[computation]

    def _token(self, computation: Computation) -> tuple[object, ...]:
        return (
            computation.instructions,
            computation.root,
            computation.name,
            computation.execution_thread,
            computation.source_head,
            self.devices,
        )

    def _computation(self, computation: Computation) -> _Checked:
        before = self.memory.get(computation)
        token = self._token(computation)
        if before is not None and self._unchanged(before, token):
            return before
        if before is not None and self._reordered(computation, before, token):
            return before
        checked = _Checked(token, (), computation.edits, self.signature(computation))
        self.checked_now.add(computation)
        report = Report(computation)
        _ComputationCheck(self, computation, report, checked).run()
        checked.findings = report.findings(self.module)
        checked.token = (*token, *self._callee_tokens(checked))
        self.memory[computation] = checked
        return checked

    def _callee_tokens(self, checked: _Checked) -> list[object]:
        return [
            (callee.name, callee.execution_thread, self.signature(callee),
             self.order.get(callee, -1))
            for call in checked.calls
            for callee in call.callees
        ]  # fmt: skip

    def _unchanged(self, before: _Checked, token: tuple[object, ...]) -> bool:
        if before.token[0] is not token[0]:
            return False
        return self._same_but_order(before, token)

    def _same_but_order(self, before: _Checked, token: tuple[object, ...]) -> bool:
        own = before.token[: len(token)]
        if before.depends_on_callers or own[1:] != token[1:]:
            return False
        return [*before.token[len(token) :]] == self._callee_tokens(before)

    def _reordered(
        self, computation: Computation, before: _Checked, token: tuple[object, ...]
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

    def _across(self, checked: list[_Checked]) -> list[Finding]:
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
        self, call: _Call, owners: dict[Computation, Instruction]
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
        self, call: _Call, owners: dict[Computation, Instruction]
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

    def _bodies(self, call: _Call) -> list[Finding]:
        """What is wrong with the computations that an instruction calls as its own."""
        instruction = call.instruction
        opcode = instruction.opcode
        report = Report(instruction.computation)
        inside: tuple[Finding, ...] = ()
        if opcode in ("while", "conditional"):
            report.add_faults(instruction, check_consistent(instruction, call.callees))
        elif opcode == "fusion" and call.callees:
            body_report = Report(call.callees[0])
            calls.check_fused_body(call.callees[0], body_report)
            inside = body_report.findings(self.module)
        elif opcode == "async-start" and call.callees:
            calls.check_wrapped_body(instruction, call.callees[0], report)
        return [*inside, *report.findings(self.module)]


class _ComputationCheck:
    """The rules for one computation and its callees' signatures."""

    def __init__(
        self, run: _Run, computation: Computation, report: Report, checked: _Checked
    ) -> None:
        self.run_state = run
        self.computation = computation
        self.report = report
        self.checked = checked
        self.wrapped = False
        self.has_buffers = False

    def run(self) -> None:
        """Check every instruction."""
        computation, report = self.computation, self.report
        check_structure(computation, report)
        if not computation.instructions or computation.root is None:
            return
        calls.check_signature(computation, report)
        async_pairs.check_uses(computation, report)
        self.wrapped = _is_wrapped(computation)
        self.has_buffers = any(buffer_paths(i.shape) for i in computation.instructions)
        self.checked.depends_on_callers = (
            self.has_buffers or computation.root.opcode in TRANSFERS
        )
        check = self._instruction
        for instruction in computation.instructions:
            check(instruction)

    def _instruction(self, instruction: Instruction) -> None:
        report = self.report
        opcode, shape = instruction.opcode, instruction.shape
        # Check the shape by itself, then the opcode.
        faults = shape_faults(shape)
        if faults:
            report.add_faults(instruction, faults)
        if not facts(opcode).is_known:
            report.add(
                instruction,
                "V201",
                f"XLA does not know the opcode {opcode}",
                severity="unknown",
            )
            return
        # Nothing more can be checked without its attributes and callees.
        attributes = check_attributes(instruction, report)
        if attributes is None:
            return
        callees = self._callees(instruction, attributes)
        if callees is None:
            return
        # Check the shape against what the opcode infers from operands.
        if has_rule(opcode):
            signatures = self._signatures(callees)
            if signatures is not None:
                report.add_faults(
                    instruction,
                    check_shape(
                        opcode,
                        shape,
                        tuple([o.shape for o in instruction.operands]),
                        attributes,
                        signatures,
                        self.run_state.devices,
                    ),
                )
        else:
            self._without_rule(instruction, attributes, callees)
        # Check async pairs, values and buffers.
        if facts(opcode).half:
            self._pair(instruction, attributes, callees)
        self._values(instruction, attributes)
        if self.has_buffers and has_buffers(instruction):
            check_buffers(instruction, attributes, report)

    def _callees(
        self, instruction: Instruction, attributes: Mapping[str, str]
    ) -> tuple[Computation, ...] | None:
        if _CALLEE_ATTRIBUTES.isdisjoint(attributes):
            return ()
        try:
            callees = self.run_state.module.callees(instruction)
        except ParseError as problem:
            self.report.add(instruction, "V010", problem.message, problem.hint)
            return None
        if callees:
            self.checked.calls.append(_Call(instruction, callees))
            calls.check_threads(instruction, callees, self.report)
        return callees

    def _signatures(
        self, callees: tuple[Computation, ...]
    ) -> tuple[Signature, ...] | None:
        found = [self.run_state.signature(callee) for callee in callees]
        if None in found:
            return None
        return tuple([s for s in found if s is not None])

    def _without_rule(
        self,
        instruction: Instruction,
        attributes: Mapping[str, str],
        callees: tuple[Computation, ...],
    ) -> None:
        """Apply the rules for constant, fusion, custom-call and async forms."""
        opcode, report = instruction.opcode, self.report
        if opcode == "constant":
            report.add_faults(
                instruction, check_constant(instruction.literal, instruction.shape)
            )
        elif opcode == "fusion":
            signatures = self._signatures(callees)
            if signatures:
                calls.check_fusion(
                    instruction, _outside(instruction), signatures[0], report
                )
        elif opcode == "custom-call":
            calls.check_custom_call(instruction, attributes, report)
        if opcode in ("fusion", "custom-call"):
            calls.check_aliasing(
                instruction,
                attributes,
                _outside(instruction).parameters,
                instruction.shape,
                report,
            )

    def _pair(
        self,
        instruction: Instruction,
        attributes: Mapping[str, str],
        callees: tuple[Computation, ...],
    ) -> None:
        opcode, report = instruction.opcode, self.report
        wrapped_root = self.wrapped and instruction is self.computation.root
        async_pairs.check_pair(
            instruction, attributes, report, wrapped_root=wrapped_root
        )
        if (
            opcode in TRANSFERS
            and "channel_id" in attributes
            and attributes.get("is_host_transfer") == "true"
        ):
            self.checked.transfers.append(instruction)
        generic = async_pairs.generic_half(opcode)
        if not generic:
            return
        signature = self._wrapped_signature(instruction, callees)
        if signature is None:
            return
        async_pairs.check_generic_shape(instruction, signature, report)
        if generic == "start":
            self._wrapped_operation(instruction, attributes, callees, signature)

    def _wrapped_operation(
        self,
        start: Instruction,
        attributes: Mapping[str, str],
        callees: tuple[Computation, ...],
        signature: Signature,
    ) -> None:
        """Check the operation that sugar spells, and aliasing of any generic start."""
        signatures = self._signatures(callees)
        if start.opcode != "async-start" and signatures is not None:
            self.report.add_faults(
                start,
                check_wrapped(
                    start.opcode,
                    signature.parameters,
                    signature.result,
                    attributes,
                    signatures,
                    self.run_state.devices,
                ),
            )
        if start.opcode == "fusion-start" and signatures:
            calls.check_fusion(start, signature, signatures[0], self.report)
        inner = start.opcode in ("custom-call-start", "fusion-start")
        result = signature.result
        if not inner:
            bound = tuple_shape(signature.parameters)
            context = start.shape.elements[2:]
            result = tuple_shape((bound, signature.result, *context))
        calls.check_aliasing(
            start, attributes, signature.parameters, result, self.report
        )

    def _wrapped_signature(
        self, instruction: Instruction, callees: tuple[Computation, ...]
    ) -> Signature | None:
        """The signature of what a generic start calls, or what its sugar spells."""
        start = async_pairs.generic_start_of(instruction)
        if start is None:
            return None
        if start.opcode != "async-start":
            return async_pairs.sugar_signature(start)
        if start is not instruction or not callees:
            name = start.attributes.get("calls", "").removeprefix("%")
            body = self.run_state.module.computation(name)
            return self.run_state.signature(body) if body is not None else None
        return self.run_state.signature(callees[0])

    def _values(self, instruction: Instruction, attributes: Mapping[str, str]) -> None:
        """Apply the rules for single attributes that need the shape or the module."""
        opcode, report = instruction.opcode, self.report
        if "sharding" in attributes:
            report.add_faults(
                instruction,
                check_sharding(
                    attributes["sharding"],
                    instruction.shape,
                    self.run_state.devices.partitions,
                ),
            )
        if "parameter_replication" in attributes:
            leaves = sum(1 for _ in instruction.shape.leaves())
            count = len(parse_small("bool_list", attributes["parameter_replication"]))
            if count != leaves:
                report.add(
                    instruction, "V107",
                    f"parameter_replication has {count} flags for {leaves} leaves",
                )  # fmt: skip
        if "origin" in attributes:
            report.add_faults(
                instruction, check_origin(attributes["origin"], instruction.shape)
            )
        if "is_composite" in attributes:
            calls.check_composite(instruction, attributes, report)
        if opcode in ("all-reduce", "all-reduce-start"):
            self.checked.reduces.append(instruction)
            if opcode == "all-reduce" and int(attributes.get("channel_id", "1")) <= 0:
                report.add(
                    instruction, "V308", "the channel of an all-reduce must be above 0"
                )


def _is_wrapped(computation: Computation) -> bool:
    """Whether an async-start calls the computation; asked only if it matters."""
    return computation.root.opcode in TRANSFERS and any(
        caller.opcode == "async-start"
        for caller in computation.module.callers(computation)
    )


def _outside(instruction: Instruction) -> Signature:
    """Operands and result of an instruction, as a signature."""
    return Signature(tuple([o.shape for o in instruction.operands]), instruction.shape)


def _devices(module: Module) -> Devices:
    try:
        replicas, partitions = module.replica_count, module.num_partitions
    except ValueError:
        return Devices()
    return Devices(max(1, replicas), max(1, partitions))
