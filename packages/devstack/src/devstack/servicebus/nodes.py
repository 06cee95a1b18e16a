"""An address is one thing: an entity, its dead-letter queue, its management node, or the token node.

Every attach is answered: with the link, or with an attach without a terminus and the reason.
"""

import asyncio
from dataclasses import dataclass

from devstack.servicebus.amqp import cbs
from devstack.servicebus.amqp.cbs import MANAGEMENT_SUFFIX, SasKey
from devstack.servicebus.amqp.client import Client
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Faults, Traffic
from devstack.servicebus.amqp.link import IncomingLink, OutgoingLink
from devstack.servicebus.amqp.session import AmqpSession
from devstack.servicebus.broker.description import Description, entity_path
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.sessions import SessionLock
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_as
from devstack.servicebus.codec.errors import NOT_ALLOWED, NOT_FOUND, NOT_IMPLEMENTED, TIMEOUT, AmqpError
from devstack.servicebus.codec.values import Described, Symbol
from devstack.servicebus.delivery import ticks
from devstack.servicebus.management import ManagementNode
from devstack.servicebus.receiving import QueueSource
from devstack.servicebus.requests import RequestSink, ResponseSource
from devstack.servicebus.sending import EntitySink
from devstack.servicebus.tokens import TokenNode

SESSION_FILTER = Symbol("com.microsoft:session-filter")
SESSION_TIMEOUT = Symbol("com.microsoft:timeout")
LOCKED_UNTIL = Symbol("com.microsoft:locked-until-utc")
MAX_BATCH_SIZE = Symbol("com.microsoft:max-message-batch-size")
DEFAULT_SESSION_TIMEOUT_SECONDS = 65.0
"""How long a receiver waits for any session when it does not say, as in the service
(https://github.com/Azure/azure-sdk-for-net/issues/30962)."""

MAX_SESSION_TIMEOUT_SECONDS = 3600.0

_ANY = Description(path="any", kind="queue")
"""The limits of a link that leads to no entity, or to a client."""


@dataclass(frozen=True)
class Nodes:
    """Makes links from attaches."""

    engine: Engine
    faults: Faults
    key: SasKey
    traffic: Traffic

    def attach(self, client: Client, session: AmqpSession, attach: p.Attach) -> None:
        try:
            attach = attach._replace(source=read_as(p.Source, attach.source), target=_target(attach.target))
            if attach.role:
                self._attach_receiver(client, session, attach)
            else:
                self._attach_sender(client, session, attach)
        except AmqpError as error:
            session.refuse_attach(attach, error)

    # -- a client's sender

    def _attach_sender(self, client: Client, session: AmqpSession, attach: p.Attach) -> None:
        path = _path(attach.target)
        sink: EntitySink | RequestSink
        description = _ANY
        if path == cbs.NODE:
            node = TokenNode(self.engine, self.key, self.faults, client.access)
            sink = RequestSink(client, session, path, node)
        else:
            client.access.check(path)
            if path.lower().endswith(MANAGEMENT_SUFFIX):
                sink = RequestSink(client, session, path, self._management(client, path))
            else:
                entity = self.engine.namespace.writable(path)
                description = entity.description
                sink = EntitySink(client, session, self.engine, self.faults, self.traffic, entity)
        link = IncomingLink(session.channel, attach, path, sink)
        answer = _answer(attach, {MAX_BATCH_SIZE: description.max_batch_bytes})
        session.accept_attach(attach, link, answer._replace(max_message_size=description.max_message_bytes))

    def _management(self, client: Client, path: str) -> ManagementNode:
        entity = path[: -len(MANAGEMENT_SUFFIX)]
        if self.engine.namespace.find(_without_sub_queue(entity)) is None:
            raise AmqpError(NOT_FOUND, f"The messaging entity '{entity}' could not be found.")
        return ManagementNode(self.engine, self.faults, client, entity)

    # -- a client's receiver

    def _attach_receiver(self, client: Client, session: AmqpSession, attach: p.Attach) -> None:
        path = _path(attach.source)
        link = OutgoingLink(session.channel, attach, path)
        if path == cbs.NODE or path.lower().endswith(MANAGEMENT_SUFFIX):
            if path != cbs.NODE:
                client.access.check(path)
                self._management(client, path)
            link.source = ResponseSource(link, None if attach.target is None else attach.target.address)
            session.accept_attach(attach, link, _answer(attach))
            return
        client.access.check(path)
        queue = self.engine.namespace.receivable(path)
        wants_session, session_id = _session_filter(attach)
        if wants_session != queue.requires_session:
            raise AmqpError(
                NOT_ALLOWED,
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
                if queue.requires_session
                else "A sessionful message receiver cannot be created on an entity that does not require sessions. "
                "Ensure RequiresSession is set to true when creating a Queue or Subscription to enable sessionful "
                "behavior.",
            )
        if wants_session:
            _Acceptor(client, session, self.engine, attach, link, queue, session_id=session_id).start()
            return
        link.source = QueueSource(client, session, self.engine, link, queue)
        session.accept_attach(attach, link, _answer(attach))


class _Acceptor:
    """A receiver that asks for a session: answered when it has one, or when its time is over."""

    def __init__(  # noqa: PLR0913, PLR0917 - what the receiver will be made of
        self,
        client: Client,
        session: AmqpSession,
        engine: Engine,
        attach: p.Attach,
        link: OutgoingLink,
        queue: Queue,
        *,
        session_id: str | None,
    ) -> None:
        self._client = client
        self._session = session
        self._engine = engine
        self._attach = attach
        self._link = link
        self._queue = queue
        self._session_id = session_id
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Raises :class:`AmqpError` when a named session cannot be had."""
        if self._accept():
            return
        seconds = _session_timeout(self._attach)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._timed_out)
        self._link.source = self
        self._session.links[self._attach.handle] = self._link
        self._engine.add_reader(self._queue, self)

    def pump(self) -> None:
        """A session may be free now."""
        if self._timer is not None and self._accept():
            return

    def settle(self, delivery_id: int, tag: bytes, outcome: p.Outcome | None, *, settled: bool) -> None:
        """Nothing was delivered yet."""

    def closed(self) -> None:
        """The client gave up."""
        self._stop()

    def entity_gone(self, error: AmqpError) -> None:
        self._refuse(error)

    def _accept(self) -> bool:
        queue = self._queue
        lock = queue.sessions.accept(
            self._session_id, self._engine.now(), queue.description.lock_ms, lambda: None
        )
        if lock is None:
            return False
        self._stop()
        source = QueueSource(self._client, self._session, self._engine, self._link, queue)
        source.hold(lock)
        self._link.source = source
        self._engine.touch(queue)
        self._session.accept_attach(self._attach, self._link, _session_answer(self._attach, lock))
        return True

    def _timed_out(self) -> None:
        self._refuse(
            AmqpError(TIMEOUT, "There was no session available within the time that the receiver waits.")
        )

    def _refuse(self, error: AmqpError) -> None:
        self._stop()
        self._session.links.pop(self._attach.handle, None)
        self._session.refuse_attach(self._attach, error)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._engine.remove_reader(self._queue, self)


def _answer(attach: p.Attach, properties: dict[object, object] | None = None) -> p.Attach:
    """Our half of the attach: the client's own terms, with what the link allows."""
    source = attach.source
    return p.Attach(
        name=attach.name,
        handle=attach.handle,
        role=not attach.role,
        snd_settle_mode=attach.snd_settle_mode,
        rcv_settle_mode=attach.rcv_settle_mode,
        source=None
        if source is None
        else source._replace(
            default_outcome=None, outcomes=None, capabilities=None, dynamic_node_properties=None
        ),
        target=None
        if attach.target is None
        else attach.target._replace(capabilities=None, dynamic_node_properties=None),
        initial_delivery_count=0 if attach.role else None,
        max_message_size=_ANY.max_message_bytes,
        properties=properties,
    )


def _session_answer(attach: p.Attach, lock: SessionLock) -> p.Attach:
    answer = _answer(attach, {LOCKED_UNTIL: ticks(lock.until_ms)})
    assert answer.source is not None
    return answer._replace(source=answer.source._replace(filter={SESSION_FILTER: lock.session.id}))


def _path(terminus: p.Source | p.Target | None) -> str:
    if terminus is None or terminus.address is None:
        raise AmqpError(NOT_FOUND, "The link names no address.")
    return entity_path(terminus.address)


def _target(value: object) -> p.Target | None:
    if isinstance(value, Described) and value.descriptor == 0x30:
        raise AmqpError(NOT_IMPLEMENTED, "Transactions are not supported.")
    return read_as(p.Target, value)


def _without_sub_queue(path: str) -> str:
    head, _, tail = path.rpartition("/")
    return head if tail.lower() == "$deadletterqueue" else path


def _session_filter(attach: p.Attach) -> tuple[bool, str | None]:
    """Whether the receiver asks for a session, and which; None for any."""
    filters = (attach.source.filter if attach.source is not None else None) or {}
    if SESSION_FILTER not in filters:
        return False, None
    value = filters[SESSION_FILTER]
    if isinstance(value, Described):
        value = value.value
    return True, value if isinstance(value, str) else None


def _session_timeout(attach: p.Attach) -> float:
    value = (attach.properties or {}).get(SESSION_TIMEOUT)
    seconds = value / 1000 if isinstance(value, int) else DEFAULT_SESSION_TIMEOUT_SECONDS
    return min(max(seconds, 0.0), MAX_SESSION_TIMEOUT_SECONDS)
