"""The command `hlo-passes`: runs a subcommand and turns errors into exit codes.

hlo-passes opt INPUT --passes=PIPELINE
hlo-passes --help
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from absl import app, flags
from absl.flags import argparse_flags

from hlo_passes.cli.command import (
    COMMANDS,
    SUMMARIES,
    Command,
    command_targets,
    load_command,
)
from hlo_passes.cli.dump_arguments import add_dump_arguments, choose_dumps
from hlo_passes.errors import HloError, TooDeepError, nearest
from hlo_passes.exit_codes import INTERRUPTED, ExitCode, exit_code_of
from hlo_passes.progress import say, tell
from hlo_passes.targets import jax_is_usable

#: Options of absl that no parser knows.
_READ_BY_ABSL = frozenset({"--flagfile", "--undefok"})


class _Parser(argparse_flags.ArgumentParser):
    """An argument parser whose errors have our form, and exit code 2."""

    def error(self, message: str, hint: str = "") -> NoReturn:
        hint = hint or f"`{self.prog} --help` lists its arguments"
        tell(f"{self.prog}: error[U000]: {message}\n  help: {hint}\n")
        raise SystemExit(ExitCode.USAGE)

    def check_options(self, arguments: Sequence[str]) -> None:
        """Refuse an unknown option, and an option with an empty value.

        An empty value usually comes from a variable that is not set.
        """
        known = self._option_string_actions.keys()
        for before, argument in zip(("", *arguments), arguments, strict=False):
            if argument == "--":
                return
            option, equals, value = argument.partition("=")
            if option.startswith("--") and option not in known | _READ_BY_ABSL:
                own = [o for o in known if o[2:].removeprefix("no") not in flags.FLAGS]
                self.error(f"unknown option {option}", nearest(option, own))
            if not argument and "=" not in before:
                option, equals = before, "="
            if option.startswith("-") and equals and not value:
                self.error(f"argument {option}: expected a value, but it is empty")


_HEAD = """\
hlo-passes reads HLO, says what XLA's collectives cost and why they are exposed,
and runs XLA's collective and scheduling passes on it.

usage: hlo-passes SUBCOMMAND ...

  hlo-passes simulate step.hlo                            what is exposed, and why
  hlo-passes opt step.hlo --passes=gpu-schedule -o out.hlo      schedule as XLA does
  hlo-passes run out.hlo --against=step.hlo               still the same program?

Subcommands (`hlo-passes SUBCOMMAND --help` lists the arguments of one):
"""


def _overview() -> str:
    lines = [_HEAD.rstrip("\n")]
    for name, target in command_targets().items():
        summary = SUMMARIES.get(name) or load_command(target).help
        lines.append(f"  {name:12} {summary}")
    return "\n".join(lines) + "\n"


def _find(name: str) -> Command | None:
    target = COMMANDS.get(name) or command_targets().get(name)
    return load_command(target) if target else None


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (without the program's name); returns the exit code."""
    _open_closed_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
    except HloError as problem:
        tell(problem.render() + "\n")
        code = exit_code_of(problem)
    except RecursionError:
        deep = TooDeepError("this command")
        tell(deep.render() + "\n")
        code = exit_code_of(deep)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as problem:
        return _output_failed(problem)
    try:
        sys.stdout.flush()
    except OSError as problem:
        return _output_failed(problem, code)
    return code


def _output_failed(problem: OSError, code: int = ExitCode.DONE) -> int:
    """End the command after standard output could not be written."""
    # The interpreter flushes its buffer at the end: it must go elsewhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code or isinstance(problem, BrokenPipeError):
        # The reader of our output has closed it; nothing is wrong here.
        return code
    tell(f"hlo-passes: error[U003]: {problem}\n")
    return ExitCode.USAGE


def _open_closed_streams() -> None:
    """Open replacements for the standard streams that the caller closed."""
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:
        # Opened for reading: a write to it fails and is reported.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")


def _run(arguments: list[str]) -> int:
    if not arguments:
        tell("hlo-passes: error[U004]: no subcommand\n\n")
        tell(_overview())
        return ExitCode.USAGE
    if arguments[0] in ("-h", "--help", "help"):
        say(_overview())
        return ExitCode.DONE
    if arguments[0] == "--version":
        from importlib.metadata import version

        say(f"hlo-passes {version('hlo-passes')}\n")
        return ExitCode.DONE
    name = arguments[0]
    command = _find(name)
    if command is None:
        tell(f"hlo-passes: error[U004]: unknown subcommand {name}\n")
        near = nearest(name, command_targets())
        tell(f"  help: {near or '`hlo-passes --help` lists them'}\n")
        return ExitCode.USAGE
    parser = _Parser(
        prog=f"hlo-passes {name}", description=command.help, allow_abbrev=False
    )
    command.configure(parser)
    add_dump_arguments(name, parser)
    try:
        parser.check_options(arguments[1:])
        asked = parser.parse_args(arguments[1:])
        choose_dumps(name, asked)
        with jax_is_usable():
            return command.run(asked)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else ExitCode.USAGE


def console_main() -> None:
    """Run the console script."""
    app.run(_main_of_process, flags_parser=_leave_flags_to_subcommands)


def _main_of_process(argv: list[str]) -> int:
    code = main(argv[1:])
    # The process ends here: nobody needs to look for garbage in what it leaves.
    gc.freeze()
    return code


def _leave_flags_to_subcommands(argv: list[str]) -> list[str]:
    """Let each subcommand's parser read absl's flags along with its own."""
    flags.FLAGS.mark_as_parsed()
    return argv
