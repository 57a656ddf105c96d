"""The page docs/flag_lists.md: lists of flags that others publish, and our levers."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.published import FLAGS, PUBLISHED
from hlo_passes.xla_release import RELEASES

HEAD = """\
# Flags of XLA that others recommend

`python -m docs.generate` writes this page from the tables of the code; do not edit it.

Which flags of XLA do others recommend, and what does `tune` do with each? NVIDIA,
OpenXLA, JAX and MaxText publish lists of flags for GPUs. In addition to its own search,
`hlo-passes tune` tries such a list on your program as it is:

    hlo-passes tune train.py:step --hosts=2 --also=maxtext-a3-2vm --also=nvidia-fsdp

`tune` prints one line for each list, `given list`. It leaves out flags of a published
list that your XLA does not know, and names them. `--also="--xla_gpu_...=... ..."` tries
your own list.

The lists were read in July and August 2026; JAX's list is as of its review of March
2025. Flags for dump folders are left out. A list is meant for the model and the
machines that it names; nobody says that it fits others.
"""
FLAGS_HEAD = """\
## What `tune` does with each flag

The lever is the row of [`levers.py`](../scheduler/tuning/levers.py) that sets the same
thing. If there is none, the next column gives the reason. A flag without a list is one
that the publishers' pages name without a value.

| flag | values | lists | lever | why there is none | releases |
|---|---|---|---|---|---|
"""


def _lists() -> Iterator[str]:
    yield "## The lists\n"
    for name, row in PUBLISHED.items():
        addresses = ", ".join(f"<{address}>" for address in row.sources)
        yield f"`{name}`: {row.who}. {addresses}\n"
        yield from (f"    {_setting(flag, value)}" for flag, value in row.flags)
        yield ""


def _setting(flag: str, value: str) -> str:
    return f"--{flag}={value}"


def _flags() -> Iterator[str]:
    values: dict[str, list[str]] = {}
    lists: dict[str, list[str]] = {}
    for name, row in PUBLISHED.items():
        for flag, value in row.flags:
            text = f"`{value}`" if value else "empty"
            if text not in values.setdefault(flag, []):
                values[flag].append(text)
            lists.setdefault(flag, []).append(name)
    for flag, known in sorted(FLAGS.items()):
        lever = known.lever
        assert not lever or lever in LEVERS, lever
        yield (
            f"| `{flag}` | {', '.join(values.get(flag, []))} | "
            f"{', '.join(lists.get(flag, []))} | {lever} | {known.why} | "
            f"{_releases(known.releases)} |"
        )


def _releases(names: tuple[str, ...]) -> str:
    if not names:
        return "none of ours"
    if len(names) == len(RELEASES):
        return "all"
    return f"from {names[0]} on"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_lists(), FLAGS_HEAD + "\n".join(_flags())]) + "\n"
