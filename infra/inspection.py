"""The ways in which looking at a deployment fails, whichever service is looked at.

An inspection (``infra.cosmos.inspection``, ``infra.servicebus.inspection``) reads facts or raises one of these; what
either means for an operator is decided in ``infra.preflight``. The text of each is a predicate without its subject, the
service.
"""

_LONGEST_LINE = 300


class Denied(Exception):
    """The service knows the caller and refuses the call; the text is the service's own."""


class CannotCheck(Exception):
    """The service gave no answer that says anything about the deployment; the text says why."""


class UnusableConnection(CannotCheck):
    """The SDK takes neither the connection string, nor the address, that the settings give it."""


def first_line(error: Exception) -> str:
    """The first line of the service's own words: they name what is missing, and hold no key."""
    lines = str(getattr(error, "message", None) or error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST_LINE].rstrip(" .")
