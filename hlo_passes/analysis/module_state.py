"""What a module is: how far XLA has come with it, for which machine, and from where.

    state = module_state(module)
    state.stage           'gpu-scheduled'
    state.summary         'scheduled by XLA:GPU 0.12'
    state.evidence        ('the header has fingerprint_before_lhs',)

Every answer has its evidence, and where nothing shows the answer it is `unknown`.
`require_priceable` refuses the modules whose prices would mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from hlo_passes.analysis.back_end_marks import (
    BackEndMark,
    back_end_mark,
    scheduled_by_xla,
)
from hlo_passes.analysis.dump_names import DumpName, dump_name
from hlo_passes.analysis.followed_release import releases_of
from hlo_passes.analysis.partitioning import (
    mark_of_no_partitioning,
    sharded_instruction,
)
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.exit_codes import ExitCode
from hlo_passes.ir.async_form import is_collective
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.module_form import STABLEHLO, form_of
from hlo_passes.proto_messages import says_partitioned
from hlo_passes.source import Location

#: Of the stages that follow one another, `unknown` is between the first two.
Stage = Literal[
    "before-optimizations",  # not divided over its partitions yet
    "unknown",  # perhaps divided, perhaps not
    "partitioned",  # one device's program, neither fused nor scheduled
    "optimized",  # fused, not scheduled
    "scheduled",  # it has an order; nothing says for which machine
    "gpu-scheduled",  # it has an order, and is for a GPU
    "cpu",  # optimized for a CPU
    "tpu",  # for a TPU
]
#: Opcodes that only a partitioned module has.
_OF_PARTITIONS: Final = frozenset({"partition-id"})
_LOWER: Final = "hlo-passes lower FILE.py:FUNCTION"
_LOWER_STABLEHLO: Final = "hlo-passes lower FILE.mlir --stage=partitioned"
_TO_SCHEDULE: Final = (
    "a GPU runs another order: hlo-passes opt INPUT --passes=xla-gpu -o scheduled.hlo"
)


@dataclass(frozen=True, slots=True)
class ModuleState:
    """What a module is.

    Attributes:
        stage: how far XLA has come with it.
        summary: the same for a reader, as in 'partitioned, not scheduled'.
        evidence: what shows it, most telling first.
        cure: how to get the module that a GPU runs, '' where this may be it.
        releases: of XLA that may have made it, oldest first; () where nothing says.
        dump: what the name of its file says, None where it is not one of XLA's.
        location: of the instruction that is not partitioned yet, None elsewhere.
    """

    stage: Stage
    summary: str
    evidence: tuple[str, ...]
    cure: str = ""
    releases: tuple[str, ...] = ()
    dump: DumpName | None = None
    location: Location | None = None

    @property
    def headline(self) -> str:
        """The first line of a report: summary, dump, and the cure if there is one."""
        said = f"module   {self.summary}"
        if self.dump is not None:
            said += f" ({self.dump.to_text()})"
        return f"{said}; {self.cure}" if self.cure else said

    def to_json(self) -> dict[str, Any]:
        """The keys that a command adds to its JSON."""
        return {
            "module_state": self.stage,
            "module_evidence": list(self.evidence),
            "module_origin": self.origin,
        }

    @property
    def origin(self) -> str:
        """Where it is from, as far as something shows it; '' unknown.

        "backend configs of XLA 0.11 or 0.12; XLA's dump 1, after cse"
        """
        parts = []
        if self.releases:
            parts.append(f"backend configs of XLA {' or '.join(self.releases)}")
        if self.dump is not None:
            parts.append(self.dump.to_text())
        return "; ".join(parts)


def heading_of(states: Iterable[ModuleState], ending: str = "") -> str:
    """The first line of a report on several states of a module, with its line feed."""
    summaries = dict.fromkeys(state.summary for state in states)
    return f"module   {' -> '.join(summaries)}{ending}\n"


class WrongStateError(UnsupportedHloError):
    """A module is not what a task is about.

    S017 not partitioned, S018 for a TPU, S019 not the one that the costs are of.
    """

    default_code = "S017"
    exit_code = ExitCode.INVALID_INPUT


@dataclass(slots=True)
class _Kept:
    """The state of a module, and the module's version that had it."""

    version: int
    state: ModuleState


def module_state(module: Module) -> ModuleState:
    """What a module is.

    Complexity: linear in instructions, once for each version of the module.
    """
    kept: _Kept | None = module.kept.get(_Kept)
    if kept is None or kept.version != module.version:
        kept = module.kept[_Kept] = _Kept(module.version, _state_of(module))
    return kept.state


def how_to_price_tpus(tpu: str = "") -> str:
    """What to type for a module for a TPU that comes with prices."""
    target = f"--target={tpu or 'v5e'}"
    return (
        f"{_LOWER} {target} --stage=tpu-scheduled --write-costs=FILE -o step.hlo "
        "writes the module and its compiler's costs, for --costs=FILE; or give the "
        f"module of --stage=tpu-final with {target} --estimator=tpu-final"
    )


def require_priceable(
    module: Module, *, has_costs: bool = False, tpu: str = ""
) -> None:
    """Refuse a module whose times or order on a GPU would mean nothing.

    Args:
        module: about to be priced or scheduled.
        has_costs: its costs are given, and not those of a GPU.
        tpu: the TPU that it is priced on, '' for a GPU.

    Raises WrongStateError: S017 if it is not partitioned yet, S018 if it is for a TPU.
    """
    state = module_state(module)
    if state.stage == "before-optimizations":
        raise WrongStateError(
            f"{state.evidence[0]}: the module is not partitioned yet, so that what one "
            "device runs is not known",
            location=state.location,
            hint=state.cure,
        )
    if state.stage == "tpu" and not has_costs:
        raise WrongStateError(
            f"{state.evidence[0]}: the module is for a TPU, and "
            + (
                f"prices of {tpu} are those of its compiler, which are not given"
                if tpu
                else "the prices here are those of GPUs"
            ),
            code="S018",
            hint=how_to_price_tpus(tpu),
        )


# -- the stages ----------------------------------------------------------------


@dataclass(slots=True)
class _Contents:
    """What is in a module, as far as a stage depends on it."""

    fusion: Instruction | None = None
    per_device: Instruction | None = None


def _state_of(module: Module) -> ModuleState:
    source = module.source
    dump = dump_name(source.filename) if source else None
    releases = tuple(str(release) for release in releases_of(module))
    stage, summary, evidence, cure, mark = _stage_of(module, dump, releases)
    location = None if mark is None else mark.location
    return ModuleState(stage, summary, evidence, cure, releases, dump, location)


_Answer = tuple[Stage, str, tuple[str, ...], str, Instruction | None]


def _stage_of(
    module: Module, dump: DumpName | None, releases: tuple[str, ...]
) -> _Answer:
    # What the partitioner would take away decides, whatever the machine.
    mark = mark_of_no_partitioning(module)
    if mark is not None:
        instruction, what = mark
        return _not_partitioned(f"%{instruction.name} has {what}", module, instruction)
    machine = back_end_mark(module)
    contents = _contents_of(module)
    is_compiled = module.is_scheduled or contents.fusion is not None
    if machine is not None and machine.back_end == "tpu":
        return _for_tpu(module, machine)
    if machine is not None and machine.back_end == "cpu" and is_compiled:
        return _for_cpu(module, machine.what)
    # A scheduled or fused module of a GPU, or of nobody knows which machine.
    if module.is_scheduled:
        return _scheduled(module, contents, machine, dump, releases)
    if contents.fusion is not None:
        return _optimized(machine, contents.fusion)
    # Nothing is fused: what XLA's partitioner gets or gives.
    return _not_fused(module, contents, dump)


def _contents_of(module: Module) -> _Contents:
    found = _Contents()
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "fusion":
                found.fusion = instruction
                return found
            if found.per_device is None and (
                instruction.opcode in _OF_PARTITIONS or is_collective(instruction)
            ):
                found.per_device = instruction
    return found


def _not_partitioned(
    what: str, module: Module, instruction: Instruction | None
) -> _Answer:
    file = module.source.filename if module.source else ""
    is_stablehlo = form_of(file) == STABLEHLO
    return (
        "before-optimizations",
        "not partitioned yet",
        (what,),
        f"partition it: {_LOWER_STABLEHLO}"
        if is_stablehlo
        else f"partition it: {_LOWER}, or take XLA's dump after spmd-partitioning",
        instruction,
    )


def _for_tpu(module: Module, machine: BackEndMark) -> _Answer:
    summary = "for a TPU, scheduled" if module.is_scheduled else "for a TPU"
    return "tpu", summary, (machine.what,), "", None


def _for_cpu(module: Module, what: str) -> _Answer:
    order = "" if module.is_scheduled else ", not scheduled"
    return (
        "cpu",
        f"compiled for a CPU{order}",
        (what,),
        "a GPU runs other fusions, and collectives beside them: "
        f"{_LOWER} --target=h100_sxm",
        None,
    )


def _scheduled(
    module: Module,
    contents: _Contents,
    machine: BackEndMark | None,
    dump: DumpName | None,
    releases: tuple[str, ...],
) -> _Answer:
    if scheduled_by_xla(module):
        assert machine is not None
        summary = f"scheduled by XLA:GPU {' or '.join(releases)}".rstrip()
        return "gpu-scheduled", summary, (machine.what,), "", None
    schedule = "the header has is_scheduled=true"
    summary = "scheduled for a GPU"
    if contents.fusion is None:
        summary += ", nothing is fused"
    if machine is not None:
        return "gpu-scheduled", summary, (machine.what, schedule), "", None
    # Nothing inside says for which machine, but XLA names the files of its dumps.
    if dump is not None and dump.back_end:
        named = f"the file is named {dump.stage}"
        if dump.back_end == "cpu":
            return _for_cpu(module, named)
        return "gpu-scheduled", summary, (named, schedule), "", None
    return (
        "scheduled",
        "scheduled, for which machine is unknown",
        (schedule, "no mark of a CPU, of XLA:GPU or of a TPU"),
        "",
        None,
    )


def _optimized(machine: BackEndMark | None, fusion: Instruction) -> _Answer:
    shown = (f"%{fusion.name} is a fusion", "the header has no is_scheduled=true")
    target = " for a GPU" if machine is not None else ""
    if machine is not None:
        shown = (machine.what, *shown)
    return "optimized", f"optimized{target}, not scheduled", shown, _TO_SCHEDULE, None


def _not_fused(module: Module, contents: _Contents, dump: DumpName | None) -> _Answer:
    if contents.per_device is not None:
        name, opcode = contents.per_device.name, contents.per_device.opcode
        is_collective_of = opcode not in _OF_PARTITIONS
        what = "is a collective" if is_collective_of else "tells partitions apart"
        return _partitioned("partitioned, not scheduled", f"%{name} {what}")
    partitions = module.num_partitions
    sharded = sharded_instruction(module)
    if partitions == 1 and sharded is None:
        return _partitioned("for one partition, not scheduled", "it has one partition")
    # Shardings of parameters may be still to be applied, or left by the partitioner:
    # a note in the proto or the file's name may say which.
    if module.proto is not None and says_partitioned(module.proto):
        what = "the proto has spmd_output_sharding"
        return _partitioned("partitioned, not scheduled", what)
    if dump is not None and dump.stage == "before_optimizations" and sharded:
        return _not_partitioned(
            f"the file is named before_optimizations, and %{sharded.name} has a "
            "sharding",
            module,
            sharded,
        )
    if dump is not None and dump.stage == "after_spmd_partitioner":
        named = f"the file is named {dump.stage}"
        return _partitioned("partitioned, not scheduled", named)
    return (
        "unknown",
        "not scheduled, and whether it is divided over its devices is unknown",
        (
            f"the header names one partition, but %{sharded.name} has a sharding"
            if partitions == 1 and sharded is not None
            else "it has neither a collective nor a sharding that decides",
        ),
        _TO_SCHEDULE,
        None,
    )


def _partitioned(summary: str, what: str) -> _Answer:
    return "partitioned", summary, (what, "nothing is fused"), _TO_SCHEDULE, None
