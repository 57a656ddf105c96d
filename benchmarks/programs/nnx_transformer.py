"""A training step of a transformer in flax NNX with optax: the extra `benchmarks`.

Parameters and the optimizer's state are split over both axes of the mesh: over `data`
as FSDP has it, over `model` as tensor parallelism has it. Equal layers are one scan,
whose body is computed again in the backward pass; the step donates its state.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax  # pyright: ignore[reportMissingImports]
from flax import nnx  # pyright: ignore[reportMissingImports]
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS, WIDTH, HIDDEN, HEADS, VOCABULARY = 16, 2048, 8192, 16, 32768
TOKENS = 2048
SEQUENCES = 2  # for each member of `data`
_MODEL = 2  # members of `model`


def _kernel(*axes):
    return nnx.with_partitioning(nnx.initializers.lecun_normal(), axes)


class Layer(nnx.Module):
    """Causal attention and a gated product, both on normalized values."""

    def __init__(self, rngs):
        """Parameters in float32, computed with in bfloat16."""
        linear = {"use_bias": False, "dtype": jnp.bfloat16, "rngs": rngs}
        split, joined = _kernel("data", "model"), _kernel("model", "data")
        self.before_attention = nnx.RMSNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.query = nnx.Linear(WIDTH, WIDTH, kernel_init=split, **linear)
        self.key = nnx.Linear(WIDTH, WIDTH, kernel_init=split, **linear)
        self.value = nnx.Linear(WIDTH, WIDTH, kernel_init=split, **linear)
        self.output = nnx.Linear(WIDTH, WIDTH, kernel_init=joined, **linear)
        self.before_products = nnx.RMSNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.gate = nnx.Linear(WIDTH, HIDDEN, kernel_init=split, **linear)
        self.up = nnx.Linear(WIDTH, HIDDEN, kernel_init=split, **linear)
        self.down = nnx.Linear(HIDDEN, WIDTH, kernel_init=joined, **linear)

    def __call__(self, x):
        """`x` is [sequence, token, width]."""
        normal = self.before_attention(x)
        heads = (*x.shape[:2], HEADS, WIDTH // HEADS)
        mixed = jax.nn.dot_product_attention(
            self.query(normal).reshape(heads),
            self.key(normal).reshape(heads),
            self.value(normal).reshape(heads),
            is_causal=True,
        )
        x = x + self.output(mixed.reshape(x.shape))
        normal = self.before_products(x)
        return x + self.down(nnx.silu(self.gate(normal)) * self.up(normal))


class Transformer(nnx.Module):
    """Embedding, layers, and scores of the next token."""

    def __init__(self, rngs):
        """All layers at once: each parameter has them as its first dimension."""
        self.embedding = nnx.Embed(
            VOCABULARY,
            WIDTH,
            dtype=jnp.bfloat16,
            embedding_init=_kernel("model", "data"),
            rngs=rngs,
        )

        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap(transform_metadata={nnx.PARTITION_NAME: None})
        def layers(rngs):
            return Layer(rngs)

        self.layers = layers(rngs)
        self.before_scores = nnx.RMSNorm(WIDTH, dtype=jnp.bfloat16, rngs=rngs)
        self.scores = nnx.Linear(
            WIDTH,
            VOCABULARY,
            use_bias=False,
            dtype=jnp.bfloat16,
            kernel_init=_kernel("data", "model"),
            rngs=rngs,
        )

    def __call__(self, tokens, rows):
        """`tokens` is [sequence, token]; `rows` is where activations are."""

        @nnx.scan(
            in_axes=(nnx.Carry, 0),
            out_axes=nnx.Carry,
            transform_metadata={nnx.PARTITION_NAME: None},
        )
        @nnx.remat
        def run(x, layer):
            return jax.lax.with_sharding_constraint(layer(x), rows)

        x = jax.lax.with_sharding_constraint(self.embedding(tokens), rows)
        x = run(x, self.layers)
        return self.scores(self.before_scores(x))


def nnx_transformer(devices):
    """A step of AdamW."""
    mesh = Mesh(np.array(devices).reshape(-1, _MODEL), ("data", "model"))
    rows = NamedSharding(mesh, PartitionSpec("data"))

    def new():
        model = Transformer(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adamw(1e-4), wrt=nnx.Param)

    def loss(model, tokens):
        scores = model(tokens[:, :-1], rows).astype(jnp.float32)
        right = tokens[:, 1:]
        return optax.softmax_cross_entropy_with_integer_labels(scores, right).mean()

    def step(state, tokens):
        model, optimizer = nnx.merge(definition, state)
        value, gradients = nnx.value_and_grad(loss)(model, tokens)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), value

    def placed(array):
        sharding = NamedSharding(mesh, array.sharding.spec)
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    # Nothing is allocated: the devices may be absent.
    with jax.set_mesh(mesh):
        definition, state = nnx.split(nnx.eval_shape(new))
    state = jax.tree.map(placed, state)
    shape = (SEQUENCES * mesh.shape["data"], TOKENS + 1)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=rows)
    shardings = jax.tree.map(lambda array: array.sharding, state)
    jitted = jax.jit(step, donate_argnums=0, out_shardings=(shardings, None))
    return jitted, (state, tokens)
