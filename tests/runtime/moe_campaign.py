"""Sparse experts of docs/moe against a dense reference, over random routings.

    python -m tests.runtime.moe_campaign [ROUTINGS]          500 when not given

The reference sends every token through every expert and takes what the router chose, as
one-hot matrices; it drops the rows that find no room as the program says it does. The
layer is run as it is lowered, and cut into two and three chunks of three experts. Inputs
are small whole numbers, so that only the softmax rounds: the layer must be within
RELATIVE of the reference, and its chunks equal to the bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import hlo_passes
from docs.moe import experts
from hlo_passes import runtime
from hlo_passes.runtime.executable import Executable

SIZES = experts.Sizes(
    tokens=8, width=4, hidden=6, experts=3, top_k=2, room=16, dtype="float32"
)
DEVICES = 4
#: Of the sum of a token's weights times what its experts give: a softmax of two rounds
#: a few times, and so do two products and a sum.
RELATIVE = 1e-5
CHUNKS = (2, 3)


@dataclass(frozen=True)
class Layers:
    """The layer, and the same in chunks."""

    plain: Executable
    chunked: tuple[Executable, ...]


def layers(devices: Sequence, numbers: Sequence[int] = CHUNKS) -> Layers:
    """Lower, cut into these numbers of chunks, and load."""
    module = runtime.lower(*_program(devices), stage="partitioned")
    chunked = []
    for chunks in numbers:
        copy = module.clone()
        passes = f"ragged-all-to-all-chunker{{always=true,chunks={chunks}}}"
        assert hlo_passes.Pipeline.parse(passes).run(copy).changed
        made = sum("ragged-all-to-all" in line for line in copy.to_text().splitlines())
        assert made == 2 * chunks
        chunked.append(runtime.load(copy))
    return Layers(runtime.load(module), tuple(chunked))


def _program(devices: Sequence):
    jitted, arguments = experts.program(devices, SIZES)
    return jitted, *arguments


def routing(kind: str, seed: int) -> list[np.ndarray]:
    """Inputs by which tokens go to experts as the kind says."""
    chance = np.random.default_rng([seed, sorted(KINDS).index(kind)])
    count, width = DEVICES * SIZES.experts, SIZES.width
    x = chance.integers(-3, 4, (DEVICES, SIZES.tokens, width)).astype(np.float32)
    router = chance.integers(-3, 4, (width, count)).astype(np.float32)
    # The first feature is one everywhere, so that a row of the router is a bias.
    x[..., 0] = 1
    router[0] += np.float32(100) * KINDS[kind](chance, count)
    up = chance.integers(-2, 3, (DEVICES, SIZES.experts, width, SIZES.hidden))
    down = chance.integers(-2, 3, (DEVICES, SIZES.experts, SIZES.hidden, width))
    everywhere = np.repeat(router[np.newaxis], DEVICES, axis=0)
    return [x, everywhere, up.astype(np.float32), down.astype(np.float32)]


def _one(chance: np.random.Generator, count: int) -> np.ndarray:
    """All tokens to one expert, and by chance to another: most find no room."""
    return np.eye(count)[chance.integers(count)]


def _two(chance: np.random.Generator, count: int) -> np.ndarray:
    """All tokens to the same two experts: all others are empty."""
    return np.eye(count)[chance.permutation(count)[:2]].sum(axis=0)


def _some(chance: np.random.Generator, count: int) -> np.ndarray:
    """Many experts are empty; a device may have none that is not."""
    return chance.integers(0, 2, count)


def _by_chance(chance: np.random.Generator, count: int) -> np.ndarray:
    """Whatever the router says."""
    return np.zeros(count)


KINDS = {"any": _by_chance, "one expert": _one, "some": _some, "two experts": _two}


@dataclass(frozen=True)
class Dense:
    """What the reference says.

    Attributes:
        result: (devices, tokens, width).
        dropped: rows that found no room.
        empty: experts without a row.
    """

    result: np.ndarray
    dropped: int
    empty: int


def dense(inputs: Sequence[np.ndarray]) -> Dense:
    """Every token through every expert, weighted by one-hot matrices, in float64."""
    x, routers, up, down = (np.asarray(i, np.float64) for i in inputs)
    width = SIZES.width
    tokens = x.reshape(-1, width)
    logits = tokens @ routers[0]
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, : SIZES.top_k]
    picked = np.take_along_axis(logits, chosen, axis=1)
    weights = np.exp(picked - picked.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    count = logits.shape[1]
    # Tokens follow one another by device; so the places in an expert's queue are sums.
    hot = np.eye(count)[chosen]
    queue = np.cumsum(hot.reshape(-1, count), axis=0).reshape(hot.shape) * hot
    kept = hot * (queue <= SIZES.room)
    combined = np.einsum("tk,tke->te", weights, kept)
    inner = np.einsum("td,edf->tef", tokens, up.reshape(count, width, -1))
    worked = np.einsum(
        "tef,efd->ted", np.maximum(inner, 0), down.reshape(count, -1, width)
    )
    result = np.einsum("te,ted->td", combined, worked).reshape(x.shape)
    rows = hot.sum(axis=(0, 1))
    return Dense(result, int((hot - kept).sum()), int((rows == 0).sum()))


def check(loaded: Layers, inputs: Sequence[np.ndarray]) -> Dense:
    """Raise AssertionError unless all agree; returns what the reference says."""
    expected = dense(inputs)
    (found,) = loaded.plain(*inputs)
    scale = np.abs(expected.result).max(initial=1.0)
    assert np.abs(found - expected.result).max() <= RELATIVE * scale
    for each in loaded.chunked:
        (cut,) = each(*inputs)
        assert cut.tobytes() == found.tobytes()
    return expected


def routings(number: int) -> Iterator[tuple[str, list[np.ndarray]]]:
    """So many, the kinds in turn."""
    names = tuple(KINDS)
    for seed in range(number):
        name = names[seed % len(names)]
        yield name, routing(name, seed)


def main(number: int) -> None:
    """Check so many routings and say what they were."""
    runtime.emulate(DEVICES)
    import jax

    loaded = layers(jax.devices()[:DEVICES])
    found = [(name, check(loaded, inputs)) for name, inputs in routings(number)]
    for name in KINDS:
        these = [each for kind, each in found if kind == name]
        print(
            f"{name}: {len(these)} routings agree, {sum(e.dropped > 0 for e in these)} "
            f"with dropped rows, {sum(e.empty > 0 for e in these)} with empty experts"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
