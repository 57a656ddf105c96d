"""Tests on emulated devices, in one process and in two."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hlo_passes
from hlo_passes import runtime


def test_a_pipeline_changes_no_bit(host_devices):
    mesh = Mesh(host_devices(4), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    total = jax.jit(lambda x: x.sum(), in_shardings=rows)
    before = runtime.lower(total, jax.ShapeDtypeStruct((8, 4), jnp.float32))
    after = before.clone()
    hlo_passes.Pipeline.parse("async-collective-creator,hlo-dce").run(after)
    runtime.compare(before, after).require_match()


@pytest.mark.hosts(2, devices_per_host=2)
def test_two_hosts():
    assert jax.process_count() == 2
    assert jax.device_count() == 4
