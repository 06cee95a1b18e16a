"""Every error of an HTTP request that is wrong in itself, whatever the request asks for.

::

    RequestError
    └── InvalidRequest            the request breaks a rule                             400
        ├── UnsupportedMediaType  the body is of a kind that this call does not take    415
        └── RequestTooLarge       the body is over the limit                            413
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cosmos_outbox.settings.errors import InfraError

LONGEST_NAME = 100
LONGEST_REASON = 300
"""In characters, of what an answer tells of one error."""


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong with a request."""

    field: str
    """A path such as ``name.firstName``, the name of a header or query parameter, or ``body``."""
    reason: str
    """What the field must be, for the caller to read."""
    code: str = "invalid"
    """The rule that is broken, for a program: it stays as it is when the words change."""

    def told(self) -> "FieldError":
        """As an answer tells it: a caller may choose a name as long as a body."""
        return FieldError(_cut(self.field, LONGEST_NAME), _cut(self.reason, LONGEST_REASON), self.code)


class RequestError(InfraError):
    """Base of every error of a wrong request."""


MOST_ERRORS = 100
"""So many wrong fields are named: a small body may have thousands, and its answer is not to be larger by far."""
_IN_THE_TEXT = 10
"""So many errors are told in the error's own text; all of them are in ``errors``."""


class InvalidRequest(RequestError):
    """The request breaks a rule; :attr:`errors` names every field that is wrong, up to ``MOST_ERRORS``."""

    def __init__(self, *errors: FieldError) -> None:
        self.errors = errors[:MOST_ERRORS]
        told = [f"{each.field}: {each.reason}" for each in (error.told() for error in errors[:_IN_THE_TEXT])]
        more = [f"and {len(errors) - _IN_THE_TEXT} more"] if len(errors) > _IN_THE_TEXT else []
        super().__init__("; ".join(told + more))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class UnsupportedMediaType(InvalidRequest):
    """The body is of a kind that this call does not take; :attr:`accepted` is the header that tells which it takes."""

    def __init__(self, *errors: FieldError, accepted: Mapping[str, str]) -> None:
        super().__init__(*errors)
        self.accepted = accepted


class RequestTooLarge(InvalidRequest):
    """The body is over the limit."""
