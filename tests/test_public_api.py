"""The public names: no more, no fewer, each with a docstring."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import hlo_passes
from hlo_passes import runtime
from tests.modules import REPOSITORY

#: What users rely on. A name that joins or leaves is a change of the interface: say so
#: in CHANGELOG.md.
NAMES = {
    "hlo_passes": """
        parse parse_shape verify
        Module Computation Instruction Shape Layout array_shape tuple_shape
        Pass ComputationPass PassContext Pricing Report Pipeline PipelineResult
        HloError ParseError UsageError PipelineSpecError VerificationError
        UnsupportedHloError PassError
    """,
    "runtime": """
        assert_exposed_below assert_step_within
        emulate lower load partition PartitionedProgram compare install install_from_environment jit Installation
        Executable Comparison Difference Tolerance compare_outputs
        DeviceCountError CompilationError SignatureError NumericsMismatchError
        RuntimeHostError
    """,
}
PACKAGES = {"hlo_passes": hlo_passes, "runtime": runtime}
PUBLIC = [
    (f"{package}.{name}", getattr(PACKAGES[package], name))
    for package, names in NAMES.items()
    for name in sorted(names.split())
]


@pytest.mark.parametrize("package", NAMES)
def test_all_names_what_users_rely_on(package: str) -> None:
    exported = PACKAGES[package].__all__
    assert list(exported) == sorted(exported)
    assert set(exported) == set(NAMES[package].split())


@pytest.mark.parametrize("package", NAMES)
def test_nothing_else_is_public(package: str) -> None:
    module = PACKAGES[package]
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - {"annotations"} == set(module.__all__)


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_every_public_thing_has_a_docstring(name: str, value: object) -> None:
    documented = value.__doc__ or ""
    # A dataclass without a docstring has its signature for one.
    assert documented.strip()
    assert not documented.startswith(f"{name.rpartition('.')[2]}(")
    if not inspect.isclass(value):
        return
    for member, found in vars(value).items():
        function = getattr(found, "__func__", getattr(found, "fget", found))
        if not member.startswith("_") and inspect.isfunction(function):
            assert inspect.getdoc(function), f"{name}.{member}"


def test_errors_derive_from_one_root() -> None:
    for _, value in PUBLIC:
        if inspect.isclass(value) and issubclass(value, Exception):
            assert issubclass(value, hlo_passes.HloError)


def test_results_have_the_promised_attributes() -> None:
    """Of the contract: `.changed .passes .remarks`, `.matches .bitwise_equal`."""
    result = hlo_passes.PipelineResult((), 0, 0)
    assert (result.changed, result.passes, result.remarks) == (False, (), ())
    fields = set(runtime.Comparison.__dataclass_fields__)
    assert {"matches", "bitwise_equal", "max_abs_error", "max_ulp_error"} <= fields


@pytest.mark.parametrize(
    "module",
    [
        "hlo_passes",
        # What the process of `hlo-passes run` loads; its worker alone starts JAX.
        "hlo_passes.runtime.commands, hlo_passes.runtime.run_process, "
        "hlo_passes.runtime.plain.legalize, hlo_passes.runtime.memory",
    ],
)
def test_loads_neither_jax_nor_jaxlib(module: str) -> None:
    code = f"import sys, {module}; print({{'jax', 'jaxlib'}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "set()\n"


def test_a_name_that_runtime_does_not_have() -> None:
    with pytest.raises(AttributeError, match=r"runtime' has no attribute 'emulat'"):
        _ = runtime.emulat  # pyright: ignore[reportAttributeAccessIssue]
