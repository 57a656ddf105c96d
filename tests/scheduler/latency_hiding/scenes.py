"""Small scheduled modules, said in a few words, and how the scheduler orders them.

scene = Scene()
scene.gather("s", "d", "p0")
scene.loop("f", "p1")
scene.root("d", "f")
scene.order()               "s f d t"
"""

from __future__ import annotations

import re
from typing import Any

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.approximate import GpuApproximateEstimator
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.result import ScheduleResult
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings

HEAD = (
    "HloModule m, is_scheduled=true, num_partitions={partitions}, "
    "entry_computation_layout={{{layout}}}\n\n"
)
ADD = """%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %add.r = f32[] add(%x, %y)
}
"""


def shape_text(elements: int, kind: str = "f32") -> str:
    """A flat array."""
    return f"{kind}[{elements}]{{0}}" if elements > 1 else f"{kind}[1]{{0}}"


class Scene:
    """An entry computation that grows line by line; parameters appear when named."""

    def __init__(self, partitions: int = 2) -> None:
        self.partitions = partitions
        self.lines: list[str] = []
        self.bodies: list[str] = [ADD]
        self.shapes: dict[str, str] = {}
        self.parameters: list[str] = []
        self.module: Module | None = None

    # -- instructions ---------------------------------------------------------

    def shape(self, name: str) -> str:
        """Shape of a value; a name `pN` that is new becomes a parameter f32[8]."""
        if name not in self.shapes:
            assert re.fullmatch(r"p[0-9]+", name), name
            self.parameter(name, shape_text(8))
        return self.shapes[name]

    def parameter(self, name: str, shape: str) -> None:
        self.shapes[name] = shape
        self.parameters.append(name)

    def add(self, name: str, shape: str, text: str) -> None:
        """Any instruction: `text` from the opcode on."""
        for operand in re.findall(r"%(p[0-9]+)\b", text):
            self.shape(operand)
        self.shapes[name] = shape
        self.lines.append(f"%{name} = {shape} {text}")

    def fusion(
        self, name: str, operand: str, kind: str = "kLoop", shape: str = "",
        opcode: str = "", attributes: str = "",
    ) -> None:  # fmt: skip
        """A fusion of one operand; its cost goes by its kind."""
        given = self.shape(operand)
        shape = shape or given
        same = shape == given
        inner = opcode or ("negate(%a)" if same else "custom-call(%a), "
                           'custom_call_target="resize"')  # fmt: skip
        self.bodies.append(
            f"%body.{name} (a: {bare(given)}) -> {bare(shape)} {{\n"
            f"  %a = {given} parameter(0)\n  ROOT %r.{name} = {shape} {inner}\n}}\n"
        )
        self.add(
            name,
            shape,
            f"fusion(%{operand}), kind={kind}, calls=%body.{name}{attributes}",
        )

    def loop(
        self, name: str, operand: str, shape: str = "", attributes: str = ""
    ) -> None:
        """A loop fusion, cost 1000."""
        self.fusion(name, operand, "kLoop", shape, attributes=attributes)

    def one(self, name: str, operand: str, shape: str = "") -> None:
        """Elementwise, cost 1."""
        shape = shape or self.shape(operand)
        if shape == self.shape(operand):
            self.add(name, shape, f"negate(%{operand})")
        else:
            self.add(name, shape, f"slice(%{operand}), slice={{[0:{elements(shape)}]}}")

    def gather(
        self, start: str, done: str, operand: str, groups: str = "{{0,1}}",
        attributes: str = "", result: str = "",
    ) -> None:  # fmt: skip
        """An all-gather pair."""
        given = self.shape(operand)
        result = result or shape_text(2 * elements(given))
        ids = ", channel_id=1, use_global_device_ids=true" if groups else ""
        groups = f", replica_groups={groups or '{}'}"
        self.add(
            start, f"({given}, {result})",
            f"all-gather-start(%{operand}){groups}{ids}, dimensions={{0}}{attributes}",
        )  # fmt: skip
        self.add(done, result, f"all-gather-done(%{start})")

    def reduce(
        self, start: str, done: str, operand: str, groups: str = "{{0,1}}"
    ) -> None:
        """An all-reduce pair."""
        shape = self.shape(operand)
        self.add(
            start,
            shape,
            f"all-reduce-start(%{operand}), replica_groups={groups}, channel_id=1, "
            "use_global_device_ids=true, to_apply=%add",
        )
        self.add(done, shape, f"all-reduce-done(%{start})")

    def permute(
        self, start: str, done: str, operand: str, attributes: str = ""
    ) -> None:
        """A collective-permute pair."""
        shape = self.shape(operand)
        self.add(
            start, f"({shape}, {shape}, u32[], u32[])",
            f"collective-permute-start(%{operand}), "
            f"source_target_pairs={{{{0,1}},{{1,0}}}}{attributes}",
        )  # fmt: skip
        self.add(done, shape, f"collective-permute-done(%{start})")

    def annotate(self, name: str, text: str) -> None:
        """Append attribute text to an instruction."""
        for k, line in enumerate(self.lines):
            if line.startswith(f"%{name} = "):
                self.lines[k] = line + text

    def root(self, *operands: str, name: str = "t") -> None:
        """The tuple of results."""
        for operand in operands:
            self.shape(operand)
        shape = "(" + ", ".join(self.shapes[o] for o in operands) + ")"
        self.add(name, shape, f"tuple({', '.join('%' + o for o in operands)})")

    # -- scheduling -----------------------------------------------------------

    def text(self) -> str:
        """The module."""
        shapes = ", ".join(self.shapes[p] for p in self.parameters)
        root = self.lines[-1].removeprefix("%").split(" = ")[0]
        head = HEAD.format(
            partitions=self.partitions, layout=f"({shapes})->{self.shapes[root]}"
        )
        signature = ", ".join(f"{p}: {bare(self.shapes[p])}" for p in self.parameters)
        lines = [
            f"  %{p} = {self.shapes[p]} parameter({k})"
            for k, p in enumerate(self.parameters)
        ]
        lines += [f"  {line}" for line in self.lines[:-1]]
        lines.append(f"  ROOT {self.lines[-1]}")
        entry = (
            f"ENTRY %main ({signature}) -> {bare(self.shapes[root])} {{\n"
            + "\n".join(lines)
            + "\n}\n"
        )
        return head + "\n".join(self.bodies) + "\n" + entry

    def schedule(
        self,
        settings: SchedulerSettings | None = None,
        estimator: Estimator | None = None,
        **changes: Any,
    ) -> ScheduleResult:
        """Schedule a fresh copy; `self.module` is that copy afterwards."""
        self.module = hlo_passes.parse(self.text())
        hlo_passes.verify(self.module)
        return schedule_module(
            self.module,
            estimator or GpuApproximateEstimator(),
            settings or SchedulerSettings(**changes),
            log_decisions=True,
        )

    def order(self, computation: str = "main", **changes: Any) -> str:
        """Names in their new order, parameters left out."""
        self.schedule(**changes)
        return names(self.module, computation)


def names(module: Module | None, computation: str = "main") -> str:
    """Names of a computation in order, parameters left out."""
    assert module is not None
    found = module.computation(computation)
    assert found is not None
    return " ".join(i.name for i in found.instructions if i.opcode != "parameter")


def elements(shape: str) -> int:
    """Elements of a flat array."""
    found = re.search(r"\[([0-9]*)\]", shape)
    return int(found[1] or 1) if found else 1


def bare(shape: str) -> str:
    """A shape without its layout."""
    return re.sub(r"\{[^}]*\}", "", shape)


def one_gather(fusions: int) -> Scene:
    """A gather and fusions that do not need it."""
    scene = Scene()
    scene.gather("s", "d", "p0")
    for k in range(fusions):
        scene.loop(f"f{k}", "p1")
    scene.root("d", *(f"f{k}" for k in range(fusions)))
    return scene


def chain_of_collectives() -> Scene:
    """A gather that needs an all-reduce, and twelve fusions."""
    scene = Scene()
    scene.reduce("sa", "d1", "p0")
    scene.gather("sb", "d2", "d1")
    for k in range(12):
        scene.loop(f"f{k}", "p1")
    scene.root("d2", *(f"f{k}" for k in range(12)))
    return scene


def two_gathers(fusions: int, groups: tuple[str, str] = ("{{0,1}}",) * 2) -> Scene:
    """Two gathers and fusions, none of which needs another."""
    scene = Scene(partitions=4 if "3" in groups[0] else 2)
    scene.gather("sa", "d1", "p0", groups[0])
    scene.gather("sb", "d2", "p1", groups[1])
    for k in range(fusions):
        scene.loop(f"f{k}", "p2")
    scene.root("d1", "d2", *(f"f{k}" for k in range(fusions)))
    return scene


def memory_scene() -> Scene:
    """A gather beside a chain with a large buffer and one with a small one."""
    scene = Scene()
    scene.parameter("p0", shape_text(1024))
    scene.parameter("p1", shape_text(1024))
    scene.gather("s", "d", "p0")
    scene.loop("big", "p1", shape_text(4096))
    scene.loop("r", "big", shape_text(1))
    scene.loop("sm", "p1", shape_text(2))
    scene.loop("r2", "sm", shape_text(1))
    scene.root("d", "r", "r2")
    return scene
