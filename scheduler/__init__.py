"""What collectives, GEMMs and fusions cost, and the scheduler that uses these prices.

report = scheduler.estimate(module, target="h100_sxm", hosts=2)
for row in report.rows: row.name, row.node_cost_us, row.latency_us, row.model
"""

from hlo_passes.scheduler.calibration import Calibration, Measurement, calibrate
from hlo_passes.scheduler.checker.schedule_checker import (
    IllegalScheduleError,
    ScheduleChecker,
    check_device_order,
    check_schedule,
)
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.choice import make_estimator
from hlo_passes.scheduler.estimators.profile import Profile, read_profile
from hlo_passes.scheduler.estimators.stack import EstimatorStack
from hlo_passes.scheduler.estimators.table import read_costs
from hlo_passes.scheduler.hardware.target import Target, target, target_names
from hlo_passes.scheduler.hardware.topology import Topology, topology_of_devices
from hlo_passes.scheduler.latency.collective_time import CollectiveModel
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.latency.options import LatencyOptions
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.latency_hiding.result import ScheduleResult
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.statistics import lhs_statistics
from hlo_passes.scheduler.memory.base_order import BaseOrder, base_order
from hlo_passes.scheduler.memory.curve import MemoryCurve, memory_curve
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.module_costs import EstimateReport, EstimateRow, estimate
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.written_profile import profile_of

__all__ = [
    "BaseOrder",
    "Calibration",
    "CollectiveModel",
    "Estimate",
    "EstimateReport",
    "EstimateRow",
    "Estimator",
    "EstimatorStack",
    "IllegalScheduleError",
    "LatencyHidingScheduler",
    "LatencyOptions",
    "Measurement",
    "MemoryCurve",
    "ModuleMemory",
    "Profile",
    "Rules",
    "ScheduleChecker",
    "ScheduleResult",
    "SchedulerSettings",
    "Target",
    "Timeline",
    "Topology",
    "base_order",
    "calibrate",
    "check_device_order",
    "check_schedule",
    "estimate",
    "lhs_statistics",
    "make_estimator",
    "memory_curve",
    "profile_of",
    "read_costs",
    "read_profile",
    "schedule_module",
    "simulate",
    "target",
    "target_names",
    "topology_of_devices",
]
