"""Every test runs on random ports and its own data, and sees nothing of the developer's environment."""

import os

from devstack.testing import warm

_OURS = ("COSMOS", "SERVICEBUS", "AzureWebJobs", "AZURE_", "FUNCTIONS_", "DEVSTACK_")

warm.import_ahead("azure.functions")

for _name in [name for name in os.environ if name.startswith(_OURS)]:
    del os.environ[_name]
