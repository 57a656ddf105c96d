"""Which files are critical, and which tests are nearest to each.

The first row whose folder or file a path starts with counts. Tests are in the order in
which they run: the quickest and nearest first, since the first failure ends the run.
"""

from __future__ import annotations

from typing import Final

from tests.modules import REPOSITORY


def _files(folder: str, *first: str) -> tuple[str, ...]:
    """The test files of a folder, those that are named first, then by name."""
    found = sorted(
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / folder).rglob("test_*.py")
    )
    named = [f"{folder}/test_{name}.py" for name in first]
    return (*named, *(file for file in found if file not in named))


_SCHEDULER_CASES: Final = "tests/scheduler/passes/test_cases.py"
#: Much of all that is told, quickly.
_ANSWERS: Final = "tests/scheduler/test_recorded_answers.py"
_CONFORMANCE: Final = "tests/scheduler/conformance/test_conformance.py"
#: Rules and resources one by one, small modules, then XLA's own orders.
_SCHEDULER_LAWS: Final = tuple(
    dict.fromkeys(
        (
            *_files(
                "tests/scheduler/latency_hiding",
                "rules", "resources", "hints", "scenes", "groups", "constraints",
                "parts", "pass",
            )[:8],
            _SCHEDULER_CASES,
            _ANSWERS,
            _CONFORMANCE,
            *_files("tests/scheduler/latency_hiding"),
            *_files("tests/scheduler/passes"),
            *_files("tests/scheduler/conformance"),
            "tests/scheduler/test_commands.py",
            "tests/scheduler/test_plugins.py",
            "tests/tpu/test_scheduler.py",
            "tests/tpu/test_sparse_core_scheduling.py",
        )
    )
)  # fmt: skip
#: Folder or file -> tests.
NEAREST: Final[dict[str, tuple[str, ...]]] = {
    "scheduler/latency_hiding": _SCHEDULER_LAWS,
    "scheduler/checker": (
        "tests/scheduler/checker/test_checker.py",
        _ANSWERS,
        *_files("tests/scheduler/checker", "meetings", "memory"),
        "tests/tpu/test_checked_schedules.py",
    ),
    "scheduler/memory": (
        *_files("tests/scheduler/memory", "values", "pressure", "base_order"),
        "tests/scheduler/checker/test_memory.py",
        *_SCHEDULER_LAWS,
    ),
    "scheduler/simulation": (
        _ANSWERS,
        *_files("tests/scheduler/simulation", "laws", "causes", "devices"),
        *_files("tests/scheduler/page", "encoding"),
        "tests/scheduler/memory/test_footprint.py",
        "tests/tpu/test_sparse_core.py",
    ),
    "scheduler/improver": (
        "tests/scheduler/improver/test_window.py",
        _ANSWERS,
        *_files("tests/scheduler/improver", "search", "pass", "recordings"),
    ),
    "hlo_passes/verify": _files("tests/verify", "rules", "recorded_findings", "verify"),
    "hlo_passes/analysis": (
        *_files("tests/analysis"),
        *_files("tests/passes", "cases"),
        *_SCHEDULER_LAWS,
    ),
    "hlo_passes/passes": (
        *_files("tests/passes", "cases", "combiner_laws"),
        *_files("tests/conformance"),
    ),
    "hlo_passes/ir/async_form.py": (
        *_files("tests/ir", "async_form"),
        "tests/verify/test_rules.py",
        "tests/passes/test_cases.py",
        "tests/scheduler/checker/test_checker.py",
        *_SCHEDULER_LAWS,
    ),
    "runtime/plain": (
        "tests/runtime/test_collective_rules.py",
        "tests/runtime/test_plain.py",
        "tests/runtime/test_load.py",
        "tests/runtime/test_random_modules.py",
    ),
}
#: What is mutated where nothing is chosen: the code that must not be wrong.
CRITICAL: Final = (
    "hlo_passes/passes/combining/combining.py",
    "hlo_passes/passes/combining/gpu_combining.py",
    "scheduler/latency_hiding",
    "scheduler/checker",
    "scheduler/memory",
    "runtime/plain/legalize.py",
    "runtime/plain/collective_rules.py",
    "hlo_passes/ir/async_form.py",
    "hlo_passes/verify",
    "scheduler/simulation",
    "scheduler/improver",
)
#: What a mutant meets that its nearest tests let through.
WIDER: Final = (
    "tests/passes/test_cases.py",
    "tests/scheduler",
    "tests/passes",
    "tests/verify",
    "tests/ir",
    "tests/conformance",
    "tests/test_docs.py",
)


def nearest_tests(file: str) -> tuple[str, ...]:
    """The tests of a file, nearest first.

    Raises:
        LookupError: no row has the file.
    """
    for start, tests in NEAREST.items():
        if file.startswith(start):
            return tuple(dict.fromkeys(tests))
    raise LookupError(f"no row of {__name__} has {file}")
