"""One row per opcode: how many operands it has, and what it is.

    all-gather-start      *  start native    half of an asynchronous all-gather
    while                 1  control-flow    runs the computations that it calls
    reduce-scatter-start                     sugar: async-start of a reduce-scatter

Opcodes are plain strings in the IR, and `facts` returns the row of one. `X-start`,
`X-update` and `X-done` without a row of their own are sugar; their rows are derived
from the row of X. An opcode without a row is unknown: the reader keeps it, the verifier
reports it, and passes leave it alone.

Source of names and arities: openxla/xla `xla/hlo/ir/hlo_opcode.h` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

VARIADIC: Final = -1

#: Which part of an asynchronous operation an opcode is; '' for none.
Half = Literal["", "start", "update", "done"]
#: How an opcode spells a half: `native` all-gather-start, `generic` async-start and
#: its sugar (fusion-start), `transfer` send and recv.
Spelling = Literal["", "native", "generic", "transfer"]
#: What an opcode calls: `control-flow` runs its callees as parts of the program,
#: `fused` is one kernel, `embedded` applies them to elements, `async` wraps what it
#: starts.
Calls = Literal["", "control-flow", "fused", "embedded", "async"]

# Each row: the opcode, its number of operands (* where it is free), its facts. A fact
# is a half, a spelling, what the opcode calls, or a kind that `Opcode` has a flag for.
_TABLE: Final = """
abs                       1  elementwise
acos                      1  elementwise
acosh                     1  elementwise
add                       2  elementwise commutative
add-dependency            2
after-all                 *
all-gather                *  collective
all-gather-done           1  done native
all-gather-start          *  start native
all-reduce                *  collective embedded
all-reduce-done           1  done native
all-reduce-start          *  start native embedded
all-to-all                *  collective
and                       2  elementwise commutative
asin                      1  elementwise
asinh                     1  elementwise
async-done                1  done generic
async-start               *  start generic async
async-update              *  update generic
atan2                     2  elementwise
atanh                     1  elementwise
batch-norm-grad           5
batch-norm-inference      5
batch-norm-training       3
bitcast                   1
bitcast-convert           1  elementwise
broadcast                 1
call                      *  control-flow
cbrt                      1  elementwise
ceil                      1  elementwise
cholesky                  1
clamp                     3  elementwise
collective-broadcast      *  collective
collective-permute        *  collective
collective-permute-done   1  done native
collective-permute-start  *  start native
compare                   2  elementwise
complex                   2  elementwise
concatenate               *
conditional               *  control-flow
constant                  0
convert                   1  elementwise
convolution               2
copy                      1  elementwise
copy-done                 1  done native
copy-start                1  start native
cosh                      1  elementwise
cosine                    1  elementwise
count-leading-zeros       1  elementwise
custom-call               *  embedded
divide                    2  elementwise
domain                    1
dot                       2
dynamic-reshape           *
dynamic-slice             *
dynamic-update-slice      *
erf                       1  elementwise
exponential               1  elementwise
exponential-minus-one     1  elementwise
fft                       1
floor                     1  elementwise
fusion                    *  fused
gather                    2
get-dimension-size        1
get-tuple-element         1
imag                      1  elementwise
infeed                    1
iota                      0
is-finite                 1  elementwise
log                       1  elementwise
log-plus-one              1  elementwise
logistic                  1  elementwise
map                       *  elementwise embedded
maximum                   2  elementwise commutative
minimum                   2  elementwise commutative
mulhi                     2  elementwise commutative
multiply                  2  elementwise commutative
negate                    1  elementwise
not                       1  elementwise
opt-barrier               1
or                        2  elementwise commutative
outfeed                   2
pad                       2
parameter                 0
partition-id              0
popcnt                    1  elementwise
power                     2  elementwise
ragged-all-to-all         6  collective
ragged-dot                3
real                      1  elementwise
recv                      1  start transfer
recv-done                 1  done transfer
reduce                    *  embedded
reduce-precision          1  elementwise
reduce-scatter            *  collective embedded
reduce-window             *  embedded
remainder                 2  elementwise
replica-id                0
reshape                   1
reverse                   1
rng                       *
rng-bit-generator         1
rng-get-and-update-state  0
round-nearest-afz         1  elementwise
round-nearest-even        1  elementwise
rsqrt                     1  elementwise
scaled-dot                4
scan                      *  embedded
scatter                   *  embedded
select                    3  elementwise
select-and-scatter        3  embedded
send                      2  start transfer
send-done                 1  done transfer
set-dimension-size        2
shift-left                2  elementwise
shift-right-arithmetic    2  elementwise
shift-right-logical       2  elementwise
sign                      1  elementwise
sine                      1  elementwise
sinh                      1  elementwise
slice                     1
sort                      *  embedded
sqrt                      1  elementwise
stochastic-convert        2  elementwise
subtract                  2  elementwise
tan                       1  elementwise
tanh                      1  elementwise
topk                      1
transpose                 1
triangular-solve          2
tuple                     *
while                     1  control-flow
xor                       2  elementwise commutative
"""


@dataclass(frozen=True, slots=True)
class Opcode:
    """The facts of one opcode.

    Attributes:
        arity: number of operands, `VARIADIC` where it is free.
        half: which part of an asynchronous operation it is.
        spelling: how it spells that part.
        work: what it does, as an opcode: 'all-gather' for all-gather, all-gather-start
            and all-gather-done, 'send' for send and send-done, the word itself for an
            unknown one. '' for `async-start`, `async-update` and `async-done`, whose
            computation says it.
        calls: how it uses the computations that it calls.
        is_collective: whether its work is communication of a group of devices; send
            and recv are not.
        is_elementwise: whether it works element by element on operands of one shape.
        is_commutative: whether its two operands may be swapped.
        is_sugar: whether it spells an `async-start`, `async-update` or `async-done`.
        is_known: whether XLA knows it, sugar included.
    """

    arity: int = VARIADIC
    half: Half = ""
    spelling: Spelling = ""
    work: str = ""
    calls: Calls = ""
    is_collective: bool = False
    is_elementwise: bool = False
    is_commutative: bool = False
    is_sugar: bool = False
    is_known: bool = True


def _one_of(kind: Any, words: Container[str]) -> Any:
    """The word of a literal type that a row has; '' for none."""
    return next((word for word in get_args(kind) if word in words), "")


def _rows() -> dict[str, Opcode]:
    """The table above, by opcode."""
    split = {line.split()[0]: line.split()[1:] for line in _TABLE.strip().splitlines()}
    rows: dict[str, Opcode] = {}
    for opcode, (arity, *facts) in split.items():
        words = set(facts)
        half, spelling = _one_of(Half, words), _one_of(Spelling, words)
        work = opcode
        if spelling == "generic":
            work = ""
        elif half:
            work = opcode.removesuffix(f"-{half}")
        rows[opcode] = Opcode(
            arity=VARIADIC if arity == "*" else int(arity),
            half=half,
            spelling=spelling,
            work=work,
            calls=_one_of(Calls, words),
            is_collective="collective" in split.get(work, ()),
            is_elementwise="elementwise" in words,
            is_commutative="commutative" in words,
        )
    return rows


#: The opcodes that have a row of their own.
ROWS: Final[Mapping[str, Opcode]] = MappingProxyType(_rows())

#: The collectives, in their synchronous form.
SYNC_COLLECTIVES: Final = frozenset(
    opcode for opcode, row in ROWS.items() if row.is_collective and not row.half
)

#: The operations whose time is that of matrix products.
MATRIX_PRODUCTS: Final = frozenset({"convolution", "dot"})

#: What starts a point-to-point transfer: send and recv.
TRANSFERS: Final = frozenset(
    opcode
    for opcode, row in ROWS.items()
    if row.spelling == "transfer" and row.half == "start"
)

#: Attributes that name computations, in the order in which XLA lists the callees.
CALLEE_ATTRIBUTES: Final = (
    "body",
    "condition",
    "to_apply",
    "calls",
    "select",
    "scatter",
    "true_computation",
    "false_computation",
    "branch_computations",
    "called_computations",
)

#: How many opcodes `facts` remembers; a text may hold any words.
_REMEMBERED: Final = 1024


def _called_by_sugar(wrapped: Opcode, half: Half) -> Calls:
    """What sugar calls: a start names the callees of what it wraps."""
    if half != "start":
        return ""
    return "async" if wrapped.calls == "control-flow" else wrapped.calls


@lru_cache(maxsize=_REMEMBERED)
def facts(opcode: str) -> Opcode:
    """The row of an opcode: derived for sugar, without facts for an unknown word."""
    row = ROWS.get(opcode)
    if row is not None:
        return row
    inner, _, end = opcode.rpartition("-")
    wrapped = ROWS.get(inner)
    if wrapped is None or end not in ("start", "update", "done"):
        return Opcode(work=opcode, is_known=False)
    return Opcode(
        half=end,
        spelling="generic",
        work=inner,
        calls=_called_by_sugar(wrapped, end),
        is_collective=inner in SYNC_COLLECTIVES,
        is_sugar=True,
    )
