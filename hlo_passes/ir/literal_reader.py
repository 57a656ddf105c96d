"""Array literals from text: braces against the shape, then all numbers at once.

The braces are compared as one string with what the shape asks for; only when they
differ are the tokens walked to find the place. Numbers are converted by NumPy in bulk;
the few that need more (NaN payloads, integers beyond 2**63) one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.element_types import (
    bits_view,
    integer_range,
    is_floating,
    numpy_dtype,
    payload_bits,
)
from hlo_passes.ir.lexical import COMMENT
from hlo_passes.ir.shapes import COMPLEX, Shape
from hlo_passes.ir.value_cursor import ValueCursor
from hlo_passes.whole_numbers import number_of_digits

if TYPE_CHECKING:
    import numpy as np

_ELIDED: Final = re.compile(r"\{[ \t\r\n]*\.\.\.[ \t\r\n]*\}")
_BRACE: Final = re.compile(r"[{}]")
_COMMENT: Final = re.compile(COMMENT)
_PLAIN_TOKEN: Final = re.compile(r"[^ \t\r\n,{}()/]+(?:\(0x[0-9a-fA-F]+\))?")
_COMPLEX_TOKEN: Final = re.compile(r"\([^{}()]*(?:\(0x[0-9a-fA-F]+\)[^{}()]*)*\)")
_INTEGER: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(
    r"-?(?:[0-9]+(?:\.[0-9]*)?|(?<=-)\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
)
_NAN: Final = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]+)\))?")
_ONLY_INTEGERS: Final = re.compile(r"[-0-9 \t\r\n,{}]*")
_ONLY_DECIMALS: Final = re.compile(r"[-+.0-9eE \t\r\n,{}]*")
#: Python's float accepts these and HLO does not, in text of only those characters.
_BAD_START: Final = re.compile(r"(?:^|[ \t\r\n,{])[+.]")
#: An integer to XLA, so no negative zero.
_NEGATIVE_ZERO: Final = re.compile(r"-(0+)(?![0-9.eE])")
_SEPARATORS: Final = str.maketrans("{},\t\r\n", "      ")
_BLANKS: Final = str.maketrans("", "", " ,\t\r\n")

_DOUBLE_PAYLOAD_BITS: Final = 52
_MODULUS: Final = 1 << 64
_SIGN: Final = 1 << 63


def read_array(cursor: ValueCursor, shape: Shape) -> np.ndarray[Any, Any] | None:
    """The elements of an array literal, read-only; None when it is elided."""
    import numpy as np

    start = cursor.skip()
    if shape.rank and cursor.take(_ELIDED):
        return None
    text = _body(cursor, shape)
    body = _Body(cursor, start, text, shape)
    if shape.rank:
        body.check_braces()
    kind = shape.element_type
    if kind == "pred":
        values = body.predicates()
    elif is_floating(kind):
        values = body.floats(body.doubles())
    elif kind in COMPLEX:
        values = body.complexes()
    else:
        values = body.integers()
    if values.size != shape.element_count:
        body.fail(f"{values.size} values for {shape.text}", 0)
    try:
        values = np.ascontiguousarray(values).reshape(shape.dimensions)
    except ValueError:
        raise UnsupportedHloError(
            f"NumPy has no arrays of {shape.rank} dimensions", code="S020"
        ) from None
    values.setflags(write=False)
    return values


def _body(cursor: ValueCursor, shape: Shape) -> str:
    """Take the text of the literal; comments become blanks of the same length."""
    text, start = cursor.text, cursor.at
    if not shape.rank:
        pattern = _COMPLEX_TOKEN if shape.element_type in COMPLEX else _PLAIN_TOKEN
        match = cursor.take(pattern)
        if not match:
            cursor.fail(f"expected a value of {shape.element_type}")
        return match[0]
    if not text.startswith("{", start):
        cursor.fail(f"expected '{{' before the values of {shape.text}")
    if "/" in text:
        text = _COMMENT.sub(lambda match: " " * len(match[0]), text)
    depth = 0
    last = text.rfind("}")
    if text.count("{", start) == text.count("}", start) and not text[last + 1 :].strip(
        " \t\r\n"
    ):
        cursor.at = len(cursor.text)  # nothing else follows, as in every constant
        return text[start : last + 1]
    for match in _BRACE.finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            cursor.at = match.end()
            return text[start : match.end()]
    cursor.fail("no '}' closes this literal", at=start)


@dataclass(slots=True)
class _Body:
    """The text of one array literal, its place, and what it must be."""

    cursor: ValueCursor
    start: int
    text: str
    shape: Shape

    # -- failing ------------------------------------------------------------

    def fail(self, message: str, index: int, *, in_range: bool = True) -> NoReturn:
        """Raise P240 (P241 unless `in_range`) at the element of this index."""
        for k, match in enumerate(self._pattern().finditer(self.text)):
            if k == index:
                at = match.start()
                break
        else:
            at = len(self.text)
        error = self.cursor.error(message, at=self.start + at)
        if not in_range:
            error.code = "P241"
        raise error

    def fail_token(self, index: int, expected: str) -> NoReturn:
        """Raise P240 for an element that is not of the right form."""
        token = self.tokens()[index]
        self.fail(f"expected {expected}, found {token[:40]}", index)

    def fail_range(self, index: int) -> NoReturn:
        """Raise P241 for an element that the type cannot hold."""
        token = self.tokens()[index][:40]
        kind = self.shape.element_type
        self.fail(f"{token} is out of range for {kind}", index, in_range=False)

    # -- structure ----------------------------------------------------------

    def _pattern(self) -> re.Pattern[str]:
        return _COMPLEX_TOKEN if self.shape.element_type in COMPLEX else _PLAIN_TOKEN

    def tokens(self) -> list[str]:
        """The elements as text."""
        return self._pattern().findall(self.text)

    def check_braces(self) -> None:
        """Check that the braces and the number of elements are those of the shape."""
        dims = self.shape.dimensions
        length = 1
        for size in reversed(dims):
            length = length * size + 2
        found = self._pattern().sub("x", self.text).translate(_BLANKS)
        if length == len(found):
            wanted = "x"
            for size in reversed(dims):
                wanted = f"{{{wanted * size}}}"
            if wanted == found:
                return
        self._fail_braces(found)

    def _fail_braces(self, found: str) -> NoReturn:
        """Walk the tokens to the first one that does not fit."""
        dims, rank = self.shape.dimensions, self.shape.rank
        counts = [0] * rank
        depth = 0
        for k, token in enumerate(found):
            message = ""
            if token == "}":
                depth -= 1
                if depth < 0:
                    message = "unexpected '}'"
                elif counts[depth] != dims[depth]:
                    message = f"{counts[depth]} values where {dims[depth]} belong"
            else:
                if depth:
                    counts[depth - 1] += 1
                if token == "{":
                    if depth >= rank:
                        message = f"braces nested deeper than the {rank} dimensions"
                    else:
                        counts[depth] = 0
                        depth += 1
                elif token != "x":
                    message = f"unexpected '{token}'"
                elif depth != rank:
                    message = f"a value inside {depth} braces, not {rank}"
                if not message and depth and token == "x":
                    size = dims[depth - 1]
                    if counts[depth - 1] > size:
                        message = f"more than {size} values"
            if message:
                self._fail_at_structure(k, f"{message} in a literal of "
                                           f"{self.shape.text}")  # fmt: skip
        self._fail_at_structure(
            len(found), f"this is not a literal of {self.shape.text}"
        )

    def _fail_at_structure(self, index: int, message: str) -> NoReturn:
        """Raise at the `index`-th brace, value or stray character."""
        whole = re.compile(rf"[{{}}]|{self._pattern().pattern}|[^ \t\r\n,]")
        for k, match in enumerate(whole.finditer(self.text)):
            if k == index:
                raise self.cursor.error(message, at=self.start + match.start())
        raise self.cursor.error(message, at=self.start + len(self.text))

    # -- values -------------------------------------------------------------

    def raw_integers(self) -> np.ndarray[Any, Any]:
        """64-bit integers, 2**63..2**64-1 wrapped to negative ones as XLA does."""
        import numpy as np

        if _ONLY_INTEGERS.fullmatch(self.text):
            try:
                numbers = list(map(int, self.text.translate(_SEPARATORS).split()))
                return np.array(numbers, np.int64)
            except (ValueError, OverflowError):
                pass  # one by one, which finds the place
        numbers = [self._integer(k, t) for k, t in enumerate(self.tokens())]
        return np.array(numbers, np.int64)

    def _integer(self, index: int, token: str) -> int:
        if not _INTEGER.fullmatch(token):
            self.fail_token(index, "an integer")
        value = number_of_digits(token)
        if not -_SIGN <= value < _MODULUS:
            self.fail_range(index)
        return value - _MODULUS if value >= _SIGN else value

    def integers(self) -> np.ndarray[Any, Any]:
        """Integers of the element type, range-checked."""
        import numpy as np

        kind = self.shape.element_type
        raw = self.raw_integers()
        if kind == "u64":
            return raw.view(np.uint64)
        low, high = integer_range(kind)
        outside = np.flatnonzero((raw < low) | (raw > high))
        if outside.size:
            self.fail_range(int(outside[0]))
        return raw.astype(numpy_dtype(kind))

    def predicates(self) -> np.ndarray[Any, Any]:
        """`true`, `false` or integers (not 0 is true)."""
        import numpy as np

        if _ONLY_INTEGERS.fullmatch(self.text):
            return self.raw_integers() != 0
        words = {"true": True, "false": False}
        return np.array(
            [
                words[t] if t in words else self._integer(k, t) != 0
                for k, t in enumerate(self.tokens())
            ],
            bool,
        )

    def doubles(self) -> np.ndarray[Any, Any]:
        """Doubles; NaN payloads are in the low bits, as in XLA."""
        import numpy as np

        if _ONLY_DECIMALS.fullmatch(self.text) and not _BAD_START.search(self.text):
            try:
                text = _NEGATIVE_ZERO.sub(r"\1", self.text)
                numbers = list(map(float, text.translate(_SEPARATORS).split()))
            except ValueError:
                numbers = None  # one by one, which finds the place
            if numbers is not None:
                values = np.array(numbers, np.float64)
                # Integers beyond 2**63 wrap, larger ones are refused.
                large = np.flatnonzero(~(np.abs(values) < float(_SIGN)))
                if large.size:
                    tokens = self.tokens()
                    for k in large.tolist():
                        values[k] = self._double(k, tokens[k])
                return values
        bits = np.array(
            [self._double_bits(k, t) for k, t in enumerate(self.tokens())], np.uint64
        )
        return bits.view(np.float64)

    def _double(self, index: int, token: str) -> float:
        if _INTEGER.fullmatch(token):
            return float(self._integer(index, token))
        if not _DECIMAL.fullmatch(token):
            self.fail_token(index, "a number")
        value = float(token)
        if value in (float("inf"), -float("inf")):
            self.fail_range(index)
        return value

    def _double_bits(self, index: int, token: str) -> int:
        import struct

        if token in ("inf", "-inf"):
            value = float(token)
        elif match := _NAN.fullmatch(token):
            return self._nan_bits(index, match)
        else:
            value = self._double(index, token)
        return struct.unpack("<Q", struct.pack("<d", value))[0]

    def _nan_bits(self, index: int, match: re.Match[str]) -> int:
        quiet = 1 << (_DOUBLE_PAYLOAD_BITS - 1)
        payload = quiet
        if match[2]:
            digits = match[2].lstrip("0")
            too_long = len(digits) * 4 > _DOUBLE_PAYLOAD_BITS
            if not digits or too_long:
                self.fail_range(index)
            payload = int(digits, 16)
        exponent = 0x7FF << _DOUBLE_PAYLOAD_BITS
        return exponent | payload | (_SIGN if match[1] else 0)

    def floats(
        self, values: np.ndarray[Any, Any], kind: str = ""
    ) -> np.ndarray[Any, Any]:
        """Doubles rounded to the element type; P241 where they overflow it."""
        import numpy as np

        kind = kind or self.shape.element_type
        dtype = numpy_dtype(kind)
        if kind == "f64":
            return values
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            # Half precision is reached through single precision, as in XLA.
            narrow = (
                values.astype(np.float32).astype(dtype)
                if kind == "f16"
                else values.astype(dtype)
            )
            back = narrow.astype(np.float64)
            finite = np.isfinite(values)
            outside = np.flatnonzero(finite & ~np.isfinite(back))
            if kind == "f8e8m0fnu":
                # It has no zero: what underflows becomes the smallest value, 2**-127.
                tiny = ~np.isfinite(back) & (values > 0) & (values < 1)
                bits_view(narrow)[tiny] = 0
                outside = np.flatnonzero(finite & ~tiny & ~np.isfinite(back))
        if outside.size:
            self.fail_range(int(outside[0]))
        self._set_payloads(values, narrow, kind)
        return narrow

    def _set_payloads(
        self, values: np.ndarray[Any, Any], narrow: np.ndarray[Any, Any], kind: str
    ) -> None:
        import numpy as np

        nans = np.flatnonzero(np.isnan(values))
        if not nans.size:
            return
        raw = bits_view(values[nans]).tolist()
        width = payload_bits(kind)
        view = bits_view(narrow)
        default = 1 << (_DOUBLE_PAYLOAD_BITS - 1)
        # All bits of the exponent are set in a NaN of a type with payloads.
        bits = narrow.dtype.itemsize * 8
        exponent = ((1 << (bits - 1)) - 1) & ~((1 << width) - 1) if width else 0
        for k, pattern in zip(nans.tolist(), raw, strict=True):
            payload = pattern & ((1 << _DOUBLE_PAYLOAD_BITS) - 1)
            if not width:
                if payload != default:
                    self.fail_range(k)
                continue
            if payload == default:
                payload = 1 << (width - 1)
            if payload >> width:
                self.fail_range(k)
            sign = (pattern >> 63) << (bits - 1)
            view[k] = sign | exponent | payload

    def complexes(self) -> np.ndarray[Any, Any]:
        """`(real, imaginary)` pairs."""
        import numpy as np

        kind = self.shape.element_type
        part = "f32" if kind == "c64" else "f64"
        parts: list[list[int]] = [[], []]
        for k, token in enumerate(self.tokens()):
            pair = _PLAIN_TOKEN.findall(token[1:-1])
            commas = token.count(",")
            if len(pair) != 2 or commas != 1:
                self.fail_token(k, "a pair, as in (1, -2)")
            for side, text in zip(parts, pair, strict=True):
                side.append(self._double_bits(k, text))
        real, imaginary = (
            self.floats(np.array(side, np.uint64).view(np.float64), part)
            for side in parts
        )
        values = np.empty(len(parts[0]), numpy_dtype(kind))
        values.real, values.imag = real, imaginary
        return values
