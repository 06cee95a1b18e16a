"""What one client has here: its connection, what it may do, and the answers that wait until they may be given."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from devstack.servicebus.amqp import cbs
from devstack.servicebus.amqp.access import Access
from devstack.servicebus.amqp.connection import AmqpConnection
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Faults
from devstack.servicebus.amqp.link import OutgoingLink
from devstack.servicebus.amqp.session import AmqpSession, Credited, Link
from devstack.servicebus.amqp.wire import Wire
from devstack.servicebus.codec.errors import AmqpError


class Client:
    """A connected client, for those that its links lead to."""

    def __init__(self, connection: AmqpConnection, wire: Wire, engine: Engine, faults: Faults) -> None:
        self.access = Access(engine.now)
        self._connection = connection
        self._wire = wire
        self._engine = engine
        self._faults = faults

    def answer(self, send: Callable[[], None]) -> None:
        """Send an answer once all that was done so far is stored; later still while a fault asks for that."""
        if slow := self._faults.happens("slow"):
            later = partial(asyncio.get_running_loop().call_later, slow.seconds, send)
            self._engine.when_durable(lambda: (later(), None)[1])
        else:
            self._engine.when_durable(send)

    def abort(self) -> None:
        """End without a word, as a network does; what was received and not looked at yet is never looked at."""
        self._wire.abort()

    def links(self) -> Iterator[tuple[AmqpSession, Link]]:
        """The links to entities, of every AMQP session; those for tokens stay for as long as the connection."""
        for session in self._connection.sessions:
            for link in list(session.links.values()):
                if link.path != cbs.NODE:
                    yield session, link

    def detach_all(self, error: AmqpError) -> None:
        """Detach every link to an entity."""
        for session, link in self.links():
            session.detach(link, error)

    def detach_unauthorised(self) -> None:
        """A token may have ended: its links end with the last token that covers them."""
        for session, link in self.links():
            try:
                self.access.check(link.path)
            except AmqpError as error:
                expired = AmqpError(error.condition, "ExpiredToken: the link's token has expired.")
                session.detach(link, expired)

    # -- for the engine's turns

    def credited(self, report: Credited) -> None:
        """Let the sources look once this turn is stored, and use the credit up where that is asked for."""
        for link in report.links:
            if link.source is not None:
                self._engine.wake(link.source)
            if report.drained:
                self._engine.when_pumped(partial(self._drain, link))

    def can_be_written_to(self) -> None:
        """It could not for a while: the client did not read."""
        for session in self._connection.sessions:
            self.credited(Credited(session.receivers()))

    def _drain(self, link: OutgoingLink) -> None:
        if not link.finish_drain():
            self._engine.when_pumped(partial(self._drain, link))
