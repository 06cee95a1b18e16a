"""An inspection of a deployment either returns facts or raises one of these errors.

``cosmos_outbox.preflight`` decides what a fact or an error means for an operator. The text of each error is a
predicate, such as "cannot be reached": the subject, the service, is added by preflight.
"""

from cosmos_outbox.settings.errors import InfraError

_LONGEST_LINE = 300


class InspectionError(InfraError):
    """Base of every error with which an inspection ends."""


class Denied(InspectionError):
    """The service knows the caller and refuses the call; the text comes from the service."""


class CannotCheck(InspectionError):
    """The service gave no answer that tells about the deployment; the text says why."""


class UnusableConnection(CannotCheck):
    """The SDK refuses the connection string or the address in the settings."""


def first_line(error: Exception) -> str:
    """The first line of the service's own message: it names what is missing, and holds no key."""
    lines = str(getattr(error, "message", None) or error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST_LINE].rstrip(" .")
