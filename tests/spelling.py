"""One module in many spellings: everything that is computed from it must be equal.

    python -m tests.spelling [--random=N] [--part=K/N] [FILE|FOLDER ...]

`respell` writes a module as XLA's print options do, and in other ways that XLA reads.
`answers` asks every pass, estimator, the verifier, the checker and the simulation. The
law: a module gives the same answers in every spelling. The command holds it for the
modules of the corpus and random ones, prints every difference, and counts.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import hlo_passes
from hlo_passes.errors import HloError
from hlo_passes.ir.attribute_values import canonical_header
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.framework.registry import pass_targets
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from hlo_passes.scheduler.estimators.choice import ESTIMATOR_NAMES
from hlo_passes.scheduler.module_costs import estimate
from hlo_passes.scheduler.simulation.simulate import simulate
from hlo_passes.text.printer import signature_text
from hlo_passes.text.reader import parse_completely
from hlo_passes.verify import verifier
from tests.modules import CORPUS, SHARED, module_files, read_text
from tests.spmd_modules import spmd_module

#: Larger modules are left to the command's `--all`.
_LARGE = 2_000_000
_CALLEE_NAME = re.compile(r"%(?=[A-Za-z_])")
_CALLEES = re.compile(
    r"body|condition|to_apply|calls|select|scatter|.*_computations?|control-predecessors"
)
_WITH_DEFAULT_LAYOUT = re.compile(r"\{[0-9,]+\}$")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a module is written.

    Attributes:
        percent: `%` before names.
        operand_shapes: the shape before each operand.
        default_layouts: layouts that are the default are written.
        indent: blanks before an instruction.
        lines: each attribute and value in a line of its own, with comments.
        comments: before each computation and instruction.
        backwards: attributes in the opposite order, JSON with blanks and in quotes.
    """

    percent: bool = True
    operand_shapes: bool = False
    default_layouts: bool = True
    indent: int = 2
    lines: bool = False
    comments: bool = False
    backwards: bool = False


SPELLINGS: dict[str, Spelling] = {
    "from the IR": Spelling(),
    "no percent signs": Spelling(percent=False),
    "operand shapes": Spelling(operand_shapes=True),
    "no default layouts": Spelling(default_layouts=False),
    "indented": Spelling(indent=7),
    "several lines": Spelling(lines=True),
    "comments": Spelling(comments=True),
    "backwards": Spelling(backwards=True),
}


def respell(module: Module, how: Spelling) -> str:
    """The module as text in another spelling. Inline bodies become computations."""
    header = "".join(f", {k}={v}" for k, v in module.attributes.items())
    parts = [f"HloModule {module.name}{header}{module.tables.rstrip()}\n"]
    for computation in module.computations:
        signature = signature_text(computation)
        comment = "// a computation\n" if how.comments else ""
        parts.append(f"\n{comment}{_names(signature, how)}")
        parts += [_line(i, how) for i in computation.instructions]
        thread = computation.execution_thread
        parts.append("}" if thread == "main" else f'}}, execution_thread="{thread}"')
    return "\n".join(parts) + "\n"


def _names(text: str, how: Spelling) -> str:
    return text if how.percent else _CALLEE_NAME.sub("", text)


def _line(instruction: Instruction, how: Spelling) -> str:
    root = "ROOT " if instruction.is_root else ""
    operands = instruction.literal
    if operands is None:
        operands = ", ".join(
            (f"{_shape(o.shape, how)} " if how.operand_shapes else "") + f"%{o.name}"
            for o in instruction.operands
        )
        operands = _names(operands, how)
    attributes = dict(instruction.attributes)
    predecessors = ", ".join(f"%{p.name}" for p in instruction.control_predecessors)
    if predecessors:
        attributes["control-predecessors"] = f"{{{predecessors}}}"
    found = [_attribute(n, v, how) for n, v in attributes.items()]
    if how.backwards:
        found.reverse()
    comma = ",\n      /* more */ " if how.lines else ", "
    comment = "/* an instruction */ " if how.comments else ""
    name = _names(f"%{instruction.name}", how)
    shape = _shape(instruction.shape, how)
    return (
        f"{' ' * how.indent}{comment}{root}{name} = {shape} "
        f"{instruction.opcode}({operands}){''.join(comma + a for a in found)}"
    )


def _shape(shape: Shape, how: Spelling) -> str:
    """A shape; only plain layouts are left out, where they are the default."""
    if how.default_layouts:
        return shape.text
    if shape.is_tuple:
        return f"({', '.join(_shape(e, how) for e in shape.elements)})"
    plain = hlo_passes.parse_shape(shape.text_without_layout)
    return shape.text_without_layout if plain == shape else shape.text


def _attribute(name: str, text: str, how: Spelling) -> str:
    if not how.percent and _CALLEES.fullmatch(name):
        text = _CALLEE_NAME.sub("", text)
    # The blanks of a backend config belong to its value.
    is_list = text.startswith("{") and '"' not in text and name != "backend_config"
    if how.lines and is_list:
        text = text.replace("{", "{ ").replace(",", ",\n        ").replace("}", " }")
    if how.lines and name in ("metadata", "frontend_attributes"):
        text = "{ /* what it is */ " + text[1:-1] + "\n      }"
    if how.backwards and name == "backend_config" and text.startswith('{"'):
        text = _other_json(text)
    return f"{name}={text}"


def _other_json(text: str) -> str:
    """The same JSON dict in quotes, with blanks and its keys turned around."""
    try:
        value = json.loads(text)
    except ValueError:  # XLA calls it a dict, but it is not JSON
        return text
    return json.dumps(json.dumps(dict(reversed(value.items())), indent=1))


# -- answers -------------------------------------------------------------------


def reading(module: Module) -> list[object]:
    """All that the module says, in one spelling, instructions in their order."""
    rows: list[object] = [module.name, canonical_header(module.attributes)]
    for computation in module.computations:
        rows.append((computation.name, computation.root.name))
        rows += [
            (
                i.name, i.opcode, i.shape.text, i.literal,
                [o.name for o in i.operands],
                sorted(p.name for p in i.control_predecessors),
                i.attribute_text(),
            )
            for i in computation.instructions
        ]  # fmt: skip
    return rows


def _after_pass(name: str, module: Module) -> object:
    result = hlo_passes.Pipeline.parse(name).run(module)
    return result.changed, result.remarks, reading(module)


def _findings(found: list[hlo_passes.verify.Finding]) -> object:  # pyright: ignore
    return sorted((f.code, f.message, f.instruction, f.computation) for f in found)


def _verified(module: Module) -> object:
    return _findings(list(verifier.findings(module)))


def _checked(module: Module) -> object:
    return _findings(check_schedule(module)) if module.is_scheduled else None


def _estimated(name: str, module: Module) -> object:
    return estimate(module, estimator=name).rows


def _simulated(module: Module) -> object:
    if not module.is_scheduled:
        return None
    timeline = simulate(module)
    return timeline.to_text(), json.dumps(timeline.to_perfetto())


def questions() -> dict[str, Callable[[Module], object]]:
    """What is asked of a module, by name; each question takes a module of its own."""
    found: dict[str, Callable[[Module], object]] = {"reading": reading}
    for name in pass_targets():
        found[f"pass {name}"] = lambda module, name=name: _after_pass(name, module)
    for name in ESTIMATOR_NAMES:
        if name not in ("profile", "table"):
            found[f"estimator {name}"] = lambda m, name=name: _estimated(name, m)
    return found | {
        "verifier": _verified, "checker": _checked, "simulation": _simulated
    }  # fmt: skip


def answer(question: Callable[[Module], object], module: Module) -> object:
    """The answer, or the message without its place."""
    try:
        return question(module)
    except HloError as problem:
        return type(problem).__name__, problem.code, problem.message


@dataclass(slots=True)
class Count:
    """What was compared."""

    modules: int = 0
    spellings: int = 0
    results: int = 0
    differences: int = 0


def differences(
    text: str, count: Count, only: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Lines `spelling: question: what differs` for one module; none when it holds.

    `only`: names of spellings, all by default. Two more are the complete parser, which
    reads the same text, and the text that the IR prints alone.
    """
    asked = questions()
    expected = {q: answer(ask, hlo_passes.parse(text)) for q, ask in asked.items()}
    spelled: dict[str, Callable[[], Module]] = {
        "complete parser": lambda: parse_completely(text)
    }
    original = hlo_passes.parse(text)
    for name, how in SPELLINGS.items():
        written = respell(original, how)
        spelled[name] = lambda written=written: hlo_passes.parse(written)
    canonical = original.to_canonical_text()
    spelled["canonical"] = lambda: hlo_passes.parse(canonical)
    count.modules += 1
    for name, read in spelled.items():
        if only and name not in only:
            continue
        count.spellings += 1
        for question, ask in asked.items():
            try:
                found = answer(ask, read())
            except HloError as problem:
                count.differences += 1
                yield f"{name}: does not parse: {problem}"
                break
            count.results += 1
            if found != expected[question]:
                count.differences += 1
                yield f"{name}: {question}: {_first(expected[question], found)}"


def _first(one: object, other: object) -> str:
    """Where two answers part."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return f"{len(one)} and {len(other)} entries"
        for a, b in zip(one, other, strict=True):
            if a != b:
                return _first(a, b)
    a, b = str(one), str(other)
    at = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    return f"{a[max(0, at - 60) : at + 60]!r} and {b[max(0, at - 60) : at + 60]!r}"


# -- the command ---------------------------------------------------------------


def modules(random_count: int) -> Iterator[tuple[str, str]]:
    """(name, text): the corpus, distinct ones of the golden runs, and random ones."""
    seen: set[int] = set()
    for file in module_files(CORPUS, SHARED / "corpus"):
        text = read_text(file)
        if hash(text) not in seen and len(text) < _LARGE:
            seen.add(hash(text))
            yield str(file), text
    for k in range(random_count):
        yield f"random {k}", spmd_module(random.Random(k), devices=2 << (k % 3))


def main() -> int:
    """Hold the law; the number of modules that break it is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("places", nargs="*", type=pathlib.Path, metavar="FILE|FOLDER")
    parser.add_argument("--random", type=int, default=100, help="random modules")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth module from K on")
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    files = [
        file
        for place in options.places
        for file in (module_files(place) if place.is_dir() else [place])
    ]
    if missing := [str(f) for f in files if not f.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    chosen = [(str(f), read_text(f)) for f in files] or list(modules(options.random))
    chosen = chosen[first::step]
    count = Count()
    for name, text in chosen:
        for line in differences(text, count):
            print(f"{name}: {line}", flush=True)
    print(
        f"{count.modules} modules, {count.spellings} spellings, "
        f"{count.results} results, {count.differences} differences"
    )
    return min(count.differences, 1)


if __name__ == "__main__":
    sys.exit(main())
