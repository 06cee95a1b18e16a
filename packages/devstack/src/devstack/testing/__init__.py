"""What a project's tests share with devstack: real services, started, broken and started again by the test.

``devstack.testing.fixtures`` is the same as a pytest plugin. The package's README.md has a complete example.
"""

from devstack.testing.eventually import eventually
from devstack.testing.faults import Faults
from devstack.testing.process import Process
from devstack.testing.service import Service, running
from devstack.testing.stack import Stack

__all__ = ["Faults", "Process", "Service", "Stack", "eventually", "running"]
