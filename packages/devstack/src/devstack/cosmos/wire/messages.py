"""What goes over the socket, free of the web framework: a request with its headers read, and an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache

from devstack.cosmos.protocol.errors import bad_request
from devstack.cosmos.protocol.json_text import Json, parse_json
from devstack.cosmos.wire.routes import Target

MAX_PAGE = 1000
DEFAULT_PAGE = 100
"""Items of a page when the client names no number: https://learn.microsoft.com/rest/api/cosmos-db/common-cosmosdb-rest-request-headers"""

MAX_PAGE_BYTES = 4 * 1024 * 1024
"""https://learn.microsoft.com/azure/cosmos-db/concepts-limits: the longest page of results."""


@lru_cache(maxsize=8)
def http_date(second: int) -> str:
    """All answers of a second have one date."""
    return formatdate(second, usegmt=True)


@dataclass(frozen=True)
class Lag:
    """How far replicas are behind: by ``versions`` (transactions of their partition), or else by ``seconds``.

    ``share`` of the reads come from such a replica, the others from one that is up to date.
    """

    seconds: float
    versions: int | None
    share: float


@dataclass(frozen=True)
class Request:
    """``headers`` finds a name in any case; ``path`` is decoded. ``lag``: of the replicas, for faults on demand."""

    method: str
    target: Target
    headers: Mapping[str, str]
    body: bytes = b""
    path: str = ""
    lag: Lag | None = None

    def flag(self, name: str) -> bool:
        return self.headers.get(name, "").lower() == "true"

    def json(self) -> Json:
        """The body as a JSON object. Raises 400."""
        value = parse_json(self.body)
        if not isinstance(value, dict):
            raise bad_request("The request body must be a JSON object.")
        return value

    @property
    def page_size(self) -> int:
        """``x-ms-max-item-count``; -1 lets the server choose. Raises 400."""
        text = self.headers.get("x-ms-max-item-count")
        if text is None:
            return DEFAULT_PAGE
        try:
            number = int(text)
        except ValueError as error:
            raise bad_request(f"x-ms-max-item-count is not a number: {text[:50]}") from error
        if number == -1:
            return MAX_PAGE
        if number < 1:
            raise bad_request(f"x-ms-max-item-count must be -1 or at least 1: {number}")
        return min(number, MAX_PAGE)


@dataclass
class Answer:
    """``body`` is JSON text, or None for none. ``charge`` in RU.

    ``dropped``: the connection ends instead; ``delay``: the answer waits, in seconds. Both are for faults on demand.
    """

    status: int
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    charge: float = 1.0
    dropped: bool = False
    delay: float = 0.0

    def sent(self, now: float) -> dict[str, str]:
        """The headers as they are sent at this second."""
        headers = {
            **self.headers,
            "x-ms-request-charge": f"{self.charge:g}",
            "x-ms-serviceversion": "devstack",
            "x-ms-gatewayversion": "devstack",
            "x-ms-schemaversion": "1.18",
            "x-ms-last-state-change-utc": http_date(int(now)),
        }
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    @property
    def is_refusal(self) -> bool:
        """Of the whole request; 207: one operation of a batch was refused, and so all were."""
        return self.status == 207 or self.status >= 400
