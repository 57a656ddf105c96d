"""Plots of latency against message size: the S-curve of a module's collectives.

It needs matplotlib, the extra `plot`.

Regimes of a ring (see docs/s_curve.md): launch-bound, round-trip-bound,
bandwidth-bound.
"""

from __future__ import annotations

import importlib
import io
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.files import check_writable
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.latency.collective_time import CollectiveModel
from hlo_passes.scheduler.latency.collectives import Collective, describe
from hlo_passes.scheduler.latency.network import NotEstimated

FORMATS: Final = ("png", "svg")
_SMALLEST_BYTES: Final = 1 << 10
_LARGEST_BYTES: Final = 1 << 32
_STEPS_PER_OCTAVE: Final = 4


@dataclass(frozen=True, slots=True)
class Border:
    """A message size where one regime ends and the next begins."""

    size_bytes: float
    label: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Latency of one kind of collective on one target.

    Attributes:
        label: operation, groups, target.
        sizes_bytes: message sizes, ascending.
        latencies_us: of each size.
        points: (size, latency) of the module's own collectives.
        regimes: borders between them; () inside a partition, where a table gives the
            latency.
        model: that gave the latency.
    """

    label: str
    sizes_bytes: tuple[int, ...]
    latencies_us: tuple[float, ...]
    points: tuple[tuple[int, float], ...]
    regimes: tuple[Border, ...]
    model: str


def module_collectives(module: Module) -> list[Collective]:
    """The collectives of a module, in text order."""
    found = []
    for computation in scheduled_computations(module):
        for instruction in computation.instructions:
            try:
                collective = describe(instruction)
            except NotEstimated:
                continue
            if collective is not None:
                found.append(collective)
    return found


def sweep_sizes() -> tuple[int, ...]:
    """1 KiB to 4 GiB, four sizes per octave."""
    octaves = (_LARGEST_BYTES // _SMALLEST_BYTES).bit_length() - 1
    return tuple(
        int(_SMALLEST_BYTES * 2 ** (k / _STEPS_PER_OCTAVE))
        for k in range(octaves * _STEPS_PER_OCTAVE + 1)
    )


def collective_curves(
    collectives: Sequence[Collective], models: Sequence[CollectiveModel]
) -> list[Curve]:
    """One curve per kind, groups and target; those without a model are skipped."""
    kinds: dict[tuple[str, str, str], list[Collective]] = {}
    for collective in collectives:
        groups = collective.groups.to_text() if collective.groups else ""
        pairs = f"{len(collective.pairs)} pairs" if collective.pairs else ""
        key = (collective.kind, collective.form, groups or pairs)
        kinds.setdefault(key, []).append(collective)
    curves = []
    for model in models:
        for (kind, _, groups), members in kinds.items():
            curve = _curve(model, members)
            if curve is not None:
                label = f"{kind} {_short(groups)} {model.target.spec}"
                curves.append(replace(curve, label=label))
    return curves


def _short(text: str, longest: int = 28) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _curve(model: CollectiveModel, members: Sequence[Collective]) -> Curve | None:
    first = members[0]
    sizes, latencies = [], []
    model_name = ""
    for size in sweep_sizes():
        try:
            found = model.estimate(resized(first, size))
        except NotEstimated:
            continue
        sizes.append(size)
        latencies.append(found.us)
        model_name = found.model
    if not sizes:
        return None
    points = []
    for member in members:
        try:
            points.append((member.transferred_bytes, model.estimate(member).us))
        except NotEstimated:
            continue
    return Curve(
        "",
        tuple(sizes),
        tuple(latencies),
        tuple(dict.fromkeys(points)),
        _regimes(model, first),
        model_name,
    )


def resized(collective: Collective, size_bytes: int) -> Collective:
    """The same collective moving another number of bytes."""
    before = collective.transferred_bytes
    scale = collective.accessed_bytes / before if before else 1.0
    return replace(
        collective,
        transferred_bytes=size_bytes,
        accessed_bytes=int(size_bytes * scale),
    )


def _regimes(model: CollectiveModel, collective: Collective) -> tuple[Border, ...]:
    """Where launch, round trips and bandwidth each start to dominate.

    Wire time is linear in the message, launch and round trips do not depend on it, and
    up to one chunk per step neither does preparation.
    """
    size = model.config.chunk_size_bytes
    try:
        parts = model.estimate(resized(collective, size)).parts_us
    except NotEstimated:
        return ()
    wire = parts.get("wire", 0.0)
    if not wire:
        return ()
    per_step = parts["rtt"] + parts["preparation"]
    found = [Border(size * per_step / wire, "round trips | bandwidth")]
    if parts["launch"] > per_step:
        launch_bytes = size * (parts["launch"] - per_step) / wire
        found.insert(0, Border(launch_bytes, "launch | round trips"))
    return tuple(found)


def plot_module(
    module: Module, models: Sequence[CollectiveModel], file_format: str
) -> bytes:
    """Draw latency and bandwidth of a module's collectives on some targets.

    Args:
        module: whose collectives are drawn; its own sizes are marked.
        models: one per target.
        file_format: one of `FORMATS`.

    Raises UsageError U210 (matplotlib is missing), U211 (nothing to draw).
    """
    curves = collective_curves(module_collectives(module), models)
    if not curves:
        raise UsageError(
            "the module has no collective that the model can draw",
            code="U211",
            hint="--extended gives a price where XLA's model gives up",
        )
    return draw(curves, file_format)


def draw(curves: Sequence[Curve], file_format: str) -> bytes:
    """Draw latency above and algorithm bandwidth below."""
    figure = new_figure((9.0, 9.0))
    latency, bandwidth = figure.subplots(2, 1, sharex=True)
    for number, curve in enumerate(curves):
        color = f"C{number % 10}"
        latency.plot(
            curve.sizes_bytes, curve.latencies_us, color=color, label=curve.label
        )
        speeds = _gb_per_s(curve.sizes_bytes, curve.latencies_us)
        bandwidth.plot(curve.sizes_bytes, speeds, color=color, label=curve.label)
        if curve.points:
            sizes, times = zip(*curve.points, strict=True)
            latency.plot(sizes, times, "o", color=color)
            bandwidth.plot(sizes, _gb_per_s(sizes, times), "o", color=color)
        for border in curve.regimes:
            for axes in (latency, bandwidth):
                axes.axvline(border.size_bytes, color=color, linestyle=":", linewidth=1)
            latency.annotate(
                border.label,
                (border.size_bytes, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -10 - 9 * (number % 6)),
                textcoords="offset points",
                ha="center",
                fontsize=7,
                color=color,
            )
    latency.set(xscale="log", yscale="log", ylabel="latency, us")
    bandwidth.set(
        xscale="log", ylabel="message / latency, GB/s", xlabel="message, bytes"
    )
    latency.legend(fontsize=7)
    for axes in (latency, bandwidth):
        axes.grid(visible=True, which="major", alpha=0.3)
    return picture_bytes(figure, file_format)


def plot_format(path: str) -> str:
    """The picture format that a file's name asks for.

    Raises UsageError U212 for another kind of file, U003 if it cannot be written.
    """
    suffix = pathlib.PurePath(path).suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise UsageError(
            f"--plot={path}: cannot draw this kind of file",
            code="U212",
            hint=f"use a name that ends in .{' or .'.join(FORMATS)}",
        )
    check_writable(path)
    return suffix


def new_figure(size_inches: tuple[float, float]) -> Any:
    """An empty matplotlib figure. Raises UsageError U210 without matplotlib."""
    try:
        figure_class = importlib.import_module("matplotlib.figure").Figure
    except ImportError as problem:
        raise UsageError(
            "drawing needs matplotlib",
            code="U210",
            hint="pip install matplotlib",
        ) from problem
    return figure_class(figsize=size_inches, layout="constrained")


def picture_bytes(figure: Any, file_format: str) -> bytes:
    """The figure as a file, without date and with fixed ids, to be reproducible."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if file_format == "svg" else {"Software": None}
    importlib.import_module("matplotlib").rcParams["svg.hashsalt"] = "hlo-passes"
    figure.savefig(buffer, format=file_format, metadata=metadata)
    return buffer.getvalue()


def _gb_per_s(sizes: Sequence[int], latencies: Sequence[float]) -> list[float]:
    return [
        size / us / 1e3 if us else 0.0
        for size, us in zip(sizes, latencies, strict=True)
    ]
