"""A batch of messages that were not measured is the batch that the SDK would have made."""

from types import SimpleNamespace
from typing import cast

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp import utils
from azure.servicebus.exceptions import MessageSizeExceededError

from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.servicebus import unmeasured as unmeasured_module
from cosmos_outbox.servicebus.message import message_from_event
from cosmos_outbox.servicebus.unmeasured import unmeasured
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


def test_each_message_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is what an update of the SDK may take away: then the relay is slower, and nothing else."""
    encoded = 0
    encode = vars(utils)["encode_payload"]

    def counted(*arguments: object) -> object:
        nonlocal encoded
        encoded += 1
        return encode(*arguments)

    monkeypatch.setattr(utils, "encode_payload", counted)
    batch = ServiceBusMessageBatch(10_000)
    encoded = 0  # an empty batch is encoded too
    with unmeasured(batch):
        for message in some_messages():
            batch.add_message(message)
    assert encoded == 3


def test_a_traced_message_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    # In place of the SDK's own settings: patched there, they are not put back as they were.
    monkeypatch.setattr(unmeasured_module, "settings", SimpleNamespace(tracing_implementation=lambda: object))
    small, large = ServiceBusMessageBatch(200), ServiceBusMessageBatch(10_000)
    with unmeasured(small), pytest.raises(MessageSizeExceededError):
        small.add_message(some_messages()[0])
    with unmeasured(large):
        large.add_message(some_messages()[0])
    assert len(large) == 1


def test_of_an_sdk_that_has_another_inside_nothing_is_touched() -> None:
    batch = SimpleNamespace(messages=[])
    with unmeasured(cast(ServiceBusMessageBatch, batch)):
        batch.messages.append("measured by the SDK")
    assert vars(batch) == {"messages": ["measured by the SDK"]}
