"""A local Azure for a test: servers on free ports with the resources that services declare; nothing is left afterwards.

The deployed code runs on it unchanged, through the real SDKs. A test may kill, pause and break each part.
"""

import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import OperationTimeoutError

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.service import Service
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.servicebus.message import session_of
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.transports import SESSIONS
from cosmos_outbox.testing import containers  # first: its error explains how to install devstack
from cosmos_outbox.testing.messages import Message
from devstack import app_file, provision
from devstack.testing import Process, Stack, eventually
from devstack.testing.process import Begun
from devstack.testing.stack import run_beside

__all__ = ["LocalAzure", "Program", "eventually"]

READY_WITHIN_SECONDS = 40.0
_POLL_SECONDS = 0.02


class Program(Process):
    """A process under test, which is ready when its log matches ``ready``; a group in that pattern is its address.

    Start it with :meth:`LocalAzure.program`; then ``kill()``, ``terminate()``, ``pause()``, ``resume()``, ``start()``.

    Example::

        with LocalAzure(tmp_path, service) as azure:
            program: Program = azure.program(sys.executable, "-u", "-c", SAYS_READY, ready=r"ready at (\\S+)")
            assert program.address == "http://127.0.0.1:1"
            program.kill()
            program.start()
            assert program.terminate() == 0
    """

    def __init__(  # noqa: PLR0913 - a process, all of it by name
        self,
        name: str,
        *,
        log: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path | None,
        ready: str | None,
    ) -> None:
        super().__init__(name, log, command, environment, folder)
        self._ready = ready
        self._begins = 0
        """The offset in the log at which the newest start begins."""

    def start(self) -> Self:
        """Start it and wait until it is ready. Raises AssertionError with its log if that does not happen."""
        self._begins = self.log.stat().st_size if self.log.exists() else 0
        return super().start()

    def wait_until_ready(self, process: "Begun") -> None:
        """Wait until the log of the newest start matches ``ready``."""
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while self._ready is not None and not self._said(self._ready):
            assert process.poll() is None, f"{self.name} has ended:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"{self.name} is not ready:\n{self.log.read_text()}"
            time.sleep(_POLL_SECONDS)

    @property
    def address(self) -> str:
        """The address that the newest start has logged when it was ready."""
        assert self._ready is not None, f"{self.name} was started without ready, which finds its address"
        return self._said(self._ready)[-1]

    def _said(self, pattern: str) -> list[str]:
        """Returns the matches in complete lines: an address may be written in two parts, or cut off by a kill."""
        whole = self.log.read_bytes()[self._begins :].rpartition(b"\n")[0].decode(errors="replace")
        return [found[found.lastindex or 0] for found in re.finditer(pattern, whole)]


class LocalAzure(Stack):
    """Cosmos DB and Service Bus with the containers, topics and subscriptions that these services declare.

    ``watch``: additional subscriptions, for the test to read. ``settings``: of the services' processes, in addition to
    those for the connections; the attribute of that name has all of them. ``cosmos`` and ``servicebus`` are the two
    servers (``kill()``, ``start()``, ``pause()``, ``resume()``, ``faults``); ``run(app)`` starts a Functions host with
    the ``function_app.py`` of a folder.

    Example::

        with LocalAzure(tmp_path, service) as azure:
            async with running(service, environment=azure.settings):
                booking = Booking.create(title="A table")
                await service().aggregates.create(booking, Origin("request-1"))
                [sent] = await azure.receive("watch", 1)
                assert sent.data["action"] == "BookingCreated"

                entries = service().read_model(board).inbox.entries
                await eventually(lambda: entries.read(booking.key))
    """

    def __init__(
        self,
        folder: Path,
        *services: Service,
        watch: Sequence[str] = ("watch",),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, settings)
        self._services = services
        self._watch = watch
        self._topics: list[str] = []

    def start(self) -> None:
        """Start both servers with the declared resources. Raises AssertionError with the log of one that fails."""
        super().start()
        try:
            run_beside(self._make())
        except BaseException:
            self.stop()
            raise

    def program(
        self, *command: str, ready: str | None = None, folder: Path | None = None, name: str | None = None,
        **settings: str,
    ) -> Program:  # fmt: skip
        """Start a process with the settings of the services; it is stopped at the end of the block.

        ``ready``: a pattern that its log matches at each start, when it is ready. ``name``: of its log.
        """
        called = name or f"program-{len(self._started)}"
        return self.add(
            Program(
                called, log=self.folder / f"{called}.log", command=command, environment=self.settings | settings,
                folder=folder, ready=ready,
            )
        )  # fmt: skip

    def command(self, *arguments: str, folder: Path | None = None, **settings: str) -> Program:
        """Start a command, such as ``cosmos-outbox relay --service bookings.service``, and wait until it works."""
        return self.program(
            sys.executable, "-m", "cosmos_outbox", *arguments,
            ready=rf"the {arguments[0]} works", folder=folder, name=arguments[0], **settings,
        )  # fmt: skip

    async def receive(
        self,
        subscription: str,
        count: int,
        *,
        of: tuple[str, str] | None = None,
        topic: str | None = None,
        within: float = 30.0,
    ) -> list[Message]:
        """Receive the next messages of a subscription, each aggregate's in order; ``of``: only of this aggregate.

        ``of`` is its type and id; messages of others in its session are received with them and dropped.

        Returns fewer than ``count`` if no more arrive in time.
        """
        taken: list[Message] = []
        session = NEXT_AVAILABLE_SESSION if of is None else session_of(AggregateKey(*of), SESSIONS)
        text = self.servicebus.connection_string
        # No session with a message is a valid answer, and the SDK would retry it three times, with pauses.
        async with servicebus_client(Connection(text), None, retries=0) as client:
            until = time.monotonic() + within
            while len(taken) < count and (left := until - time.monotonic()) > 0:
                try:
                    async with client.get_subscription_receiver(
                        topic or self._topic,
                        subscription,
                        session_id=session,
                        max_wait_time=left,
                    ) as receiver:
                        # One at a time: with remaining link credit, the SDK may deliver messages out of order.
                        while len(taken) < count and (
                            found := await receiver.receive_messages(1, max_wait_time=1)
                        ):
                            message = _message(found[0])
                            if of is None or of == _aggregate_of(message):
                                taken.append(message)
                            await receiver.complete_message(found[0])
                except OperationTimeoutError:
                    break
        return taken

    async def send(
        self, message: Message, *, topic: str | None = None, message_id: str | None = None
    ) -> None:
        """Send a message to the topic, which drops a recently seen id."""
        sent = ServiceBusMessage(
            message.body, content_type="application/json", message_id=message_id or message.id,
            session_id=session_of(_aggregate_of(message), SESSIONS),
            application_properties={str(name): value for name, value in message.properties.items()},
        )  # fmt: skip
        async with (
            servicebus_client(Connection(self.servicebus.connection_string), None) as client,
            client.get_topic_sender(topic or self._topic) as sender,
        ):
            await sender.send_messages(sent)

    @property
    def _topic(self) -> str:
        assert len(self._topics) == 1, f"there are {len(self._topics)} topics: name one with topic="
        return self._topics[0]

    async def _make(self) -> None:
        made: dict[tuple[str, str], app_file.Container] = {}
        topics: dict[str, app_file.Topic] = {}
        watched = [app_file.Subscription(name=each, requires_session=True) for each in self._watch]
        for service in self._services:
            found = containers.of_service(service, self.settings)
            for topic in found.servicebus.topics:
                there = topics[topic.name].subscriptions if topic.name in topics else watched
                named = {each.name: each for each in (*there, *topic.subscriptions)}
                topics[topic.name] = topic.model_copy(update={"subscriptions": [*named.values()]})
            if service.publishes:  # the store of another is its own affair
                made |= {(each.database, each.name): each for each in found.cosmos.containers}
        self._topics = [*topics]
        await provision.cosmos(self.cosmos.connection_string, app_file.Cosmos(containers=[*made.values()]))
        await provision.servicebus(
            self.servicebus.admin_connection_string, app_file.ServiceBus(topics=[*topics.values()])
        )


def _message(received: ServiceBusReceivedMessage) -> Message:
    properties = {
        str(_text(name)): _text(value) for name, value in (received.application_properties or {}).items()
    }
    return Message(b"".join(received.body), properties, str(received.message_id))


def _aggregate_of(message: Message) -> AggregateKey:
    """Returns a message's aggregate; one without gets an aggregate of its own."""
    kind, name = (
        str(message.properties.get(each, message.id)) for each in ("aggregateType", "cloudEvents_subject")
    )
    return AggregateKey(kind, name)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
