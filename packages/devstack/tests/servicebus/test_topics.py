"""Topics: what a subscription gets, duplicates, and a partitioned topic."""

from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleFilter

from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.message import BATCH_FORMAT
from devstack.testing import Service, eventually
from devstack.testing.amqp import batch, message, raw_client
from servicebus.support import administration, client, new_subscription, new_topic

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly


async def test_each_subscription_gets_what_its_rules_match(servicebus_server: Service) -> None:
    async with new_topic(servicebus_server) as topic, administration(servicebus_server) as admin:
        for name in ("all", "red", "order", "none"):
            await admin.create_subscription(topic, name)
        for name, rule in (
            ("red", SqlRuleFilter("color = 'red' AND size > @least", {"@least": 2})),
            ("order", CorrelationRuleFilter(label="order", properties={"size": 3})),
        ):
            await admin.delete_rule(topic, name, "$Default")
            await admin.create_rule(topic, name, "mine", filter=rule)
        await admin.delete_rule(topic, "none", "$Default")

        async with client(servicebus_server) as sdk, sdk.get_topic_sender(topic) as sender:
            for color, size, subject in (("red", 3, "order"), ("red", 1, "order"), ("blue", 3, "order")):
                properties: dict[str | bytes, object] = {"color": color, "size": size}
                await sender.send_messages(
                    ServiceBusMessage(color, subject=subject, application_properties=properties)  # type: ignore[arg-type] # narrower than the SDK's own type
                )

        counts = {
            name: (await admin.get_subscription_runtime_properties(topic, name)).active_message_count
            for name in ("all", "red", "order", "none")
        }
        assert counts == {"all": 3, "red": 1, "order": 2, "none": 0}
        (rule_found,) = [rule async for rule in admin.list_rules(topic, "red")]
        assert isinstance(rule_found.filter, SqlRuleFilter)
        assert rule_found.filter.sql_expression == "color = 'red' AND size > @least"
        assert rule_found.filter.parameters == {"@least": 2}


async def test_a_duplicate_is_dropped_also_after_the_first_was_consumed(servicebus_server: Service) -> None:
    async with (
        new_subscription(servicebus_server, {"requires_duplicate_detection": True}) as (
            topic,
            subscription,
        ),
        client(servicebus_server) as sdk,
    ):
        async with sdk.get_topic_sender(topic) as sender:
            await sender.send_messages(ServiceBusMessage("first", message_id="same"))
            await sender.send_messages(
                [ServiceBusMessage(text, message_id=text) for text in ("same", "other")]
            )
            async with sdk.get_subscription_receiver(topic, subscription, max_wait_time=5) as receiver:
                for message_ in await receiver.receive_messages(5):
                    await receiver.complete_message(message_)
            await sender.send_messages(ServiceBusMessage("again", message_id="same"))
            await sender.send_messages(ServiceBusMessage("last", message_id="new"))
        async with sdk.get_subscription_receiver(topic, subscription, max_wait_time=5) as receiver:
            assert [str(message_) for message_ in await receiver.receive_messages(5)] == ["last"]


async def test_after_the_window_the_same_id_is_taken_again(servicebus_server: Service) -> None:
    window = timedelta(milliseconds=300)
    properties = {"requires_duplicate_detection": True, "duplicate_detection_history_time_window": window}
    async with (
        new_subscription(servicebus_server, properties) as (topic, subscription),
        raw_client(servicebus_server.port) as raw,
        administration(servicebus_server) as admin,
    ):
        sender = await raw.attach_sender(topic)
        for _ in range(3):
            await raw.deliver(sender, message(message_id="same"))

        async def active() -> int:
            await raw.deliver(sender, message(message_id="same"))
            counts = await admin.get_subscription_runtime_properties(topic, subscription)
            return int(counts.active_message_count or 0)

        assert await active() == 1
        await eventually(lambda: _is(active, 2))


async def _is(count: object, wanted: int) -> bool:
    assert callable(count)
    return bool(await count() == wanted)


async def test_a_partitioned_topic_finds_duplicates_by_key_and_refuses_batches(
    servicebus_server: Service,
) -> None:
    properties = {"requires_duplicate_detection": True, "enable_partitioning": True}
    async with new_subscription(servicebus_server, properties) as (topic, subscription):
        async with client(servicebus_server) as sdk, sdk.get_topic_sender(topic) as sender:
            for key in ("a", "b", "a"):
                await sender.send_messages(ServiceBusMessage(key, message_id="same", partition_key=key))
            with pytest.raises(
                ServiceBusError,
                match="Batching brokered messages with distinct SessionId, PartitionKey, or MessageId",
            ):
                await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        async with administration(servicebus_server) as admin:
            counts = await admin.get_subscription_runtime_properties(topic, subscription)
            assert counts.active_message_count == 2


async def test_a_batch_mixes_sessions_on_a_topic_that_is_not_partitioned(servicebus_server: Service) -> None:
    mixed = [ServiceBusMessage("x", session_id=session) for session in ("a", "b")]
    async with (
        new_subscription(servicebus_server, requires_session=True) as (topic, subscription),
        new_topic(servicebus_server, enable_partitioning=True) as partitioned,
        client(servicebus_server) as sdk,
        administration(servicebus_server) as admin,
    ):
        async with sdk.get_topic_sender(topic) as sender:
            await sender.send_messages(mixed)
        async with sdk.get_topic_sender(partitioned) as sender:
            with pytest.raises(
                ServiceBusError, match=r"distinct SessionId or PartitionKey.*amqp:not-allowed"
            ):
                await sender.send_messages(mixed)
            await sender.send_messages([ServiceBusMessage("x", session_id="a") for _ in range(2)])
        counts = await admin.get_subscription_runtime_properties(topic, subscription)
        assert counts.active_message_count == 2


async def test_a_batch_has_at_most_4500_messages(servicebus_server: Service) -> None:
    async with (
        new_subscription(servicebus_server) as (topic, _),
        raw_client(servicebus_server.port) as raw,
    ):
        sender = await raw.attach_sender(topic)
        most = batch(*[message(b"")] * 4500)
        assert await raw.deliver(sender, most, message_format=BATCH_FORMAT) == p.Accepted()
        more = batch(*[message(b"")] * 4501)
        refused = await raw.deliver(sender, more, message_format=BATCH_FORMAT)
        assert isinstance(refused, p.Rejected)
        assert refused.error is not None
        assert refused.error.condition == "amqp:internal-error"


async def test_an_entity_takes_larger_single_messages_and_1_mb_batches(servicebus_server: Service) -> None:
    properties = {"max_message_size_in_kilobytes": 3 * 1024}
    async with new_subscription(servicebus_server, properties) as (topic, subscription):
        async with administration(servicebus_server) as admin:
            assert (await admin.get_topic(topic)).max_message_size_in_kilobytes == 3 * 1024
        async with client(servicebus_server) as sdk, sdk.get_topic_sender(topic) as sender:
            assert (await sender.create_message_batch()).max_size_in_bytes == 1024 * 1024
            await sender.send_messages(ServiceBusMessage(b"x" * 2_900_000))
            async with sdk.get_subscription_receiver(topic, subscription, max_wait_time=5) as receiver:
                [received] = await receiver.receive_messages(1)
                assert len(b"".join(received.body)) == 2_900_000
            with pytest.raises(MessageSizeExceededError):
                await sender.send_messages(ServiceBusMessage(b"x" * 3 * 1024 * 1024))
        async with raw_client(servicebus_server.port) as raw:
            too_large = batch(message(b"x" * 600_000), message(b"x" * 600_000))
            outcome = await raw.deliver(
                await raw.attach_sender(topic), too_large, message_format=BATCH_FORMAT
            )
            assert isinstance(outcome, p.Rejected)
            assert outcome.error is not None
            assert outcome.error.condition == "amqp:link:message-size-exceeded"


async def test_a_full_topic_refuses_a_send(servicebus_server: Service) -> None:
    async with (
        new_subscription(servicebus_server, {"max_size_in_megabytes": 1}) as (topic, _),
        raw_client(servicebus_server.port) as raw,
    ):
        sender = await raw.attach_sender(topic)
        outcomes = [await raw.deliver(sender, message(b"x" * 250_000)) for _ in range(5)]

        assert outcomes[:4] == [p.Accepted()] * 4
        assert isinstance(outcomes[4], p.Rejected)
        assert outcomes[4].error is not None
        assert outcomes[4].error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    ("properties", "error", "words"),
    [
        ({"correlation_id": "x" * 32_768}, ServiceBusError, "unable to process the request"),
        ({"application_properties": {"one": "x" * 32_768}}, ServiceBusError, "unable to process the request"),
        (
            {"application_properties": dict.fromkeys(("one", "two", "three"), "x" * 22000)},
            MessageSizeExceededError,
            "65536",
        ),
    ],
)
async def test_a_property_over_32_kb_or_properties_over_64_kb_are_refused(
    servicebus_server: Service,
    properties: dict[str, Any],
    error: type[ServiceBusError],
    words: str,
) -> None:
    """The first with an error that reads as if it would pass, as in Azure."""
    within = {"one": "x" * 32_000, "two": "x" * 32_000}
    async with (
        new_subscription(servicebus_server) as (topic, subscription),
        client(servicebus_server, retry_total=0) as sdk,
        sdk.get_topic_sender(topic) as sender,
        administration(servicebus_server) as admin,
    ):
        with pytest.raises(error, match=words) as refusal:
            await sender.send_messages([ServiceBusMessage("good"), ServiceBusMessage("bad", **properties)])
        assert type(refusal.value) is error
        await sender.send_messages(ServiceBusMessage("within", application_properties=within))  # type: ignore[arg-type] # narrower than the SDK's own type

        counts = await admin.get_subscription_runtime_properties(topic, subscription)
        assert counts.active_message_count == 1


async def test_the_topics_time_to_live_limits_that_of_its_subscriptions(servicebus_server: Service) -> None:
    at_once = {"default_message_time_to_live": timedelta(seconds=0.3)}
    async with (
        new_subscription(servicebus_server, at_once) as (topic, subscription),
        client(servicebus_server) as sdk,
        administration(servicebus_server) as admin,
    ):
        async with sdk.get_topic_sender(topic) as sender:
            for ttl in (None, timedelta(hours=1)):
                await sender.send_messages(ServiceBusMessage("old soon", time_to_live=ttl))

        async def gone() -> bool:
            counts = await admin.get_subscription_runtime_properties(topic, subscription)
            return counts.active_message_count == 0

        await eventually(gone)


async def test_a_batch_with_one_bad_message_leaves_nothing(servicebus_server: Service) -> None:
    async with (
        new_subscription(servicebus_server) as (topic, subscription),
        raw_client(servicebus_server.port) as raw,
        administration(servicebus_server) as admin,
    ):
        sender = await raw.attach_sender(topic)
        outcome = await raw.deliver(
            sender, batch(message(b"good"), message(message_id="x" * 129)), message_format=BATCH_FORMAT
        )

        assert isinstance(outcome, p.Rejected)
        counts = await admin.get_subscription_runtime_properties(topic, subscription)
        assert counts.active_message_count == 0
