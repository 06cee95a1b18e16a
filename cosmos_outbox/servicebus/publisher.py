"""Sends each aggregate's events to the topic in order, and returns which events may be missing.

A page is sent in as few batches as its bytes allow, each with the events of several aggregates; Service Bus accepts a
batch as a whole or not at all. Batches without a common aggregate are sent concurrently; an aggregate's batches are
sent one after another, and after a refused event or an unknown outcome nothing more of the aggregate is sent. A refusal
does not identify the message, so a refused batch is halved until it is found; an error that one message causes in the
SDK counts as that message's refusal, never as a state of the topic. If the topic is unavailable, the rest of the page
is not tried. Sending an event twice is harmless: the topic drops a message whose MessageId it knows.
"""

import asyncio
import logging
from collections.abc import Sequence

from azure.core.exceptions import AzureError
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.publisher import AggregateEvents, CloudEvents, Guarantees, Outcome, Refused, Unknown
from cosmos_outbox.servicebus.batches import (
    Batch,
    Chain,
    Room,
    SendingAggregate,
    SendingMessage,
    SendingPage,
    first_too_large,
    halves,
    is_mixed,
    pack,
    postpone,
    stop_at_too_large,
)
from cosmos_outbox.servicebus.errors import (
    HINDRANCES,
    IMPOSSIBLE,
    SDK_ERRORS,
    Verdict,
    error_type,
    verdict,
)
from cosmos_outbox.servicebus.message import (
    TRACEPARENT,
    PropertyTooLarge,
    is_encodable,
    message_from_event,
    size_at_most,
)
from cosmos_outbox.servicebus.senders import Limits, Sender, Senders
from cosmos_outbox.settings.transports import SESSIONS
from cosmos_outbox.telemetry import messaging

MOST_MESSAGES = 4_500
"""Service Bus accepts no larger batch (https://github.com/Azure/azure-service-bus/issues/397)."""

ENVELOPE_BYTES = 600
"""The size of the first message's id, session and partition key, which the SDK copies to the batch uncounted."""

_OF_THE_SERVICE = (AzureError, OSError, TimeoutError)
"""Errors that no message's encoding raises."""

_LATE = Unknown(0, "the topic did not take the events in time", FailureReason.TOO_SLOW)

_log = logging.getLogger(__name__)


class ServiceBusPublisher:
    """Sends events to one topic; shared by all invocations of the process.

    See :class:`cosmos_outbox.outbox.publisher.Publisher`.
    """

    def __init__(  # noqa: PLR0913 - settings, most by keyword
        self,
        client: ServiceBusClient,
        topic: str,
        *,
        service: CloudEvents,
        partitioned: bool,
        senders: int,
        sessions: int | None = SESSIONS,
    ) -> None:
        """``sessions``: the ``buckets`` of :func:`cosmos_outbox.servicebus.message.session_of`."""
        self._service = service
        self._partitioned = partitioned
        self._sessions = sessions
        self._senders = Senders(client, topic, senders)
        self._topic = topic
        self.refused_mixes = 0
        """The number of batches that the topic has refused because they had several sessions."""

    @property
    def guarantees(self) -> Guarantees:
        """Sessions keep the order, the topic drops duplicates; batches mix sessions until the topic refuses one.

        The largest message is a setting of the topic, known only once a link is open.
        """
        return Guarantees(
            ordered=True, deduplicates=True, mixes_aggregates=self._mixes, largest_message_bytes=None
        )

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Sends each aggregate's events in order, in as few sends as possible for the page."""
        sdk_traces = settings.tracing_implementation() is not None  # once per page: it takes a microsecond
        sending = SendingPage([self._prepared(group, sdk_traces=sdk_traces) for group in page], until)
        if sending.unsent:
            try:
                async with asyncio.timeout(until - monotonic()):
                    await self._send_all(sending)
            except TimeoutError:
                sending.give_up(_LATE, sending.unsent)
        return [aggregate.outcome for aggregate in sending.aggregates]

    async def _send_all(self, page: SendingPage) -> None:
        try:
            limits = await self._senders.limits()
            if any(first_too_large(each, limits.message_bytes) is not None for each in page.aggregates):
                await self._senders.renew()  # a link learns the size limit only when it opens
                limits = await self._senders.limits()
        except SDK_ERRORS as error:
            messaging.no_link(self._topic, len(page.unsent), error_type(error))
            page.give_up(_away(*self._verdict(error)), page.unsent)
            return
        stop_at_too_large(page.aggregates, limits.message_bytes)
        await self._send_page(page, limits)
        if page.unsent:  # postponed because the topic has just refused to mix sessions
            for aggregate in page.aggregates:
                aggregate.postponed = False
            await self._send_page(page, limits)

    async def close(self) -> None:
        """Closes the idle senders; the caller closes the client."""
        await self._senders.close()

    @property
    def _mixes(self) -> bool:
        return not self._partitioned and not self.refused_mixes

    def _prepared(self, group: AggregateEvents, *, sdk_traces: bool) -> SendingAggregate:
        """Returns the messages up to the first event for which the SDK cannot create one."""
        aggregate = SendingAggregate()
        for event in group.events:
            try:
                message = message_from_event(
                    event,
                    service=self._service,
                    partitioned=self._partitioned,
                    sessions=self._sessions,
                    sdk_traces=sdk_traces,
                )
                size = size_at_most(message)
            except PropertyTooLarge:
                aggregate.impossible = "a property of the message is larger than 32 KB"
                break
            except Exception as error:  # noqa: BLE001 - any error here is caused by the event
                aggregate.impossible = f"{IMPOSSIBLE} ({type(error).__name__})"
                break
            aggregate.messages.append(SendingMessage(aggregate, message, size))
        return aggregate

    async def _send_page(self, page: SendingPage, limits: Limits) -> None:
        room = Room(
            bytes=limits.batch_bytes - ENVELOPE_BYTES,
            messages=1 if self._partitioned else MOST_MESSAGES,
            mixes=self._mixes,
        )
        chains = pack([aggregate.unsent for aggregate in page.aggregates], room)
        # A bug in one task cancels the others, so that none continues unobserved.
        async with asyncio.TaskGroup() as sending:
            for chain in chains:
                sending.create_task(self._send_chain(page, chain))

    async def _send_chain(self, page: SendingPage, chain: Chain) -> None:
        for batch in chain:
            await self._send(page, batch)

    async def _send(self, page: SendingPage, batch: Batch) -> None:
        """Sends the part of a batch that may still be sent, in halves if the topic refuses it."""
        if not (batch := self._still_to_be_sent(page, batch)):
            return
        try:
            sender = await self._senders.take()
        except SDK_ERRORS as error:
            messaging.no_link(self._topic, len(batch), error_type(error))
            page.give_up(_away(*self._verdict(error)), batch)
            return
        try:
            batch = self._still_to_be_sent(page, batch)
            refusal = await self._refusal(sender, batch) if batch else None
        finally:
            await self._senders.give_back(sender)
        if refusal is not None:
            await self._handle_refusal(page, batch, *refusal)

    async def _refusal(self, sender: Sender, batch: Batch) -> tuple[Verdict, str] | None:
        """Sends the batch and returns why the topic refused it; None: it accepted it."""
        if len(batch) == 1 and not is_encodable(
            batch[0].message
        ):  # the SDK would raise it as a service error
            return Verdict.NO_MESSAGE, IMPOSSIBLE
        traceparents = (_traceparent(one.message) for one in batch)
        with messaging.sending(self._topic, len(batch), traceparents) as attempt:
            try:
                await sender.send([one.message for one in batch])
            except Exception as error:
                attempt.failed(error_type(error))
                if not isinstance(error, _OF_THE_SERVICE) and not all(
                    is_encodable(one.message) for one in batch
                ):
                    return Verdict.NO_MESSAGE, IMPOSSIBLE
                if not isinstance(error, SDK_ERRORS):
                    raise
                return self._verdict(error)
            attempt.accepted()
        for one in batch:
            one.aggregate.accepted += 1
        return None

    def _verdict(self, error: BaseException) -> tuple[Verdict, str]:
        return verdict(error, f"topic {self._topic} (SERVICEBUS_TOPIC)")

    def _still_to_be_sent(self, page: SendingPage, batch: Batch) -> Batch:
        """Checked again once the batch has a sender: other sends may have failed during the wait for it."""
        if page.away is None and monotonic() >= page.until:
            page.away = _LATE  # the timeout's cancellation may not have arrived yet
        if page.away is not None:
            page.give_up(page.away, batch)
        batch = [one for one in batch if one.aggregate.stopped is None and not one.aggregate.postponed]
        if is_mixed(batch) and not self._mixes:
            postpone(batch)
            return []
        return batch

    async def _handle_refusal(self, page: SendingPage, batch: Batch, kind: Verdict, reason: str) -> None:
        if kind is Verdict.NOT_TOGETHER and is_mixed(batch):
            self._mix_no_more()
            postpone(batch)
        elif kind not in (Verdict.NEVER, Verdict.NO_MESSAGE):
            page.give_up(_away(kind, reason), batch)
        elif len(batch) == 1:
            aggregate = batch[0].aggregate
            aggregate.stopped = Refused(aggregate.accepted, reason, shown_by_event=kind is Verdict.NO_MESSAGE)
        else:
            for half in halves(batch):
                await self._send(page, half)

    def _mix_no_more(self) -> None:
        if self._mixes:
            _log.warning(
                "topic %s refuses batches of several sessions: from now on each session is sent in batches of its "
                "own, which takes more round trips. Is the topic partitioned? Then set "
                "SERVICEBUS_TOPIC_PARTITIONED=true",
                self._topic,
            )
        self.refused_mixes += 1


def _away(kind: Verdict, reason: str) -> Unknown:
    return Unknown(0, reason, HINDRANCES.get(kind, FailureReason.BROKER_AWAY))


def _traceparent(message: ServiceBusMessage) -> str | None:
    found = (message.application_properties or {}).get(TRACEPARENT)
    return found if isinstance(found, str) else None
