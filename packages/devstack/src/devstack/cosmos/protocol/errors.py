"""Every refusal is one row of this table: a client sees the service's own status, sub-status and code.

Source of the codes: https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb and the SDK's
``http_constants``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """A row of the service's table of errors."""

    status: int
    code: str
    sub_status: int = 0


BAD_REQUEST = Kind(400, "BadRequest")
PARTITION_KEY_MISMATCH = Kind(400, "BadRequest", 1001)
NEEDS_QUERY_PLAN = Kind(400, "BadRequest", 1004)
"""The client must ask for the query's plan and read the partitions itself."""
CONTAINER_RECREATED = Kind(400, "BadRequest", 1024)
UNAUTHORIZED = Kind(401, "Unauthorized")
FORBIDDEN = Kind(403, "Forbidden")
WRITE_FORBIDDEN = Kind(403, "Forbidden", 3)
"""This region takes no writes (any more): the account fails over."""
NOT_FOUND = Kind(404, "NotFound")
SESSION_NOT_AVAILABLE = Kind(404, "NotFound", 1002)
OWNER_NOT_FOUND = Kind(404, "NotFound", 1003)
METHOD_NOT_ALLOWED = Kind(405, "MethodNotAllowed")
CONFLICT = Kind(409, "Conflict")
PARTITION_GONE = Kind(410, "Gone", 1002)
PRECONDITION_FAILED = Kind(412, "PreconditionFailed")
TOO_LARGE = Kind(413, "RequestEntityTooLarge")
FAILED_DEPENDENCY = Kind(424, "FailedDependency")
TOO_MANY_REQUESTS = Kind(429, "429", 3200)
RETRY_WITH = Kind(449, "RetryWith")
INTERNAL_ERROR = Kind(500, "InternalServerError")
SERVICE_UNAVAILABLE = Kind(503, "ServiceUnavailable")


@dataclass
class CosmosError(Exception):
    """A refusal on its way to the client."""

    kind: Kind
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
    """What the body says besides its code and message."""

    def __str__(self) -> str:
        return f"{self.kind.status}/{self.kind.sub_status} {self.message}"


def bad_request(message: str) -> CosmosError:
    """The request is malformed: repeating it cannot help."""
    return CosmosError(BAD_REQUEST, message)


def unsupported(what: str) -> CosmosError:
    """The service may know this, devstack does not: it says so and guesses nothing."""
    return CosmosError(BAD_REQUEST, f"devstack does not support {what}.")


def no_such_resource() -> CosmosError:
    return CosmosError(NOT_FOUND, "Entity with the specified id does not exist in the system.")


def no_such_owner() -> CosmosError:
    return CosmosError(OWNER_NOT_FOUND, "Owner resource does not exist.")


def conflict() -> CosmosError:
    return CosmosError(CONFLICT, "Entity with the specified id already exists in the system.")


def precondition_failed() -> CosmosError:
    return CosmosError(PRECONDITION_FAILED, "One of the specified pre-condition is not met.")


def session_not_available(container_link: str) -> CosmosError:
    """No replica has seen what the client's session token says that the client has."""
    return CosmosError(
        SESSION_NOT_AVAILABLE,
        "The read session is not available for the input session token.",
        # By this header the client knows which container's tokens to forget before it tries again.
        {"x-ms-alt-content-path": container_link},
    )
