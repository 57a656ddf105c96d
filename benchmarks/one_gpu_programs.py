"""Programs for one GPU: products, kernels that move bytes, and training steps.

    function, arguments = PROGRAMS["matmul_4096"]()
    jax.jit(function)(*arguments)

Arguments are made when a program is asked for. Those of layers are of a size that is
common in training: bf16, 2,048 to 4,096 wide, sequences of 2,048.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

Program = tuple[Callable[..., Any], tuple[Any, ...]]
_BF16: Final = jnp.bfloat16
_F32: Final = jnp.float32
_RATE: Final = 1e-3


def _random(shape: tuple[int, ...], dtype: Any = _BF16, scale: float = 0.02) -> Any:
    key = jax.random.fold_in(jax.random.PRNGKey(0), sum(shape) + len(shape))
    return (scale * jax.random.normal(key, shape, _F32)).astype(dtype)


# -- single kernels ------------------------------------------------------------------


def _matmul(m: int, k: int, n: int, dtype: Any = _BF16) -> Program:
    return jnp.matmul, (_random((m, k), dtype), _random((k, n), dtype))


def _elementwise(function: Callable[..., Any], count: int, inputs: int) -> Program:
    # Arrays of their own: what is read twice is in the cache the second time.
    return function, tuple(_random((count,), _F32) + k for k in range(inputs))


def _rows(function: Callable[..., Any], rows: int, columns: int) -> Program:
    return function, (_random((rows, columns), _F32, 1.0),)


def _adam(p: Any, m: Any, v: Any, g: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - _RATE * m / (jnp.sqrt(jnp.abs(v)) + 1e-8), m, v


def _layernorm(x: Any) -> Any:
    centered = x - jnp.mean(x, -1, keepdims=True)
    return centered * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5)


def _transcendental(x: Any) -> Any:
    return jnp.tanh(jnp.exp(jnp.sin(x))) * x


def _gather(table: int, width: int, rows: int) -> Program:
    index = jax.random.randint(jax.random.PRNGKey(1), (rows,), 0, table)
    return (lambda t, i: t[i]), (_random((table, width)), index)


def _scatter(table: int, width: int, rows: int) -> Program:
    index = jax.random.randint(jax.random.PRNGKey(1), (rows,), 0, table)
    arguments = _random((table, width), _F32), index, _random((rows, width), _F32)
    return (lambda t, i, u: t.at[i].add(u)), arguments


def _convolution(images: int, side: int, channels: int) -> Program:
    convolve = partial(
        lax.conv_general_dilated,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    weights = _random((3, 3, channels, channels))
    return convolve, (_random((images, side, side, channels)), weights)


# -- layers --------------------------------------------------------------------------


def _normalized(x: Any) -> Any:
    y = x.astype(_F32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def _layer(weights: Any, x: Any, *, heads: int) -> Any:
    """Attention and a gated perceptron, as in Llama."""
    wq, wk, wv, wo, gate, down, up = weights
    batch, length, width = x.shape
    each = width // heads
    h = _normalized(x)
    q, k, v = ((h @ w).reshape(batch, length, heads, each) for w in (wq, wk, wv))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(_F32) / each**0.5
    seen = jnp.tril(jnp.ones((length, length), bool))
    share = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1).astype(x.dtype)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", share, v).reshape(batch, length, width)
    x = x + mixed @ wo
    h = _normalized(x)
    return x + (jax.nn.silu(h @ gate) * (h @ up)) @ down


def _weights(width: int, hidden: int, layers: tuple[int, ...] = ()) -> tuple[Any, ...]:
    square, down = (width, width), (hidden, width)
    shapes = (square,) * 4 + ((width, hidden), down, (width, hidden))
    return tuple(_random((*layers, *shape)) for shape in shapes)


def _forward(batch: int, width: int, hidden: int, heads: int) -> Program:
    x = _random((batch, 2048, width), scale=1.0)
    return partial(_layer, heads=heads), (_weights(width, hidden), x)


def _training(
    layers: int, batch: int, width: int, hidden: int, heads: int, *, remat: bool
) -> Program:
    def body(x: Any, weights: Any) -> tuple[Any, None]:
        return _layer(weights, x, heads=heads), None

    def loss(weights: Any, x: Any) -> Any:
        y, _ = lax.scan(jax.checkpoint(body) if remat else body, x, weights)
        return jnp.mean(jnp.square(y.astype(_F32)))

    def step(weights: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, x)
        return jax.tree.map(lambda w, g: w - _RATE * g, weights, gradients), value

    x = _random((batch, 2048, width), scale=1.0)
    return step, (_weights(width, hidden, (layers,)), x)


def _perceptron(rows: int, width: int, hidden: int) -> Program:
    def loss(weights: Any, x: Any) -> Any:
        y = jax.nn.gelu(x @ weights[0]) @ weights[1]
        return jnp.mean(jnp.square(y.astype(_F32)))

    def step(weights: Any, x: Any) -> Any:
        gradients = jax.grad(loss)(weights, x)
        return jax.tree.map(lambda w, g: w - _RATE * g, weights, gradients)

    weights = _random((width, hidden)), _random((hidden, width))
    return step, (weights, _random((rows, width)))


def _experts(tokens: int, width: int, hidden: int, experts: int) -> Program:
    def function(x: Any, route: Any, up: Any, down: Any) -> Any:
        chosen = jnp.argmax(jax.nn.softmax((x @ route).astype(_F32), -1), -1)
        h = jax.nn.gelu(jnp.einsum("td,edf->etf", x, up))
        y = jnp.einsum("etf,efd->etd", h, down)
        mask = jax.nn.one_hot(chosen, experts, dtype=x.dtype)
        return jnp.einsum("etd,te->td", y, mask)

    up, down = _random((experts, width, hidden)), _random((experts, hidden, width))
    return function, (_random((tokens, width)), _random((width, experts)), up, down)


PROGRAMS: Final[dict[str, Callable[[], Program]]] = {
    "matmul_8192": partial(_matmul, 8192, 8192, 8192),
    "matmul_4096": partial(_matmul, 4096, 4096, 4096),
    "matmul_2048": partial(_matmul, 2048, 2048, 2048),
    "matmul_1024": partial(_matmul, 1024, 1024, 1024),
    "matmul_16384_4096_1024": partial(_matmul, 16384, 4096, 1024),
    "matmul_256_8192_8192": partial(_matmul, 256, 8192, 8192),
    "matmul_8192_1024_28672": partial(_matmul, 8192, 1024, 28672),
    "matmul_f32_4096": partial(_matmul, 4096, 4096, 4096, _F32),
    "convolution": partial(_convolution, 64, 56, 256),
    "add_64M": partial(_elementwise, jnp.add, 1 << 26, 2),
    "add_1M": partial(_elementwise, jnp.add, 1 << 20, 2),
    "transcendental_64M": partial(_elementwise, _transcendental, 1 << 26, 1),
    "adam_64M": partial(_elementwise, _adam, 1 << 26, 4),
    "adam_4M": partial(_elementwise, _adam, 1 << 22, 4),
    "row_sum": partial(_rows, partial(jnp.sum, axis=1), 16384, 4096),
    "column_sum": partial(_rows, partial(jnp.sum, axis=0), 16384, 4096),
    "transpose": partial(_rows, lambda x: x.T + 1, 8192, 8192),
    "softmax_4096_4096": partial(_rows, partial(jax.nn.softmax, axis=-1), 4096, 4096),
    "softmax_65536_512": partial(_rows, partial(jax.nn.softmax, axis=-1), 65536, 512),
    "layernorm": partial(_rows, _layernorm, 8192, 4096),
    "sort": partial(_rows, partial(jnp.sort, axis=-1), 4096, 2048),
    "gather": partial(_gather, 128256, 4096, 8192),
    "scatter": partial(_scatter, 65536, 2048, 8192),
    "experts": partial(_experts, 4096, 2048, 4096, 8),
    "perceptron_step": partial(_perceptron, 8192, 4096, 16384),
    "layer_forward": partial(_forward, 4, 4096, 14336, 32),
    "step_4_layers": partial(_training, 4, 4, 2048, 8192, 16, remat=False),
    "step_8_layers_remat": partial(_training, 8, 4, 2048, 8192, 16, remat=True),
    "step_2_wide_layers": partial(_training, 2, 2, 4096, 14336, 32, remat=False),
}
