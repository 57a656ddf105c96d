"""`hlo-passes verify`: prints all findings of one or more modules."""

from __future__ import annotations

import argparse

from hlo_passes.analysis.module_state import module_state
from hlo_passes.cli.command import own_command
from hlo_passes.errors import HloError
from hlo_passes.exit_codes import ExitCode, exit_code_of
from hlo_passes.files import read_module
from hlo_passes.progress import say, tell
from hlo_passes.verify.verifier import verify


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="INPUT")


def _run(arguments: argparse.Namespace) -> int:
    worst = int(ExitCode.DONE)
    for path in arguments.inputs:
        try:
            module = read_module(path)
            verify(module)
        except HloError as problem:
            tell(problem.render() + "\n")
            worst = max(worst, exit_code_of(problem))
        else:
            count = module.instruction_count
            said = module_state(module).summary
            say(f"{path}: ok, {count} instructions, {said}\n")
    return worst


COMMAND = own_command("verify", _configure, _run)
