"""The publisher's own HTTP API as a source: each answer counts for what it proves, and for no more.

=====================  ==============================================================================================
``at-its-sequence``    200 is the aggregate as it was at the sequence in the answer. Whether that is far enough, the
                       inbox decides; an answer without a sequence shows nothing.
``asked-for-newest``   A publisher that answers ``Cache-Control: no-cache`` from its newest state is read behind a fence
                       in this way: then 200 misses nothing, and 404 proves that there is none.
``404-of-its-own``     A 404 counts only as the API's own: a problem document whose ``type`` ends with ``not_found``.
                       That of a proxy, of a host that starts or of a wrong path says nothing of any aggregate, and is
                       waited for as an outage.
``404-may-be-old``     From another publisher such a 404 may be the answer of a replica that lags, and proves nothing
                       until it has been the only answer for ``GONE_AFTER_SECONDS``: until then the message waits.
``410-is-proof``       410 says that the aggregate was there and is deleted: no older state says that.
``away-or-its-own``    No answer, 3xx, 401, 403, 408, 429 and 5xx hit every aggregate alike, and are waited for;
                       another status hits this one. No redirection is followed: an API behind a sign-in sends every
                       caller to a page, and the key is for the API alone.
=====================  ==============================================================================================

Not ``asked-for-newest``, a 200 may be old too: a deleted aggregate is then found by a walk, later, and an event
without a sequence cannot be shown to be in it. Such a publisher has to give its events sequences.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from pydantic_core import from_json

from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.inbox.errors import SourceBehind, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.settings.names import Named

if TYPE_CHECKING:
    import aiohttp

S = TypeVar("S")

GONE_AFTER_SECONDS = 600.0
"""Longer than a replica lags, and than a change is on its way."""

CALL_SECONDS = 10.0
LONGEST_ANSWER_BYTES = 4 * 1024 * 1024
"""Twice what a document of Cosmos DB can be: a longer answer is not one aggregate."""

LARGEST_SEQUENCE = 2**53
"""Beyond it readers of JSON differ."""

_AT_ONCE = 4
"""How many calls a process has under way: a walk asks for every entry, and the API is another team's."""

_MOST_MISSING = 10_000
"""How many aggregates are remembered as missing: the oldest are forgotten, and wait longer."""

_AWAY = {401, 403, 408, 429}
_GONE = 410


async def _read_bounded(answer: "aiohttp.ClientResponse", key: AggregateKey) -> bytes:
    """The body. Raises SourceBehind as soon as it is too long."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > LONGEST_ANSWER_BYTES:
            raise SourceBehind(
                f"the publisher's API answers with more than {LONGEST_ANSWER_BYTES >> 20} MB for {key}"
            )
    return bytes(body)


@dataclass(frozen=True)
class HttpApi(Generic[S]):
    """Declares a publisher's API as the source: ``GET <address>/<id>`` answers with the aggregate as JSON.

    A call has 10 seconds, and a process four calls at a time. No answer, 401, 403, 408, 429 and 5xx are waited for.
    """

    address: Named
    """The setting with the address, and its value where nobody sets it: ``https://people.example/api/people``."""
    state_of: Callable[[Mapping[str, Any]], S]
    """The subscriber's state of an answer."""
    sequence: str = "sequence"
    """The answer's field with the sequence of the aggregate's newest event."""
    answers_newest: bool = False
    """Whether ``Cache-Control: no-cache`` gets the newest state, as the calls of this library's resources do."""
    not_found: str = "not-found"
    """The last part of the ``type`` of the problem document (RFC 9457) that says that there is no such aggregate."""
    key: Named | None = None
    """The setting with a key that is sent in ``key_header``; None: none is sent."""
    key_header: str = "x-functions-key"
    first: Callable[[Event], S | None] | None = None
    """The state of which an aggregate's first event tells (None: it does not): then a new one is asked of nobody."""

    def made(self, environment: Mapping[str, str]) -> "HttpSource[S]":
        """The source. Opens no connection. Raises Misconfigured."""
        headers = {self.key_header: self.key.resolve(environment)} if self.key else {}
        return HttpSource(self, self.address.resolve(environment).rstrip("/"), headers)


@dataclass
class HttpSource(Generic[S]):
    """See :class:`cosmos_outbox.inbox.ports.Source`."""

    declared: HttpApi[S]
    address: str
    headers: Mapping[str, str] = field(repr=False)
    _missing: dict[AggregateKey, float] = field(default_factory=dict, repr=False)
    """Since when each was answered with 404, and with nothing else."""
    _session: "aiohttp.ClientSession | None" = None
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), repr=False)

    async def read(self, key: AggregateKey) -> Found[S] | None:
        """The aggregate; it may be old, and None is no proof. Raises StoreAway, SourceBehind."""
        _, found = await self._ask(key, {})
        return found

    async def newest(self, key: AggregateKey) -> Found[S] | None:
        """The aggregate; None: it is proven to be gone. Raises StoreAway, SourceBehind."""
        fence = {"Cache-Control": "no-cache"} if self.declared.answers_newest else {}
        status, found = await self._ask(key, fence)
        if found is None and not (self.declared.answers_newest or status == _GONE):
            self._must_stay_missing(key)
        return found

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _ask(self, key: AggregateKey, headers: Mapping[str, str]) -> tuple[int, Found[S] | None]:
        import aiohttp  # noqa: PLC0415 - slow to import, and an app that only declares a source does not need it

        if key.id in (".", ".."):
            raise SourceBehind(f"no address names {key}: a client resolves such a part of a path itself")
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
                    body = from_json(await _read_bounded(answer, key))  # it bounds the nesting
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise StoreAway(f"the publisher's API does not answer: {type(error).__name__}") from error
        except ValueError:
            raise SourceBehind(f"the publisher's API answers with no JSON for {key}") from None
        if status == 200:
            self._missing.pop(key, None)
            return status, self._found(key, body)
        if status == _GONE or (status == 404 and self._is_not_found(body)):
            return status, None
        if status == 404:
            raise StoreAway(
                "something else than the publisher's API answers 404: correct the address, or what stands before it"
            )
        if status in _AWAY or 300 <= status < 400 or status >= 500:
            pause = float(after) if after.isascii() and after.isdigit() else 1.0
            raise StoreAway(f"the publisher's API answers {status}", retry_after_seconds=pause)
        raise SourceBehind(f"the publisher's API answers {status} for {key}")

    def _is_not_found(self, problem: Any) -> bool:
        """Whether a problem document says that there is no such aggregate; None: the answer was none."""
        kind = problem.get("type") if isinstance(problem, dict) else None
        return isinstance(kind, str) and kind.rpartition("/")[2] == self.declared.not_found

    def _found(self, key: AggregateKey, body: Any) -> Found[S]:
        sequence = body.get(self.declared.sequence) if isinstance(body, dict) else None
        if type(sequence) is not int or not 0 <= sequence <= LARGEST_SEQUENCE:
            raise SourceBehind(
                f"the publisher's API does not say how far {key} has come: {self.declared.sequence} must be a number"
            )
        return Found(sequence, None if body.get("deleted") is True else self.declared.state_of(body))

    def _must_stay_missing(self, key: AggregateKey) -> None:
        """Raises SourceBehind until the aggregate has been missing for long enough."""
        since = self._missing.setdefault(key, monotonic())
        while len(self._missing) > _MOST_MISSING:
            del self._missing[next(iter(self._missing))]
        if monotonic() - since < GONE_AFTER_SECONDS:
            raise SourceBehind(f"the publisher's API does not find {key}, which may be an old answer")
