"""The best flags as a file of variables: `set -a; . ./flags.env; python train.py`.

XLA_FLAGS="--xla_gpu_pipeline_all_gather=on"
"""

from __future__ import annotations

from hlo_passes.scheduler.tuning.result import TuneResult


def env_file(result: TuneResult) -> str:
    """The file's text, after a comment: what it gives, and how sure that is."""
    change = f"{100.0 * result.change:+.1f}% of the step, predicted"
    lines = [f"# {result.name} on {result.machine}: {change}"]
    lines += [f"# {doubt}" for doubt in result.doubts]
    lines += [f"{name}={value}" for name, value in result.variables.items()]
    if result.flags:
        lines.append(f'{result.flags_variable}="{result.flags}"')
    return "".join(f"{line}\n" for line in lines)
