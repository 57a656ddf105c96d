"""XLA's own verdict on HLO text: its parser, then its verifier, in a child process.

    python -m tests.verify.xla_verdict < texts.json     one JSON string a line in,
                                                        one JSON verdict a line out

jaxlib does not offer the verifier by itself, but XLA verifies every module that a
registered transformation hands back (layout-insensitive, mixed precision allowed:
openxla/xla `xla/service/xla_transform.cc`). So a trivial program is compiled, its
module is replaced by the one in question, and a second transformation, after the
scheduler, stops the compilation: "stopped" means verified.

Reached: the whole parser; of the verifier structure, async pairs, channels, shapes,
instruction rules, called computations, schedules, aliasing, donors. Not reached: the
header's entry_computation_layout (XLA resets it here), aliasing where the entry takes
tuples or a computation is dead (the module is then called from another entry), rules
that look at layouts, the deadlock check.

Bad input may abort the process: `XlaJudge` then starts another and says "abort".
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from typing import Any

_STOP = "stopped after the verifier"
#: Devices of the child; counts above it are not judged by their number.
_DEVICES = 256
_COUNT = re.compile(r"\b(replica_count|num_partitions)=(\d+)")


def main() -> None:
    """Serve verdicts until the input ends."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={_DEVICES}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    judge = _Judge()
    _answer({"ready": True})
    for line in sys.stdin:
        _answer(judge.verdict(json.loads(line)))


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


_MLIR_TYPES = {
    "pred": "i1", "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
    "c64": "complex<f32>", "c128": "complex<f64>",
    "f8e5m2": "f8E5M2", "f8e4m3": "f8E4M3", "f8e4m3fn": "f8E4M3FN",
    "f8e4m3b11fnuz": "f8E4M3B11FNUZ", "f8e3m4": "f8E3M4", "f8e5m2fnuz": "f8E5M2FNUZ",
    "f8e4m3fnuz": "f8E4M3FNUZ", "f8e8m0fnu": "f8E8M0FNU", "f4e2m1fn": "f4E2M1FN",
    **{f"s{n}": f"i{n}" for n in (2, 4, 8, 16, 32, 64)},
    **{f"u{n}": f"ui{n}" for n in (2, 4, 8, 16, 32, 64)},
}  # fmt: skip
_ARRAY = re.compile(r"([a-z]+[a-z0-9]*)\[([\d,]*)\]")


def _mlir_type(shape: str) -> str | None:
    """tensor<8x4xf32> for f32[8,4]{1,0}; None for what is not a static array."""
    match = _ARRAY.match(shape)
    if not match or match[1] not in _MLIR_TYPES:
        return None
    sizes = "".join(f"{d}x" for d in match[2].split(",") if d)
    return f"tensor<{sizes}{_MLIR_TYPES[match[1]]}>"


def stub_program(program: Any) -> str | None:
    """StableHLO with the signature of a program; None where it has no such form."""
    result = program.result_shape()
    results = result.tuple_shapes() if result.is_tuple() else [result]
    inputs = [_mlir_type(str(s)) for s in program.parameter_shapes()]
    outputs = [_mlir_type(str(s)) for s in results]
    single = result.is_tuple() and len(results) < 2
    if None in inputs or None in outputs or single:
        return None
    arguments = ", ".join(f"%a{k}: {t}" for k, t in enumerate(inputs))
    listed = ", ".join(f"{t}" for t in outputs)
    body = "".join(
        f"%r{k} = stablehlo.custom_call @stub() : () -> {t}\n"
        for k, t in enumerate(outputs)
    )
    values = ", ".join(f"%r{k}" for k in range(len(outputs)))
    return (
        f"func.func public @main({arguments}) -> ({listed}) {{\n{body}"
        f"return {values} : {listed}\n}}"
    )


_DEFINITION = re.compile(r"^(ENTRY )?%([\w.-]+) \((.*)\) -> (.*) \{$", re.MULTILINE)
_CALLEE = re.compile(
    r"\b(?:to_apply|calls|condition|body|select|scatter|true_computation|"
    r"false_computation)=%([\w.-]+)"
)
_CALLEES = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")
_PARAMETER = re.compile(r"[\w.-]+: ")


def dead_computations(text: str) -> list[str]:
    """Computations that nobody calls, the entry apart, in a module that XLA printed."""
    called = set(_CALLEE.findall(text))
    for listed in _CALLEES.findall(text):
        called.update(word.strip().removeprefix("%") for word in listed.split(","))
    return [
        name
        for entry, name, _, _ in _DEFINITION.findall(text)
        if not entry and name not in called
    ]


def _parameter_shapes(listed: str) -> list[str]:
    """The shapes of `a: f32[8], b: (f32[], s32[])`."""
    if not listed:
        return []
    starts = [m for m in _PARAMETER.finditer(listed) if _outside(listed, m.start())]
    ends = [m.start() - 2 for m in starts[1:]] + [len(listed)]
    return [listed[m.end() : end] for m, end in zip(starts, ends, strict=True)]


def _outside(text: str, at: int) -> bool:
    return text.count("(", 0, at) == text.count(")", 0, at)


def behind_a_call(text: str) -> str:
    """A module that XLA printed, its entry and dead computations called from another.

    The new entry is f32[] -> f32[]; what concerns the entry's parameters goes.
    """
    wanted = set(dead_computations(text))
    for name in ("entry_computation_layout", "input_output_alias", "buffer_donor"):
        text = _without_attribute(text, name)
    lines: list[str] = []
    for entry, name, parameters, result in _DEFINITION.findall(text):
        if not entry and name not in wanted:
            continue
        arguments = []
        for shape in _parameter_shapes(parameters):
            arguments.append(f"%xv_{len(lines)}")
            lines.append(
                f'{arguments[-1]} = {shape} custom-call(), custom_call_target="stub"'
            )
        listed = ", ".join(arguments)
        lines.append(f"%xv_{len(lines)} = {result} call({listed}), to_apply=%{name}")
    body = "\n  ".join(lines)
    text = re.sub(r"^ENTRY ", "", text, flags=re.MULTILINE)
    return (
        f"{text}\n\nENTRY %xv_main {{\n  {body}\n"
        "  ROOT %xv_x = f32[] parameter(0)\n}\n"
    )


def _without_attribute(text: str, name: str) -> str:
    at = text.find(f", {name}={{")
    if at < 0:
        return text
    end, depth = text.index("{", at), 0
    while True:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
        if not depth:
            return text[:at] + text[end:]


class _Judge:
    """Compiles the stub with one module after another in its place."""

    def __init__(self) -> None:
        import jax
        import numpy as np
        from jax._src import compiler
        from jax._src.interpreters import mlir
        from jax.extend import xla
        from jaxlib import _hlo, _jax
        from jaxlib.mlir import ir

        self.hlo, self.compiler, self.numpy, self.jaxlib = _hlo, compiler, np, _jax
        self.module_bytes = b""
        xla.register_hlo_module_transformation(
            lambda _: self.module_bytes,
            name="replace",
            stage=xla.PipelineStage.PRE_SCHEDULER,
            platforms="cpu",
        )
        xla.register_hlo_module_transformation(
            self._stop,
            name="stop",
            stage=xla.PipelineStage.POST_SCHEDULER,
            platforms="cpu",
        )
        self.devices = jax.devices()
        self.context, self.ir = mlir.make_ir_context(), ir

    def _stop(self, _: bytes) -> bytes:
        raise RuntimeError(_STOP)

    def verdict(self, text: str) -> dict[str, Any]:
        try:
            module = self.hlo.hlo_module_from_text(text)
        except Exception as problem:  # jaxlib has no narrower type
            return {"stage": "parse", "message": str(problem)}
        proto = module.as_serialized_hlo_module_proto()
        program = self.hlo.XlaComputation(proto).program_shape()
        stub = stub_program(program)
        printed = module.to_string()
        if stub is None or dead_computations(printed):
            module = self.hlo.hlo_module_from_text(behind_a_call(printed))
            proto = module.as_serialized_hlo_module_proto()
            stub = stub_program(self.hlo.XlaComputation(proto).program_shape())
        header = module.to_string().split("\n", 1)[0]
        counts = {name: int(n) for name, n in _COUNT.findall(header)}
        replicas = counts.get("replica_count", 1)
        partitions = counts.get("num_partitions", 1)
        if replicas * partitions > _DEVICES:
            return {"stage": "skip", "message": "too many devices"}
        self.module_bytes = proto
        total = replicas * partitions
        options = self.compiler.get_compile_options(
            num_replicas=replicas,
            num_partitions=partitions,
            device_assignment=self.numpy.arange(total).reshape(replicas, partitions),
        )
        options.executable_build_options.use_spmd_partitioning = partitions > 1
        client = self.devices[0].client
        listed = self.jaxlib.DeviceList(tuple(self.devices[:total]))
        try:
            with self.context:
                client.compile_and_load(self.ir.Module.parse(stub), listed, options)
        except Exception as problem:  # jaxlib has no narrower type
            message = str(problem)
            if _STOP in message:
                return {"stage": "accepted", "message": ""}
            return {"stage": "verify", "message": message}
        return {"stage": "accepted", "message": "compiled"}


class XlaJudge:
    """A child that judges texts; started again when a text has aborted it."""

    def __init__(self, python: str = sys.executable) -> None:
        """`python`: the interpreter whose jaxlib is asked."""
        self.python = python
        self.child: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [self.python, "-m", "tests.verify.xla_verdict"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert child.stdout is not None
        child.stdout.readline()
        return child

    def verdict(self, text: str) -> tuple[str, str]:
        """('accepted' | 'parse' | 'verify' | 'abort' | 'skip', XLA's message)."""
        if self.child is None:
            self.child = self._start()
        child = self.child
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(text) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            return "abort", f"exit {child.returncode}"
        answer = json.loads(line)
        return answer["stage"], answer["message"]

    def close(self) -> None:
        """End the child and its pipes."""
        child, self.child = self.child, None
        if child is None:
            return
        child.kill()
        with contextlib.suppress(BrokenPipeError):
            child.communicate()


if __name__ == "__main__":
    main()
