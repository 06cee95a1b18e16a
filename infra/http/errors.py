"""Every error of an HTTP request that is wrong in itself, whatever the request asks for.

::

    RequestError
    └── InvalidRequest            the request breaks a rule                             400
        ├── UnsupportedMediaType  the body is of a kind that this call does not take    415
        └── RequestTooLarge       the body is over the limit                            413
"""

from collections.abc import Mapping
from dataclasses import dataclass

from infra.errors import InfraError


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong with a request."""

    field: str
    """A path such as ``name.firstName``, the name of a header or query parameter, or ``body``."""
    reason: str
    """What the field must be, for the caller to read."""


class RequestError(InfraError):
    """Base of every error of a wrong request."""


MOST_ERRORS = 100
"""So many wrong fields are named: a small body may have thousands, and its answer is not to be larger by far."""


class InvalidRequest(RequestError):
    """The request breaks a rule; :attr:`errors` names every field that is wrong, up to ``MOST_ERRORS``."""

    def __init__(self, *errors: FieldError) -> None:
        errors = errors[:MOST_ERRORS]
        super().__init__("; ".join(f"{error.field}: {error.reason}" for error in errors))
        self.errors = errors


class UnsupportedMediaType(InvalidRequest):
    """The body is of a kind that this call does not take; :attr:`accepted` is the header that tells which it takes."""

    def __init__(self, *errors: FieldError, accepted: Mapping[str, str]) -> None:
        super().__init__(*errors)
        self.accepted = accepted


class RequestTooLarge(InvalidRequest):
    """The body is over the limit."""
