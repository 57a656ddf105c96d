"""The page docs/flags.md: what `xla-gpu` runs, and XLA's flag for every option."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from docs.passes_page import value_text
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from hlo_passes.scheduler.passes.xla_gpu_order import LEFT_OUT, STAGES, SWITCHES
from hlo_passes.xla_flags import FIRST_RELEASE, all_flags

HEAD = """\
# XLA's flags, and the passes that they steer

`python -m docs.generate` writes this page from the tables of the code; do not edit it.

A flag reaches a real compilation in two ways:

    XLA_FLAGS="--xla_gpu_pipeline_all_gather=on" python train.py
    options = {"xla_gpu_pipeline_all_gather": "COLLECTIVE_PIPELINING_MODE_ON"}
    jax.jit(step, compiler_options=options)

In `compiler_options` a choice has its whole name, and switches and numbers are
Python's: `True`, `4`. `hlo-passes tune` prints both forms.

Here an option of a pass has the name of the flag without `xla_gpu_` and
`experimental_`, with hyphens:

    hlo-passes opt m.hlo --passes=xla-gpu{pipeline-all-gather=on}

XLA's optimization level has no flag. `JAX_OPTIMIZATION_LEVEL=O1` sets it in a job,
`xla-gpu{optimization-level=O1}` here. From O1 on XLA pipelines and unrolls loops.

## What runs, in order

`xla-gpu` runs these passes where XLA's GPU compiler runs them. A pass without a word in
the last column always runs.
"""
LEFT = """\
Then come the passes of `gpu-schedule`: {names}.

XLA does more between them, which is left out here:

{left_out}

Those who need that use XLA itself: `hlo-passes lower --target=h100_sxm`.

## Flags

An option that several passes have is one flag of XLA.

| flag | option | default | passes |
|---|---|---|---|
"""


def _order() -> Iterator[str]:
    yield "| stage | pass | options of this run | runs when |"
    yield "|---|---|---|---|"
    for stage, steps in STAGES.items():
        for index, step in enumerate(steps):
            fixed = " ".join(
                f"`{k.replace('_', '-')}={v}`" for k, v in step.fixed.items()
            )
            yield (
                f"| {stage if not index else ''} | `{step.name}` | {fixed} | "
                f"{SWITCHES.get(step.switch, '')} |"
            )


def _flags() -> Iterator[str]:
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (name, option), flag in all_flags().items():
        kind = find_pass(name)
        (default,) = (
            value_text(f.default)
            for f in dataclasses.fields(kind)
            if f.name.replace("_", "-") == option
        )
        rows.setdefault((flag, option, default), []).append(name)
    for (flag, option, default), names in sorted(rows.items()):
        first = FIRST_RELEASE.get(flag)
        since = f" (from XLA {first} on)" if first else ""
        passes = ", ".join(f"`{name}`" for name in sorted(names))
        yield f"| `{flag}`{since} | `{option}` | {default} | {passes} |"


def page() -> str:
    """The whole page."""
    names = ", ".join(f"`{name}`" for name in GpuSchedule.members)
    left_out = "\n".join(f"- {what};" for what in LEFT_OUT)[:-1] + "."
    middle = LEFT.format(names=names, left_out=left_out)
    return "\n".join([HEAD, *_order(), "", middle + "\n".join(_flags())]) + "\n"
