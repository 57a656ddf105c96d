"""What collectives, GEMMs and fusions cost, and the scheduler that stands on it.

report = scheduler.estimate(module, target="h100_sxm", topology="1x2x8")
for row in report.rows: row.name, row.node_cost_us, row.latency_us, row.model
"""

from scheduler.calibration import Calibration, Measurement, calibrate
from scheduler.checker.schedule_checker import (
    IllegalScheduleError,
    ScheduleChecker,
    check_device_order,
    check_schedule,
)
from scheduler.estimators.base import Estimator
from scheduler.estimators.choice import EstimatorSettings, make_estimator
from scheduler.estimators.profile import Profile, profile_of, read_profile
from scheduler.estimators.stack import EstimatorStack
from scheduler.estimators.table import read_costs
from scheduler.hardware.target import Target, target, target_names
from scheduler.hardware.topology import Topology, topology_of_devices
from scheduler.latency.collective_time import CollectiveModel
from scheduler.latency.estimate import Estimate
from scheduler.latency.options import LatencyOptions
from scheduler.latency_hiding.driver import schedule_module
from scheduler.latency_hiding.latency_hiding_scheduler import LatencyHidingScheduler
from scheduler.latency_hiding.result import ScheduleResult
from scheduler.latency_hiding.settings import SchedulerSettings
from scheduler.latency_hiding.statistics import lhs_statistics
from scheduler.memory.base_order import BaseOrder, base_order
from scheduler.memory.curve import MemoryCurve, memory_curve
from scheduler.memory.pressure import ModuleMemory
from scheduler.module_costs import EstimateReport, EstimateRow, estimate
from scheduler.simulation.rules import Rules
from scheduler.simulation.simulate import simulate
from scheduler.simulation.timeline import Timeline

__all__ = [
    "BaseOrder",
    "Calibration",
    "CollectiveModel",
    "Estimate",
    "EstimateReport",
    "EstimateRow",
    "Estimator",
    "EstimatorSettings",
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
