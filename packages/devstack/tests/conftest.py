"""Every test runs on random ports and its own data, and sees nothing of the developer's environment."""

import os

_OURS = ("COSMOS", "SERVICEBUS", "AzureWebJobs", "AZURE_", "FUNCTIONS_", "DEVSTACK_")

for _name in [name for name in os.environ if name.startswith(_OURS)]:
    del os.environ[_name]
