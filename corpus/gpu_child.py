"""The process in which XLA's GPU compiler runs: one job after another, from stdin.

A process of its own, since XLA logs to stderr and may abort; `compile_gpu` starts it.
Each line read is a job in JSON; a line `<marker> <index>` goes to stderr before each
and `<marker> done <index> <outcome>` after it, so that the log can be cut up.
"""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import re
import sys
from typing import Any

MARKER = "==== corpus job"


def _say(text: str) -> None:
    """Write a line where XLA's C++ log goes, in order with it."""
    sys.stderr.flush()
    os.write(2, f"{MARKER} {text}\n".encode())


def _compile_program(program: str, topology: Any, options: dict[str, Any]) -> None:
    """Compile FILE.py:FUNCTION for the topology's devices."""
    import lower

    file, _, name = program.rpartition(":")
    lower.stable_locations()
    jitted, arguments = lower.functions(pathlib.Path(file))[name](topology.devices)
    jitted.lower(*arguments).compile(compiler_options=options)


def _compile_hlo(file: str, topology: Any, options: dict[str, Any]) -> None:
    """Compile HLO text as it is: it is one device's program.

    XLA takes `partition-id` only from its partitioner, which leaves what is manual.
    """
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jaxlib import _hlo, _jax

    data = pathlib.Path(file).read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    # StableHLO has no copy; before layouts are assigned a reshape to the same shape
    # means the same.
    module = _hlo.hlo_module_from_text(text.replace(" copy(", " reshape("))
    stablehlo = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    header = dict(
        item.split("=", 1)
        for item in module.to_string().partition("\n")[0].split(", ")
        if item.startswith(("replica_count=", "num_partitions="))
    )
    partitions = int(header.get("num_partitions", 1))
    compile_options = compiler.get_compile_options(
        num_replicas=int(header.get("replica_count", 1)), num_partitions=partitions
    )
    compile_options.executable_build_options.use_spmd_partitioning = (
        "sharding={manual}" in text
    )
    compile_options.env_option_overrides = [*options.items()]
    devices = tuple(topology.devices)
    with mlir.make_ir_context():
        devices[0].client.compile(
            ir.Module.parse(stablehlo), _jax.DeviceList(devices), compile_options
        )


def _target_text(job: dict[str, Any]) -> str:
    """The description of the target, with the memory that the job asks for."""
    text = pathlib.Path(job["target"]).read_text()
    if job["device_memory_bytes"] is None:
        return text
    memory = f"device_memory_size: {job['device_memory_bytes']}"
    return re.sub(r"device_memory_size: \d+", memory, text)


def _run(job: dict[str, Any]) -> str:
    """Compile one job; 'compiled', or what XLA says against it."""
    from jax.experimental import topologies

    try:
        topology = topologies.get_topology_desc(
            platform="cuda",
            target_config=_target_text(job),
            topology=job["topology"],
        )
        compile_input = _compile_program if ".py:" in job["input"] else _compile_hlo
        compile_input(job["input"], topology, job["options"])
    except Exception as problem:  # whatever it is, the next job runs
        lines = str(problem).splitlines() or [""]
        return f"{type(problem).__name__}: {lines[0]}"
    return "compiled"


def main() -> None:
    for index, line in enumerate(sys.stdin):
        _say(f"{index}")
        outcome = _run(json.loads(line))
        _say(f"done {index} {outcome}")


if __name__ == "__main__":
    main()
