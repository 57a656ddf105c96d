"""Which files are critical, and which tests are nearest to each.

The first row whose folder or file a path starts with counts. Tests are in the order in
which they run: the quickest and nearest first, since the first failure ends the run.
"""

from __future__ import annotations

from typing import Final

_SCHEDULER_LAWS: Final = (
    "tests/scheduler/latency_hiding",
    "tests/scheduler/passes",
    "tests/scheduler/conformance",
)
#: Folder or file -> tests.
NEAREST: Final[dict[str, tuple[str, ...]]] = {
    "scheduler/latency_hiding": _SCHEDULER_LAWS,
    "scheduler/checker": ("tests/scheduler/checker",),
    "scheduler/memory": (
        "tests/scheduler/memory",
        "tests/scheduler/checker/test_memory.py",
        *_SCHEDULER_LAWS,
    ),
    "scheduler/simulation": ("tests/scheduler/simulation", "tests/scheduler/page"),
    "hlo_passes/verify": ("tests/verify",),
    "hlo_passes/analysis": (
        "tests/analysis",
        "tests/passes",
        *_SCHEDULER_LAWS,
    ),
    "hlo_passes/passes": (
        "tests/passes/test_cases.py",
        "tests/passes",
        "tests/conformance",
    ),
    "hlo_passes/ir/async_form.py": (
        "tests/ir",
        "tests/verify/test_rules.py",
        "tests/passes/test_cases.py",
        "tests/scheduler/checker/test_checker.py",
        *_SCHEDULER_LAWS,
    ),
    "runtime/plain": (
        "tests/runtime/test_plain.py",
        "tests/runtime/test_load.py",
        "tests/runtime/test_random_modules.py",
    ),
}
#: What is mutated where nothing is chosen: the code that must not be wrong.
CRITICAL: Final = (
    "hlo_passes/passes/combining.py",
    "hlo_passes/passes/gpu_combining.py",
    "scheduler/latency_hiding",
    "scheduler/checker",
    "scheduler/memory",
    "runtime/plain/legalize.py",
    "runtime/plain/collective_rules.py",
    "hlo_passes/ir/async_form.py",
    "hlo_passes/verify",
    "scheduler/simulation",
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
            return tests
    raise LookupError(f"no row of {__name__} has {file}")
