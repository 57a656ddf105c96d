"""`hlo-passes capture`: runs a program, and keeps every module that it compiles.

hlo-passes capture -o modules -- python train.py --steps=3
hlo-passes capture --module='jit_train*' --target=b200 --devices=8 -- python -m train
"""

from __future__ import annotations

import argparse
import os

from hlo_passes.cli.command import own_command, positive
from hlo_passes.cli.pricing import add_host_arguments, pricing_of
from hlo_passes.errors import UsageError
from hlo_passes.progress import tell

_FOLDER = "captured"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", default=_FOLDER, metavar="DIR",
        help="folder for the modules and the index modules.json; new, empty, or of an "
        f"earlier capture, which it replaces; default: {_FOLDER}",
    )  # fmt: skip
    parser.add_argument(
        "--first", type=positive, metavar="N",
        help="stop recording after N modules of a process; the program goes on",
    )  # fmt: skip
    parser.add_argument(
        "--module", action="append", default=[], metavar="GLOB",
        help="record only modules of such names, as in 'jit_train*'; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--stage",
        choices=("before-optimizations", "partitioned", "scheduled", "gpu-scheduled"),
        help="of the HLO written; default: partitioned, or gpu-scheduled with --target",
    )
    parser.add_argument(
        "--target", help="compile what was recorded for a GPU, such as h100_sxm"
    )
    add_host_arguments(parser)
    parser.add_argument(
        "--devices", type=positive, metavar="N",
        help="run the program on N emulated devices, as JAX_PLATFORMS=cpu and "
        "XLA_FLAGS would; default: where and how it runs without this command",
    )  # fmt: skip
    parser.add_argument(
        "command", nargs="+", metavar="COMMAND",
        help="the program and its arguments, after --, as in: -- python train.py -n 3",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    from hlo_passes.runtime.recording import captured_folder, program, results

    # Refuse bad arguments before the program runs.
    if arguments.stage == "gpu-scheduled" and arguments.target is None:
        raise UsageError(
            "--stage=gpu-scheduled needs a --target",
            code="U026",
            hint="for example --target=h100_sxm",
        )
    lowering = results.Lowering(
        arguments.stage, arguments.target, pricing_of(arguments)
    )
    lowering.check()
    program.require(arguments.command)
    folder = captured_folder.prepare(arguments.output)
    # Run it; what it compiles is in the folder at its end, whatever the end is.
    ran = program.run(
        arguments.command,
        {"folder": os.fspath(folder), "modules": arguments.module,
         "first": arguments.first},
        devices=arguments.devices,
    )  # fmt: skip
    found = results.Captured.of(ran, arguments.command, folder)
    found.write()
    # Bring the modules to the stage that was asked for.
    found.lower(lowering)
    found.write()
    tell(found.to_text(arguments.output))
    return ran.exit_code


CAPTURE = own_command("capture", _configure, _run)
