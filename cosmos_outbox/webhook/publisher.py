"""Posts each aggregate's events in order, each only after the previous one was answered with a 2xx.

Aggregates are posted concurrently. :mod:`cosmos_outbox.webhook.answers` classifies the responses. An event that fails
repeatedly while its target works is reported as failing: the relay then sets its aggregate aside and retries it from
there without limit. A response about the target stops all sends to it and parks nothing, unless the target accepts
other events; from then on single requests probe whether it has recovered.

A request that timed out may arrive late, even after the aggregate's next events: its repetition was accepted before
them, so the late one is a copy. A receiver therefore drops an id that it has, and orders by the sequence.

A request is a structured CloudEvent 1.0, signed with every secret, under the event's own id. The signature covers id,
time and body (https://github.com/standard-webhooks/standard-webhooks), so everything that a receiver acts on is in the
body.
"""

import asyncio
import contextlib
import io
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

import aiohttp
from standardwebhooks import Webhook as Signing

from cosmos_outbox.kernel.clock import monotonic, randomness, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import (
    STRUCTURED,
    Accepted,
    AggregateEvents,
    CloudEvents,
    Failing,
    Guarantees,
    Outcome,
    Refused,
    Unknown,
)
from cosmos_outbox.settings.transports import Webhook
from cosmos_outbox.telemetry import messaging
from cosmos_outbox.webhook import answers
from cosmos_outbox.webhook.answers import ATTEMPTS, Meaning, Tries
from cosmos_outbox.webhook.session import AddressRefused, Unasked, check_literal, open_session

_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""The characters that need no percent-encoding in a header."""


@dataclass(frozen=True)
class Signed:
    """A request that is complete but for its signatures, which depend on the time."""

    id: str
    body: bytes
    headers: Mapping[str, str]

    def signed(self, signers: Sequence[Signing], at: datetime) -> Mapping[str, str]:
        """Returns the headers, with a signature by each secret for this time (UTC)."""
        text = self.body.decode()
        signatures = [each.sign(self.id, at, text) for each in signers]
        return {
            **self.headers,
            "webhook-id": self.id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": " ".join(signatures),
        }


def request_of(event: OutboxEvent, *, service: CloudEvents) -> Signed:
    """Returns the request of an event. Raises any error of the encoder: the event then has no valid request.

    An event that is published again has an id of its own, since a receiver would drop the event's as a duplicate.
    """
    headers = {**_trace(service.attributes(event)), "content-type": STRUCTURED}
    return Signed(id_of(event), service.structured(event), headers)


def id_of(event: OutboxEvent) -> str:
    """Returns the id of the event's request."""
    # Servers decode other than ASCII differently, and the signature would not match.
    return quote(event.message_id or event.id, safe=_PRINTABLE)


def _trace(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Returns the W3C trace headers, for HTTP tracing without knowledge of CloudEvents."""
    found = {name: attributes[name] for name in ("traceparent", "tracestate") if name in attributes}
    return {name: text for name, text in found.items() if text.isascii() and text.isprintable()}


FAILING_ALIKE = 10
"""The number of failed events, with none accepted, after which the rest of the page is not tried."""

_LONGEST_PAUSE = 5.0
"""The maximum pause between two tries in one page."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 300.0
"""The pause between two requests that probe whether the target has recovered; it doubles each time."""

_DOUBLINGS = 16
_SMALL_BODY = 65_536

_LATE = Unknown(0, "the receiver did not take the events in time", FailureReason.TOO_SLOW)
_IMPOSSIBLE = "no request can be made of the event"


@dataclass(frozen=True)
class _Answer:
    meaning: Meaning
    reason: str
    """The reason in words, equal for equal causes."""
    retry_after: float | None = None
    unreachable: bool = False


@dataclass
class _Page:
    until: float
    began: float = field(default_factory=monotonic)
    away: Unknown | None = None
    """The reason why nothing more of the page is tried."""
    asked: bool = False
    """Whether any request of the page was sent."""
    accepted: bool = False
    failing: int = 0
    """The number of events reported as failing."""

    def is_target_failing(self) -> bool:
        """Whether the target is probably failing, rather than single events."""
        return not self.accepted and self.failing >= FAILING_ALIKE


class WebhookPublisher:
    """Posts events to one target; shared by all invocations of the process.

    See :class:`cosmos_outbox.outbox.publisher.Publisher`.
    """

    def __init__(
        self,
        target: Webhook,
        *,
        service: CloudEvents,
        resolver: aiohttp.abc.AbstractResolver | None = None,
        tls: ssl.SSLContext | bool = True,
        session: aiohttp.ClientSession | None = None,
    ) -> None:
        """``resolver``: resolves DNS. ``tls``: the trusted certificates. ``session``: used in place of a new one."""
        self._target = target
        self._service = service
        self._resolver = resolver
        self._tls = tls
        self._places = asyncio.Semaphore(target.concurrency)
        self._held_until = 0.0
        """The end of the pause that the target requested."""
        self._stopped: Unknown | None = None
        """The reason why this process sends nothing to the target."""
        self._stops = 0
        self._asked_again_at = 0.0
        self._tries = Tries()
        self._session = session
        self._signers = [Signing(secret) for secret in target.secrets]
        self._literal_checked = False

    @property
    def guarantees(self) -> Guarantees:
        """Events are accepted in order; a copy may arrive later, out of order, and the receiver drops it."""
        return Guarantees(
            ordered=False, deduplicates=False, mixes_aggregates=False, largest_message_bytes=None,
            answer_seconds=self._target.request_seconds,
        )  # fmt: skip

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Posts each aggregate's events in order; previously failed ones come last, so they delay no others."""
        sending = _Page(until)
        known: dict[int, Outcome] = {}
        in_vain = [self._in_vain(group) for group in page]
        places = sorted(range(len(page)), key=in_vain.__getitem__)
        if self._stopped is not None:
            if monotonic() < self._asked_again_at:
                return [self._stopped for _ in page]
            for place in places:  # an event without a valid request does not probe the target
                known[place] = await self._send(sending, page[place])
                if sending.asked:
                    break
        async with asyncio.TaskGroup() as tasks:  # a bug in one task cancels the others
            rest = {
                place: tasks.create_task(self._send(sending, page[place]))
                for place in places
                if place not in known
            }
        known |= {place: task.result() for place, task in rest.items()}
        return [known[place] for place in range(len(page))]

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None:
            await self._session.close()

    def _in_vain(self, group: AggregateEvents) -> int:
        try:
            return self._tries.in_vain(id_of(group.events[0]))
        except ValueError:  # the id cannot be encoded
            return 0

    async def _send(self, page: _Page, group: AggregateEvents) -> Outcome:
        for accepted, event in enumerate(group.events):
            try:
                request = request_of(event, service=self._service)
            except Exception as error:  # noqa: BLE001 - any error here is caused by the event
                return Refused(accepted, f"{_IMPOSSIBLE} ({type(error).__name__})", shown_by_event=True)
            outcome = await self._send_event(page, event, request)
            if not isinstance(outcome, Accepted):
                return replace(outcome, accepted=accepted)
        return Accepted()

    async def _send_event(self, page: _Page, event: OutboxEvent, request: Signed) -> Outcome:
        while isinstance(answer := await self._in_turn(page, event, request), _Answer):
            if answer.meaning is not Meaning.TARGET:
                self._stopped, self._stops = None, 0
            match answer.meaning:
                case Meaning.ACCEPTED:
                    self._tries.taken(request.id)
                    page.accepted = True
                    return Accepted()
                case Meaning.EVENT:
                    self._tries.refused_for_good(request.id)
                    return Refused(0, answer.reason)
                case Meaning.TARGET | Meaning.BUSY as meaning if self._tries.is_alone(request.id, meaning):
                    return Failing(0, answer.reason, self._tries.others_taken(request.id))
                case Meaning.TARGET:
                    page.away = self._stop(answer.reason)
                    return page.away
                case Meaning.BUSY:
                    pause = _growing(1) if answer.retry_after is None else _spread(answer.retry_after)
                    self._held_until = max(self._held_until, monotonic() + pause)
                case Meaning.LATER:
                    failing = Failing(0, answer.reason, self._tries.others_taken(request.id))
                    failures = 0 if answer.unreachable else self._tries.failed(request.id)
                    if (given_up := self._given_up(page, answer, failures, failing)) is not None:
                        return given_up
                    await asyncio.sleep(_pause(answer, failures))
        return answer

    @staticmethod
    def _given_up(page: _Page, answer: _Answer, failures: int, failing: Failing) -> Outcome | None:
        """Returns the outcome of an event after this number of failures; None: it is tried again."""
        if answer.unreachable:
            page.away = Unknown(0, answer.reason)
            return page.away
        if failures == ATTEMPTS:
            page.failing += 1
            if page.is_target_failing():
                page.away = Unknown(0, answer.reason)
            return failing
        if monotonic() + _pause(answer, failures) > page.until:
            return replace(_LATE, reason=answer.reason)
        return None

    async def _in_turn(self, page: _Page, event: OutboxEvent, request: Signed) -> "_Answer | Unknown":
        """Returns the response to one try; Unknown: none was made, or it was interrupted early."""
        posted = None
        try:
            async with asyncio.timeout(page.until - monotonic()), self._places:
                if page.away is not None:
                    return page.away
                while (pause := self._held_until - monotonic()) > 0:
                    if self._held_until > page.until:
                        return replace(
                            _LATE, reason="the receiver asks for a pause", why=FailureReason.BROKER_THROTTLES
                        )
                    await asyncio.sleep(pause)
                if self._stopped is not None and monotonic() < self._asked_again_at:
                    return self._stopped
                if (
                    monotonic() >= page.until
                ):  # on an open connection the request would leave before the timeout fires
                    return _LATE
                posted, page.asked = monotonic(), True
                self._tries.begins(request.id)
                return await self._post(event, request)
        except TimeoutError:
            enough = min(self._target.request_seconds, (page.until - page.began) / 2)
            return _SILENT if posted is not None and monotonic() - posted >= enough else _LATE

    async def _post(self, event: OutboxEvent, request: Signed) -> _Answer:
        host = self._target.destination
        with messaging.sending(host, 1, [event.traceparent], system="webhook") as attempt:
            try:
                if not self._literal_checked:
                    check_literal(self._target)
                    self._literal_checked = True
                async with asyncio.timeout(self._target.request_seconds) as limit:
                    answer = await self._ask(request, limit)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                answer = _of_error(error)
            if answer.meaning is Meaning.ACCEPTED:
                attempt.accepted()
            else:
                attempt.failed(answer.reason.removeprefix(_ANSWERED))
        return answer

    async def _ask(self, request: Signed, limit: asyncio.Timeout) -> _Answer:
        """Returns the response to one request; skips kept connections that have an unsolicited response."""
        for _ in range(self._target.concurrency):  # the pool keeps at most this number of connections
            with contextlib.suppress(Unasked):
                return await self._ask_once(request, limit)
        return await self._ask_once(request, limit)

    async def _ask_once(self, request: Signed, limit: asyncio.Timeout) -> _Answer:
        async with self._open().post(
            self._target.url,
            # A large body is sent in chunks, so that it does not block the event loop.
            data=request.body if len(request.body) <= _SMALL_BODY else io.BytesIO(request.body),
            headers=request.signed(self._signers, utc_now()),
            allow_redirects=False,
        ) as response:  # an unread rest of the body closes the connection
            limit.reschedule(None)  # the status has arrived and is decisive
            meaning = answers.meaning(response.status)
            after = answers.retry_after(response.headers.get("Retry-After"), utc_now())
            return _Answer(meaning, f"{_ANSWERED}{response.status}", after)

    def _stop(self, reason: str) -> Unknown:
        """Stops all sends to the target, but for single probes after growing pauses, until one is accepted."""
        self._stops += 1
        self._asked_again_at = monotonic() + _growing(self._stops)
        self._stopped = Unknown(
            0,
            f"{reason}, so nothing is sent to {self._target.destination}: correct the receiver, WEBHOOK_URL or "
            "WEBHOOK_SECRETS. It is asked again by itself",
            FailureReason.BROKER_REFUSES,
        )
        return self._stopped

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = open_session(self._target, self._resolver, self._tls)
        return self._session


_ANSWERED = "the receiver answers "
_SILENT = _Answer(Meaning.LATER, "the receiver does not answer in time")


def _pause(answer: _Answer, failures: int) -> float:
    return max(_growing(failures, _LONGEST_PAUSE), answer.retry_after or 0.0)


def _growing(failures: int, longest: float = LONGEST_PAUSE_SECONDS) -> float:
    """Returns the pause after consecutive failures (seconds): it doubles each time, with random jitter."""
    pause = FIRST_PAUSE_SECONDS * 2.0 ** min(max(0, failures - 1), _DOUBLINGS)
    return min(pause, longest) * randomness().uniform(0.75, 1.25)


def _spread(seconds: float) -> float:
    """Returns at least ``seconds``, with jitter, so that several senders do not return at once."""
    return seconds + FIRST_PAUSE_SECONDS * randomness().random()


def _of_error(error: Exception) -> _Answer:
    """Classifies a request without a response; the reason has no address, and is equal for equal causes."""
    if isinstance(error, AddressRefused) or isinstance(error.__cause__, AddressRefused):
        return _Answer(Meaning.TARGET, "the target's name leads to an address that may not be asked")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _Answer(Meaning.TARGET, "the receiver's certificate is not trusted")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return _Answer(Meaning.LATER, "the receiver cannot be reached", unreachable=True)
    if isinstance(error, TimeoutError):
        return _SILENT
    return _Answer(Meaning.LATER, "the receiver ends the connection, or answers no HTTP")
