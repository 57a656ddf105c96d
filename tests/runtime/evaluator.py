"""A second opinion: HLO evaluated with NumPy, on N devices in lockstep.

Shares nothing with `runtime` but the reader of the text. Every value is an array of
its own, so nothing is ever overwritten: what is wrong with XLA's buffers shows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    "pred": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": np.float16,
    "f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128,
    "s2": ml_dtypes.int2, "u2": ml_dtypes.uint2,
    "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4,
    "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e3m4": ml_dtypes.float8_e3m4,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu, "f4e2m1fn": ml_dtypes.float4_e2m1fn,
    **{f"{k}{n}": np.dtype(f"{'u' * (k == 'u')}int{n}").type
       for k in "su" for n in (8, 16, 32, 64)},
}  # fmt: skip

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "maximum": np.maximum, "minimum": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "divide": np.true_divide,
    "remainder": np.fmod,
}  # fmt: skip
COMPARE = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal,
    "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip


def ints(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"-?\d+", text))


class Evaluator:
    """Evaluates a module on `replicas * partitions` devices at once.

    A value is a list with one NumPy array (or tuple of values) per device.
    """

    def __init__(self, module: Any, replicas: int, partitions: int) -> None:
        self.module = module
        self.replicas, self.partitions = replicas, partitions
        self.count = replicas * partitions

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Stacked flat inputs to stacked flat outputs, tuples depth first."""
        given = list(inputs)
        parameters = [
            [self._unflatten(p.shape, given_at, d) for d in range(self.count)]
            for p, given_at in self._slots(given)
        ]
        result = self.computation(self.module.entry, parameters)
        flat = [list(_leaves(value)) for value in result]
        return [np.stack(rows) for rows in zip(*flat, strict=True)]

    def _slots(self, given: list[np.ndarray]):
        at = 0
        for p in self.module.entry.parameters:
            size = sum(1 for _ in p.shape.leaves())
            yield p, given[at : at + size]
            at += size

    def _unflatten(self, shape: Any, given: list[np.ndarray], device: int) -> Any:
        rows = iter([g[device] for g in given])

        def build(s: Any) -> Any:
            return tuple(build(e) for e in s.elements) if s.is_tuple else next(rows)

        return build(shape)

    def computation(self, computation: Any, arguments: list[Any]) -> list[Any]:
        values: dict[Any, list[Any]] = {}
        for i in computation.instructions:
            if i.opcode == "parameter":
                values[i] = arguments[i.parameter_number]
            else:
                values[i] = self.instruction(i, [values[o] for o in i.operands])
        return values[computation.root]

    def instruction(self, i: Any, operands: list[list[Any]]) -> list[Any]:
        name = "_" + i.opcode.replace("-", "_")
        whole = getattr(self, name, None)
        if whole is not None:
            return whole(i, operands)
        return [self.local(i, [o[d] for o in operands], d) for d in range(self.count)]

    # -- one device ---------------------------------------------------------

    def local(self, i: Any, x: list[Any], device: int) -> Any:
        op, attributes, dims = i.opcode, i.attributes, i.shape.dimensions
        dtype = DTYPES.get(i.shape.element_type)
        if op in BINARY:
            return BINARY[op](x[0], x[1]).astype(dtype)
        if op == "tuple":
            return tuple(x)
        if op == "get-tuple-element":
            return x[0][int(attributes["index"])]
        if op in ("copy", "opt-barrier"):
            return x[0]
        if op == "bitcast":
            return _bitcast(i, x[0])
        if op == "negate":
            return np.negative(x[0]).astype(dtype)
        if op == "constant":
            return _constant(i.literal, dims, dtype)
        if op == "iota":
            at = int(attributes["iota_dimension"])
            shape = [1] * len(dims)
            shape[at] = dims[at]
            return np.broadcast_to(np.arange(dims[at]).reshape(shape), dims).astype(
                dtype
            )
        if op == "convert":
            return x[0].astype(np.float32).astype(dtype)
        if op == "compare":
            return COMPARE[attributes["direction"]](x[0], x[1])
        if op == "clamp":
            return np.minimum(np.maximum(x[1], x[0]), x[2]).astype(dtype)
        if op == "select":
            return np.where(x[0], x[1], x[2])
        if op == "reshape":
            return x[0].reshape(dims)
        if op == "transpose":
            return x[0].transpose(ints(attributes["dimensions"]))
        if op == "broadcast":
            at = ints(attributes.get("dimensions", ""))
            shape = [1] * len(dims)
            for source, target in enumerate(at):
                shape[target] = x[0].shape[source]
            return np.broadcast_to(x[0].reshape(shape), dims)
        if op == "slice":
            found = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", attributes["slice"])
            return x[0][tuple(slice(int(a), int(b), int(c or 1)) for a, b, c in found)]
        if op == "concatenate":
            return np.concatenate(x, ints(attributes["dimensions"])[0])
        if op == "pad":
            return _padded(x[0], x[1], attributes["padding"])
        if op == "dynamic-slice":
            return x[0][_window(x[0].shape, dims, x[1:])]
        if op == "dynamic-update-slice":
            result = np.array(x[0])
            result[_window(x[0].shape, x[1].shape, x[2:])] = x[1]
            return result
        if op == "reduce":
            return self._reduced(i, x)
        if op == "dot":
            return _dot(attributes, x).astype(dtype)
        if op == "partition-id":
            return np.uint32(device % self.partitions)
        if op == "replica-id":
            return np.uint32(device // self.partitions)
        raise NotImplementedError(op)

    def _reduced(self, i: Any, x: list[Any]) -> Any:
        function = BINARY[i.called_computations[0].root.opcode]
        axes = ints(i.attributes["dimensions"])
        moved = np.moveaxis(x[0], axes, range(len(axes)))
        rows = moved.reshape(-1, *moved.shape[len(axes) :])
        result = np.broadcast_to(x[1], rows.shape[1:])
        for row in rows:
            result = function(result, row).astype(x[0].dtype)
        return result

    # -- control flow -------------------------------------------------------

    def _call(self, i: Any, operands: list[Any]) -> list[Any]:
        return self.computation(i.called_computations[0], operands)

    _fusion = _call

    def _while(self, i: Any, operands: list[Any]) -> list[Any]:
        body, condition = i.called_computations
        state = operands[0]
        while True:
            go_on = self.computation(condition, [state])
            assert len({bool(g) for g in go_on}) == 1, "devices leave a loop apart"
            if not go_on[0]:
                return state
            state = self.computation(body, [state])

    def _conditional(self, i: Any, operands: list[Any]) -> list[Any]:
        branches = i.called_computations
        is_pred = i.operands[0].shape.element_type == "pred"
        chosen = [
            (0 if s else 1) if is_pred else (int(s) if 0 <= s < len(branches) else -1)
            for s in operands[0]
        ]
        results = [
            self.computation(b, [o]) if k in [c % len(branches) for c in chosen] else []
            for k, (b, o) in enumerate(zip(branches, operands[1:], strict=True))
        ]
        return [results[c][d] for d, c in enumerate(chosen)]

    # -- collectives --------------------------------------------------------

    def _groups(self, i: Any) -> list[list[int]]:
        """Groups of devices (replica * partitions + partition)."""
        text = i.attributes.get("replica_groups", "{}")
        if "<=" in text:
            raise NotImplementedError(text)
        listed = [list(ints(g)) for g in re.findall(r"\{([\d,\s]+)\}", text)]
        has_channel = "channel_id" in i.attributes
        every_partition = range(self.partitions)
        if i.attributes.get("use_global_device_ids") == "true":
            return listed
        if has_channel and "all-to-all" in i.opcode:
            listed = listed or [list(every_partition)]
            return [
                [r * self.partitions + p for p in g]
                for r in range(self.replicas)
                for g in listed
            ]
        listed = listed or [list(range(self.replicas))]
        if has_channel:
            return [[r * self.partitions + p for r in g for p in every_partition]
                    for g in listed]  # fmt: skip
        return [[r * self.partitions + p for r in g]
                for p in every_partition for g in listed]  # fmt: skip

    def _over_groups(
        self, i: Any, operands: list[Any], function: Callable[..., list[Any]]
    ) -> list[Any]:
        results: list[Any] = [None] * self.count
        for group in self._groups(i):
            parts = [function([o[d] for d in group]) for o in operands]
            for k, d in enumerate(group):
                row = tuple(p[k] for p in parts)
                results[d] = row if i.shape.is_tuple else row[0]
        return results

    def _all_reduce(self, i: Any, operands: list[Any]) -> list[Any]:
        function = BINARY[i.called_computations[0].root.opcode]

        def reduce(rows: list[Any]) -> list[Any]:
            total = _wide(rows[0])
            for row in rows[1:]:
                total = function(total, _wide(row))
            return [total.astype(rows[0].dtype)] * len(rows)

        return self._over_groups(i, operands, reduce)

    def _reduce_scatter(self, i: Any, operands: list[Any]) -> list[Any]:
        function = BINARY[i.called_computations[0].root.opcode]
        axis = ints(i.attributes["dimensions"])[0]

        def scatter(rows: list[Any]) -> list[Any]:
            total = _wide(rows[0])
            for row in rows[1:]:
                total = function(total, _wide(row))
            return np.split(total.astype(rows[0].dtype), len(rows), axis)

        return self._over_groups(i, operands, scatter)

    def _all_gather(self, i: Any, operands: list[Any]) -> list[Any]:
        axis = ints(i.attributes["dimensions"])[0]
        return self._over_groups(
            i, operands, lambda rows: [np.concatenate(rows, axis)] * len(rows)
        )

    def _all_to_all(self, i: Any, operands: list[Any]) -> list[Any]:
        if not i.shape.is_tuple:
            axis = ints(i.attributes["dimensions"])[0]

            def exchange(rows: list[Any]) -> list[Any]:
                cut = [np.split(r, len(rows), axis) for r in rows]
                return [
                    np.concatenate([c[k] for c in cut], axis) for k in range(len(rows))
                ]

            return self._over_groups(i, operands, exchange)
        results: list[Any] = [None] * self.count
        for group in self._groups(i):
            for k, d in enumerate(group):
                results[d] = tuple(operands[k][s] for s in group)
        return results

    def _collective_permute(self, i: Any, operands: list[Any]) -> list[Any]:
        flat = ints(i.attributes["source_target_pairs"])
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        if "channel_id" in i.attributes:
            pairs = [(r * self.partitions + s, r * self.partitions + t)
                     for r in range(self.replicas) for s, t in pairs]  # fmt: skip
        else:
            pairs = [(s * self.partitions + p, t * self.partitions + p)
                     for p in range(self.partitions) for s, t in pairs]  # fmt: skip
        moved = []
        for operand in operands:
            result = [np.zeros_like(o) for o in operand]
            for source, target in pairs:
                result[target] = operand[source]
            moved.append(result)
        if not i.shape.is_tuple:
            return moved[0]
        return list(zip(*moved, strict=True))

    def _ragged_all_to_all(self, i: Any, operands: list[Any]) -> list[Any]:
        """Sender and receiver each say how many rows; what only one says is lost."""
        source, output = operands[:2]
        first, sent, place, received = (
            [table.reshape(-1) for table in tables] for tables in operands[2:]
        )
        results = [np.array(o) for o in output]
        for group in self._groups(i):
            updates = len(sent[group[0]]) // len(group)
            for (j, to), (k, by) in itertools.product(enumerate(group), repeat=2):
                for u in range(updates):
                    here, there = j * updates + u, k * updates + u
                    rows = min(sent[by][here], received[to][there])
                    start, at = first[by][here], place[by][here]
                    results[to][at : at + rows] = source[by][start : start + rows]
        return results

    def _custom_call(self, i: Any, operands: list[Any]) -> list[Any]:
        """Memory as it is found."""
        assert i.attributes["custom_call_target"] == '"AllocateBuffer"'
        dims, dtype = i.shape.dimensions, DTYPES[i.shape.element_type]
        return [np.full(dims, 77, dtype) for _ in range(self.count)]

    # -- asynchronous forms: all at the start, the done takes the result -----

    def _all_reduce_start(self, i: Any, operands: list[Any]) -> list[Any]:
        return self._all_reduce(i, operands)

    def _all_reduce_done(self, i: Any, operands: list[Any]) -> list[Any]:
        return operands[0]

    def _collective_permute_start(self, i: Any, operands: list[Any]) -> list[Any]:
        several = len(operands) > 1

        class View:
            attributes, shape = i.attributes, i.shape.elements[1]

        result = self._collective_permute(View, operands)
        before = [
            tuple(o[d] for o in operands) if several else operands[0][d]
            for d in range(self.count)
        ]
        return list(zip(before, result, strict=True))

    def _all_gather_start(self, i: Any, operands: list[Any]) -> list[Any]:
        several = len(operands) > 1

        class View:
            attributes, shape, opcode = i.attributes, i.shape.elements[1], i.opcode

        result = self._all_gather(View, operands)
        before = [
            tuple(o[d] for o in operands) if several else operands[0][d]
            for d in range(self.count)
        ]
        return list(zip(before, result, strict=True))

    def _all_gather_done(self, i: Any, operands: list[Any]) -> list[Any]:
        return [o[1] for o in operands[0]]

    def _async_start(self, i: Any, operands: list[Any]) -> list[Any]:
        result = self.computation(i.called_computations[0], operands)
        given = [tuple(o[d] for o in operands) for d in range(self.count)]
        return list(zip(given, result, strict=True))

    def _async_update(self, i: Any, operands: list[Any]) -> list[Any]:
        return operands[0]

    _async_done = _all_gather_done

    def _collective_permute_done(self, i: Any, operands: list[Any]) -> list[Any]:
        return [o[1] for o in operands[0]]


def _bitcast(i: Any, x: Any) -> Any:
    """The same bytes in the order of another layout, of the same type."""
    if i.operands[0].shape.element_type != i.shape.element_type:
        raise NotImplementedError("bitcast to another type")
    order = i.operands[0].shape.layout.minor_to_major[::-1]
    major = i.shape.layout.minor_to_major[::-1]
    flat = x.transpose(order).reshape([i.shape.dimensions[k] for k in major])
    return flat.transpose([major.index(k) for k in range(len(major))])


def _leaves(value: Any):
    if isinstance(value, tuple):
        for element in value:
            yield from _leaves(element)
    else:
        yield value


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def _padded(whole: np.ndarray, value: Any, padding: str) -> np.ndarray:
    """Longer by low and high in each dimension; nothing inside, nothing cut off."""
    ranges = [ints(each.replace("_", " ")) for each in padding.split("x")]
    return np.pad(whole, ranges, constant_values=value)


def _window(whole: Any, part: Any, starts: list[Any]) -> tuple[slice, ...]:
    bounds = []
    for size, length, start in zip(whole, part, starts, strict=True):
        low = min(max(int(start), 0), size - length)
        bounds.append(slice(low, low + length))
    return tuple(bounds)


def _constant(literal: str, dims: tuple[int, ...], dtype: Any) -> np.ndarray:
    words = re.findall(r"true|false|-?inf|-?nan|-?[\d.]+(?:e[+-]?\d+)?", literal)
    numbers = [float({"true": 1, "false": 0}.get(w, w)) for w in words]
    return np.array(numbers, np.float64).reshape(dims).astype(dtype)


def _dot(attributes: Any, x: list[Any]) -> np.ndarray:
    def of(name: str) -> tuple[int, ...]:
        return ints(attributes.get(name, ""))

    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left = [next(letters) for _ in x[0].shape]
    right = [next(letters) for _ in x[1].shape]
    batch = []
    for a, b in zip(of("lhs_batch_dims"), of("rhs_batch_dims"), strict=True):
        right[b] = left[a]
        batch.append(left[a])
    contracted = set()
    pairs = zip(of("lhs_contracting_dims"), of("rhs_contracting_dims"), strict=True)
    for a, b in pairs:
        right[b] = left[a]
        contracted.add(left[a])
    out = batch + [c for c in left + right if c not in contracted and c not in batch]
    spec = f"{''.join(left)},{''.join(right)}->{''.join(dict.fromkeys(out))}"
    wide = [v.astype(np.float64) for v in x]
    return np.einsum(spec, *wide)
