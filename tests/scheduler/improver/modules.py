"""Random scheduled modules with loops, several streams and buffers that share memory.

module, costs = random_module(seed=3)
conditions(costs)      how `improve_module` is called for it
problems(module, costs, settings)     its computations as search problems
"""

from __future__ import annotations

import random
from typing import Any

import hlo_passes
from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.table import TableEstimator
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.improver.problem import (
    Environment,
    Problem,
    make_problem,
    run_us,
)
from hlo_passes.scheduler.improver.whole_module import Conditions
from hlo_passes.scheduler.latency_hiding.driver import computations_to_schedule
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.step import run_step

MACHINE = Topology(1, 1, 8)
_ADD = """%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}
"""
_COND = """%cond{k} (c{k}: (s32[], {shape})) -> pred[] {{
  %c{k} = (s32[], {shape}) parameter(0)
  %i{k} = s32[] get-tuple-element(%c{k}), index=0
  ROOT %m{k} = pred[] compare(%i{k}, %i{k}), direction=LT
}}
"""
#: Costs with few values, so that ties are frequent.
_COSTS = (0.0, 1.0, 1.5, 3.0, 10.0, 40.0)
_LATENCIES = (2.0, 5.0, 20.0, 60.0)
_SIZES = (8, 64, 100, 1000)
_GROUPS = ("{0,1,2,3,4,5,6,7}",)


class _Writer:
    """Computations line by line, with what their instructions cost."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.costs: dict[str, float] = {}
        self.latencies: dict[str, float] = {}
        self.bodies: list[str] = []
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def fill(self, values: dict[str, str], length: int, loops: bool) -> list[str]:
        """Lines of a computation; `values` has its arrays, by name, and gets more."""
        lines: list[str] = []
        kinds = ["work"] * 5 + ["add"] * 2 + ["reduce"] * 3 + ["copy", "permute"]
        for _ in range(length):
            operand = self.draw.choice([*values][-8:])
            shape = values[operand]
            kind = self.draw.choice([*kinds, "loop"] if loops else kinds)
            name = self.name("v")
            if kind == "work":
                size = self.draw.choice(_SIZES)
                self.costs[name] = self.draw.choice(_COSTS)
                shape = f"f32[{size}]{{0}}"
                lines.append(
                    f"%{name} = {shape} custom-call(%{operand}), "
                    'custom_call_target="work"'
                )
            elif kind == "add":
                alike = [v for v, s in values.items() if s == shape]
                self.costs[name] = self.draw.choice(_COSTS)
                other = self.draw.choice(alike)
                lines.append(f"%{name} = {shape} add(%{operand}, %{other})")
            elif kind == "loop":
                lines += self._loop(name, operand, shape)
            else:
                lines += self._pair(kind, name, operand, shape)
            values[name] = shape
        return lines

    def _pair(self, kind: str, name: str, operand: str, shape: str) -> list[str]:
        copy, start = self.name("copy"), self.name("start")
        line = self._copy(copy, operand, shape)
        operand = copy
        self.latencies[start] = self.draw.choice(_LATENCIES)
        own = _GROUPS[0] if len(_GROUPS) == 1 else self.draw.choice(_GROUPS)
        groups = f"replica_groups={{{own}}}, use_global_device_ids=true"
        channel = f"channel_id={self.count}"
        if kind == "reduce":
            begin = f"{shape} all-reduce-start(%{operand}), {channel}, {groups}"
            begin += ", to_apply=%sum"
            end = "all-reduce-done"
        elif kind == "permute":
            pairs = ",".join(f"{{{k},{(k + 1) % 8}}}" for k in range(8))
            begin = f"({shape}, {shape}) collective-permute-start(%{operand}), "
            begin += f"{channel}, source_target_pairs={{{pairs}}}"
            end = "collective-permute-done"
        else:
            begin = f"({shape}, {shape}, u32[]) copy-start(%{operand})"
            end = "copy-done"
        return [line, f"%{start} = {begin}", f"%{name} = {shape} {end}(%{start})"]

    def _copy(self, name: str, operand: str, shape: str) -> str:
        """A copy that nothing else reads, as copy insertion would leave it."""
        self.costs[name] = self.draw.choice(_COSTS)
        return f"%{name} = {shape} copy(%{operand})"

    def _loop(self, name: str, operand: str, shape: str) -> list[str]:
        k = self.name("l")
        state = f"(s32[], {shape})"
        inner = {f"v{k}": shape}
        lines = self.fill(inner, self.draw.randint(3, 8), loops=False)
        last = next(v for v in reversed(inner) if inner[v] == shape)
        body = "\n  ".join(lines)
        self.bodies.append(
            f"""%body{k} (t{k}: {state}) -> {state} {{
  %t{k} = {state} parameter(0)
  %n{k} = s32[] get-tuple-element(%t{k}), index=0
  %v{k} = {shape} get-tuple-element(%t{k}), index=1
  {body}
  ROOT %r{k} = {state} tuple(%n{k}, %{last})
}}
"""
        )
        self.bodies.append(_COND.format(k=k, shape=shape))
        return [
            f"%i{k}.0 = s32[] constant(0)",
            self._copy(f"i{k}.c", operand, shape),
            f"%i{k}.t = {state} tuple(%i{k}.0, %i{k}.c)",
            f"%w{k} = {state} while(%i{k}.t), condition=%cond{k}, body=%body{k}, "
            'backend_config={"known_trip_count":{"n":"3"}}',
            f"%{name} = {shape} get-tuple-element(%w{k}), index=1",
        ]


def random_module(
    seed: int, length: int = 25, loops: bool = True
) -> tuple[Module, TableEstimator]:
    """A module in a random legal order, and what its instructions cost."""
    writer = _Writer(seed)
    shapes = {f"p{k}": f"f32[{size}]{{0}}" for k, size in enumerate(_SIZES[:3])}
    lines = [
        f"%{name} = {shape} parameter({k})"
        for k, (name, shape) in enumerate(shapes.items())
    ]
    values = dict(shapes)
    lines += writer.fill(values, length, loops)
    results = [*values][-3:]
    result = f"({', '.join(values[v] for v in results)})"
    operands = ", ".join(f"%{v}" for v in results)
    lines.append(f"ROOT %out = {result} tuple({operands})")
    given = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
    text = "HloModule random, is_scheduled=true, num_partitions=8\n\n"
    text += _ADD + "\n" + "\n".join(writer.bodies)
    text += f"\nENTRY %main ({given}) -> {result} {{\n  " + "\n  ".join(lines) + "\n}\n"
    module = hlo_passes.parse(text)
    hlo_passes.verify(module)
    return module, TableEstimator(writer.costs, writer.latencies)


def conditions(costs: Estimator, **changes: Any) -> Conditions:
    """How a module with such costs is improved; `changes` are fields or settings."""
    fields = set(Conditions.__dataclass_fields__)
    settings = {k: v for k, v in changes.items() if k not in fields}
    own = {k: v for k, v in changes.items() if k in fields}
    return Conditions(
        topology=MACHINE,
        prices=costs,
        xla_prices=costs,
        settings=SchedulerSettings(**settings),
        rules=Rules(),
        **own,
    )


def problems(module: Module, costs: Estimator, **settings: Any) -> list[Problem]:
    """Every computation with asynchronous work, in its present order.

    Without those that write in place what is still read: copies are missing there.
    """
    step = run_step(module, MACHINE, costs, Rules())
    tracker = make_tracker(SchedulerSettings(**settings))
    environment = Environment(costs, tracker, ModuleMemory(module), {})
    chosen = set(computations_to_schedule(module, tracker))
    found = []
    for computation in computations_post_order(module, fusions=False):
        program = step.programs.get(computation)
        if program is None:
            continue
        if computation in chosen:
            problem = make_problem(program, environment)
            if problem.breaks_edge is None:
                found.append(problem)
        environment.steps[computation] = run_us(program, environment.steps)
    return found


def order_text(module: Module) -> str:
    """The names of all instructions, in order."""
    return "\n".join(
        " ".join(i.name for i in c.instructions) for c in module.computations
    )
