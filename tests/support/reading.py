"""Messages are read as the wired subscriber reads them."""

from cosmos_outbox.composition.declarations import Subscriber
from cosmos_outbox.inbox.message import MessageReader


def reader_of(subscriber: Subscriber) -> MessageReader:
    return MessageReader(subscriber.aggregate_type, untyped=subscriber.untyped)
