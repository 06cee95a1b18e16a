"""Entities that forward, and rules that change what they copy, through the SDK's clients."""

import itertools
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

from devstack.servicebus.broker.sql_action import Changes, compile_action
from devstack.servicebus.broker.sql_nodes import Properties
from devstack.testing import Service
from servicebus.support import administration, client, new_queue, new_subscription, new_topic, unique


async def received(sdk: ServiceBusClient, *address: str, **options: Any) -> list[ServiceBusReceivedMessage]:
    """All that is there, peeked."""
    receiver = (sdk.get_queue_receiver if len(address) == 1 else sdk.get_subscription_receiver)(
        *address, **options
    )
    async with receiver:
        return await receiver.peek_messages(20)


async def test_a_message_goes_on_to_where_its_queue_forwards(servicebus_server: Service) -> None:
    async with (
        new_subscription(servicebus_server) as (topic, subscription),
        new_queue(servicebus_server, forward_to=topic) as second,
        new_queue(servicebus_server, forward_to=second) as first,
        client(servicebus_server) as sdk,
    ):
        async with sdk.get_topic_sender(topic) as direct, sdk.get_queue_sender(first) as sender:
            await direct.send_messages(ServiceBusMessage("not forwarded"))
            await sender.send_messages(ServiceBusMessage("x", message_id="m"))

        _, message = await received(sdk, topic, subscription)
        assert (str(message), message.message_id, message.dead_letter_source) == ("x", "m", None)
        assert (message.sequence_number, message.enqueued_sequence_number) == (2, 1)
        async with administration(servicebus_server) as admin:
            assert (await admin.get_queue_runtime_properties(first)).total_message_count == 0
        with pytest.raises(ServiceBusError, match="forwards its messages"):
            async with sdk.get_queue_receiver(first) as receiver:
                await receiver.receive_messages(max_wait_time=1)


async def test_what_waits_is_forwarded_once_the_queue_forwards(servicebus_server: Service) -> None:
    async with (
        new_queue(servicebus_server) as target,
        new_queue(servicebus_server) as source,
        client(servicebus_server) as sdk,
        administration(servicebus_server) as admin,
    ):
        async with sdk.get_queue_sender(source) as sender:
            await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        properties = await admin.get_queue(source)
        properties.forward_to = target
        await admin.update_queue(properties)

        assert [str(message) for message in await received(sdk, target)] == ["1", "2"]
        assert str((await admin.get_queue(source)).forward_to).endswith(f"/{target}")


async def test_a_forwarded_dead_letter_has_its_source(servicebus_server: Service) -> None:
    async with (
        new_queue(servicebus_server) as graveyard,
        new_queue(servicebus_server, forward_dead_lettered_messages_to=graveyard) as queue,
        client(servicebus_server) as sdk,
    ):
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        async with sdk.get_queue_receiver(queue, max_wait_time=5) as receiver:
            (message,) = await receiver.receive_messages()
            await receiver.dead_letter_message(message, reason="why")

        (dead,) = await received(sdk, graveyard)
        assert (dead.dead_letter_source, dead.dead_letter_reason) == (queue, "why")


async def test_what_cannot_be_forwarded_is_a_dead_letter_where_it_was(servicebus_server: Service) -> None:
    async with (
        new_queue(servicebus_server, requires_session=True) as sessions,
        new_queue(servicebus_server, forward_to=sessions) as source,
        client(servicebus_server) as sdk,
        administration(servicebus_server) as admin,
    ):
        names = [unique("hop") for _ in range(6)]
        await admin.create_queue(names[5])
        for name, target in reversed(list(itertools.pairwise(names))):
            await admin.create_queue(name, forward_to=target)
        for name in (source, names[0]):
            async with sdk.get_queue_sender(name) as sender:
                await sender.send_messages(ServiceBusMessage("x"))

        (without_session,) = await received(sdk, source, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        (too_far,) = await received(sdk, names[4], sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert without_session.dead_letter_reason == "amqp:not-allowed"
        assert "forwarded at most 4 times" in str(too_far.dead_letter_error_description)
        assert await received(sdk, names[5]) == []


async def test_each_matching_rule_with_an_action_makes_a_copy_of_its_own(servicebus_server: Service) -> None:
    async with (
        new_topic(servicebus_server) as topic,
        client(servicebus_server) as sdk,
        administration(servicebus_server) as admin,
    ):
        await admin.create_subscription(topic, "s")
        for name, expression in (
            ("green", "SET color = 'green'; REMOVE size; SET sys.Label = 'painted'"),
            ("bigger", "SET Size = size + 1"),
        ):
            await admin.create_rule(
                topic, "s", name, filter=SqlRuleFilter("color = 'red'"), action=SqlRuleAction(expression)
            )
        async with sdk.get_topic_sender(topic) as sender:
            await sender.send_messages(
                ServiceBusMessage("x", application_properties={"color": "red", "size": 6}, subject="plain")
            )

        copies = {
            (message.subject, tuple(sorted((message.application_properties or {}).items())))
            for message in await received(sdk, topic, "s")
        }
        assert copies == {
            ("plain", ((b"color", b"red"), (b"size", 6))),
            ("painted", ((b"color", b"green"),)),
            ("plain", ((b"color", b"red"), (b"size", 7))),
        }
        rule = await admin.get_rule(topic, "s", "bigger")
        assert isinstance(rule.action, SqlRuleAction)
        assert rule.action.sql_expression == "SET Size = size + 1"


async def test_a_subscription_regroups_its_sessions(servicebus_server: Service) -> None:
    async with (
        new_topic(servicebus_server) as topic,
        client(servicebus_server) as sdk,
        administration(servicebus_server) as admin,
    ):
        for name in ("buckets", "owners", "none"):
            await admin.create_subscription(topic, name, requires_session=True)
        for name, expression in (("owners", "SET sys.SessionId = owner"), ("none", "REMOVE sys.SessionId")):
            await admin.delete_rule(topic, name, "$Default")
            await admin.create_rule(topic, name, "r", action=SqlRuleAction(expression))
        async with sdk.get_topic_sender(topic) as sender:
            for number, owner in enumerate("abab"):
                await sender.send_messages(
                    ServiceBusMessage(str(number), session_id="2-0", application_properties={"owner": owner})
                )

        found = {
            (name, session): [str(each) for each in await received(sdk, topic, name, session_id=session)]
            for name, session in (("buckets", "2-0"), ("owners", "a"), ("owners", "b"), ("owners", "2-0"))
        }
        assert found == {
            ("buckets", "2-0"): ["0", "1", "2", "3"],
            ("owners", "a"): ["0", "2"],
            ("owners", "b"): ["1", "3"],
            ("owners", "2-0"): [],
        }
        dead = await received(sdk, topic, "none", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert {each.dead_letter_reason for each in dead} == {"Session id is null."}


def test_statements_see_what_those_before_them_did() -> None:
    action = compile_action("SET a = @start; SET b = a + 1; REMOVE a; SET c = EXISTS(a);", {"@start": 1})

    assert action(Properties({}, {})) == Changes({"a": None, "b": 2, "c": False}, {})


@pytest.mark.parametrize(
    "expression",
    ["", ";", "SET", "SET a", "SET a = ", "DELETE a", "REMOVE a REMOVE", "SET sys.MessageId = '1'"],
)
def test_an_action_that_is_not_supported_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"rule action|SQL filter"):
        compile_action(expression, {})
