"""A batch of messages that were not measured is the batch that the SDK would have made."""

from types import SimpleNamespace
from typing import cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.servicebus.message import message_from_event
from cosmos_outbox.servicebus.senders import unmeasured
from tests.support.publishing import event


def some_messages() -> list[ServiceBusMessage]:
    return [
        message_from_event(event(f"a{number}", 1), service=CloudEvents("/test"), partitioned=False)
        for number in range(3)
    ]


def test_the_bytes_are_the_same() -> None:
    measured, quick = ServiceBusMessageBatch(10_000), ServiceBusMessageBatch(10_000)
    for message in some_messages():
        measured.add_message(message)
    with unmeasured(quick):
        for message in some_messages():
            quick.add_message(message)
    assert quick._message == measured._message
    assert quick._amqp_transport is measured._amqp_transport
    assert len(quick) == 3


def test_of_an_sdk_that_has_another_inside_nothing_is_touched() -> None:
    batch = SimpleNamespace(messages=[])
    with unmeasured(cast(ServiceBusMessageBatch, batch)):
        batch.messages.append("measured by the SDK")
    assert vars(batch) == {"messages": ["measured by the SDK"]}
