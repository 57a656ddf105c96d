"""Random scheduled modules for laws of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from hlo_passes.scheduler.estimators.table import TableEstimator
from tests.scheduler.latency_hiding.scenes import Scene, shape_text

#: Few values, so that ties are frequent.
COSTS = (0.0, 0.01, 1.0, 1.5, 3.0, 10.0, 100.0)
LATENCIES = (1.0, 5.0, 20.0, 100.0)
SIZES = (1, 8, 64, 100, 1000)
GROUPS = ("{{0,1},{2,3}}", "{{0,2},{1,3}}", "{{0,1,2,3}}", "{{0},{1},{2},{3}}")


@dataclass(frozen=True)
class RandomScene:
    """A module, and what its instructions cost."""

    scene: Scene
    costs: TableEstimator


@st.composite
def random_scenes(
    draw: st.DrawFn, largest: int = 40, hints: bool = False, grouped: bool = False
) -> RandomScene:
    """A graph of compute and pairs, with table costs.

    Args:
        draw: of hypothesis.
        largest: most values besides the parameters.
        hints: some pairs have hints, some send to the host.
        grouped: some values belong to scheduling groups.
    """
    scene = Scene(partitions=4)
    costs: dict[str, float] = {}
    latencies: dict[str, float] = {}
    for k in range(3):
        scene.parameter(f"p{k}", shape_text(draw(st.sampled_from(SIZES))))
    values = ["p0", "p1", "p2"]
    read: set[str] = set()
    for k in range(draw(st.integers(2, largest))):
        operand = draw(st.sampled_from(values[-12:]))
        kinds = ["loop", "loop", "one", "reduce", "permute", "add"]
        kind = draw(st.sampled_from([*kinds, "send"] if hints else kinds))
        read.add(operand)
        name = f"v{k}"
        costs[name] = draw(st.sampled_from(COSTS))
        if kind == "loop":
            scene.loop(name, operand, shape_text(draw(st.sampled_from(SIZES))))
        elif kind == "one":
            scene.add(name, scene.shape(operand), f"negate(%{operand})")
        elif kind == "add":
            others = [v for v in values if scene.shape(v) == scene.shape(operand)]
            other = draw(st.sampled_from(others))
            read.add(other)
            scene.add(name, scene.shape(operand), f"add(%{operand}, %{other})")
        elif kind == "send":
            latencies[f"start{k}"] = draw(st.sampled_from(LATENCIES))
            _send_to_host(scene, k, operand)
            continue
        else:
            start = f"start{k}"
            latencies[start] = draw(st.sampled_from(LATENCIES))
            costs[start] = draw(st.sampled_from(COSTS))
            if kind == "reduce":
                groups = draw(st.sampled_from(GROUPS))
                scene.reduce(start, name, operand, groups)
            else:
                scene.permute(start, name, operand)
            if hints and draw(st.booleans()):
                hint = draw(st.sampled_from(("force_delay_async", "force_early")))
                for half in (start, name):
                    scene.annotate(
                        half, f', frontend_attributes={{scheduler_hint="{hint}"}}'
                    )
            if grouped and draw(st.booleans()):
                number = draw(st.integers(1, 3))
                for half in (start, name):
                    scene.annotate(
                        half,
                        f', frontend_attributes={{_scheduling_group_id="{number}"}}',
                    )
        values.append(name)
    ends = [v for v in values if v not in read and not v.startswith("p")]
    scene.root(*(ends or values[-1:]))
    return RandomScene(scene, TableEstimator(costs, latencies))


def _send_to_host(scene: Scene, k: int, operand: str) -> None:
    """A pair that sends a value to the host."""
    shape = scene.shape(operand)
    more = f", channel_id={k + 1}, is_host_transfer=true"
    scene.add(f"token{k}", "token[]", "after-all()")
    scene.add(
        f"start{k}",
        f"({shape}, u32[], token[])",
        f"send(%{operand}, %token{k}){more}",
    )
    scene.add(f"sent{k}", "token[]", f"send-done(%start{k}){more}")
