"""Runs the Functions host's Service Bus trigger: some sessions at once, one message of a session at a time.

As the real host has it: each lock is renewed while the session is held. After a return the message is completed, after
an error abandoned and redelivered at once, until the broker makes a dead letter of it. A lost session ends the host's
wait and not the call; when the host stops, even a message that succeeded is abandoned.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from cosmos_outbox.operations.subscriber import Subscription
from cosmos_outbox.servicebus.errors import SDK_ERRORS
from cosmos_outbox.servicebus.sessions import Sessions, body_of, renewed
from outbox_simulation.engine.host import Call, InvocationContext
from outbox_simulation.engine.subscriber_host import SubscriberHost

if TYPE_CHECKING:
    from azure.functions.decorators.function_app import Function

_SESSIONS = 3
"""The sessions of a subscription held at once: ``maxConcurrentSessions``."""
_WAIT_SECONDS, _IDLE_SECONDS, _PAUSE_SECONDS = 20.0, 0.5, 2.0


@dataclass(kw_only=True)
class SessionHost(SubscriberHost):
    """A host whose subscriptions have sessions."""

    def listen(self, subscription: Subscription, function: "Function") -> Sequence[asyncio.Task[None]]:
        """Returns one task for each session that is held at once."""
        call = function.get_user_function()
        return [asyncio.create_task(self._work(subscription, call)) for _ in range(_SESSIONS)]

    async def _work(self, subscription: Subscription, function: Call) -> None:
        while not self.stop.is_set():
            try:
                await self._work_on_session(subscription, function)
            except OperationTimeoutError:
                continue  # no session has messages
            except SDK_ERRORS as error:
                self.trace.note("host reports", detail=repr(error).splitlines()[0])
                await self.pause(_PAUSE_SECONDS)

    async def _work_on_session(self, subscription: Subscription, function: Call) -> None:
        sessions = subscription.subscriber.queues().sessions
        assert isinstance(sessions, Sessions), "the simulated broker is Service Bus"
        receiver = sessions.client.get_subscription_receiver(
            sessions.topic,
            sessions.subscription,
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=_WAIT_SECONDS,
        )
        try:
            await receiver.__aenter__()
            async with renewed(receiver.session, sessions.clock_log):
                while not self.stop.is_set():
                    messages = await receiver.receive_messages(1, _IDLE_SECONDS)
                    if not messages:
                        return
                    await self._handle(receiver, messages[0], function)
        finally:
            with suppress(*SDK_ERRORS):
                await receiver.close()

    async def _handle(self, receiver: ServiceBusReceiver, message: Any, function: Call) -> None:
        error = await self.invoke(function, _bound(message), InvocationContext())
        if error is None and not self.stop.is_set():
            await receiver.complete_message(message)
        else:
            self.trace.note("host abandons", detail=f"{message.message_id}: {error!r}")
            await receiver.abandon_message(message)


def _bound(message: Any) -> object:
    """Returns the message as the function gets it."""
    from azure.functions import meta  # noqa: PLC0415 - of an extra
    from azure.functions.servicebus import ServiceBusMessageInConverter  # noqa: PLC0415

    from devstack.functions.servicebus_message import plain  # noqa: PLC0415

    properties = {plain(name): plain(each) for name, each in (message.application_properties or {}).items()}
    options = {
        "MessageId": meta.Datum(message.message_id, "string"),
        "SequenceNumber": meta.Datum(json.dumps(message.sequence_number), "json"),
        "ApplicationProperties": meta.Datum(json.dumps(properties), "json"),
        "UserProperties": meta.Datum(json.dumps(properties), "json"),
    }
    if message.correlation_id is not None:
        options["CorrelationId"] = meta.Datum(message.correlation_id, "string")
    return ServiceBusMessageInConverter.decode(
        meta.Datum(body_of(message), "bytes"), trigger_metadata=options
    )
