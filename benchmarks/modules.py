"""Modules to measure on: optional public ones, the project's own, and made-up sizes."""

from __future__ import annotations

import gzip
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


def read_text(file: pathlib.Path) -> str:
    """The text of a module file, unpacked."""
    data = file.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def large_modules(minimum_bytes: int) -> list[tuple[str, str]]:
    """(name, text) of every module at hand above a size, largest first.

    Of XLA's dumps of one module, the one that its scheduler read represents all.
    """
    found = []
    for root in (SHARED / "corpus", SHARED / "golden", REPOSITORY / "corpus"):
        for file in sorted(root.rglob("*.hlo*")) if root.is_dir() else ():
            dumped = ".before." in file.name or ".after." in file.name
            if dumped and file.name.split(".")[:2] != [
                "latency-hiding-scheduler",
                "before",
            ]:
                continue
            text = read_text(file)
            if len(text) >= minimum_bytes:
                found.append((str(file.relative_to(root.parent)), text))
    return sorted(found, key=lambda item: (-len(item[1]), item[0]))


def synthetic_module(instructions: int) -> str:
    """A scheduled module of that many instructions in computations of 1000."""
    per_computation = 1000
    parts = ["HloModule synthetic, is_scheduled=true, num_partitions=8\n"]
    count = max(1, instructions // per_computation)
    for c in range(count):
        entry = "ENTRY " if c == count - 1 else ""
        lines = [f"{entry}%c{c} (p: f32[8,128]) -> f32[8,128] {{"]
        lines.append("  %p." + str(c) + " = f32[8,128]{1,0} parameter(0)")
        last = f"p.{c}"
        for k in range(per_computation - 2):
            name = f"add.{c}.{k}"
            lines.append(
                f"  %{name} = f32[8,128]{{1,0}} add(%{last}, %p.{c}), "
                f'metadata={{op_name="jit(f)/layer_{c}/add" source_line={k + 1}}}'
            )
            last = name
        lines.append(f"  ROOT %r.{c} = f32[8,128]{{1,0}} negate(%{last})")
        lines.append("}\n")
        parts.append("\n".join(lines))
    return "\n".join(parts)
