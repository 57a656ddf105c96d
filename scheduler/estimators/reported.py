"""What a report prices a module with, and what its first line says about that.

    found = reported(module, Pricing(target="gb200", hosts=36))
    found.on          extended=True: XLA has no model for GB200
    found.remarks     ("XLA has no model for gb200: ...",)

XLA's scheduler orders by abstract constants where it has no model for a GPU, and so
does our pass. A report is read as times: there the formulas of `latency.extended`
answer.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, replace

from hlo_passes.analysis.followed_release import release_asked_for
from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.ir.tpu_config import estimated_cycles
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.choice import (
    DEFAULT_ESTIMATOR,
    collective_model,
    estimator_names,
    settled,
)
from hlo_passes.scheduler.estimators.sol import unsupported_reason
from hlo_passes.scheduler.estimators.tpu_final import TPU_FINAL
from hlo_passes.scheduler.hardware.machine import (
    domain_remark,
    machine_named,
    machine_of,
)
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology, device_count_of
from hlo_passes.scheduler.headline import priced_on
from hlo_passes.scheduler.latency.collective_time import CollectiveModel
from hlo_passes.scheduler.tpu.chips import is_chip
from hlo_passes.scheduler.tpu.costs import TpuCosts, tpu_costs
from hlo_passes.scheduler.tpu.costs_of_module import require_costs_of
from hlo_passes.xla_release import RELEASES, XlaRelease

#: For the first line of every report on a TPU.
_ESTIMATED = "times are the TPU compiler's estimates, which nobody has measured"

_log = logging.getLogger("hlo_passes")


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report is about.

    Attributes:
        on: the pricing, with formulas of our own where XLA has no model for the target.
        machine: that the module runs on.
        release: of XLA that is followed.
        remarks: for the first line, what limits all that follows.
    """

    on: Pricing
    machine: Topology
    release: XlaRelease
    remarks: tuple[str, ...]

    @property
    def machine_line(self) -> str:
        """What is priced on what, for the line after the first one."""
        machine = self.machine
        return priced_on(
            self.on.target, machine.to_text(), machine.described, self.release.name
        )


def reported(module: Module, on: Pricing) -> Reported:
    """What a report on a module prices with.

    An option that has no effect under the release is named in the log, once.

    Raises UsageError as `machine_of` and `estimator_names` do, and WrongStateError S019
    for a TPU's costs of another module.
    """
    costs = _costs_of_tpu(on)
    gaps: tuple[str, ...] = ()
    if costs is not None:
        gaps = require_costs_of(module, costs, on.costs, on.target)
        on = _on_its_chip(on, costs)
    machine = machine_of(module, on)
    release = release_asked_for(module, on.xla)
    if is_chip(on.target):
        _require_estimates(module, on)
        return Reported(on, machine, release, (*gaps, _ESTIMATED))
    used = on.devices or device_count_of(module)
    remarks = [domain_remark(machine, target(on.target))]
    if machine.is_regular and used < machine.device_count:
        remarks.append(f"the module uses {used} of {machine.device_count} GPUs")
    asked = isinstance(on.estimator, str) and estimator_names(on)
    if asked and DEFAULT_ESTIMATOR in asked and not on.extended:
        model = collective_model(settled(module, on))
        if model.off_reason:
            on = replace(on, extended=True)
            remarks.append(
                f"XLA has no model for {on.target}, so that formulas of this project "
                "answer; --estimator=gpu-approximate is XLA's choice"
            )
        else:
            reason = "" if on.always else unsupported_reason(module)
            if reason:
                remarks.append(
                    f"XLA has no prices for this module, since {reason}; "
                    "--every-module or --extended has"
                )
            if machine_named(on) is not None:
                _tell_if_without_effect(model, machine)
    return Reported(on, machine, release, tuple(filter(None, remarks)))


def _require_estimates(module: Module, on: Pricing) -> None:
    """UsageError U208 for `tpu-final` on a module without the compiler's estimates."""
    if not isinstance(on.estimator, str) or TPU_FINAL not in on.estimator.split("+"):
        return
    every = (i for c in module.computations for i in c.instructions)
    if all(estimated_cycles(i) is None for i in every):
        raise UsageError(
            "the estimator tpu-final needs estimated_cycles, and the module has none",
            code="U208",
            hint="hlo-passes lower FILE.py:FUNCTION --target=v5e writes them: only the "
            "executable's text has them, XLA's dumps have none",
        )


def _costs_of_tpu(on: Pricing) -> TpuCosts | None:
    """The costs that are read, if they are of a TPU."""
    is_read = on.costs and isinstance(on.estimator, str)
    return tpu_costs(on.costs) if is_read else None


def _on_its_chip(on: Pricing, costs: TpuCosts) -> Pricing:
    """A pricing whose target is the TPU that its costs are of."""
    return replace(
        on,
        target=costs.chip,
        topology="" if on.target != costs.chip else on.topology,
        hosts=None,
        gpus_per_host=None,
    )


def _tell_if_without_effect(model: CollectiveModel, machine: Topology) -> None:
    """Say that the machine named changes no price under the release followed."""
    if model.release.partition_from_topology or model.config.partition_size:
        return
    if not machine.is_regular or model.partition_size == machine.partition_size:
        return
    if machine.device_count > min(model.partition_size, machine.partition_size):
        _tell_without_effect(model.release, model.partition_size, machine)


@functools.cache
def _tell_without_effect(release: XlaRelease, size: int, machine: Topology) -> None:
    first = next(r for r in RELEASES if r.partition_from_topology)
    _log.warning(
        "hosts and topology change no price under XLA %s, whose model takes %d GPUs "
        "for one NVLink domain: %s counts from --xla=%s on, or with "
        "--latency-options=partition_size=%d",
        release,
        size,
        machine.to_text(),
        first,
        machine.partition_size,
    )
