"""Passes in a job of two processes, which must produce the same program.

python examples/04_two_processes.py
"""

import os
import socket
import subprocess
import sys

RANK = "EXAMPLE_RANK"
ADDRESS = "EXAMPLE_ADDRESS"


def work(rank):
    """What each process does; both have four of the eight devices."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    from hlo_passes import runtime

    runtime.emulate(4)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ[ADDRESS], 2, rank)
    mesh = Mesh(np.array(jax.devices()), ("d",))
    ring = [(i, (i + 1) % 8) for i in range(8)]

    def step(x):
        return jax.lax.ppermute(x, "d", ring) + jax.lax.ppermute(x * 2, "d", ring)

    mapped = jax.shard_map(step, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    rows = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.make_array_from_callback(
        rows.shape, NamedSharding(mesh, P("d")), lambda index: rows[index]
    )
    # "check" is the default: a difference would stop both processes and name the
    # first instruction that differs.
    with runtime.install(
        "collective-permute-combiner", modules="step", multiprocess="check"
    ) as installed:
        jax.block_until_ready(jax.jit(mapped)(x))
    print(f"process {rank}: {installed.changed} module changed, all agree", flush=True)


def main():
    """Start both and wait for them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    processes = []
    for rank in range(2):
        environment = os.environ | {RANK: str(rank), ADDRESS: address}
        environment["JAX_PLATFORMS"] = "cpu"
        processes.append(
            subprocess.Popen(
                [sys.executable, __file__],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for process in processes:
        said, _ = process.communicate()
        # gloo logs much, and not in whole lines.
        print(said[said.rfind("process ") :].rstrip())
    sys.exit(max(process.returncode for process in processes))


if __name__ == "__main__":
    if RANK in os.environ:
        work(int(os.environ[RANK]))
    else:
        main()
