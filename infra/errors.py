"""Every error whose cause is outside the code: a setting, the deployment, or a request.

::

    InfraError
    ├── Misconfigured             a setting or the deployment is missing or wrong
    ├── NotForwardedYet           infra/republish.py: events are still to be published for the first time
    ├── NotErased                 infra/erasing.py: documents are left that may hold a person's data
    ├── InspectionError           infra/inspection.py: a deployment cannot be inspected
    └── RequestError              infra/http/errors.py: an HTTP request is wrong

The errors of each SDK become ours in one module: ``infra/cosmos/errors.py``, ``infra/servicebus/errors.py``.
"""


class InfraError(Exception):
    """Base of every error that an adapter raises on purpose."""


class Misconfigured(InfraError):
    """A setting or the deployment is missing or wrong; the message names the setting and a right value."""


class NotForwardedYet(InfraError):
    """The relay has not forwarded all events of a time: they cannot be published a second time before the first."""


class NotErased(InfraError):
    """Documents are left that may hold a person's data: the message says which, and what to do."""
