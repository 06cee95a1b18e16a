"""A thief takes messages away from the app's own subscription, as an operator's tool or a wrong receiver would.

Some are lost for good, and show as a gap with the next event. The others become dead letters: they come back late,
after the events that follow them, when the operator collects them. The thief notes each message before it takes it.
"""

import asyncio
import contextlib
import random
import ssl
import time
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from outbox_simulation.invariants.language import SKIP_MARKER
from outbox_simulation.invariants.records import Stolen
from tests.torture.contacts import CREATED, DELETED
from tests.torture.journal import Journal
from tests.torture.subscriber import aggregate_of

_LOST = 0.4
"""How many of the messages that may be lost are."""
_SESSION_WAIT_SECONDS = 4.0
_ROUND_SECONDS = _SESSION_WAIT_SECONDS + 4.0
_CLOSE_SECONDS = 2.0
_ERRORS = (AzureError, OSError, TimeoutError, ValueError)


@dataclass(frozen=True)
class Thief:
    """Takes the first message of one session after the other."""

    connection: str
    topic: str
    subscription: str
    journal: Journal
    chance: random.Random

    async def steal(self) -> Stolen | None:
        """Take one message; None: none was to be had."""
        # Without a context the SDK reads all certificates for each connection, TLS or not.
        options: dict[str, Any] = {"retry_total": 0, "ssl_context": ssl.create_default_context()}
        client = ServiceBusClient.from_connection_string(self.connection, **options)
        receiver = client.get_subscription_receiver(
            self.topic,
            self.subscription,
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=_SESSION_WAIT_SECONDS,
        )
        try:
            # Without a limit the SDK waits for ever when its link for tokens is detached while it opens.
            async with asyncio.timeout(_ROUND_SECONDS):
                return await self._first(await receiver.__aenter__())
        except OperationTimeoutError:
            return None
        except _ERRORS:  # the broker is away, or the lock is
            return None
        finally:
            for open_still in (receiver, client):
                with contextlib.suppress(*_ERRORS):
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await open_still.close()

    async def _first(self, receiver: ServiceBusReceiver) -> Stolen | None:
        messages = await receiver.receive_messages(1, max_wait_time=1.0)
        if not messages:
            return None
        [message] = messages
        stolen = self._planned(message)
        self.journal.write(stolen)
        if stolen.lost:
            await receiver.complete_message(message)
        else:
            await receiver.dead_letter_message(message, reason="taken by a thief")
        return stolen

    def _planned(self, message: ServiceBusReceivedMessage) -> Stolen:
        """A loss that no later event shows is not the inbox's to find: of a last event, of one without a place.

        A creation becomes a dead letter: it comes late, perhaps after the contact's end.
        """
        sequence = (message.application_properties or {}).get(b"sequence")
        may_be_lost = isinstance(sequence, int) and message.subject not in (CREATED, DELETED, SKIP_MARKER)
        return Stolen(
            at=time.monotonic(),
            aggregate=aggregate_of(message),
            sequence=sequence if isinstance(sequence, int) else -1,
            lost=may_be_lost and self.chance.random() < _LOST,
        )
