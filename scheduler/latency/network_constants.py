"""The constants of a network by name, and the values that each may have.

--latency-options=nic_speed_gbps=50                       is_option
# latency-options: nic_speed_gbps=50,rtt_us=0             is_constant, in a target file
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hlo_passes.errors import UsageError, nearest

MOST_NIC_GB_PER_S: Final = 100_000


class NetworkConstant(NamedTuple):
    """What values one has.

    Attributes:
        kind: int or float.
        largest: sensible value.
        unit: for messages.
    """

    kind: type[int] | type[float]
    largest: int
    unit: str

    @property
    def smallest(self) -> float:
        """The least value of an option."""
        return 1 if self.kind is int else 0.001


NETWORK_CONSTANTS: Final = {
    "nccl_op_launch_us": NetworkConstant(int, 1_000_000, "microseconds"),
    "nic_speed_gbps": NetworkConstant(
        float, MOST_NIC_GB_PER_S, "gigabytes per second per GPU"
    ),
    "chunk_prep_us": NetworkConstant(int, 1_000_000, "microseconds"),
    "rtt_us": NetworkConstant(int, 1_000_000, "microseconds"),
    "gpus_per_node": NetworkConstant(int, 1 << 20, "GPUs"),
    "chunk_size_bytes": NetworkConstant(int, 1 << 40, "bytes"),
    "partition_size": NetworkConstant(int, 1 << 30, "devices"),
    "ragged_imbalance": NetworkConstant(
        float, 1 << 20, "the most rows of a device by the mean"
    ),
}
OPTION_NAMES: Final = tuple(NETWORK_CONSTANTS)


def range_of(name: str) -> str:
    """The values that an option has, for a hint."""
    row = NETWORK_CONSTANTS[name]
    sort = "an integer" if row.kind is int else "a number"
    return f"{name} is {sort} from {row.smallest:g} to {row.largest} ({row.unit})"


def is_option(name: str, value: float) -> bool:
    """Whether a user may give this value of an option."""
    row = NETWORK_CONSTANTS[name]
    return row.smallest <= value <= row.largest


def is_constant(name: str, value: float) -> bool:
    """Whether a target's network may have this value of an option.

    Options may be so, too; besides, a fit may find that a duration is 0.
    """
    return is_option(name, value) or (name.endswith("_us") and 0 <= value < 1)


def target_constant(name: str, text: str, where: str) -> float:
    """A constant that a target's file gives.

    Args:
        name: of the constant.
        text: its value.
        where: the file, for messages.

    Raises UsageError U201 for another name, for what is no number, and for a value that
    no network has.
    """
    if name not in NETWORK_CONSTANTS:
        raise UsageError(
            f"{where}: the network has no constant {name}",
            code="U201",
            hint=nearest(name, NETWORK_CONSTANTS)
            or f"one of {', '.join(NETWORK_CONSTANTS)}",
        )
    try:
        value = float(text)
    except ValueError:
        raise UsageError(
            f"{where}: {name}={text} is not a number", code="U201", hint=range_of(name)
        ) from None
    if not is_constant(name, value):
        raise UsageError(
            f"{where}: {name}={value:g} is out of range",
            code="U201",
            hint=range_of(name),
        )
    return value
