"""What `hlo-passes run` asks of its worker: the one fact that both processes share.

The command needs no JAX to ask; only the worker (`run_worker.py`) loads it.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """A request to run a module.

    Attributes:
        module: file with the HLO text.
        name: of the module's own file, for messages.
        against: file of the other module, or None.
        against_name: its own file.
        topology: (replicas, partitions).
        inputs: `.npz` file, or None for seeded ones.
        inputs_name: the same as the user gave it, for messages.
        seed: of the inputs.
        outputs: file for the results, or None.
        repeat: how often to run.
        rtol: relative tolerance of a comparison; None with `atol` None: bit for bit.
        atol: absolute tolerance.
        sync: 'each' or 'collectives' to run step by step; None at once.
        answer: file for the answer.
    """

    module: str
    name: str
    against: str | None
    against_name: str | None
    topology: tuple[int, int]
    inputs: str | None
    inputs_name: str | None
    seed: int
    outputs: str | None
    repeat: int
    rtol: float | None
    atol: float | None
    sync: str | None
    answer: str


def stage_file(request: Request) -> pathlib.Path:
    """The file in which the worker says what it is doing."""
    return pathlib.Path(request.answer).with_name("stage")
