"""Reads another service's aggregates from its HTTP API, and concludes from each answer only what it proves.

=====================  ==============================================================================================
``at-its-sequence``    200 is the aggregate as of the sequence in the answer; the inbox decides whether that is new
                       enough. An answer without a sequence proves nothing.
``asked-for-newest``   A publisher that answers ``Cache-Control: no-cache`` from its newest state offers a consistent
                       read: then 200 misses nothing, and 404 proves that there is no such aggregate.
``404-of-its-own``     A 404 counts only if it is the API's own: a problem document whose ``type`` ends with
                       ``not_found``. One of a proxy, a starting host or a wrong path proves nothing about an
                       aggregate, and is treated as an outage.
``404-may-be-old``     From another publisher such a 404 may come from a replica that lags, and proves nothing until
                       it has been the only answer for ``GONE_AFTER_SECONDS``: until then the message waits.
``410-is-proof``       410 proves that the aggregate existed and is deleted: no older state has that answer.
``away-or-its-own``    No answer, 3xx, 401, 403, 408, 429 and 5xx affect every aggregate, and are treated as an outage;
                       another status affects this one. Redirects are not followed: an API behind a sign-in sends
                       every caller to a page, and the key is for the API alone.
=====================  ==============================================================================================

Without ``asked-for-newest`` a 200 may be old too: a deleted aggregate is then found later, by a walk, and an event
without a sequence cannot be shown to be in it. Such a publisher must give its events sequences.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from pydantic_core import from_json

from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.inbox.errors import SourceBehind, StoreUnavailable
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.names import Named

if TYPE_CHECKING:
    import aiohttp

S = TypeVar("S")

GONE_AFTER_SECONDS = 600.0
"""Longer than a replica lags, and than a change takes to arrive."""

CALL_SECONDS = 10.0
LONGEST_ANSWER_BYTES = 4 * 1024 * 1024
"""Twice the largest document of Cosmos DB: a longer answer is not one aggregate."""

LARGEST_SEQUENCE = 2**53
"""JSON parsers differ beyond it."""

_AT_ONCE = 4
"""The most concurrent calls of a process: a walk asks for every entry, and the API is another team's."""

_MOST_MISSING = 10_000
"""The most aggregates that are remembered as missing: the oldest are forgotten, and wait longer."""

_AWAY = {401, 403, 408, 429}
_GONE = 410


async def _read_bounded(answer: "aiohttp.ClientResponse", key: AggregateKey) -> bytes:
    """Returns the body. Raises SourceBehind as soon as it is too long."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > LONGEST_ANSWER_BYTES:
            raise SourceBehind(
                f"the publisher's API answers with more than {LONGEST_ANSWER_BYTES >> 20} MB for {key}"
            )
    return bytes(body)


@dataclass(frozen=True)
class HttpApi:
    """Declares a publisher's API as the source: ``GET <address>/<id>`` answers with the aggregate as JSON.

    A call has 10 seconds, a process four calls at a time. No answer, 3xx, 401, 403, 408, 429 and 5xx are outages.
    """

    address: Named
    """The setting with the address, and its value where nobody sets it: ``https://people.example/api/people``."""
    sequence: str = "sequence"
    """The answer's field with the sequence of the aggregate's newest event."""
    answers_newest: bool = False
    """Whether ``Cache-Control: no-cache`` gets the newest state, as the calls of this library's resources do."""
    not_found: str = "not-found"
    """The last part of the problem document's ``type`` (RFC 9457) if there is no such aggregate."""
    key: Named | None = None
    """The setting with a key that is sent in ``key_header``; None: none is sent."""
    key_header: str = "x-functions-key"

    def made(
        self, environment: Mapping[str, str], state_of: Callable[[Mapping[str, Any]], S]
    ) -> "HttpSource[S]":
        """The source; ``state_of``: an answer. Opens no connection. Raises Misconfigured."""
        headers = {self.key_header: self.key.resolve(environment)} if self.key else {}
        return HttpSource(self, state_of, self.address.resolve(environment).rstrip("/"), headers)


@dataclass
class HttpSource(Generic[S]):
    """See :class:`cosmos_outbox.inbox.ports.Source`."""

    declared: HttpApi
    state_of: Callable[[Mapping[str, Any]], S]
    """The subscriber's state of an answer."""
    address: str
    headers: Mapping[str, str] = field(repr=False)
    _missing: dict[AggregateKey, float] = field(default_factory=dict, repr=False)
    """Since when each aggregate's only answer has been 404."""
    _session: "aiohttp.ClientSession | None" = None
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), repr=False)

    async def read(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate; it may be old, and None proves nothing. Raises StoreUnavailable, SourceBehind."""
        _, found = await self._ask(key, {})
        return found

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        """Returns the aggregate; None: it is proven to be gone. Raises StoreUnavailable, SourceBehind."""
        headers = {"Cache-Control": "no-cache"} if self.declared.answers_newest else {}
        status, found = await self._ask(key, headers)
        if found is None and not (self.declared.answers_newest or status == _GONE):
            self._must_stay_missing(key)
        return found

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _get(self, key: AggregateKey, headers: Mapping[str, str]) -> tuple[int, str, Any]:
        """Returns the status, Retry-After and the JSON, if that counts. Raises StoreUnavailable, SourceBehind."""
        import aiohttp  # noqa: PLC0415 - slow to import, and an app that only declares a source does not need it

        if key.id in (".", ".."):
            raise SourceBehind(f"no URL can name {key}: its id has another meaning in a path")
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(CALL_SECONDS))
        url, body = f"{self.address}/{quote(key.id, safe='')}", None
        try:
            async with (
                self._places,
                self._session.get(url, headers={**self.headers, **headers}, allow_redirects=False) as answer,
            ):
                status, after = answer.status, answer.headers.get("Retry-After", "")
                is_problem = answer.content_type == "application/problem+json"
                if status == 200 or (status == 404 and is_problem):
                    body = from_json(await _read_bounded(answer, key))  # from_json limits the nesting
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise StoreUnavailable(f"the publisher's API does not answer: {type(error).__name__}") from error
        except ValueError:
            raise SourceBehind(f"the publisher's API answers with no JSON for {key}") from None
        return status, after, body

    async def _ask(self, key: AggregateKey, headers: Mapping[str, str]) -> tuple[int, Found[S] | None]:
        status, after, body = await self._get(key, headers)
        if status == 200:
            self._missing.pop(key, None)
            return status, self._found(key, body)
        if status == _GONE or (status == 404 and self._is_not_found(body)):
            return status, None
        if status == 404:
            raise StoreUnavailable(
                "something else than the publisher's API answers 404: correct the address, or what stands before it"
            )
        if status in _AWAY or 300 <= status < 400 or status >= 500:
            pause = float(after) if after.isascii() and after.isdigit() else 1.0
            raise StoreUnavailable(f"the publisher's API answers {status}", retry_after_seconds=pause)
        raise SourceBehind(f"the publisher's API answers {status} for {key}")

    def _is_not_found(self, problem: Any) -> bool:
        """Whether a problem document means that there is no such aggregate. ``problem`` None: there was none."""
        kind = problem.get("type") if isinstance(problem, dict) else None
        return isinstance(kind, str) and kind.rpartition("/")[2] == self.declared.not_found

    def _found(self, key: AggregateKey, body: Any) -> Found[S]:
        sequence = body.get(self.declared.sequence) if isinstance(body, dict) else None
        if type(sequence) is not int or not 0 <= sequence <= LARGEST_SEQUENCE:
            raise SourceBehind(
                f"the publisher's API does not say how far {key} has come: {self.declared.sequence} must be a number"
            )
        return Found(sequence, None if body.get("deleted") is True else self.state_of(body))

    def _must_stay_missing(self, key: AggregateKey) -> None:
        """Raise SourceBehind until the aggregate has been missing for ``GONE_AFTER_SECONDS``."""
        since = self._missing.setdefault(key, monotonic())
        while len(self._missing) > _MOST_MISSING:
            del self._missing[next(iter(self._missing))]
        if monotonic() - since < GONE_AFTER_SECONDS:
            raise SourceBehind(f"the publisher's API does not find {key}, which may be an old answer")
