"""A session has each handle for one link at a time, and reports what its links are not to decide.

Source: OASIS AMQP 1.0 part 2, 2.5 to 2.7.
"""

from dataclasses import dataclass
from typing import Any

from devstack.servicebus.amqp.channel import Channel
from devstack.servicebus.amqp.link import IncomingLink, OutgoingLink
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_outcome
from devstack.servicebus.codec.errors import DECODE_ERROR, HANDLE_IN_USE, UNATTACHED_HANDLE, AmqpError

MAX_HANDLE = 255

Link = IncomingLink | OutgoingLink


@dataclass(frozen=True)
class AttachAsked:
    """The client wants a link: :meth:`AmqpSession.accept_attach` or :meth:`AmqpSession.refuse_attach` it."""

    session: "AmqpSession"
    attach: p.Attach


@dataclass(frozen=True)
class Credited:
    """These links may be able to send more than before."""

    links: tuple[OutgoingLink, ...]
    drained: bool = False
    """Whether the client wants the credit to be used up now."""


Report = AttachAsked | Credited


class AmqpSession:
    """The links of one channel."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.links: dict[int, Link] = {}
        self._detached: set[int] = set()

    def open(self) -> None:
        self.channel.send_begin(MAX_HANDLE)

    def close(self) -> None:
        """Every link of the session is gone."""
        links, self.links = self.links, {}
        self.channel.unsettled.clear()
        for link in links.values():
            link.close()

    def receivers(self) -> tuple[OutgoingLink, ...]:
        """The links on which the client receives."""
        return tuple(link for link in self.links.values() if isinstance(link, OutgoingLink))

    # -- incoming

    def handle(self, performative: Any, payload: bytes) -> Report | None:
        """One frame of this channel. Raises :class:`AmqpError`, for which the session is ended."""
        if isinstance(performative, p.Transfer):
            self._on_transfer(performative, payload)
        elif isinstance(performative, p.Disposition):
            self._on_disposition(performative)
        elif isinstance(performative, p.Flow):
            return self._on_flow(performative)
        elif isinstance(performative, p.Attach):
            return self._on_attach(performative)
        elif isinstance(performative, p.Detach):
            self._on_detach(performative)
        else:
            raise AmqpError("amqp:illegal-state", "This performative has no place in an open session.")
        return None

    def _on_attach(self, attach: p.Attach) -> Report:
        if attach.handle > MAX_HANDLE or attach.handle in self.links:
            raise AmqpError(HANDLE_IN_USE, f"The handle {attach.handle} is in use, or above {MAX_HANDLE}.")
        self._detached.discard(attach.handle)
        return AttachAsked(self, attach)

    def _on_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        self.channel.take_transfer()
        link = self.links.get(transfer.handle)
        if link is None and transfer.handle in self._detached:
            return  # sent before our detach arrived
        if not isinstance(link, IncomingLink):
            raise AmqpError(UNATTACHED_HANDLE, f"The handle {transfer.handle} is not a sender's.")
        try:
            link.transfer(transfer, payload)
        except AmqpError as error:
            if error.condition == DECODE_ERROR:
                raise  # the connection is of no use: nobody knows what its bytes mean
            self.detach(link, error)

    def _on_disposition(self, disposition: p.Disposition) -> None:
        if not disposition.role:
            return  # the client settles what it sent; it was settled here when it was answered
        unsettled = self.channel.unsettled
        last = disposition.first if disposition.last is None else disposition.last
        outcome = read_outcome(disposition.state)
        if disposition.first == last:
            numbers = [last] if last in unsettled else []
        else:
            numbers = [number for number in unsettled if disposition.first <= number <= last]
        for number in numbers:
            if number not in unsettled:
                continue  # its link ended with a settlement before this one
            handle, tag = unsettled[number]
            link = self.links.get(handle)
            if isinstance(link, OutgoingLink) and link.source is not None:
                link.source.settle(number, tag, outcome, settled=disposition.settled)
            if disposition.settled:
                unsettled.pop(number, None)

    def _on_flow(self, flow: p.Flow) -> Report | None:
        self.channel.take_flow(flow)
        if flow.handle is None:
            if flow.echo:
                self.channel.send_flow()
            return Credited(self.receivers())
        link = self.links.get(flow.handle)
        if link is None and flow.handle not in self._detached:
            raise AmqpError(UNATTACHED_HANDLE, f"The handle {flow.handle} is not attached.")
        if link is not None:
            link.flow(flow)
        return Credited((link,), flow.drain) if isinstance(link, OutgoingLink) else None

    def _on_detach(self, detach: p.Detach) -> None:
        link = self.links.get(detach.handle)
        if link is None:
            if detach.handle not in self._detached:
                raise AmqpError(UNATTACHED_HANDLE, f"The handle {detach.handle} is not attached.")
            self._detached.discard(detach.handle)
            return
        self._drop(link)
        self.channel.send(p.Detach(detach.handle, closed=True))

    # -- outgoing

    def accept_attach(self, attach: p.Attach, link: Link, answer: p.Attach) -> None:
        """Answer an attach and let the link work."""
        self.links[attach.handle] = link
        self.channel.send(answer)
        link.open()

    def refuse_attach(self, attach: p.Attach, error: AmqpError) -> None:
        """An attach without a terminus, and a detach that says why (OASIS AMQP 1.0 part 2, 2.6.3)."""
        answer = attach._replace(
            role=not attach.role,
            source=None,
            target=None,
            unsettled=None,
            initial_delivery_count=0 if attach.role else None,
            properties=None,
            offered_capabilities=None,
            desired_capabilities=None,
        )
        self._detached.add(attach.handle)
        self.channel.send(answer, p.Detach(attach.handle, closed=True, error=p.error_field(error)))

    def detach(self, link: Link, error: AmqpError) -> None:
        """Close a link from our side."""
        if self.links.get(link.handle) is not link:
            return
        self._drop(link)
        self._detached.add(link.handle)
        self.channel.send(p.Detach(link.handle, closed=True, error=p.error_field(error)))

    def end(self, error: AmqpError) -> None:
        self.close()
        self.channel.send(p.End(p.error_field(error)))

    def _drop(self, link: Link) -> None:
        del self.links[link.handle]
        self.channel.forget(link.handle)
        link.close()


def rejected(error: AmqpError) -> p.Rejected:
    """The outcome for a message or settlement that is refused."""
    return p.Rejected(p.error_field(error))
