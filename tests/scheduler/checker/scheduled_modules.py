"""Random modules to schedule, and the policies to do it by.

module = module_to_schedule(draw, devices=4)      asynchronous, with control edges,
                                                  scheduled at random or not
for name in POLICIES: pipeline(name).run(module.clone())
"""

from __future__ import annotations

import random
from typing import Final

import hlo_passes
from hlo_passes.ir.async_form import is_done, is_start
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from tests.spmd_modules import spmd_module

#: Bytes that the random modules (arrays of 64 to 512 bytes) hardly ever keep to.
_TIGHT = "memory-limit-bytes=1500"
_EVERY_KIND: Final = ",".join(
    f"{kind}-overlap-limit=2"
    for kind in ("all-gather", "all-reduce", "all-to-all", "collective-permute")
)

#: Options of `latency-hiding-scheduler` by what they try.
POLICIES: Final[dict[str, str]] = {
    "released": "",
    "two-together": "parallel-collective-overlap-limit=2",
    "start-early": (
        "parallel-collective-overlap-limit=4,collective-start-as-early-as-possible=true"
    ),
    "start-delay": "parallel-collective-overlap-limit=4,start-delay=auto",
    "several-streams": (
        "parallel-collective-overlap-limit=4,enable-collective-multi-streaming=true"
    ),
    "tight-memory": _TIGHT,
    "no-memory": "memory-limit-bytes=0",
    "memory-by-depth": f"{_TIGHT},depth-based-memory-pressure-reduction=true",
    "reruns": f"{_TIGHT},rerun=3,estimate-fragmentation-size=true",
    "hard-memory": f"{_TIGHT},hard-memory-limit=input-order",
    "by-structure": "enable-schedule-by-structure=true",
    "release-starts": "enable-release-start-policy=true",
    "depth-over-stall": "prioritize-async-depth-over-stall=true",
    "delay-over-memory": f"{_TIGHT},force-delay-over-memory-pressure=true",
    "not-aggressive": "aggressive-scheduling-policies=false",
    "selective-copies": "enable-selective-memcpy-overlap=true",
    "pipelined-transfers": (
        "enable-pipelined-p2p=true,pipeline-parallelism-opt-level=ENABLE"
    ),
    "generic": "flavour=generic",
    "generic-two": f"flavour=generic,{_EVERY_KIND}",
    "generic-serial": "flavour=generic,resource-serializing=true",
    "generic-sync": "flavour=generic,track-sync-op-resource-usage=true",
    # Top-down, XLA does not count an all-reduce-start: it calls a computation.
    "generic-top-down": (
        "flavour=generic,top-down-scheduling=true,all-reduce-overlap-limit=99"
    ),
    "generic-memory": f"flavour=generic,{_TIGHT},rerun=1",
    "approximate": "estimator=approximate",
    "gpu-approximate": "estimator=gpu-approximate",
    "ring": "estimator=ring",
    "order-alone": "rules='original-order'",
    "greedy-depth": "rules='async-depth<less-stall'",
    "no-stall-rule": "rules='-less-stall -schedule-done'",
    "dones-last": "rules='schedule-done>original-order'",
}


def pipeline(policy: str) -> hlo_passes.Pipeline:
    """The scheduler with the options of a policy."""
    return hlo_passes.Pipeline.parse(f"latency-hiding-scheduler{{{POLICIES[policy]}}}")


def module_to_schedule(draw: random.Random, devices: int) -> Module:
    """A random SPMD module with asynchronous collectives and control edges."""
    module = hlo_passes.parse(spmd_module(draw, devices))
    hlo_passes.Pipeline.parse("async-collective-creator").run(module)
    bodies = {
        callee
        for c in module.computations
        for i in c.instructions
        if i.opcode not in ("while", "conditional", "call")
        for callee in i.called_computations
    }
    computations = [c for c in module.computations if c not in bodies]
    for computation in computations:
        for _ in range(draw.choice((0, 0, 1, 2, 4))):
            _add_control_edge(draw, computation)
    if draw.random() < 0.5:
        for computation in computations:
            computation.set_order(random_order(draw, computation))
        module.set_attribute("is_scheduled", "true")
    hlo_passes.verify(module)
    return module


def _add_control_edge(draw: random.Random, computation: Computation) -> None:
    """From an instruction to a later one, neither of which is of no effect.

    Not from a start nor to a done: that could demand that two overlap which may not.
    """
    places = [
        i
        for i in computation.instructions
        if i.opcode not in ("parameter", "constant", "get-tuple-element", "tuple")
    ]
    if len(places) < 2:
        return
    first, then = (places[k] for k in sorted(draw.sample(range(len(places)), 2)))
    if not is_start(first) and not is_done(then):
        computation.add_control_edge(first, then)


def random_order(draw: random.Random, computation: Computation) -> list[Instruction]:
    """Any order that dependences and control edges allow."""
    waiting = {
        i: len({*i.operands, *i.control_predecessors}) for i in computation.instructions
    }
    ready = [i for i, count in waiting.items() if not count]
    order: list[Instruction] = []
    while ready:
        chosen = ready.pop(draw.randrange(len(ready)))
        order.append(chosen)
        for following in dict.fromkeys((*chosen.users, *chosen.control_successors)):
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    return order
