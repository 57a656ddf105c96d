"""Modules of one operation, as XLA's logged samples describe them."""

from __future__ import annotations

import re

import hlo_passes
from hlo_passes import Module

_REDUCING = ("all-reduce", "reduce-scatter")


def collective_module(
    operation: str,
    operand: str,
    result: str,
    groups: str,
    *,
    num_partitions: int = 1,
    replica_count: int = 1,
    kernel_strategy: str = "",
    attributes: str = "channel_id=1, use_global_device_ids=true",
) -> Module:
    """A module whose `%start` (or `%sync`) is the operation and whose root is its user.

    `operation` is 'all-gather-start', 'async-start(all-to-all)' or a synchronous one.
    """
    inner = re.sub(r"async-start\((.*)\)", r"\1", operation)
    kind = inner.removesuffix("-start")
    dtype = operand.split("[", 1)[0]
    operands, results = operand.split(), result.split()
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    names = ", ".join(f"%p{k}" for k in range(len(operands)))
    inputs = operands[0] if len(operands) == 1 else f"({', '.join(operands)})"
    reducer = (
        f"%add {{\n  %a = {dtype}[] parameter(0)\n  %b = {dtype}[] parameter(1)\n"
        f"  ROOT %c = {dtype}[] add(%a, %b)\n}}\n\n"
        if kind in _REDUCING
        else ""
    )
    where = "source_target_pairs" if kind == "collective-permute" else "replica_groups"
    parts = [f"{where}={groups}"]
    if kind in ("all-to-all", "collective-permute", "collective-broadcast"):
        attributes = attributes.replace(", use_global_device_ids=true", "")
    parts.insert(0, attributes) if attributes else None
    if kind in ("all-gather", "reduce-scatter", "all-to-all"):
        parts.append("dimensions={0}")
    if reducer:
        parts.append("to_apply=%add")
    if kernel_strategy:
        parts.append(
            'backend_config={"collective_backend_config":{"is_sync":false,'
            f'"kernel_strategy":"KERNEL_STRATEGY_{kernel_strategy}"}}}}'
        )
    text = ", ".join(parts)
    header = "HloModule m"
    if num_partitions > 1:
        header += f", num_partitions={num_partitions}"
    if replica_count > 1:
        header += f", replica_count={replica_count}"
    if operation.startswith("async-start"):
        inner_names = names.replace("%p", "%q")
        parameters = "".join(
            f"  %q{k} = {shape} parameter({k})\n" for k, shape in enumerate(operands)
        )
        body = (
            f"%wrapped {{\n{parameters}"
            f"  ROOT %inner = {result} {kind}({inner_names}), {text}\n}}\n\n"
        )
        given = ", ".join(operands)
        lines = [
            f"%start = (({given}), {result}) async-start({names}), calls=%wrapped",
            f"ROOT %done = {result} async-done(%start)",
        ]
        return _module(header, reducer + body, operands, lines)
    if not operation.endswith("-start"):
        lines = [
            f"%sync = {result} {operation}({names}), {text}",
            f"ROOT %done = {result} negate(%sync)",
        ]
        return _module(header, reducer, operands, lines)
    shape = result if kind == "all-reduce" else f"({inputs}, {result})"
    lines = [
        f"%start = {shape} {operation}({names}), {text}",
        f"ROOT %done = {result} {kind}-done(%start)",
    ]
    return _module(header, reducer, operands, lines)


def _module(header: str, before: str, operands: list[str], lines: list[str]) -> Module:
    given = [f"%p{k} = {shape} parameter({k})" for k, shape in enumerate(operands)]
    body = "\n".join(f"  {line}" for line in [*given, *lines])
    return hlo_passes.parse(f"{header}\n\n{before}ENTRY %main {{\n{body}\n}}\n")


def fusion_module(called: str, kind: str) -> Module:
    """A module whose root is a fusion that calls the last of the computations given."""
    body = re.split(r"(?m)^(?=%\S+ \()", called)[-1]
    name = re.match(r"%(\S+)", body)
    root = re.search(r"ROOT %?\S+ = (\([^=]*?\)|\S+) [a-z-]+\(", body)
    assert name is not None
    assert root is not None
    parameters = sorted(
        (int(number), shape)
        for shape, number in re.findall(r"= (\S+|\([^=]*\)) parameter\((\d+)\)", body)
    )
    lines = "".join(f"  %p{n} = {s} parameter({n})\n" for n, s in parameters)
    names = ", ".join(f"%p{n}" for n, _ in parameters)
    return hlo_passes.parse(
        f"HloModule m\n\n{called}\n\nENTRY %main {{\n{lines}"
        f"  ROOT %f = {root[1]} fusion({names}), kind={kind}, calls=%{name[1]}\n}}\n"
    )
