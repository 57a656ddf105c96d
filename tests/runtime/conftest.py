"""The plug-in's fixture and hooks, also where the distribution is not installed."""

from hlo_passes.runtime.pytest_plugin import (  # noqa: F401
    host_devices,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_pyfunc_call,
    pytest_runtest_makereport,
    pytest_runtest_setup,
)
