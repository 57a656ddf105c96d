"""What is told of many small modules is what was told before, section by section.

Each section of each answer is a number or a digest in `recorded_answers.json`. Laws and
XLA's recordings say what is right; these say that nothing has changed unnoticed. After a
change that is meant: `pytest tests/scheduler/test_recorded_answers.py --update-cases`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import pathlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.ir.async_form import is_start
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.improver.search import Effort
from hlo_passes.scheduler.improver.whole_module import improve_module
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.memory.base_order import base_order
from hlo_passes.scheduler.memory.footprint import footprint
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.simulation.report import report_text
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.trace import trace_of
from hlo_passes.verify.finding import Finding
from tests.modules import CORPUS
from tests.scheduler.checker.generated_faults import LEGAL, MAKERS
from tests.scheduler.checker.schedule_faults import MUTATORS
from tests.scheduler.checker.scheduled_modules import (
    POLICIES,
    module_to_schedule,
    pipeline,
)
from tests.scheduler.improver.modules import conditions, order_text, random_module
from tests.scheduler.memory.programs import random_program

_RECORDED = pathlib.Path(__file__).with_name("recorded_answers.json")
_GOLDEN = [
    folder
    for folder in sorted((CORPUS / "golden" / "0.12.0.1").iterdir())
    if (folder / "latency-hiding-scheduler.after.hlo.gz").exists()
]
_MACHINES = (Topology(1, 1, 8), Topology(1, 2, 4), Topology(2, 1, 4))
_RULES = {
    "": Rules(),
    "one stream": Rules(1),
    "shared": Rules(2, share_links=True),
    "contention": Rules(contention=0.2),
    "xla": Rules(xla_statistic=True),
}

#: Other machines, prices and rules for the golden modules.
_OTHERWISE: dict[str, dict[str, Any]] = {
    "links": {"estimator": "ring", "share_links": True, "target": "a100_sxm_80"},
    "contention": {"estimator": "approximate", "contention": 0.3, "streams": 2},
    "xla": {"estimator": "gpu-approximate", "xla_statistic": True},
}


_SWITCHES = [
    field.name
    for field in fields(LatencyHidingScheduler)
    if isinstance(field.default, bool)
]


def _digest(value: object) -> object:
    """Numbers and short words as they are; all else as eight letters."""
    if value is None or isinstance(value, (int, float)):
        return value
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) < 24 else hashlib.sha256(text.encode()).hexdigest()[:8]


def _plain(value: Any) -> Any:
    """Data of Python's own types; instructions and computations by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: _plain(getattr(value, name)) for name in value.__dataclass_fields__
        }
    if isinstance(value, dict):
        kept = {str(_plain(k)): v for k, v in value.items()}
        return {k: _plain(v) for k, v in kept.items() if not k.endswith("seconds")}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.9g}")  # Python 3.12 adds more exactly
    return getattr(value, "name", value)


def _told(timeline: scheduler.Timeline) -> dict[str, object]:
    told = {key: _digest(value) for key, value in timeline.to_json().items()}
    told["text"] = _digest(report_text(timeline))
    told["trace"] = _digest(trace_of(timeline))
    return told


def _golden(name: str) -> dict[str, object]:
    file = CORPUS / "golden" / "0.12.0.1" / name
    text = gzip.decompress(
        (file / "latency-hiding-scheduler.after.hlo.gz").read_bytes()
    ).decode()
    module = hlo_passes.parse(text, filename=f"{name}.hlo")
    timeline = scheduler.simulate(module, with_range=True)
    told = _told(timeline)
    told["short text"] = _digest(report_text(timeline, rows=2, width=60))
    for words, options in _OTHERWISE.items():
        other = _told(scheduler.simulate(module, gpus_per_host=2, **options))
        told[words] = [other["step_time_us"], other["exposed_us"], _digest(other)]
    return told | _memory(module)


def _other_groups(text: str, draw: random.Random) -> str:
    """Some collectives of some devices, some permutes without some pairs."""

    def groups(match: re.Match[str]) -> str:
        ids = draw.sample(range(8), 8)
        size = draw.choice((8, 4, 2))
        rows = [ids[k : k + size] for k in range(0, 8, size)]
        return f"replica_groups={{{','.join(f'{{{_commas(row)}}}' for row in rows)}}}"

    def pairs(match: re.Match[str]) -> str:
        kept = sorted(draw.sample(range(8), draw.choice((1, 4, 8))))
        inside = ",".join(f"{{{k},{(k + 1) % 8}}}" for k in kept)
        return f"source_target_pairs={{{inside}}}"

    text = re.sub(r"replica_groups=\{\{[^=]*?\}\}", groups, text)
    return re.sub(r"source_target_pairs=\{\{[^=]*?\}\}", pairs, text)


def _commas(row: Sequence[int]) -> str:
    return ",".join(map(str, row))


def _random(seed: int) -> dict[str, object]:
    module, costs = random_module(seed)
    if seed % 2:
        text = _other_groups(module.to_text(), random.Random(seed))
        module = hlo_passes.parse(text)
    words, rules = [*_RULES.items()][seed % len(_RULES)]
    timeline = simulate_with(
        module,
        "made up",
        _MACHINES[seed % len(_MACHINES)],
        costs,
        rules,
        with_range=words != "xla",
    )
    return {"rules": words, **_told(timeline)}


def _improved(seed: int) -> dict[str, object]:
    module, costs = random_module(seed)
    effort = Effort(0.1, seed)
    factor = (1.0, 0.9, 1.2)[seed % 3]
    found = improve_module(
        module,
        conditions(costs, effort=effort, cap_bytes=lambda peak: int(peak * factor)),
    )
    return {
        "before_us": found.before_us,
        "after_us": found.after_us,
        "bytes": [found.peak_before_bytes, found.peak_after_bytes, found.cap_bytes],
        "kept": found.kept,
        "orders": _digest(order_text(module)),
        "computations": [
            _plain([one.kept, one.before_us, one.after_us, one.bound.us])
            for one in found.computations
        ],
    }


def _memory(module: hlo_passes.Module) -> dict[str, object]:
    memory = ModuleMemory(module)
    chosen = base_order(module)
    return {
        "memory": _digest(_plain(footprint(memory))),
        "base order": [chosen.scheduler, *chosen.considered_bytes.values()],
        "base orders": _digest(
            [[c.name, *(i.name for i in order)] for c, order in chosen.orders.items()]
        ),
    }


def _program(seed: int) -> dict[str, object]:
    text = random_program(random.Random(seed), calls_repeat=seed % 2 == 1)
    return _memory(hlo_passes.parse(text))


def _checked(module: hlo_passes.Module, draw: random.Random) -> dict[str, object]:
    """What the checker says with limits that are too small, and of any order."""
    told = {}
    options: dict[str, object] = {
        "parallel_collective_overlap_limit": draw.choice((1, 2, 4)),
        "memory_limit_bytes": draw.choice((1, 100, 1000)),
    }
    before = hlo_passes.parse(module.to_text())
    told["checked"] = _findings(check_schedule(module, before, **options))
    for computation in module.computations:
        if len(computation.instructions) > 3 and draw.random() < 0.7:
            order = [*computation.instructions]
            at = draw.randrange(len(order))
            order.insert(draw.randrange(len(order)), order.pop(at))
            computation.set_order(order)
    told["any order"] = _findings(check_schedule(module, before))
    return told


def _findings(found: Sequence[Finding]) -> list[object]:
    codes = sorted({f.code for f in found})
    return [*codes, _digest([str(f) for f in found])]


def _scheduled(seed: int) -> dict[str, object]:
    policy = [*POLICIES][seed % len(POLICIES)]
    draw = random.Random(seed)
    module = module_to_schedule(draw, (2, 4, 8)[seed % 3])
    run = pipeline(policy).run(module)
    told = {"policy": policy, "orders": _digest(order_text(module))}
    told["report"] = _digest([_plain(p.details) for p in run.passes])
    told |= _told(scheduler.simulate(module, estimator="sol"))
    return told | _memory(module) | _checked(module, draw)


def _switched(name: str) -> dict[str, object]:
    """One switch of the scheduler turned over, on modules with scheduling groups."""
    default = LatencyHidingScheduler.__dataclass_fields__[name].default
    word = name.replace("_", "-")
    told: dict[str, object] = {}
    for seed in range(6):
        draw = random.Random(f"{name} {seed}")
        module = module_to_schedule(draw, 4)
        if seed % 2:
            _group_some(module, draw)
        limit = draw.choice((100, 1000, 10_000))
        more = f",device-memory-bytes={limit},rerun=2" if seed % 3 == 0 else ""
        if seed >= 4:
            more += ",flavour=generic"
        spec = f"latency-hiding-scheduler{{{word}={str(not default).lower()}{more}}}"
        told[str(seed)] = _run(module, spec)
    return told


def _group_some(module: hlo_passes.Module, draw: random.Random) -> None:
    """One start and what is directly after its done, in one scheduling group."""
    for number, start in enumerate(module.entry.instructions):
        if is_start(start) and draw.random() < 0.5:
            for one in (start, *start.users):
                one.set_attribute(
                    "frontend_attributes", f'{{_scheduling_group_id="{number}"}}'
                )


def _run(module: hlo_passes.Module, spec: str) -> list[object]:
    """Orders, words and figures of a pass, or its error."""
    start = next((i.name for i in module.entry.instructions if is_start(i)), "")
    try:
        context = PassContext(explain=start)
        (run,) = hlo_passes.Pipeline.parse(spec, context).run(module).passes
    except hlo_passes.HloError as problem:
        return ["error", _digest(str(problem))]
    words = [*run.remarks, *run.explanations]
    return [_digest(order_text(module)), _digest(words), _digest(_plain(run.details))]


def _offered(seed: int) -> dict[str, object]:
    """The improver as a pass."""
    module = module_to_schedule(random.Random(seed), 4)
    pipeline("gpu" if "gpu" in POLICIES else next(iter(POLICIES))).run(module)
    options = (
        "effort=0.1,rounds=1",
        "effort=0",
        "effort=0.1,rounds=1,memory-cap=limit",
        "effort=0.1,rounds=1,refuse-regressions=true",
        "effort=0.1,rounds=2,seed=3,enable-collective-multi-streaming=true",
        "effort=0.1,rounds=1,parallel-collective-overlap-limit=4",
        "effort=0.1,rounds=1,min-gain=0.5",
        "effort=0.1,rounds=1,parallel-async-compute-limit=1",
    )[seed % 8]
    return {options: _run(module, f"schedule-improver{{{options}}}")}


def _made(kind: str) -> dict[str, object]:
    draw = random.Random(f"{kind} recorded")
    cases = [(MAKERS | LEGAL)[kind](draw) for _ in range(8)]
    told = {}
    for number, case in enumerate(cases):
        module = hlo_passes.parse(case.text)
        told[str(number)] = _findings(check_schedule(module, **case.options))
        told[f"{number} in any order"] = _checked(module, draw)["any order"]
    return told


def _faults(kind: str) -> dict[str, object]:
    """Modules of `random_program`, one with a fault, and how it differs from before."""
    draw, told = random.Random(f"{kind} recorded"), {}
    for seed in range(8):
        module = hlo_passes.parse(random_program(random.Random(seed)))
        before = hlo_passes.parse(module.to_text())
        mutant = MUTATORS[kind](draw, module)
        if mutant is not None:
            found = check_schedule(module, before, **mutant.options)
            told[str(seed)] = _findings(found)
            mutant.undo()
    return told


_ANSWERS: dict[str, Callable[[], dict[str, object]]] = {
    **{f"golden {f.name}": lambda n=f.name: _golden(n) for f in _GOLDEN[::2]},
    **{f"simulated {seed}": lambda s=seed: _random(s) for seed in range(25)},
    **{f"improved {seed}": lambda s=seed: _improved(s) for seed in range(12)},
    **{f"program {seed}": lambda s=seed: _program(s) for seed in range(40)},
    **{f"scheduled {seed}": lambda s=seed: _scheduled(s) for seed in range(60)},
    **{f"switched {name}": lambda n=name: _switched(n) for name in _SWITCHES},
    **{f"offered {seed}": lambda s=seed: _offered(s) for seed in range(16)},
    **{f"made {kind}": lambda k=kind: _made(k) for kind in (*MAKERS, *LEGAL)},
    **{f"fault {kind}": lambda k=kind: _faults(k) for kind in MUTATORS},
}


@pytest.mark.parametrize("name", _ANSWERS)
def test_answers_are_as_recorded(name: str, request: pytest.FixtureRequest) -> None:
    told = json.loads(json.dumps(_ANSWERS[name]()))
    recorded = json.loads(_RECORDED.read_text()) if _RECORDED.exists() else {}
    if request.config.getoption("--update-cases"):
        recorded = {k: v for k, v in recorded.items() if k in _ANSWERS} | {name: told}
        rows = (f"{json.dumps(k)}: {json.dumps(recorded[k])}" for k in sorted(recorded))
        _RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    assert told == recorded[name]
