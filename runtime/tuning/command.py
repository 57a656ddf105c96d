"""`hlo-passes tune`: which of XLA's flags to set for a program, and what they give.

hlo-passes tune train.py:step --target=h100_sxm --hosts=2
hlo-passes tune step.mlir --budget=80 --memory=72GiB --output=flags.env
hlo-passes tune dump/ --json
hlo-passes tune train.py:step --also=maxtext-a3-1vm --also="--xla_gpu_...=..."
hlo-passes tune train.py:step --target=v5e --topology=2x4
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypedDict

from hlo_passes import files
from hlo_passes.cli.command import own_command, positive
from hlo_passes.errors import UsageError
from hlo_passes.executors.evaluator import Evaluator
from hlo_passes.executors.named import add_executor_argument, check_executor
from hlo_passes.exit_codes import INTERRUPTED, ExitCode
from hlo_passes.ir.module import Module
from hlo_passes.module_form import STABLEHLO, form_of
from hlo_passes.pricing import Pricing
from hlo_passes.progress import say, show_progress
from hlo_passes.runtime.program_option import add_program_arguments
from hlo_passes.runtime.tpu_commands import add_tpu_arguments, refuse_tpu_arguments
from hlo_passes.runtime.tuning.searching import fairly, searched, sigterm_interrupts
from hlo_passes.scheduler.command_arguments import (
    add_pricing_arguments,
    check_pricing_arguments,
    checked_pricing,
)
from hlo_passes.scheduler.estimators.choice import estimator_names
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.memory.footprint import available_bytes
from hlo_passes.scheduler.page.tuning import tune_page
from hlo_passes.scheduler.simulation.arguments import add_rules_arguments, rules_of
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tpu.chips import is_chip
from hlo_passes.scheduler.tuning.byte_text import bytes_from_text
from hlo_passes.scheduler.tuning.choices import choices_for
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.env_file import env_file
from hlo_passes.scheduler.tuning.facts import facts_of
from hlo_passes.scheduler.tuning.flag_list import TriedList, given_list
from hlo_passes.scheduler.tuning.in_program import changes_in_program
from hlo_passes.scheduler.tuning.own_order import improved
from hlo_passes.scheduler.tuning.own_passes import (
    OwnPassesEvaluator,
    OwnPassesWorkers,
)
from hlo_passes.scheduler.tuning.own_schedule import rules_for
from hlo_passes.scheduler.tuning.plugged_in import passes_for
from hlo_passes.scheduler.tuning.report import report_text
from hlo_passes.scheduler.tuning.result import TuneResult
from hlo_passes.scheduler.tuning.search import Search
from hlo_passes.scheduler.tuning.tpu_report import tpu_report_text
from hlo_passes.verify.verifier import verify

_BUDGET: Final = 40
_FLAGS: Final = "XLA_FLAGS"


def _configure(parser: argparse.ArgumentParser) -> None:
    add_program_arguments(parser)
    add_pricing_arguments(parser)
    add_tpu_arguments(parser)
    add_rules_arguments(parser)
    parser.add_argument(
        "--budget", type=positive, default=_BUDGET, metavar="N",
        help="combinations of flags that are compiled at most, the one without flags "
        f"included; default: {_BUDGET}",
    )  # fmt: skip
    parser.add_argument(
        "--memory", type=bytes_from_text, metavar="BYTES",
        help="the most memory that the step may need, as in 72GiB; default: what XLA "
        "takes of the target's",
    )  # fmt: skip
    parser.add_argument(
        "--cache", metavar="DIR", default=None,
        help="folder of what was compiled before, 'none' for none; default: "
        "hlo-passes/tune in the user's folder for caches",
    )  # fmt: skip
    parser.add_argument(
        "--also", type=given_list, action="append", default=[], metavar="FLAGS",
        help="try this list of flags as it is, too: text for XLA_FLAGS, or the name of "
        "a published list (docs/flag_lists.md); may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--plug-in", action="store_true",
        help="also compile the best with each of our passes that may help inside XLA's "
        "compilation (runtime.install; jax 0.12)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FLAGS.env",
        help="write the best as a file of variables for a shell",
    )  # fmt: skip
    parser.add_argument(
        "--html", metavar="FILE",
        help="a self-contained page: every combination, every lever, before and after",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument(
        "--processes", type=positive, default=1, metavar="N",
        help="combinations tried at once on this machine, each in its process; "
        "default: 1",
    )  # fmt: skip
    add_executor_argument(parser)


def _run(arguments: argparse.Namespace) -> int:
    # Refuse bad arguments before XLA compiles.
    check_pricing_arguments(arguments)
    check_executor(arguments.executor)
    files.check_outputs(None, arguments.output or "", arguments.html or "")
    began = time.monotonic()
    with sigterm_interrupts():
        result, text_of = _tuned(arguments, began)
    # Write the flags, and tell.
    if arguments.output:
        files.write_text(arguments.output, env_file(result))
    if arguments.json:
        sys.stdout.write(json.dumps(result.to_json(), indent=1) + "\n")
    else:
        say(text_of(result))
    return INTERRUPTED if result.search.interrupted else ExitCode.DONE


def _tuned(
    arguments: argparse.Namespace, began: float
) -> tuple[TuneResult, Callable[[Any], str]]:
    """What was found, and what makes its text."""
    if is_chip(arguments.target):
        from hlo_passes.runtime.tuning.tpu_command import tune_for_chips

        if not _is_program(arguments.function):
            raise UsageError(
                f"{arguments.function} is no program, and only XLA:TPU compiles one",
                code="U026",
                hint="name the program: FILE.py:FUNCTION or FILE.mlir",
            )
        return tune_for_chips(arguments, began), tpu_report_text
    refuse_tpu_arguments(arguments)
    if _is_program(arguments.function):
        return _tune_program(arguments, began), report_text
    return _tune_module(arguments, began), report_text


def _is_program(name: str) -> bool:
    """Whether it is what `lower` takes: a function or StableHLO, not a module."""
    if form_of(name) == STABLEHLO:
        return True
    return ":" in name and not pathlib.Path(name).exists()


def _tune_program(arguments: argparse.Namespace, began: float) -> TuneResult:
    """XLA compiles every combination."""
    from hlo_passes.runtime.gpu_aot import require_plug_in
    from hlo_passes.runtime.handed_over import require_transformations
    from hlo_passes.runtime.tuning.compiled_tuning import (
        compiled_first,
        compiled_result,
        evaluating,
    )
    from hlo_passes.runtime.tuning.evaluation import XlaEvaluator
    from hlo_passes.runtime.tuning.program import Program

    on = checked_pricing(arguments)
    require_plug_in(on.target)
    if arguments.plug_in:
        require_transformations()
    program = Program(
        arguments.function,
        arguments.args,
        on.target,
        arguments.topology,
        arguments.hosts,
        arguments.gpus_per_host,
        arguments.devices,
    )
    evaluator_of = partial(XlaEvaluator, program, Rules(), on=on)
    with evaluating(evaluator_of, arguments) as evaluator:
        first, module = compiled_first(evaluator, arguments)
        evaluator.settle_prices()
        facts = facts_of(module, Topology.parse(evaluator.traced.machine))
        choices = choices_for(facts, evaluator.release, is_ordered=bool(first.before))
        search = fairly(
            lambda: searched(
                arguments,
                choices.settings,
                evaluator,
                memory_bytes=_limit_bytes(arguments),
            ),
            evaluator.price_by_our_formulas,
        )
        # Given lists, the best again from its flags alone, what our order would give,
        # and what only the program can change.
        best = search.best
        result: dict[str, Any] = {}
        given_flags = os.environ.get(_FLAGS, "").strip()
        lists: list[TriedList] = []
        try:
            if not search.interrupted:
                lists.extend(
                    evaluator.listed(given, given_flags) for given in arguments.also
                )
            if best and not search.interrupted:
                result["alone"] = evaluator.alone(best, given_flags)
            if arguments.plug_in and not search.interrupted:
                tried = evaluator.plugged_in(
                    passes_for(facts),
                    best,
                    given_flags,
                    both_forms=True,
                    memory_bytes=_limit_bytes(arguments),
                )
                result["plugged_in"] = tuple(tried)
            if not search.interrupted:
                on, rules = evaluator.settled, evaluator.rules
                # What is there when somebody ends it stays.
                result.update(_afterwards(evaluator.module, best, on, rules))
        except KeyboardInterrupt:
            search.interrupted = True
        found = TuneResult(
            **compiled_result(evaluator, search, choices, began),
            **_priced_on(module, evaluator.settled, misleads=evaluator.misleads),
            given_flags=given_flags,
            lists=tuple(lists),
            installs=evaluator.release.calls_back_without_gpus,
            **result,
        )
        if arguments.html:
            on, rules = evaluator.settled, evaluator.rules
            page = tune_page(found, evaluator.module, on, rules)
            files.write_text(arguments.html, page)
        return found


def _tune_module(arguments: argparse.Namespace, began: float) -> TuneResult:
    """Our own passes make every combination of a dumped module."""
    if arguments.also or arguments.plug_in:
        option = "--also" if arguments.also else "--plug-in"
        raise UsageError(
            f"{option} needs XLA, and a dumped module is not compiled",
            hint="name the program: FILE.py:FUNCTION",
        )
    module = files.read_module(arguments.function)
    verify(module, allow_unknown=True)
    on = checked_pricing(arguments)
    evaluator = OwnPassesEvaluator.of(module, on, rules_of(arguments, module))
    found = reported(module, on)
    facts = facts_of(module, found.machine)
    choices = choices_for(facts, evaluator.release, is_ordered=True, has=evaluator.has)

    def settle(why: str) -> None:
        nonlocal evaluator
        evaluator = dataclasses.replace(evaluator, misleads=why)

    def search_own() -> Search:
        with Evaluator(
            evaluator.outcome, arguments.executor, arguments.processes
        ) as workers:
            return searched(
                arguments,
                choices.settings,
                OwnPassesWorkers(evaluator, workers),
                memory_bytes=_limit_bytes(arguments),
            )

    search = fairly(search_own, settle)
    show_progress("")
    best = search.best
    pipelines = {chosen: evaluator.pipeline(chosen) for chosen in search.tried}
    after: dict[str, Any] = {}
    if not search.interrupted:
        on, rules = evaluator.prices, evaluator.rules
        after = dict(_afterwards(evaluator.module, best, on, rules))
    result = TuneResult(
        **_priced_on(module, evaluator.prices, misleads=evaluator.misleads),
        name=arguments.function,
        release=evaluator.release,
        search=search,
        dropped=choices.dropped,
        given_flags="",
        is_compiled=False,
        pipelines=pipelines,
        compilations=0,
        seconds=time.monotonic() - began,
        remarks=search.tried[Combination()].remarks,
        **after,
    )
    if arguments.html:
        page = tune_page(result, evaluator.module, evaluator.prices, evaluator.rules)
        files.write_text(arguments.html, page)
    return result


def _afterwards(
    module_of: Callable[[Combination], Module],
    best: Combination,
    on: Pricing,
    rules: Rules,
) -> Iterator[tuple[str, Any]]:
    """What our order would give for the best, and what only the program can change."""
    yield "improved", improved(module_of(best), best, on, rules)
    in_program = changes_in_program(module_of(best), on, rules_for(best, rules))
    yield "in_program", in_program


def _limit_bytes(arguments: argparse.Namespace) -> int | None:
    """The memory that a step may take: as asked for, or what the GPU offers."""
    if arguments.memory is not None:
        return arguments.memory
    memory = target(arguments.target).memory_bytes
    return available_bytes(memory) if memory else None


class _PricedOn(TypedDict):
    """What a result says of its prices."""

    machine: str
    model: str


def _priced_on(module: Module, on: Pricing, *, misleads: str) -> _PricedOn:
    """The machine, and what gave the prices."""
    found = reported(module, on)
    model = f"costs: {'+'.join(estimator_names(found.on))}"
    if misleads:
        model += f" with --extended, as {misleads}"
    return {"machine": found.machine_line, "model": model}


TUNE = own_command("tune", _configure, _run)
