"""What can be wrong with an HTTP request, whatever it asks for.

::

    RequestError
    └── InvalidRequest            the request breaks a rule                             400
        ├── UnsupportedMediaType  the body is of a kind that this call does not take    415
        └── RequestTooLarge       the body is over the limit                            413
"""

from dataclasses import dataclass

from infra.errors import InfraError


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong with a request."""

    field: str
    """Where: a path such as ``name.firstName``, a header's or a query parameter's name, or ``body``."""
    reason: str
    """What is wrong and what would be right, for the caller to read."""


class RequestError(InfraError):
    """Base of every error in a request."""


class InvalidRequest(RequestError):
    """The caller's input breaks a rule; :attr:`errors` names every field that does."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("; ".join(f"{error.field}: {error.reason}" for error in errors))
        self.errors = errors


class UnsupportedMediaType(InvalidRequest):
    """The body is of a kind that this call does not take."""


class RequestTooLarge(InvalidRequest):
    """The body is over the limit."""
