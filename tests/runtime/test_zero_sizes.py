"""Arrays without elements, loaded in a process of their own: XLA may end it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from hlo_passes import workers

_CHILD = """
import json, sys
import numpy as np
from hlo_passes import parse, runtime
from hlo_passes.runtime.dtypes import numpy_dtype

runtime.emulate(2)
for text in json.load(sys.stdin):
    executable = runtime.load(parse(text))
    ones = [
        np.ones((executable.device_count, *s.dimensions), numpy_dtype(s.element_type))
        for s in executable.parameters
    ]
    (output,) = executable(*ones)
    print(json.dumps([output.shape, output.astype(float).ravel().tolist()]), flush=True)
"""

_ADD = """%add (x: KIND[], y: KIND[]) -> KIND[] {
  %x = KIND[] parameter(0)
  %y = KIND[] parameter(1)
  ROOT %s = KIND[] add(%x, %y)
}

"""


def _module(result: str, operation: str, *operands: str, before: str = "") -> str:
    """One operation on parameters %a, %b, ...; `operation` has a $ for them."""
    names = [f"%{chr(ord('a') + k)}" for k in range(len(operands))]
    kind = result.partition("[")[0]
    given = "".join(
        f"  {name} = {shape} parameter({k})\n"
        for k, (name, shape) in enumerate(zip(names, operands, strict=True))
    )
    signature = ", ".join(f"{n[1:]}: {s}" for n, s in zip(names, operands, strict=True))
    return (
        f"HloModule m\n\n{before.replace('KIND', kind)}"
        f"ENTRY %e ({signature}) -> {result} {{\n{given}"
        f"  %zero = {kind}[] constant({'(0, 0)' if kind == 'c64' else 0})\n"
        f"  ROOT %r = {result} {operation.replace('$', ', '.join(names))}\n}}\n"
    )


_DOT = "dot($), lhs_contracting_dims={%d}, rhs_contracting_dims={0}"
_BATCH = (
    "dot($), lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)
_CONVOLUTION = "convolution($), window={size=1}, dim_labels=b0f_0io->b0f"

#: A module, and the value of all its results.
_CASES = [
    *(
        (_module(f"{kind}{result}", operation, f"{kind}{one}", f"{kind}{other}"), 0)
        for kind in ("f32", "s32", "bf16", "f8e4m3fn", "s4", "c64")
        for result, operation, one, other in (
            ("[]", _DOT % 0, "[0]", "[0]"),
            ("[1,1]", _DOT % 1, "[1,0]", "[0,1]"),
            ("[3]", _DOT % 1, "[3,0]", "[0]"),
            ("[3,4]", _DOT % 1, "[3,0]", "[0,4]"),
            ("[0,4]", _DOT % 1, "[0,3]", "[3,4]"),
            ("[1,1,1]", _BATCH, "[1,1,0]", "[1,0,1]"),
        )
    ),
    (_module("f32[1,1,1]", _CONVOLUTION, "f32[1,1,0]", "f32[1,0,1]"), 0),
    (_module("f32[0,1,1]", _CONVOLUTION, "f32[0,1,2]", "f32[1,2,1]"), 0),
    (_module("f32[3]", "reduce($, %zero), dimensions={1}, to_apply=%add", "f32[3,0]", before=_ADD), 0),
    (_module("f32[3]", "reduce-window($, %zero), window={size=2 pad=2_2}, to_apply=%add", "f32[0]", before=_ADD), 0),
    (_module("f32[2,0]", "gather($), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,0}", "f32[4,0]", "s32[2]"), 0),
    (_module("f32[4,3]", "scatter($), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add", "f32[4,3]", "s32[0]", "f32[0,3]", before=_ADD), 1),
    (_module("c64[0,4]", "fft($), fft_type=FFT, fft_length={4}", "c64[0,4]"), 0),
    (_module("f32[0,3]", "triangular-solve($), left_side=true, lower=true, transpose_a=NO_TRANSPOSE", "f32[0,0]", "f32[0,3]"), 0),
    (_module("f32[0,0]", "cholesky($), lower=true", "f32[0,0]"), 0),
    (_module("f32[4]", "pad($, %zero), padding=2_2", "f32[0]"), 0),
    (_module("f32[4]", "dynamic-update-slice($)", "f32[4]", "f32[0]", "s32[]"), 1),
    *(
        (_module(f"f32{result}", operation, f"f32{one}", before=_ADD).replace("HloModule m", "HloModule m, num_partitions=2"), 0)
        for result, operation, one in (
            ("[0]", "all-reduce($), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add", "[0]"),
            ("[0,2]", "reduce-scatter($), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={1}, to_apply=%add", "[0,4]"),
            ("[0,6]", "all-gather($), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={1}", "[0,3]"),
            ("[4,0]", "all-to-all($), channel_id=1, replica_groups={{0,1}}, dimensions={0}", "[4,0]"),
            ("[0]", "collective-permute($), channel_id=1, source_target_pairs={{0,1},{1,0}}", "[0]"),
        )
    ),
]  # fmt: skip


def test_operations_on_nothing() -> None:
    modules = [text for text, _ in _CASES]
    child = subprocess.run(
        [sys.executable, "-c", _CHILD],
        env=workers.environment(JAX_PLATFORMS="cpu"),
        input=json.dumps(modules).encode(),
        stdout=subprocess.PIPE,
        check=False,
    )
    answers = list(map(json.loads, child.stdout.decode().splitlines()))
    assert len(answers) == len(modules), modules[len(answers)]
    assert child.returncode == 0
    for (text, expected), (shape, values) in zip(_CASES, answers, strict=True):
        assert values == [expected] * int(np.prod(shape)), text


@pytest.mark.parametrize("kind", ["bf16", "f16", "f8e4m3fn", "s8", "s4", "f4e2m1fn"])
@pytest.mark.parametrize("batches", [1, 8])
def test_products_of_narrow_types(host_devices, kind: str, batches: int) -> None:
    from hlo_passes import parse, runtime
    from hlo_passes.runtime.dtypes import numpy_dtype

    host_devices(1)
    wide = "s32" if kind.startswith("s") else "f32"
    one, other = f"{kind}[{batches},64,512]", f"{kind}[32,{batches},64]"
    text = _module(
        f"{wide}[{batches},512,32]",
        "dot($), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={1}, "
        "rhs_contracting_dims={2}",
        one,
        other,
    )
    inputs = [
        np.arange(np.prod(s), dtype=np.int32).reshape(1, *s) % 5 - 2
        for s in ((batches, 64, 512), (32, batches, 64))
    ]
    (found,) = runtime.load(parse(text))(*(i.astype(numpy_dtype(kind)) for i in inputs))
    expected = np.einsum("bki,jbk->bij", inputs[0][0], inputs[1][0])
    np.testing.assert_array_equal(found[0].astype(np.int64), expected)
