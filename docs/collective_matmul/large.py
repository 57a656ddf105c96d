"""The corpus's sequence-parallel MLP, as large as its transfers need to hide."""

import pathlib
import runpy

import jax
import jax.numpy as jnp

_TOKENS, _WIDTH, _HIDDEN = 65536, 16384, 53248
_CORPUS = pathlib.Path(__file__).parents[2] / "corpus"
_PROGRAM = runpy.run_path(str(_CORPUS / "programs" / "tensor_parallel_mlp.py"))


def step(devices):
    """Three blocks in bf16."""
    forward, (x, ups, downs) = _PROGRAM["sequence_parallel_mlp"](devices)

    def array(like, *shape):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=like.sharding)

    return forward, (
        array(x, _TOKENS, _WIDTH),
        [array(up, _WIDTH, _HIDDEN) for up in ups],
        [array(down, _HIDDEN, _WIDTH) for down in downs],
    )
