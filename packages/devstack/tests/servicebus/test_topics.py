"""Topics: what a subscription gets, duplicates, and a partitioned topic."""

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleFilter

from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.message import BATCH_FORMAT
from devstack.testing import Service, eventually
from devstack.testing.amqp import batch, message, raw_client
from servicebus.support import administration, client, new_subscription, new_topic


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


async def test_a_partitioned_topic_tells_duplicates_by_key_and_refuses_batches(
    servicebus_server: Service,
) -> None:
    properties = {"requires_duplicate_detection": True, "enable_partitioning": True}
    async with new_subscription(servicebus_server, properties) as (topic, subscription):
        async with client(servicebus_server) as sdk, sdk.get_topic_sender(topic) as sender:
            for key in ("a", "b", "a"):
                await sender.send_messages(ServiceBusMessage(key, message_id="same", partition_key=key))
            with pytest.raises(ServiceBusError, match="Batching is not supported"):
                await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        async with administration(servicebus_server) as admin:
            counts = await admin.get_subscription_runtime_properties(topic, subscription)
            assert counts.active_message_count == 2


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
