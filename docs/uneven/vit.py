"""Blocks of a vision transformer whose 197 tokens are shared by all devices.

    hlo-passes lower docs/uneven/vit.py:step -o vit.hlo

Weights are cut as in tensor parallelism; between products each of eight devices keeps
25 tokens (sequence parallelism), the last one 22. 196 patches and a class token make a
prime.
"""

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def step(devices):
    """Four blocks of 1,024 columns, 32 images."""
    return program(devices, images=32, tokens=197, width=1024, blocks=4)


def program(devices, *, images, tokens, width, blocks, dtype="bfloat16"):
    """The jitted blocks, and the shapes of their arguments."""
    mesh = Mesh(devices, ("x",), axis_types=(AxisType.Auto,))

    def on(*axes):
        return NamedSharding(mesh, PartitionSpec(*axes))

    def constrained(value, *axes):
        return jax.lax.with_sharding_constraint(value, on(*axes))

    def forward(x, weights):
        x = constrained(x, None, "x", None)
        for up, down in weights:
            whole = constrained(x - x.mean(-1, keepdims=True), None, None, None)
            hidden = jax.nn.gelu(constrained(whole @ up, None, None, "x"))
            # Sums of all devices become each device's own tokens.
            x = x + constrained(hidden @ down, None, "x", None)
        return x.mean(1)

    def shape(dimensions, *axes):
        return jax.ShapeDtypeStruct(dimensions, dtype, sharding=on(*axes))

    up = shape((width, 4 * width), None, "x")
    down = shape((4 * width, width), "x", None)
    return jax.jit(forward), (shape((images, tokens, width)), [(up, down)] * blocks)
