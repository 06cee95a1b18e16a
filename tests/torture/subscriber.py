"""A subscriber that writes down every message before it completes the message.

The subscriber may be killed at any moment, and sometimes gives a session back between writing and completing; then the
broker delivers the message again. The subscriber is a process of its own: ``python -m tests.torture.subscriber``.
"""

import argparse
import asyncio
import contextlib
import json
import random
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from outbox_simulation.invariants.records import Completed, HandedOut
from tests.torture.journal import Journal

SESSIONS_AT_ONCE = 8
LOCK_SECONDS = 10
"""The subscription's lock duration; a session is let go of well before."""

_HELD_SECONDS = 3.0
_IDLE_SECONDS = 0.3
_SESSION_WAIT_SECONDS = 4.0
_ROUND_SECONDS = _SESSION_WAIT_SECONDS + _HELD_SECONDS + 2.0
_CLOSE_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
_CARELESS = 0.01
"""How often a session is let go of between writing and completing."""


@dataclass(frozen=True)
class Subscriber:
    """Takes one session after the other."""

    client: ServiceBusClient
    topic: str
    subscription: str
    journal: Journal
    chance: random.Random

    async def run(self) -> None:
        """Never ends by itself."""
        while True:
            try:
                await self._one_session()
            except OperationTimeoutError:
                continue
            except (AzureError, OSError, TimeoutError, ValueError):  # the broker is away, or the lock is
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _one_session(self) -> None:
        receiver = self._receiver()
        try:
            # Without a limit the SDK waits for ever when its link for tokens is detached while it opens.
            async with asyncio.timeout(_ROUND_SECONDS):
                await self._empty(await receiver.__aenter__())
        finally:
            with contextlib.suppress(AzureError, OSError, TimeoutError, ValueError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await receiver.close()

    def _receiver(self) -> ServiceBusReceiver:
        return self.client.get_subscription_receiver(
            self.topic,
            self.subscription,
            session_id=NEXT_AVAILABLE_SESSION,
            max_wait_time=_SESSION_WAIT_SECONDS,
        )

    async def _empty(self, receiver: ServiceBusReceiver) -> None:
        let_go_at = time.monotonic() + _HELD_SECONDS
        while time.monotonic() < let_go_at:
            # One at a time: asked for more, the SDK gives back what comes while none of its receive calls runs, and a
            # message that was given back can be overtaken by the next one
            # (https://github.com/Azure/azure-sdk-for-net/issues/35846).
            messages = await receiver.receive_messages(1, max_wait_time=_IDLE_SECONDS)
            if not messages:
                return
            [message] = messages
            self.journal.write(_delivered(message))
            if self.chance.random() < _CARELESS:
                return
            await receiver.complete_message(message)
            self.journal.write(Completed(at=time.monotonic(), broker_number=_broker_number(message)))


def aggregate_of(message: ServiceBusReceivedMessage) -> str:
    """The id; a session may hold several."""
    subject = (message.application_properties or {})[b"cloudEvents_subject"]
    assert isinstance(subject, bytes)
    return subject.decode()


def _broker_number(message: ServiceBusReceivedMessage) -> int:
    assert message.sequence_number is not None, "the broker numbers every message"
    return message.sequence_number


def _delivered(message: ServiceBusReceivedMessage) -> HandedOut:
    properties = message.application_properties or {}
    sequence = properties.get(b"sequence")
    return HandedOut(
        at=time.monotonic(),
        broker_number=_broker_number(message),
        delivery_count=message.delivery_count or 0,
        lock=str(message.lock_token),
        message_id=str(message.message_id),
        aggregate=aggregate_of(message),
        session=message.session_id,
        subject=str(message.subject),
        sequence=sequence if isinstance(sequence, int) else -1,
        unsequenced=properties.get(b"unsequenced") is True,
        body=json.loads(str(message)),
    )


async def _main(arguments: argparse.Namespace) -> None:
    # Without a context the SDK reads all certificates for each connection, TLS or not.
    options: dict[str, Any] = {"retry_total": 0, "ssl_context": ssl.create_default_context()}
    journal = Journal(arguments.log)
    chance = random.Random(arguments.seed)
    async with ServiceBusClient.from_connection_string(arguments.connection, **options) as client:
        subscriber = Subscriber(client, arguments.topic, arguments.subscription, journal, chance)
        await asyncio.gather(*(subscriber.run() for _ in range(SESSIONS_AT_ONCE)))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.torture.subscriber", description=__doc__)
    parser.add_argument("--connection", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(_parse()))
