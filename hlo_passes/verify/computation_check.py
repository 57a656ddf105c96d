"""The rules for the instructions of one computation.

Most instructions of a large module are alike: the same opcode, shapes and attributes
but for op metadata and the callee's name. Alike ones are checked once: what was found
correct is remembered by all that the rules look at, and looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_passes.analysis.channels import suits_all_reduce
from hlo_passes.errors import ParseError
from hlo_passes.ir.async_form import is_host_transfer
from hlo_passes.ir.attribute_forms import Form, named_values
from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES, TRANSFERS, facts
from hlo_passes.ir.shape_inference import Signature, signature_of
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.ir.small_values import parse_small
from hlo_passes.verify import async_pairs, calls
from hlo_passes.verify.attributes import check_attributes
from hlo_passes.verify.buffers import (
    buffer_paths,
    check_buffers,
    has_buffers,
    ought_to_have_buffers,
)
from hlo_passes.verify.finding import Finding, Report
from hlo_passes.verify.groups import Devices
from hlo_passes.verify.handed_over import may_cross
from hlo_passes.verify.literal_checks import check_constant
from hlo_passes.verify.origins import check_origin
from hlo_passes.verify.shape_checks import (
    check_shape,
    check_wrapped,
    has_rule,
    shape_faults,
)
from hlo_passes.verify.shardings import check_sharding
from hlo_passes.verify.structure import check_structure

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

_CALLEE_ATTRIBUTES: Final = frozenset(CALLEE_ATTRIBUTES)


@dataclass(slots=True)
class Call:
    """An instruction that calls, and the computations that it calls."""

    instruction: Instruction
    callees: tuple[Computation, ...]
    #: What is wrong with the bodies; None before somebody asked.
    bodies: list[Finding] | None = None


@dataclass(slots=True)
class Checked:
    """The findings in one computation, and what they depend on."""

    token: tuple[object, ...]
    findings: tuple[Finding, ...]
    edits: int  # `Computation.edits` at that time
    signature: Signature | None
    calls: list[Call] = field(default_factory=list)
    reduces: list[Instruction] = field(default_factory=list)
    transfers: list[Instruction] = field(default_factory=list)
    depends_on_callers: bool = False


class Signatures:
    """The signatures of a module's computations, in one run."""

    def __init__(self, memory: Mapping[Computation, Checked]) -> None:
        """`memory` holds what the last run found."""
        self._memory = memory
        self._known: dict[Computation, Signature | None] = {}
        self._texts: dict[Computation, str] = {}

    def of(self, computation: Computation) -> Signature | None:
        """The signature of a computation; None if it cannot be determined."""
        if computation not in self._known:
            before = self._memory.get(computation)
            if before is not None and before.edits == computation.edits:
                self._known[computation] = before.signature
                return before.signature
            try:
                self._known[computation] = signature_of(computation)
            except (ValueError, AttributeError):
                self._known[computation] = None
        return self._known[computation]

    def text(self, computation: Computation) -> str:
        """A text that only equal signatures have; '' for None."""
        text = self._texts.get(computation)
        if text is None:
            signature = self.of(computation)
            text = ""
            if signature is not None:
                shapes = (*signature.parameters, signature.result)
                text = " ".join([f"{shape.text};" for shape in shapes])
            self._texts[computation] = text
        return text


class CorrectKinds:
    """The instructions of a module that were found correct, by what the rules look at.

    That is the opcode, the shapes of result and operands (or the literal), attributes,
    the signature of the callee, and the numbers of devices, for which there is one
    object each. Instructions are left out if their rules look at anything else.
    """

    def __init__(self, devices: Devices) -> None:
        """Nothing is known yet."""
        self.devices = devices
        self.known: set[tuple[object, ...]] = set()
        self._without_buffers: set[str] = set()

    def has_buffers(self, computation: Computation) -> bool:
        """Whether the result of any instruction of a computation holds a buffer."""
        texts = {i.shape.text for i in computation.instructions}
        if texts <= self._without_buffers:
            return False
        if any(map(buffer_paths, [i.shape for i in computation.instructions])):
            return True
        self._without_buffers |= texts
        return False


class ComputationCheck:
    """The rules for one computation and its callees' signatures."""

    def __init__(
        self,
        computation: Computation,
        checked: Checked,
        correct: CorrectKinds,
        signatures: Signatures,
    ) -> None:
        """Results go to `checked.calls`, `reduces`, `transfers` and to `report`."""
        self.module: Module = computation.module
        self.computation = computation
        self.report = Report(computation)
        self.checked = checked
        self.correct = correct
        self.devices = correct.devices
        self.signatures = signatures
        self.wrapped = False
        self.has_buffers = False

    def run(self) -> None:
        """Check every instruction."""
        computation, report = self.computation, self.report
        instructions = computation.instructions
        check_structure(computation, report)
        if not instructions or computation.root is None:
            return
        calls.check_signature(computation, report)
        async_pairs.check_uses(computation, report)
        self.wrapped = _is_wrapped(computation)
        self.has_buffers = self.correct.has_buffers(computation)
        self.checked.depends_on_callers = (
            self.has_buffers or computation.root.opcode in TRANSFERS
        )
        known = self.correct.known
        for instruction in instructions:
            forms = instruction.attribute_form
            if forms is None:
                self._instruction(instruction)
                continue
            # Collect what the rules look at. It is written without calls for speed.
            operands = instruction.operands
            if len(operands) == 1:
                given: object = operands[0].shape.text
            elif operands:
                given = tuple([operand.shape.text for operand in operands])
            else:
                given = instruction.literal
            form, callee, metadata = forms
            key = (instruction.opcode, instruction.shape.text, given, form)
            called = None
            if callee:
                called = self.module.computation(callee)
                if called is None:
                    self._instruction(instruction)
                    continue
                key += (
                    self.signatures.text(called),
                    called.execution_thread == computation.execution_thread,
                )
            # An instruction like a correct one is correct. All others are checked.
            if key not in known:
                if self._is_one_of_its_kind(instruction, form, callee, metadata):
                    known.add(key)
            elif called is not None:
                self.checked.calls.append(Call(instruction, (called,)))

    def _is_one_of_its_kind(
        self, instruction: Instruction, form: Form, callee: str, metadata: str
    ) -> bool:
        """Check an instruction; whether all others like it are correct too."""
        found, noted = len(self.report.entries), len(self.checked.calls)
        looked_around = self._instruction(instruction)
        if looked_around or len(self.report.entries) > found:
            return False
        named = named_values(form, callee, metadata)
        if not named.items() <= instruction.attributes.items():
            return False
        called = [c.name for call in self.checked.calls[noted:] for c in call.callees]
        return called == ([callee] if callee else [])

    def _instruction(self, instruction: Instruction) -> bool:
        """Check one; whether the rules looked at more than a kind tells."""
        report = self.report
        opcode, shape = instruction.opcode, instruction.shape
        row = facts(opcode)
        # Check the shape by itself, then the opcode.
        faults = shape_faults(shape)
        if faults:
            report.add_faults(instruction, faults)
        if not row.is_known:
            report.add(
                instruction,
                "V201",
                f"XLA does not know the opcode {opcode}",
                severity="unknown",
            )
            return True
        # Nothing more can be checked without its attributes and callees.
        attributes = check_attributes(instruction, report)
        if attributes is None:
            return True
        callees = self._callees(instruction, attributes)
        if callees is None:
            return True
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
                        self.devices,
                    ),
                )
        else:
            self._without_rule(instruction, attributes, callees)
        # Check async pairs, values and buffers.
        if row.half:
            self._pair(instruction, attributes, callees)
        self._values(instruction, attributes)
        holds_buffer = (
            self.has_buffers and has_buffers(instruction)
        ) or ought_to_have_buffers(opcode, attributes)
        if holds_buffer:
            self.checked.depends_on_callers = True
            check_buffers(instruction, attributes, report)
        return bool(row.half) or holds_buffer or opcode == "all-reduce"

    def _callees(
        self, instruction: Instruction, attributes: Mapping[str, str]
    ) -> tuple[Computation, ...] | None:
        if _CALLEE_ATTRIBUTES.isdisjoint(attributes):
            return ()
        try:
            callees = self.module.callees(instruction)
        except ParseError as problem:
            self.report.add(instruction, "V010", problem.message, problem.hint)
            return None
        if callees:
            self.checked.calls.append(Call(instruction, callees))
            calls.check_threads(instruction, callees, self.report)
        return callees

    def _signatures(
        self, callees: tuple[Computation, ...]
    ) -> tuple[Signature, ...] | None:
        found = [self.signatures.of(callee) for callee in callees]
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
            and is_host_transfer(instruction)
        ):
            self.checked.transfers.append(instruction)
        generic = async_pairs.generic_half(opcode)
        if generic and may_cross(instruction):
            self.checked.depends_on_callers = True
        if not generic or not async_pairs.check_generic_form(instruction, report):
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
                    self.devices,
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
            body = self.module.computation(name)
            return self.signatures.of(body) if body is not None else None
        return self.signatures.of(callees[0])

    def _values(self, instruction: Instruction, attributes: Mapping[str, str]) -> None:
        """Apply the rules for single attributes that need the shape or the module."""
        opcode, report = instruction.opcode, self.report
        if "sharding" in attributes:
            report.add_faults(
                instruction,
                check_sharding(
                    attributes["sharding"],
                    instruction.shape,
                    self.devices.partitions,
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
            if opcode == "all-reduce" and not suits_all_reduce(instruction.channel_id):
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
