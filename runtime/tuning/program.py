"""The program that is tuned, as every process that compiles it receives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from hlo_passes.pricing import Pricing


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a user names, for any machine.

    Attributes:
        WORKER: the module of the process that compiles it.
        function: FILE.py:FUNCTION, MODULE:FUNCTION or FILE.mlir.
        arguments: of a function that is jitted itself.
    """

    WORKER: ClassVar[str]

    function: str
    arguments: str = ""

    def to_json(self) -> dict[str, Any]:
        """All fields, which that process receives first."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Program(Tuned):
    """A program, and the absent GPUs to compile it for.

    Attributes:
        target: the GPU.
        topology: 'PxHxG', '' for what the next two say.
        hosts: their number.
        gpus_per_host: of one.
        devices: their number, where hosts do not say it.
    """

    WORKER: ClassVar[str] = "hlo_passes.runtime.tuning.compile_worker"

    target: str = "h100_sxm"
    topology: str = ""
    hosts: int | None = None
    gpus_per_host: int | None = None
    devices: int | None = None

    @property
    def on(self) -> Pricing:
        """The machine to compile for."""
        return Pricing(
            target=self.target,
            topology=self.topology,
            hosts=self.hosts,
            gpus_per_host=self.gpus_per_host,
            devices=self.devices,
        )


@dataclass(frozen=True, slots=True)
class Traced:
    """What JAX made of a program, before XLA.

    Attributes:
        content: 64 hexadecimal digits of XLA's input.
        machine: the GPUs as 'PxHxG'.
        release: of jaxlib.
    """

    content: str
    machine: str
    release: str
