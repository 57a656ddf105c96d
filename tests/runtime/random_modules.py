"""Random modules that make trouble for buffers: updates, loops, repeats, layouts."""

from __future__ import annotations

import numpy as np

#: A square that is not its own transpose.
_FIXED = "{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 8, 7, 6}, {5, 4, 3, 2}}"


class _Writer:
    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self.count = 0
        self.computations: list[str] = []
        self.channel = 0

    def pick(self, values: list[str]) -> str:
        return values[int(self.generator.integers(len(values)))]

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def body(self, values: list[str], length: int, depth: int) -> list[str]:
        """Lines that extend `values` (all f32[4,4]) by new ones."""
        lines: list[str] = []
        kinds = ["negate", "add", "maximum", "turn", "update", "permute", "reduce"]
        kinds += ["copy"]
        kinds += ["loop", "call"] if depth else []
        for _ in range(length):
            kind = self.pick(kinds)
            result = self.name()
            lines += getattr(self, f"_{kind}")(result, values, depth)
            values.append(result)
        return lines

    def _negate(self, result, values, depth):
        return [f"{result} = f32[4,4] negate({self.pick(values)})"]

    def _copy(self, result, values, depth):
        return [f"{result} = f32[4,4] copy({self.pick(values)})"]

    def _add(self, result, values, depth):
        return [f"{result} = f32[4,4] add({self.pick(values)}, {self.pick(values)})"]

    def _maximum(self, result, values, depth):
        first, second = self.pick(values), self.pick(values)
        return [f"{result} = f32[4,4] maximum({first}, {second})"]

    def _turn(self, result, values, depth):
        return [
            f"{result} = f32[4,4] transpose({self.pick(values)}), dimensions={{1,0}}"
        ]

    def _update(self, result, values, depth):
        part, at = self.name(), self.name()
        low = int(self.generator.integers(0, 3))
        return [
            f"{part} = f32[2,3] slice({self.pick(values)}), "
            f"slice={{[{low}:{low + 2}], [1:4]}}",
            f"{at} = s32[] constant({int(self.generator.integers(0, 4))})",
            f"{result} = f32[4,4] dynamic-update-slice({self.pick(values)}, {part}, "
            f"{at}, {at})",
        ]

    def _permute(self, result, values, depth):
        self.channel += 1
        shift = int(self.generator.integers(1, 4))
        pairs = ",".join(f"{{{s},{(s + shift) % 4}}}" for s in range(4))
        return [
            f"{result} = f32[4,4] collective-permute({self.pick(values)}), "
            f"channel_id={self.channel}, source_target_pairs={{{pairs}}}"
        ]

    def _reduce(self, result, values, depth):
        self.channel += 1
        groups = self.pick(["{{0,1,2,3}}", "{{0,1},{2,3}}", "{{0,3},{1,2}}"])
        start = self.name()
        return [
            f"{start} = f32[4,4] all-reduce-start({self.pick(values)}), "
            f"channel_id={self.channel}, replica_groups={groups}, "
            "use_global_device_ids=true, to_apply=%largest",
            f"{result} = f32[4,4] all-reduce-done({start})",
        ]

    def _call(self, result, values, depth):
        function, root = self.name(), self.name()
        inner = [self.name(), self.name()]
        lines = [f"{p} = f32[4,4] parameter({n})" for n, p in enumerate(inner)]
        lines += self.body(inner, 3, depth - 1)
        lines.append(f"ROOT {root} = f32[4,4] add({inner[-1]}, {self.pick(inner)})")
        self._computation(function, lines)
        first, second = self.pick(values), self.pick(values)
        return [f"{result} = f32[4,4] call({first}, {second}), to_apply={function}"]

    def _loop(self, result, values, depth):
        shape = "(s32[], f32[4,4], f32[4,4], f32[4,4])"
        body, condition = self.name(), self.name()
        state, number, one, more = (self.name() for _ in range(4))
        inner = [self.name() for _ in range(3)]
        lines = [
            f"{state} = {shape} parameter(0)",
            f"{number} = s32[] get-tuple-element({state}), index=0",
            *(
                f"{v} = f32[4,4] get-tuple-element({state}), index={k}"
                for k, v in enumerate(inner, 1)
            ),
            f"{one} = s32[] constant(1)",
            f"{more} = s32[] add({number}, {one})",
        ]
        lines += self.body(inner, 3, depth - 1)
        chosen = ", ".join(self.pick(inner) for _ in range(3))
        lines.append(f"ROOT {self.name()} = {shape} tuple({more}, {chosen})")
        self._computation(body, lines)
        state, number, limit = (self.name() for _ in range(3))
        self._computation(
            condition,
            [
                f"{state} = {shape} parameter(0)",
                f"{number} = s32[] get-tuple-element({state}), index=0",
                f"{limit} = s32[] constant({int(self.generator.integers(0, 4))})",
                f"ROOT {self.name()} = pred[] compare({number}, {limit}), direction=LT",
            ],
        )
        zero, start, whole = (self.name() for _ in range(3))
        given = ", ".join(self.pick(values) for _ in range(3))
        return [
            f"{zero} = s32[] constant(0)",
            f"{start} = {shape} tuple({zero}, {given})",
            f"{whole} = {shape} while({start}), condition={condition}, body={body}",
            f"{result} = f32[4,4] get-tuple-element({whole}), "
            f"index={int(self.generator.integers(1, 4))}",
        ]

    def _computation(self, name: str, lines: list[str]) -> None:
        joined = "\n  ".join(lines)
        self.computations.append(f"{name} {{\n  {joined}\n}}\n")


_LARGEST = """%largest {
  %l0 = f32[] parameter(0)
  %l1 = f32[] parameter(1)
  ROOT %l2 = f32[] maximum(%l0, %l1)
}
"""


def random_module(seed: int) -> str:
    """A module on four partitions, scheduled or not."""
    generator = np.random.Generator(np.random.PCG64(seed))
    writer = _Writer(generator)
    values = [writer.name(), writer.name()]
    lines = [f"{p} = f32[4,4] parameter({n})" for n, p in enumerate(values)]
    fixed = writer.name()
    lines.append(f"{fixed} = f32[4,4] constant({_FIXED})")
    values.append(fixed)
    lines += writer.body(values, int(generator.integers(4, 12)), 2)
    results = [writer.pick(values) for _ in range(int(generator.integers(1, 6)))]
    shape = ", ".join(["f32[4,4]"] * len(results))
    lines.append(f"ROOT {writer.name()} = ({shape}) tuple({', '.join(results)})")
    flag = ", is_scheduled=true" if generator.integers(2) else ""
    joined = "\n  ".join(lines)
    return (
        f"HloModule random{flag}, num_partitions=4\n\n{_LARGEST}\n"
        + "\n".join(writer.computations)
        + f"\nENTRY %main {{\n  {joined}\n}}\n"
    )
