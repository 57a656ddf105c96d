"""What the fuzzer of `formats.py` damages: undamaged files, and what reads each kind.

A reader raises an `HloError` for what it refuses. It also uses what it has read, since
a number that is out of range often fails only there.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import pathlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

import hlo_passes
from hlo_passes import PassContext, Pipeline
from hlo_passes import proto_wire as wire
from hlo_passes.cli.list_passes import describe
from hlo_passes.conformance.recorded_flags import recorded_options
from hlo_passes.files import read_module
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.registry import find_pass, pass_targets
from hlo_passes.passes.framework.spec import option_values
from hlo_passes.pricing import Pricing
from hlo_passes.proto import module_from_proto
from hlo_passes.scheduler.calibration import (
    calibrate,
    calibration_text,
    read_measurements,
    target_with_fits,
)
from hlo_passes.scheduler.estimators.profile import Profile
from hlo_passes.scheduler.hardware.target import (
    parse_target,
    target,
    target_names,
    target_text,
)
from hlo_passes.scheduler.latency.backend_rows import line_rows
from hlo_passes.scheduler.latency.options import LatencyOptions, network_config
from hlo_passes.scheduler.line_fits import fit_lines, lines_text
from hlo_passes.scheduler.module_costs import estimate
from hlo_passes.scheduler.passes.stream_values import Stream
from hlo_passes.scheduler.simulation.arguments import rules_of
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.sweep.options import parse_sweep
from tests.fuzz import damage
from tests.modules import CORPUS, REPOSITORY, module_files, read_text

#: A scheduled module with costs of its own, and all that is priced differently.
MODULE: Final = REPOSITORY / "docs" / "simulator.hlo"
COSTS: Final = REPOSITORY / "docs" / "simulator_costs.json"
#: Corpus modules up to this size become protos.
_MOST_PROTO_TEXT: Final = 4_000
_PIPELINES: Final = (
    "tuple-simplifier,collective-permute-combiner,hlo-cse,hlo-dce",
    "gpu-schedule", "async-collective-creator,latency-hiding-scheduler",
    "convert-async-collectives-to-sync,hlo-dce", "hlo-memory-scheduler",
    "gpu-all-gather-combiner,gpu-all-reduce-combiner,gpu-reduce-scatter-combiner",
    "collective-permute-splitter,schedule-checker", "stream-attribute-annotator",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of input.

    Attributes:
        name: for `--kinds` and the counts.
        suffix: of its files.
        seeds: undamaged contents.
        use: reads a file and uses what it holds.
        ways: to damage it.
        commands: command lines that read it: FILE, a MODULE to use it on, OUT.
        is_file: whether users have it as a file, so that messages must name it.
        weight: how often it is chosen.
    """

    name: str
    suffix: str
    seeds: Callable[[], list[bytes]]
    use: Callable[[pathlib.Path, random.Random], None]
    ways: tuple[damage.Damage, ...]
    commands: tuple[tuple[str, ...], ...] = ()
    is_file: bool = True
    weight: int = 1


_parsed: dict[str, Module] = {}


def _module() -> Module:
    """The module that costs and machines are used on; a fresh copy."""
    if not _parsed:
        _parsed[""] = hlo_passes.parse(MODULE.read_text("utf-8"), filename="m.hlo")
    return _parsed[""].clone()


def _priced(on: Pricing, rng: random.Random) -> None:
    """Use a pricing in one of the ways that there are."""
    way = rng.randrange(3)
    if way == 0:
        json.dumps(simulate_on(_module(), on, Rules()).to_json(), allow_nan=False)
    elif way == 1:
        estimate(_module(), on)
    else:
        Pipeline.parse("gpu-schedule", PassContext(on)).run(_module())


# -- modules -------------------------------------------------------------------


def _small_texts() -> list[str]:
    texts = [
        read_text(file)
        for file in module_files(CORPUS / "handwritten", CORPUS / "modules")
        if file.stat().st_size < _MOST_PROTO_TEXT
    ]
    return [t for t in texts if len(t) < _MOST_PROTO_TEXT][:60]


def _protos() -> list[bytes]:
    from jaxlib import _hlo  # type: ignore[attr-defined]

    found = []
    for number, text in enumerate(_small_texts()):
        try:
            module = _hlo.hlo_module_from_text(text)
        except Exception:  # a form that this release of XLA does not know
            continue
        data = module.as_serialized_hlo_module_proto()
        found.append(wire.bytes_field(1, data) if number % 5 == 0 else data)
    return found


def _zipped_modules() -> list[bytes]:
    return [text.encode() for text in _small_texts()]


def _use_module(path: pathlib.Path, rng: random.Random) -> None:
    module = read_module(str(path))
    hlo_passes.verify(module)
    Pipeline.parse(rng.choice(_PIPELINES)).run(module)
    hlo_passes.parse(module.to_text())


def _use_proto(path: pathlib.Path, rng: random.Random) -> None:
    module = read_module(str(path))
    hlo_passes.verify(module)
    Pipeline.parse(rng.choice(_PIPELINES)).run(module)
    module_from_proto(module.to_proto())


_STABLEHLO: Final = (
    """module @m attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<i32>) -> (tensor<8x4xf32>) {
    %0 = "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %c = stablehlo.constant dense<1.0> : tensor<8x4xf32>
    %1 = stablehlo.multiply %0, %c : tensor<8x4xf32>
    %2 = call @f(%1) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %2 : tensor<8x4xf32>
  }
  func.func private @f(%arg0: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = stablehlo.tanh %arg0 : tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}
""",
    """module {
  func.func public @main(%arg0: tensor<4xi32>) -> tensor<i32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%i = %c, %x = %arg0) : tensor<i32>, tensor<4xi32>
     cond {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.slice %x [0:4:1] : (tensor<4xi32>) -> tensor<4xi32>
      stablehlo.return %1, %2 : tensor<i32>, tensor<4xi32>
    }
    return %0#0 : tensor<i32>
  }
}
""",
)


def _backend_configs() -> list[bytes]:
    files = [
        *module_files(CORPUS / "handwritten"),
        *module_files(CORPUS / "modules"),
    ]
    texts = (read_text(f) for f in files if f.stat().st_size < 20_000)
    found = [t for t in texts if "backend_config={" in t and len(t) < 20_000]
    return [t.encode() for t in [*found[:30], MODULE.read_text("utf-8")]]


def in_backend_config(rng: random.Random, data: bytes, _: bytes) -> bytes:
    """Damage the JSON of one backend config."""
    text = data.decode("utf-8", "surrogateescape")
    places = [k for k in range(len(text)) if text.startswith("backend_config={", k)]
    if not places:
        return damage.insert_piece(rng, data, b"")
    first = rng.choice(places) + len("backend_config=")
    last = text.find("\n", first)
    rest = text[first:last]
    try:
        _, length = json.JSONDecoder().raw_decode(rest)
    except (ValueError, RecursionError):
        length = len(rest)
    value = rest[:length].encode("utf-8", "surrogateescape")
    changed = rng.choice(damage.JSON)(rng, value, value)
    head, tail = text[:first], text[first + length :]
    return b"".join(
        (
            head.encode("utf-8", "surrogateescape"),
            changed,
            tail.encode("utf-8", "surrogateescape"),
        )
    )


# -- costs, profiles, machines -------------------------------------------------


def _costs() -> list[bytes]:
    names = [i.name for c in _module().computations for i in c.instructions]
    whole = {
        "node_cost_us": {name: 1.5 * k for k, name in enumerate(names)},
        "latency_us": dict.fromkeys(names[::3], 30.25),
        "latency_fallback": dict.fromkeys(names[1::4], 5000),
    }
    return [COSTS.read_bytes(), json.dumps(whole, indent=1).encode()]


def _profile() -> Profile:
    names = [i.name for c in _module().computations for i in c.instructions]
    costs = {name: 1.5 * k for k, name in enumerate(names)}
    costs["0123456789abcdef::x"] = 2.0
    costs[f"{names[0]}.remat2"] = 7.0
    return Profile(costs, dict.fromkeys(itertools.pairwise(names), 8.5))


def _profile_texts() -> list[bytes]:
    return [_profile().to_text().encode()]


def _profile_binaries() -> list[bytes]:
    return [_profile().to_bytes()]


def _targets() -> list[bytes]:
    with_network = "# latency-options: nccl_op_launch_us=47.5,nic_speed_gbps=24.1\n"
    texts = [target_text(name) for name in target_names()]
    return [*(t.encode() for t in texts), (with_network + texts[0]).encode()]


def _use_target(path: pathlib.Path, rng: random.Random) -> None:
    _priced(Pricing(target=str(path)), rng)


_COLLECTIVES: Final = b"""entries { key: "sm_90" value {
  entries {
    instruction { name: "ag" opcode: "all-gather"
      shape { element_type: F32 dimensions: 1024 dimensions: 8 }
      iota_collective_device_list { num_replica_groups: 1 num_devices_per_group: 8
        iota_reshape_dims: [8] iota_transpose_perm: 0 } }
    network_throughput_bytes_per_sec: 14185281385 }
  entries {
    instruction { opcode: "all-reduce" shape { element_type: BF16 dimensions: 4096 }
      iota_collective_device_list { num_replica_groups: 2 num_devices_per_group: 4
        iota_reshape_dims: 2 iota_reshape_dims: 4
        iota_transpose_perm: 1 iota_transpose_perm: 0 } }
    network_throughput_bytes_per_sec: 9185281385 }
  entries {
    instruction { opcode: "reduce-scatter" shape { element_type: F32 dimensions: 64 }
      iota_collective_device_list { num_replica_groups: 4 num_devices_per_group: 2 } }
    network_throughput_bytes_per_sec: 185281385 }
} }
"""
_PRODUCTS: Final = b"""entries { key: "sm_90" value { entries {
  instruction { opcode: "dot" shape { element_type: F32 dimensions: 64 dimensions: 32 }
    dot_dimension_numbers { lhs_contracting_dimensions: 1 rhs_contracting_dimensions: 0 } }
  operands { shape { element_type: F32 dimensions: 64 dimensions: 16 } }
  operands { shape { element_type: F32 dimensions: 16 dimensions: 32 } }
  clock_cycles: 12345 flops: 99 }
  entries {
  instruction { opcode: "dot" shape { element_type: BF16 dimensions: 2 dimensions: 6 dimensions: 8 }
    dot_dimension_numbers { lhs_batch_dimensions: 0 rhs_batch_dimensions: 0
      lhs_contracting_dimensions: 2 rhs_contracting_dimensions: 1 } }
  operands { shape { element_type: BF16 dimensions: [2, 6, 4] } }
  operands { shape { element_type: BF16 dimensions: [2, 4, 8] } }
  clock_cycles: 45 } } }
"""


def _use_pricing_file(option: str) -> Callable[[pathlib.Path, random.Random], None]:
    def use(path: pathlib.Path, rng: random.Random) -> None:
        _priced(Pricing(**{option: str(path)}), rng)

    return use


# -- arrays, measurements, settings --------------------------------------------


def _archives() -> list[bytes]:
    arrays = {
        "0": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        "1": np.arange(16, dtype=np.uint8).reshape(2, 4, 2),
        "1.dtype": np.array("bfloat16"),
        "2": np.arange(8, dtype=np.uint8),
        "2.dtype": np.array("int4"),
        "3": np.zeros((2, 0), np.int64),
    }
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **arrays)  # pyright: ignore[reportArgumentType]
    np.savez_compressed(packed, **arrays)  # pyright: ignore[reportArgumentType]
    return [plain.getvalue(), plain.getvalue(), packed.getvalue()]


def _use_archive(path: pathlib.Path, _: random.Random) -> None:
    from hlo_passes.runtime.arrays_file import checksum, read_arrays

    for array in read_arrays(str(path)):
        checksum(array)


def _measurements() -> list[bytes]:
    rows = [
        f"{kind},{size},{us},{devices},{hosts}"
        for kind, size, us, devices, hosts in (
            ("all-gather", 1 << 20, 152.0, 16, 2),
            ("all-reduce", 1 << 24, 1234.5, 16, 2),
            ("reduce-scatter", 1 << 22, 300.25, 32, 4),
            ("all-to-all", 1 << 16, 80, 8, 8),
            ("collective-permute", 1 << 18, 60.5, 16, 2),
            ("all-gather", 1 << 26, 5000.0, 16, 2),
        )
    ]
    lines = [
        f"{kind},{1 << k},{us},8,1"
        for kind, k, us in (
            ("copied-exchange", 20, 22.1),
            ("copied-exchange", 24, 167.0),
            ("peer-permute", 12, 7.5),
            ("peer-permute", 26, 700.25),
        )
    ]
    head = "kind,bytes,us,devices,hosts"
    return [
        "\n".join(["# measured", head, *chosen, ""]).encode()
        for chosen in (rows, lines, [*rows, *lines])
    ]


def _use_measurements(path: pathlib.Path, _: random.Random) -> None:
    part = target("h100_sxm")
    rows = read_measurements(str(path), part)
    network = [row for row in rows if row.kind not in line_rows()]
    found = calibrate(network, part, filename=str(path)) if network else None
    if found is not None:
        calibration_text(found)
        json.dumps(found.to_json(), allow_nan=False)
    fits = fit_lines((r for r in rows if r.kind in line_rows()), filename=str(path))
    lines_text(fits)
    json.dumps([fit.to_json() for fit in fits], allow_nan=False)
    text = target_with_fits("h100_sxm", found, [fit.line for fit in fits])
    network_config(parse_target(text, spec="fitted"), LatencyOptions())


def _records() -> list[bytes]:
    record = {
        "flags": [
            "xla_gpu_all_gather_combine_threshold_bytes=170",
            "xla_gpu_collective_combine_threshold_count=2",
            "xla_gpu_experimental_parallel_collective_overlap_limit=4",
            "xla_gpu_experimental_pipeline_parallelism_opt_level="
            "PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE",
        ],
        "target": "h100_sxm",
        "topology": "1x1x8",
        "device_memory_bytes": 85899345920,
    }
    return [json.dumps(record).encode()]


def _use_record(path: pathlib.Path, _: random.Random) -> None:
    path.rename(path.with_name("oracle.json"))
    for name in ("latency-hiding-scheduler", "gpu-all-gather-combiner"):
        found = recorded_options(path.parent, name)
        option_values(find_pass(name), name, tuple(found.items()))


def _settings() -> list[bytes]:
    return [
        b'[[install]]\npipeline = "collective-permute-combiner"\nmodules = "jit_step"\n'
        b'\n[[install]]\npipeline = "latency-hiding-scheduler"\nstage = "post-scheduler"'
        b'\nplatforms = "cuda"\ntarget = "h100_sxm"\ntopology = "1x1x8"\n',
        b'[[install]]\npipeline = "hlo-dce"\nplatforms = ["cpu"]\nmin_instructions = 3\n'
        b'max_instructions = 9\non_error = "fail"\nmultiprocess = "off"\n',
    ]


def _use_settings(path: pathlib.Path, _: random.Random) -> None:
    from hlo_passes.runtime.installation.environment import (
        VARIABLE,
        install_from_environment,
    )

    os.environ[VARIABLE] = str(path)
    for installed in install_from_environment():
        installed.remove()


# -- texts of the command line -------------------------------------------------


def _pipelines() -> list[bytes]:
    texts = [p.encode() for p in _PIPELINES]
    texts.append(b"fixed-point{max-iterations=3}(hlo-dce,fixed-point(hlo-cse))")
    for name in pass_targets():
        options = describe(find_pass(name))["options"]
        given = [
            f"{o['name']}={str(o['default']).lower()}"
            for o in options
            if o["default"] is not None and not isinstance(o["default"], tuple)
        ]
        texts.append(f"{name}{{{','.join(given)}}}".encode())
    return texts


def _text(path: pathlib.Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _use_pipeline(path: pathlib.Path, rng: random.Random) -> None:
    Pipeline.parse(_text(path)).run(_module(), verify_each=rng.random() < 0.3)


def _use_topology(path: pathlib.Path, rng: random.Random) -> None:
    _priced(Pricing(topology=_text(path), devices=2), rng)


def _use_latency_options(path: pathlib.Path, rng: random.Random) -> None:
    _priced(Pricing(options=_text(path), topology="2x1x8"), rng)


def _use_word(path: pathlib.Path, rng: random.Random) -> None:
    """A text for each option that takes a name or a small language."""
    text = _text(path)
    way = rng.randrange(5)
    if way == 0:
        _priced(Pricing(estimator=text), rng)
    elif way == 1:
        _priced(Pricing(xla=text), rng)
    elif way == 2:
        options = (("rules", text),)
        name = "latency-hiding-scheduler"
        option_values(find_pass(name), name, options)
    elif way == 3:
        Stream.parse(text)
    else:
        given = SimpleNamespace(
            branches=[text],
            trip_count=[],
            streams=None,
            share_links=False,
            xla_statistic=False,
            contention=0.0,
        )
        module: Any = _conditional()
        simulate_on(module, Pricing(), rules_of(given, module))  # type: ignore[arg-type]


def _use_sweep(path: pathlib.Path, _: random.Random) -> None:
    parse_sweep(_text(path), "gpu-schedule,collective-permute-combiner")


def _conditional() -> Module:
    return hlo_passes.parse(
        "HloModule m, is_scheduled=true\n\n"
        "%a (x: f32[4]) -> f32[4] {\n  ROOT %x = f32[4] parameter(0)\n}\n\n"
        "%b (y: f32[4]) -> f32[4] {\n  %y = f32[4] parameter(0)\n"
        "  ROOT %n = f32[4] negate(%y)\n}\n\n"
        "ENTRY %main {\n  %i = s32[] parameter(0)\n  %p = f32[4] parameter(1)\n"
        "  ROOT %cond.1 = f32[4] conditional(%i, %p, %p), branch_computations={%a, %b}"
        "\n}\n"
    )


def _opt(*options: str) -> tuple[str, ...]:
    return ("opt", "MODULE", "--passes=gpu-schedule", *options, "-o", "OUT")


def _priced_commands(option: str) -> tuple[tuple[str, ...], ...]:
    return (
        ("simulate", "MODULE", f"{option}=FILE", "--json"),
        ("simulate", "MODULE", f"{option}=FILE"),
        ("estimate", "MODULE", f"{option}=FILE", "--json"),
    )


_MODULE_COMMANDS: Final = (
    ("verify", "FILE"),
    ("opt", "FILE", "--passes=hlo-cse,hlo-dce", "-o", "OUT"),
    ("opt", "FILE", "--passes=gpu-schedule", "-o", "OUT"),
    ("estimate", "FILE", "--json"),
    ("simulate", "FILE", "--json"),
    ("diff", "MODULE", "FILE", "--json"),
)

FORMATS: Final[tuple[Format, ...]] = (
    Format("proto", ".pb", _protos, _use_proto, damage.WIRE, _MODULE_COMMANDS, weight=8),
    Format("proto-gz", ".pb.gz", _protos, _use_proto, damage.GZIP),
    Format(
        "module-gz", ".hlo.gz", _zipped_modules, _use_module, damage.GZIP,
        _MODULE_COMMANDS,
    ),
    Format(
        "stablehlo", ".mlir", lambda: [t.encode() for t in _STABLEHLO], _use_module,
        damage.TEXT, weight=2,
    ),
    Format(
        "backend-config", ".hlo", _backend_configs, _use_module, (in_backend_config,),
        _MODULE_COMMANDS, weight=4,
    ),
    Format(
        "costs", ".json", _costs, _use_pricing_file("costs"), damage.JSON,
        (_opt("--costs=FILE"), *_priced_commands("--costs")), weight=3,
    ),
    Format(
        "costs-gz", ".json.gz", _costs, _use_pricing_file("costs"), damage.GZIP,
        _priced_commands("--costs"),
    ),
    Format(
        "profile", ".pbtxt", _profile_texts, _use_pricing_file("profile"), damage.TEXT,
        _priced_commands("--profile"), weight=3,
    ),
    Format(
        "profile-binary", ".pb", _profile_binaries, _use_pricing_file("profile"),
        damage.WIRE, _priced_commands("--profile"), weight=2,
    ),
    Format(
        "target", ".txtpb", _targets, _use_target, damage.TEXT,
        (_opt("--target=FILE"), *_priced_commands("--target")), weight=4,
    ),
    Format(
        "collective-table", ".pbtxt", lambda: [_COLLECTIVES],
        _use_pricing_file("collective_perf_table"), damage.TEXT,
        _priced_commands("--collective-perf-table"), weight=2,
    ),
    Format(
        "matmul-table", ".pbtxt", lambda: [_PRODUCTS],
        _use_pricing_file("matmul_perf_table"), damage.TEXT,
        _priced_commands("--matmul-perf-table"), weight=2,
    ),
    Format("arrays", ".npz", _archives, _use_archive, damage.ARCHIVE, weight=2),
    Format(
        "measurements", ".csv", _measurements, _use_measurements, damage.TEXT,
        (("calibrate", "FILE", "-o", "OUT"), ("calibrate", "FILE", "--json")),
        weight=2,
    ),
    Format("record", ".json", _records, _use_record, damage.JSON, is_file=False),
    Format("settings", ".toml", _settings, _use_settings, damage.TEXT),
    Format(
        "pipeline", ".txt", _pipelines, _use_pipeline, damage.TEXT, is_file=False,
        weight=4,
    ),
    Format(
        "topology", ".txt", lambda: [b"1x2x8", b"8x18x4", b"1x1x2"], _use_topology,
        damage.TEXT, is_file=False,
    ),
    Format(
        "latency-options", ".txt",
        lambda: [b"nccl_op_launch_us=47.5,nic_speed_gbps=24.1,chunk_size_bytes=65536",
                 b"rtt_us=3,partition_size=8,chunk_prep_us=0.5"],
        _use_latency_options, damage.TEXT, is_file=False, weight=2,
    ),
    Format(
        "words", ".txt",
        lambda: [b"sol", b"profile+sol", b"0.10.2", b"0.12", b"-avoid-waste",
                 b"async-depth<less-stall", b"communication 0", b"compute 1",
                 b"cond.1=0.9,0.1", b"cond.1=1,0"],
        _use_word, damage.TEXT, is_file=False,
    ),
    Format(
        "sweep", ".txt",
        lambda: [b"parallel-collective-overlap-limit=1,2,4",
                 b"collective-permute-combiner.threshold-bytes=0,64,threshold-count=3",
                 b"*.xla='0.10.2','0.12'"],
        _use_sweep, damage.TEXT, is_file=False,
    ),
)  # fmt: skip
