"""Every error whose cause is outside the code: a setting, the deployment, or a request.

::

    InfraError
    ├── Misconfigured             a setting or the deployment is missing or wrong
    ├── NotForwardedYet           the relay has not forwarded what must be forwarded first
    ├── Overloaded                cosmos_outbox/operations/shedding.py: the relay is too far behind to take a change
    ├── InspectionError           cosmos_outbox/settings/inspection.py: a deployment cannot be inspected
    └── RequestError              cosmos_outbox/http/errors.py: an HTTP request is wrong

The errors of each SDK become ours in one module: ``cosmos_outbox/cosmos/store/errors.py`` and
``cosmos_outbox/servicebus/errors.py``.
"""


class InfraError(Exception):
    """Base of every error that an adapter raises on purpose."""


class Misconfigured(InfraError):
    """A setting or the deployment is missing or wrong; the message names the setting and a right value."""


class NotForwardedYet(InfraError):
    """The relay has not forwarded all events that it must have forwarded first.

    Events cannot be published a second time before the first.
    """


class Overloaded(InfraError):
    """The relay is too far behind to take a change; nothing was stored."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
