"""Every test runs on random ports and its own data, and sees nothing of the developer's environment."""

import os

from hypothesis import HealthCheck, settings

from devstack.testing import warm

_OURS = ("COSMOS", "SERVICEBUS", "AzureWebJobs", "AZURE_", "FUNCTIONS_", "DEVSTACK_")

# How long an example takes says how busy the machine is.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

for _name in [name for name in os.environ if name.startswith(_OURS)]:
    del os.environ[_name]
os.environ["DEVSTACK_NO_FSYNC"] = "1"

warm.import_ahead("azure.functions")
