"""Every test runs on random ports and its own data, and sees nothing of the developer's environment."""

import os

from hypothesis import HealthCheck, settings

from devstack.testing import warm

_OURS = ("COSMOS", "SERVICEBUS", "AzureWebJobs", "AZURE_", "FUNCTIONS_", "DEVSTACK_")

# How long an example takes says how busy the machine is. New examples are drawn at each run; make test-all draws more.
_busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _busy, max_examples=40)
settings.register_profile("thorough", _busy, max_examples=400)
settings.load_profile("quick")

for _name in [name for name in os.environ if name.startswith(_OURS)]:
    del os.environ[_name]
os.environ["DEVSTACK_NO_FSYNC"] = "1"

warm.import_ahead("azure.functions")
