"""A request on one link gets exactly one response on the link that its sender opened for it in the same session.

Source: the request/response pattern of AMQP management, as ``$cbs`` and ``$management`` of Service Bus use it.
"""

from collections import deque
from typing import Protocol

from devstack.servicebus.amqp.client import Client
from devstack.servicebus.amqp.link import IncomingLink, OutgoingLink
from devstack.servicebus.amqp.session import AmqpSession
from devstack.servicebus.codec.errors import RESOURCE_LIMIT_EXCEEDED, AmqpError
from devstack.servicebus.codec.message import ParsedMessage, parse, read_properties
from devstack.servicebus.codec.performatives import Accepted, Outcome

MAX_REQUEST_BYTES = 1_048_576
MAX_WAITING_RESPONSES = 1000


class RequestNode(Protocol):
    """Answers requests."""

    def answer(self, request: ParsedMessage) -> bytes:
        """The response, to be sent once what the request did is stored."""


class ResponseSource:
    """Responses that wait for the client's credit."""

    def __init__(self, link: OutgoingLink, address: str | None) -> None:
        self.address = address
        self._link = link
        self._waiting: deque[bytes] = deque()
        self._number = 0

    def respond(self, response: bytes) -> None:
        """Raises :class:`AmqpError` when the client takes no responses."""
        if len(self._waiting) >= MAX_WAITING_RESPONSES:
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "Too many responses wait for credit.")
        self._waiting.append(response)
        self.pump()

    def pump(self) -> None:
        while self._waiting and self._link.can_send:
            self._number += 1
            delivery = self._link.send(self._number.to_bytes(4, "big"), self._waiting.popleft())
            self._link.forget(delivery)  # it is not sent again

    def settle(self, delivery_id: int, tag: bytes, outcome: Outcome | None, *, settled: bool) -> None:
        """A response is not kept after it was sent."""

    def closed(self) -> None:
        self._waiting.clear()


class RequestSink:
    """Takes requests for a node."""

    max_message_bytes = MAX_REQUEST_BYTES

    def __init__(self, client: Client, session: AmqpSession, path: str, node: RequestNode) -> None:
        self._client = client
        self._session = session
        self._path = path
        self._node = node

    def receive(self, delivery_id: int, message_format: int, payload: bytes, *, settled: bool) -> None:
        """Do what is asked, then answer on the response link. ``message_format`` is that of every request: 0."""
        request = parse(payload)
        response = self._node.answer(request)
        session = self._session
        reply_to = read_properties(request).get("reply-to")

        def send() -> None:
            if not settled:
                session.channel.settle_incoming(delivery_id, Accepted())
            source = self._response_source(reply_to)
            if source is not None:
                try:
                    source.respond(response)
                except AmqpError as error:
                    self._detach(error)

        self._client.answer(send)

    def closed(self) -> None:
        """Nothing is held for a requester."""

    def _detach(self, error: AmqpError) -> None:
        """No more requests on the link that this is the sink of."""
        for link in list(self._session.links.values()):
            if isinstance(link, IncomingLink) and link.sink is self:
                self._session.detach(link, error)

    def _response_source(self, reply_to: object) -> ResponseSource | None:
        """Of the link whose target is the reply-to address; without one, of any response link of the same node."""
        candidates = [
            link.source
            for link in self._session.receivers()
            if link.path == self._path and isinstance(link.source, ResponseSource)
        ]
        for source in candidates:
            if reply_to is not None and source.address == reply_to:
                return source
        return candidates[0] if candidates else None
