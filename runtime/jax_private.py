"""Every private name of jax and jaxlib that the runtime uses, in one place.

Public JAX cannot compile an HLO module that is not a JAX function, and cannot set the
passes that XLA leaves out. Each function here wraps one private name and says what it
was, so that the message shows where to look when a release moves it. Tried
with jax 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from hlo_passes.errors import HloError
from hlo_passes.xla_release import xla_release

#: What the XLA of this process does.
XLA: Final = xla_release(jax.__version__)

_TRANSFORMATION_NUMBERS = itertools.count(1)

#: References that this process keeps to everything that it passes to XLA as a callback.
_KEPT_REFERENCES: Final = 8
#: Removed callbacks that still answer: a compilation that has begun in another thread
#: may be about to call one.
_STILL_ANSWERING: Final = 64


class JaxChangedError(HloError):
    """A private name of jax or jaxlib is not where this package expects it."""

    default_code = "R001"


@contextlib.contextmanager
def _expected(what: str) -> Iterator[None]:
    try:
        yield
    except (ImportError, AttributeError) as problem:
        raise JaxChangedError(
            f"jax {jax.__version__} has no {what}: {problem}",
            hint="jax 0.10.2 and 0.12.0.1 are known to work; every private name "
            "is in runtime/jax_private.py",
        ) from problem


def text_to_proto(text: str) -> bytes:
    """A serialized HloModuleProto of HLO text; jax errors as XLA words them."""
    with _expected("jaxlib._hlo.hlo_module_from_text"):
        from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

        read = _hlo.hlo_module_from_text
    return read(text).as_serialized_hlo_module_proto()


def proto_to_text(proto: bytes) -> str:
    """HLO text of a serialized HloModuleProto, every constant in full."""
    with _expected("jaxlib._hlo.HloModule.from_serialized_hlo_module_proto"):
        from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

        options = _hlo.HloPrintOptions()
        options.print_large_constants = True
        module = _hlo.HloModule.from_serialized_hlo_module_proto(proto)
    return module.to_string(options)


def proto_to_stablehlo(proto: bytes) -> bytes:
    """StableHLO bytecode of a serialized HloModuleProto."""
    with _expected("jaxlib._jax.mlir.hlo_to_stablehlo"):
        from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

        convert = _jax.mlir.hlo_to_stablehlo
    return convert(proto)


def stablehlo_to_proto(stablehlo: bytes) -> bytes:
    """A serialized HloModuleProto of a StableHLO module (text or bytecode)."""
    with _expected("jaxlib._jax.mlir.mlir_module_to_xla_computation"):
        from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

        convert = _jax.mlir.mlir_module_to_xla_computation
    computation = convert(stablehlo, use_tuple_args=False, return_tuple=False)
    return computation.as_serialized_hlo_module_proto()


def compile_stablehlo(
    stablehlo: bytes,
    *,
    devices: Sequence[Any],
    replica_count: int,
    num_partitions: int,
    without_passes: Sequence[str],
) -> Any:
    """Compile StableHLO for the devices, which are replicas x partitions in order.

    Args:
        stablehlo: text or bytecode.
        devices: one for each (replica, partition), replica-major.
        replica_count: of the module.
        num_partitions: of the module.
        without_passes: names of HLO passes that XLA leaves out.

    Returns:
        jaxlib's LoadedExecutable.

    Raises:
        ValueError: the input is not StableHLO.
        RuntimeError: XLA refuses it.
    """
    with _expected("jax._src.compiler.get_compile_options"):
        from jax._src.compiler import get_compile_options
        from jax._src.interpreters.mlir import make_ir_context
        from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]
        from jaxlib.mlir import ir

    assignment = np.array([d.id for d in devices]).reshape(
        replica_count, num_partitions
    )
    options = get_compile_options(
        num_replicas=replica_count,
        num_partitions=num_partitions,
        device_assignment=assignment,
    )
    with _expected("executable_build_options.debug_options.xla_disable_hlo_passes"):
        build = options.executable_build_options
        build.use_spmd_partitioning = num_partitions > 1
        build.use_shardy_partitioner = False
        debug = build.debug_options
        debug.xla_disable_hlo_passes = ",".join(without_passes)
    with make_ir_context():
        try:
            module = ir.Module.parse(stablehlo)
        except ir.MLIRError as problem:
            raise ValueError(str(problem)) from problem
        attributes = module.operation.attributes
        integer = ir.IntegerType.get_signless(32)
        attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(integer, num_partitions)
        attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(integer, replica_count)
        client = devices[0].client
        return client.compile_and_load(module, _jax.DeviceList(tuple(devices)), options)


def parse_stablehlo(stablehlo: bytes) -> Any:
    """The MLIR module of StableHLO text or bytecode; ValueError for anything else."""
    with _expected("jax._src.interpreters.mlir.make_ir_context"):
        from jax._src.interpreters.mlir import make_ir_context
        from jaxlib.mlir import ir
    with make_ir_context():
        try:
            return ir.Module.parse(stablehlo)
        except ir.MLIRError as problem:
            raise ValueError(str(problem)) from problem


def compile_program(
    module: Any,
    *,
    devices: np.ndarray,
    are_absent: bool,
    is_shardy: bool,
    free_inputs: Sequence[bool],
    free_outputs: Sequence[bool],
    compiler_options: Mapping[str, Any],
) -> Any:
    """Compile a program as `jax.jit` does, which gave XLA the same module.

    Args:
        module: from `parse_stablehlo`.
        devices: of shape (replicas, partitions).
        are_absent: whether they are only described, so that nothing can be loaded.
        is_shardy: whether Shardy's dialect says how arrays are divided, or GSPMD's.
        free_inputs: for each parameter, whether the partitioner may divide it.
        free_outputs: the same for each result.
        compiler_options: XLA's flags by name.

    Returns:
        jaxlib's executable, loaded unless the devices are absent.

    Raises:
        RuntimeError: XLA refuses it.
    """
    with _expected("jax._src.compiler.get_compile_options"):
        from jax._src.compiler import get_compile_options, use_detailed_logging
        from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]
    options = get_compile_options(
        num_replicas=devices.shape[0],
        num_partitions=devices.shape[1],
        device_assignment=devices,
        env_options_overrides=dict(compiler_options),
        detailed_logging=use_detailed_logging(module),
        backend=devices.flat[0].client,
    )
    build = options.executable_build_options
    build.use_shardy_partitioner = is_shardy
    build.allow_spmd_sharding_propagation_to_parameters = list(free_inputs)
    build.allow_spmd_sharding_propagation_to_output = list(free_outputs)
    client = devices.flat[0].client
    with module.context:
        compile_ = client.compile if are_absent else client.compile_and_load
        return compile_(module, _jax.DeviceList(tuple(devices.flat)), options)


def executable_shardings(executable: Any) -> tuple[list[str], list[str]]:
    """How XLA has divided parameters and results, as texts of HLO's shardings."""
    with _expected("LoadedExecutable.get_parameter_shardings"):
        from jaxlib.xla_client import HloSharding

        given = executable.get_parameter_shardings()
        made = executable.get_output_shardings()
    texts = [
        [str(HloSharding.from_proto(each)) for each in kinds or []]
        for kinds in (given, made)
    ]
    return texts[0], texts[1]


def lowered_device_count(lowered: Any) -> int:
    """The number of devices of a `jax.stages.Lowered`."""
    with _expected("Lowered._lowering.compile_args['num_devices']"):
        arguments = lowered._lowering.compile_args
    return arguments["num_devices"]


def compile_ahead(
    lowered: Any, devices: Sequence[Any], compiler_options: Mapping[str, Any]
) -> Any:
    """Compile what `jax.stages.Lowered` holds for devices other than its own.

    Returns the executable, which has no devices to run on.

    Raises RuntimeError if XLA refuses it.
    """
    with _expected("jax._src.interpreters.pxla.create_compile_options"):
        from jax._src.interpreters import pxla
        from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

        create_options = pxla.create_compile_options
        propagation_of = pxla.get_prop_to_input_output
        arguments = lowered._lowering.compile_args
        module = lowered._lowering.stablehlo()
    inputs, outputs = propagation_of(
        arguments["in_shardings"],
        arguments["out_shardings"],
        len(arguments["ordered_effects"]),
    )
    client = devices[0].client
    options = create_options(
        module,
        arguments["tuple_args"],
        inputs,
        outputs,
        client,
        np.array(devices),
        dict(compiler_options),
    )
    with module.context:
        return client.compile(module, _jax.DeviceList(tuple(devices)), options)


def executable_text(executable: Any) -> str:
    """The largest module of an executable, as XLA prints it."""
    with _expected("Executable.hlo_modules"):
        modules = executable.hlo_modules()
    return max((module.to_string() for module in modules), key=len, default="")


def needed_bytes(executable: Any) -> int:
    """What an executable takes of a device: arguments, results, temporaries, code."""
    with _expected("Executable.get_compiled_memory_stats"):
        found = executable.get_compiled_memory_stats()
        return (
            found.argument_size_in_bytes
            + found.output_size_in_bytes
            - found.alias_size_in_bytes
            + found.temp_size_in_bytes
            + found.generated_code_size_in_bytes
        )


def execute(executable: Any, arguments: Sequence[jax.Array]) -> list[list[jax.Array]]:
    """Run a LoadedExecutable; per result the arrays of this process's devices."""
    with _expected("LoadedExecutable.execute_sharded"):
        run = executable.execute_sharded
    results = run(list(arguments))
    return results.disassemble_into_single_device_arrays()


def backend_is_up() -> bool:
    """Whether a JAX back end has started, so that the device count is fixed."""
    with _expected("jax._src.xla_bridge.backends_are_initialized"):
        from jax._src import xla_bridge

        return xla_bridge.backends_are_initialized()


class _Forward:
    """The object that XLA holds for a callback; it lives as long as the process.

    XLA drops its references without holding the interpreter's lock if a callback is
    removed while another thread compiles. If one of them were the last, the process
    would abort (jaxlib 0.10.2 and 0.12.0.1); so some are kept here, more than one
    because XLA's counting without the lock may be wrong.
    """

    __slots__ = ("callback",)

    _kept: Final[list[_Forward]] = []

    def __init__(self, callback: Callable[[bytes], bytes | None]) -> None:
        self.callback: Callable[[bytes], bytes | None] | None = callback
        self._kept.extend([self] * _KEPT_REFERENCES)

    def __call__(self, data: bytes) -> bytes | None:
        callback = self.callback
        return None if callback is None else callback(data)


#: What is registered, by name.
_forwards: dict[tuple[str, str, str], _Forward] = {}
#: The callbacks that were removed last.
_taken_back: deque[_Forward] = deque()


def register_transformation(
    callback: Callable[[bytes], bytes | None],
    *,
    name: str,
    stage: str,
    platform: str,
) -> None:
    """Call `callback` with every module that is compiled for a platform from now on.

    It receives a serialized HloModuleProto and returns another, or None for no change;
    an exception fails the compilation. It may be called from several threads at once,
    and from threads other than the one that compiles (jax 0.10.2).

    Args:
        callback: see above.
        name: for `clear_transformation`.
        stage: "pre-scheduler" or "post-scheduler".
        platform: "cpu", or that of a PJRT plug-in ("cuda").

    Raises:
        ValueError: there is no such platform in this process.
    """
    with _expected("jax.extend.xla.register_hlo_module_transformation"):
        from jax.extend.xla import PipelineStage, register_hlo_module_transformation

        at = PipelineStage[stage.upper().replace("-", "_")]
    if platform != "cpu" and not XLA.calls_back_without_gpus:
        with _expected("jax._src.xla_bridge.backends"):
            from jax._src import xla_bridge

            known = xla_bridge.backends()
        # This release would wait silently for the platform to appear.
        if platform not in known:
            raise ValueError(f"jax {jax.__version__} has no devices of {platform}")
    forward = _Forward(callback)
    try:
        register_hlo_module_transformation(
            forward, name=name, stage=at, platforms=platform
        )
    except RuntimeError as problem:
        raise ValueError(str(problem)) from problem
    _forwards[name, stage, platform] = forward


def load_tpu_library() -> None:
    """Load the library of TPUs, present or absent, where nobody has.

    Without it there is nothing to register a callback with.

    Raises ValueError if it is not installed, or refuses to start.
    """
    with _expected("jax._src.xla_bridge.get_tpu_library_path"):
        from jax._src import xla_bridge
        from jax._src.lib import (
            xla_client,  # pyright: ignore[reportPrivateImportUsage]
        )

        path_of = xla_bridge.get_tpu_library_path  # pyright: ignore[reportPrivateImportUsage]
        is_loaded = xla_client.pjrt_plugin_loaded
        is_initialized = xla_client.pjrt_plugin_initialized
    # Of TPUs that are here JAX loads it itself.
    xla_bridge.backends()
    try:
        if not is_loaded("tpu"):
            path = path_of()
            if path is None:
                raise ValueError("libtpu is not installed")
            xla_client.load_pjrt_plugin_dynamically("tpu", path)
        if not is_initialized("tpu"):
            xla_client.initialize_pjrt_plugin("tpu")
    except RuntimeError as problem:
        raise ValueError(str(problem)) from problem


def keeps_donation() -> bool:
    """Whether XLA keeps a module's input-output aliases when a callback replaces it.

    A release that does not drops them with the entry computation: donated inputs are
    then not reused, which costs memory and changes no value.
    """
    return XLA.keeps_donation


def clear_transformation(*, name: str, stage: str, platform: str) -> None:
    """Remove what `register_transformation` registered."""
    with _expected("jax.extend.xla.clear_hlo_module_transformation"):
        from jax.extend.xla import PipelineStage, clear_hlo_module_transformation

        at = PipelineStage[stage.upper().replace("-", "_")]
    clear_hlo_module_transformation(name, at, platform)
    forward = _forwards.pop((name, stage, platform), None)
    if forward is not None:
        _taken_back.append(forward)
    while len(_taken_back) > _STILL_ANSWERING:
        _taken_back.popleft().callback = None


@contextlib.contextmanager
def transformation(callback: Callable[[bytes], bytes | None]) -> Iterator[None]:
    """Let `callback` rewrite every module compiled for CPUs inside, after scheduling.

    Compilations of other threads reach the callback too: recognize modules by their
    name.
    """
    name = f"hlo-passes-runtime-{next(_TRANSFORMATION_NUMBERS)}"
    place = {"name": name, "stage": "post-scheduler", "platform": "cpu"}
    register_transformation(callback, **place)
    try:
        yield
    finally:
        clear_transformation(**place)


def cache_key_hook() -> Callable[[], str]:
    """The function that returns a word for the keys of JAX's compilation cache."""
    with _expected("jax._src.cache_key.custom_hook"):
        from jax._src import cache_key

        return cache_key.custom_hook


def set_cache_key_hook(hook: Callable[[], str]) -> None:
    """Put another hook in its place."""
    with _expected("jax._src.cache_key.custom_hook"):
        from jax._src import cache_key

        cache_key.custom_hook = hook


def cache_writer() -> Callable[..., None]:
    """The function that stores a program on disk: key, module name, executable, ..."""
    with _expected("jax._src.compilation_cache.put_executable_and_time"):
        from jax._src import compilation_cache

        return compilation_cache.put_executable_and_time


def set_cache_writer(writer: Callable[..., None]) -> None:
    """Put another writer in its place."""
    with _expected("jax._src.compilation_cache.put_executable_and_time"):
        from jax._src import compilation_cache

        compilation_cache.put_executable_and_time = writer


def module_names(executable: Any) -> list[str]:
    """Names of the modules in a LoadedExecutable."""
    with _expected("LoadedExecutable.hlo_modules"):
        return [module.name for module in executable.hlo_modules()]


@functools.cache
def leave_out_of_frames(place: str) -> None:
    """Keep files whose path begins so out of modules that JAX lowers from now on."""
    with _expected("jax._src.source_info_util.register_exclusion"):
        from jax._src import source_info_util

        register = source_info_util.register_exclusion
    register(place)


def key_value_store() -> Any:
    """The client of jax.distributed's key-value store; None in a job of one process."""
    with _expected("jax._src.distributed.global_state.client"):
        from jax._src import distributed

        return distributed.global_state.client


def watch_compilations(
    watcher: Callable[[Callable[[], Any], Any, str, int], Any],
) -> None:
    """Let a function run every compilation of this process from now on.

    Args:
        watcher: receives a function that compiles, MLIR's module, the platform's name
            and the number of devices; it returns what that function returns.
    """
    with _expected("jax._src.compiler.compile_or_get_cached"):
        from jax._src import compiler

        compile_ = compiler.compile_or_get_cached

    @functools.wraps(compile_)
    def watched(
        backend: Any, module: Any, devices: Any, *others: Any, **options: Any
    ) -> Any:
        run = functools.partial(compile_, backend, module, devices, *others, **options)
        return watcher(run, module, backend.platform, devices.size)

    compiler.compile_or_get_cached = watched


def stablehlo_name(module: Any) -> str:
    """The name of MLIR's module, '' for none."""
    attributes = module.operation.attributes
    return attributes["sym_name"].value if "sym_name" in attributes else ""


def stablehlo_text(module: Any, *, locations: bool) -> str:
    """MLIR's module as text, every constant in full, perhaps with source locations."""
    return module.operation.get_asm(enable_debug_info=locations)
