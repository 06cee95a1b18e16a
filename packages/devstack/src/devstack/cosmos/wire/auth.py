"""A request is served only when it is signed with the account's key, for this very resource, at about this time.

https://learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources: the signature is an HMAC-SHA256
over verb, resource type, resource link and date. The service allows a clock to be fifteen minutes off.
"""

import base64
import binascii
import functools
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

from devstack.cosmos.protocol.errors import FORBIDDEN, UNAUTHORIZED, CosmosError
from devstack.cosmos.wire.messages import Request

EMULATOR_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
"""The key of every Cosmos DB emulator, public by design: https://learn.microsoft.com/azure/cosmos-db/emulator"""

SKEW_SECONDS = 15 * 60

_WRONG_KEY = (
    "The input authorization token can't serve the request. The wrong key is being used or the expected payload is not"
    " built as per the protocol. For more info: https://aka.ms/cosmosdb-tsg-unauthorized."
)


@dataclass(frozen=True)
class Authorizer:
    """``accept_entra`` takes unsigned tokens of Entra's form too, as Microsoft's emulator does.

    ``clock``: None takes requests of any date.
    """

    key: bytes = base64.b64decode(EMULATOR_KEY)
    accept_entra: bool = False
    clock: Callable[[], float] | None = time.time

    def check(self, request: Request) -> None:
        """Raises 401 and, for a date that is too far off, 403."""
        header = request.headers.get("authorization")
        if header is None:
            raise CosmosError(
                UNAUTHORIZED, "Required Header authorization is missing. Ensure a valid token is passed."
            )
        fields = {
            name: value for name, _, value in (pair.partition("=") for pair in unquote(header).split("&"))
        }
        if fields.get("type") == "aad" and self.accept_entra:
            _check_entra(fields.get("sig", ""), (self.clock or time.time)())
        elif fields.get("type") == "master" and fields.get("ver") == "1.0":
            self._check_master(request, fields.get("sig", ""))
        else:
            raise CosmosError(
                UNAUTHORIZED, "The authorization token has a type or version that is not served."
            )

    def _check_master(self, request: Request, signature: str) -> None:
        date = request.headers.get("x-ms-date", "")
        http_date = "" if date else request.headers.get("date", "")
        if not any(
            hmac.compare_digest(self._signature(request, link, date, http_date), signature.encode())
            for link in _links(request)
        ):
            raise CosmosError(UNAUTHORIZED, _WRONG_KEY)
        if self.clock is not None:
            _check_date(date or http_date, self.clock())

    def _signature(self, request: Request, link: str, date: str, http_date: str) -> bytes:
        text = (
            f"{request.method.lower()}\n{request.target.type}\n{link}\n{date.lower()}\n{http_date.lower()}\n"
        )
        return base64.b64encode(hmac.new(self.key, text.encode(), hashlib.sha256).digest())


def _links(request: Request) -> tuple[str, ...]:
    """By name the whole link is signed, by ``_rid`` the last id alone, in lower case."""
    target = request.target
    last = target.link.rpartition("/")[2]
    return (target.link, last.lower())


def _check_date(text: str, now: float) -> None:
    try:
        sent = _seconds_of(text)
    except ValueError as error:
        raise CosmosError(UNAUTHORIZED, "The date of the request is missing or not an HTTP date.") from error
    if abs(now - sent) > SKEW_SECONDS:
        raise CosmosError(
            FORBIDDEN,
            "The authorization token is not valid at the current time. Please create another token and retry"
            f" (token start time: {text}).",
        )


@functools.lru_cache(maxsize=64)
def _seconds_of(text: str) -> float:
    """All requests of a second have one date."""
    return parsedate_to_datetime(text).timestamp()


def _check_entra(token: str, now: float) -> None:
    """The form and the lifetime of the token; there is nobody here who could vouch for its signature."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        lives = float(claims["nbf"]) - SKEW_SECONDS <= now < float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CosmosError(UNAUTHORIZED, "The Entra token is not of the expected form.") from error
    if not lives:
        raise CosmosError(UNAUTHORIZED, "The Entra token has expired.")
