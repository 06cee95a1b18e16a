"""What the clients for .NET and JavaScript say on the wire and Python's does not: frames as their sources send them."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_as
from devstack.servicebus.codec.decode import decode_list
from devstack.servicebus.codec.message import (
    parse,
    raw_application_properties,
    read_application_properties,
    read_properties,
)
from devstack.servicebus.codec.values import Array, Described, Int, Raw, Symbol
from devstack.testing import Service
from devstack.testing.amqp import Delivery, RawClient, batch, message, raw_client, raw_socket
from servicebus.support import administration, new_queue, new_subscription
from servicebus.test_security import anonymous, put_token, sas

ABANDON = p.Modified(delivery_failed=False, undeliverable_here=False)
"""As rhea and Microsoft.Azure.Amqp send it: ``delivery-failed`` is not set."""

EVERY_RULE = {"top": Int(2**31 - 1), "skip": Int(0)}


@pytest.fixture
async def raw(servicebus_server: Service) -> AsyncIterator[RawClient]:
    async with raw_client(servicebus_server.port) as connected:
        yield connected


async def send(raw: RawClient, address: str, *messages: bytes) -> None:
    handle = await raw.attach_sender(address)
    assert await raw.deliver(handle, batch(*messages), message_format=0x80013700) == p.Accepted()


def delivery_count(delivery: Delivery) -> int:
    """The fifth field of the header."""
    fields, _ = decode_list(delivery.message.raw, 3)
    count = fields[4]
    assert isinstance(count, int)
    return count


# -- abandoning


async def test_every_abandon_counts_and_a_poison_message_becomes_a_dead_letter(
    servicebus_server: Service, raw: RawClient
) -> None:
    async with new_queue(servicebus_server, max_delivery_count=3) as queue:
        await send(raw, queue, message(b"poison"))
        receiver = (await raw.attach_receiver(queue)).handle
        counts = []
        for number in range(3):
            raw.credit(receiver, 1, delivery_count=number)
            delivery = await raw.receive()
            counts.append(delivery_count(delivery))
            assert isinstance(await raw.settle(delivery, ABANDON), p.Modified)
        raw.credit(receiver, 1, delivery_count=3)
        assert await raw.nothing_arrives()

        dead = (await raw.attach_receiver(f"{queue}/$deadletterqueue")).handle
        raw.credit(dead, 1)
        assert counts == [0, 1, 2]
        assert read_application_properties((await raw.receive()).message)["DeadLetterReason"] == (
            "MaxDeliveryCountExceeded"
        )


async def test_a_release_does_not_count(servicebus_server: Service, raw: RawClient) -> None:
    async with new_queue(servicebus_server) as queue:
        await send(raw, queue, message())
        receiver = (await raw.attach_receiver(queue)).handle
        raw.credit(receiver, 1)
        await raw.settle(await raw.receive(), p.Released())
        raw.credit(receiver, 1, delivery_count=1)

        assert delivery_count(await raw.receive()) == 0


async def test_an_abandoned_deferred_message_stays_deferred_and_is_counted(
    servicebus_server: Service, raw: RawClient
) -> None:
    """As the JavaScript SDK's own tests of deferred messages expect it of the service."""
    async with new_queue(servicebus_server) as queue:
        await send(raw, queue, message())
        receiver = (await raw.attach_receiver(queue)).handle
        raw.credit(receiver, 1)
        await raw.settle(await raw.receive(), p.Modified(undeliverable_here=True))
        asked = {"sequence-numbers": Array((1,)), "receiver-settle-mode": 1}
        node = f"{queue}/$management"
        _, first, _ = await raw.request(node, "com.microsoft:receive-by-sequence-number", asked)
        token = first["messages"][0]["lock-token"]
        await raw.request(
            node,
            "com.microsoft:update-disposition",
            {"disposition-status": "abandoned", "lock-tokens": Array((token,))},
        )
        status, _, _ = await raw.request(node, "com.microsoft:receive-by-sequence-number", asked)

        async with administration(servicebus_server) as admin:
            counts = await admin.get_queue_runtime_properties(queue)
        assert status == 200
        assert counts.active_message_count == 1


# -- properties that are changed

CHANGES: dict[str, bytes] = {
    "int": bytes.fromhex("7100030d40"),
    "small int": bytes.fromhex("5405"),
    "uint": bytes.fromhex("70000003e8"),
    "ulong": bytes.fromhex("80ffffffffffffffff"),
    "ubyte": bytes.fromhex("50ff"),
    "byte": bytes.fromhex("51ff"),
    "ushort": bytes.fromhex("6000ff"),
    "short": bytes.fromhex("61ffff"),
    "long": bytes.fromhex("81000000e8d4a51000"),
    "float": bytes.fromhex("723fc00000"),
    "char": bytes.fromhex("7300000041"),
    "decimal": bytes.fromhex("940c400000000000000000000000000017"),
}
"""What .NET's and Java's clients write for int, uint, short, float, decimal and so on, each with its own AMQP type."""


def changes(name: object = str) -> dict[Any, Any]:
    return {Symbol(key) if name is Symbol else key: Raw(value) for key, value in CHANGES.items()}


@pytest.mark.parametrize(
    ("outcome", "sub_queue"),
    [
        (ABANDON._replace(message_annotations=changes(Symbol)), ""),
        (p.Modified(undeliverable_here=True, message_annotations=changes(Symbol)), ""),
        (p.Rejected(p.ErrorField("com.microsoft:dead-letter", None, changes(Symbol))), "/$deadletterqueue"),
    ],
    ids=["abandon", "defer", "dead-letter"],
)
async def test_a_changed_message_keeps_the_type_of_each_value(
    servicebus_server: Service, raw: RawClient, outcome: Any, sub_queue: str
) -> None:
    async with new_queue(servicebus_server) as queue:
        await send(raw, queue, message())
        receiver = (await raw.attach_receiver(queue)).handle
        raw.credit(receiver, 1)
        await raw.settle(await raw.receive(), outcome)

        peeked = await peek(raw, queue + sub_queue)

        assert {name: peeked.get(name) for name in CHANGES} == CHANGES


async def test_a_change_through_management_keeps_the_type_of_each_value(
    servicebus_server: Service, raw: RawClient
) -> None:
    async with new_queue(servicebus_server) as queue:
        await send(raw, queue, message())
        receiver = (await raw.attach_receiver(queue)).handle
        raw.credit(receiver, 1)
        token = uuid.UUID(bytes_le=(await raw.receive()).tag)
        await raw.request(
            f"{queue}/$management",
            "com.microsoft:update-disposition",
            {
                "disposition-status": "abandoned",
                "lock-tokens": Array((token,)),
                "properties-to-modify": changes(),
            },
        )

        peeked = await peek(raw, queue)

        assert {name: peeked.get(name) for name in CHANGES} == CHANGES


async def peek(raw: RawClient, queue: str) -> dict[str, bytes]:
    """The application properties of the queue's first message, encoded."""
    asked = {"from-sequence-number": 0, "message-count": Int(1)}
    _, answer, _ = await raw.request(f"{queue}/$management", "com.microsoft:peek-message", asked)
    return raw_application_properties(parse(answer["messages"][0]["message"]))


# -- links on AMQP sessions of their own


async def test_session_operations_work_from_another_amqp_session(
    servicebus_server: Service, raw: RawClient
) -> None:
    async with new_queue(servicebus_server, requires_session=True) as queue:
        await send(raw, queue, message(b"deferred", session_id="s"), message(b"2", session_id="s"))
        attached = await raw.attach_receiver(queue, session="s")
        raw.credit(attached.handle, 1)
        await raw.settle(await raw.receive(), p.Modified(undeliverable_here=True))
        await raw.begin(channel=1)
        node, link = f"{queue}/$management", {"associated-link-name": attached.name}

        async def ask(operation: str, body: dict[str, Any], **properties: Any) -> tuple[int, Any]:
            status, answer, _ = await raw.request(
                node, f"com.microsoft:{operation}", {"session-id": "s", **body}, **properties
            )
            return status, answer

        assert (await ask("set-session-state", {"session-state": b"state"}, **link))[0] == 200
        assert await ask("get-session-state", {}) == (200, {"session-state": b"state"})
        assert (await ask("renew-session-lock", {}, **link))[0] == 200
        peeked = await ask("peek-message", {"from-sequence-number": 0, "message-count": Int(5)}, **link)
        assert len(peeked[1]["messages"]) == 2
        numbers = {"sequence-numbers": Array((1,)), "receiver-settle-mode": 1}
        status, deferred = await ask("receive-by-sequence-number", numbers, **link)
        assert status == 200
        tokens = {
            "disposition-status": "completed",
            "lock-tokens": Array((deferred["messages"][0]["lock-token"],)),
        }
        assert (await ask("update-disposition", tokens, **link))[0] == 200
        assert (await ask("renew-session-lock", {}, **{"associated-link-name": "another"}))[0] == 410


async def test_the_lock_of_another_connection_is_not_ones_own(
    servicebus_server: Service, raw: RawClient
) -> None:
    async with new_queue(servicebus_server, requires_session=True) as queue:
        attached = await raw.attach_receiver(queue, session="s")
        async with raw_client(servicebus_server.port) as other:
            answers = [
                await other.request(
                    f"{queue}/$management",
                    "com.microsoft:renew-session-lock",
                    {"session-id": "s"},
                    **properties,
                )
                for properties in ({}, {"associated-link-name": attached.name})
            ]

        assert [(status, condition) for status, _, condition in answers] == [
            (410, "com.microsoft:session-lock-lost")
        ] * 2


# -- tokens


@pytest.mark.parametrize("suffix", ["", "/$management"])
async def test_a_token_for_an_entity_or_for_its_management_covers_both(
    servicebus_server: Service, suffix: str
) -> None:
    async with new_queue(servicebus_server) as queue, raw_socket(servicebus_server.port) as raw:
        await anonymous(raw)
        name = f"{queue}{suffix}"
        assert await put_token(raw, sas(f"sb://localhost/{name}"), name) == 202

        status, _, _ = await raw.request(
            f"{queue}/$management",
            "com.microsoft:peek-message",
            {"from-sequence-number": 0, "message-count": Int(1)},
        )
        await raw.attach_sender(queue)

        assert status == 204
        with pytest.raises(AssertionError, match="unauthorized-access"):
            await raw.attach_sender(f"{queue}2")


# -- message ids


@pytest.mark.parametrize(
    "sent",
    [
        e.described(0x75, e.binary(b"x")),
        e.described(0x73, b"\x45") + e.described(0x75, e.binary(b"x")),
        e.described(0x73, e.encode_list([b"\x40", b"\x40", e.string("to")]))
        + e.described(0x75, e.binary(b"x")),
        message(b"x", session_id="s"),
    ],
)
async def test_a_message_without_an_id_gets_one_and_keeps_the_rest(
    servicebus_server: Service, raw: RawClient, sent: bytes
) -> None:
    async with new_subscription(servicebus_server) as (topic, name):
        async with administration(servicebus_server) as admin:
            await admin.create_subscription(topic, "other")
        await raw.deliver(await raw.attach_sender(topic), sent)
        arrived = []
        for subscription in (name, "other"):
            receiver = (await raw.attach_receiver(f"{topic}/Subscriptions/{subscription}")).handle
            raw.credit(receiver, 1)
            arrived.append(await raw.receive())

        found = [read_properties(delivery.message) for delivery in arrived]
        assert found[0] == found[1]
        assert uuid.UUID(found[0].pop("message-id")).version == 4
        assert found[0] in ({}, {"to": "to"}, {"group-id": "s"})
        assert arrived[0].body == b"x"


# -- rules


async def test_rules_are_added_listed_and_removed_over_amqp(
    servicebus_server: Service, raw: RawClient
) -> None:
    async with new_subscription(servicebus_server) as (topic, name):
        node = f"{topic}/Subscriptions/{name}/$management"
        correlation = {
            "correlation-id": "c",
            "message-id": None,
            "label": "order",
            "properties": {"color": "red"},
        }
        sql = {"sql-filter": {"expression": "a = 1"}, "sql-rule-action": {"expression": "SET b = 2"}}
        for rule, description in (("sql", sql), ("correlation", {"correlation-filter": correlation})):
            asked = {"rule-name": rule, "rule-description": description}
            assert (await raw.request(node, "com.microsoft:add-rule", asked))[0] == 200
        status, answer, _ = await raw.request(node, "com.microsoft:enumerate-rules", EVERY_RULE)

        assert status == 200
        rules = {rule["rule-name"]: rule["rule-description"] for rule in answer["rules"]}
        assert list(rules) == ["$Default", "sql", "correlation"]
        assert all(rule.descriptor == 0x13700000004 for rule in rules.values())
        assert rules["$Default"].value[:3] == [
            Described(0x1370000007, []),
            Described(0x13700000005, []),
            "$Default",
        ]
        assert rules["sql"].value[:2] == [
            Described(0x1370000006, ["a = 1", 20]),
            Described(0x13700000006, ["SET b = 2", 20]),
        ]
        assert rules["correlation"].value[0] == Described(
            0x1370000009, ["c", None, None, None, "order", None, None, None, {"color": "red"}]
        )
        async with administration(servicebus_server) as admin:
            assert {rule.name async for rule in admin.list_rules(topic, name)} == set(rules)

        for rule in rules:
            removed, _, _ = await raw.request(node, "com.microsoft:remove-rule", {"rule-name": rule})
            assert removed == 200
        status, _, _ = await raw.request(node, "com.microsoft:enumerate-rules", EVERY_RULE)
        assert status == 204


async def test_a_rule_that_cannot_be_is_refused_over_amqp(servicebus_server: Service, raw: RawClient) -> None:
    async with new_subscription(servicebus_server) as (topic, name):
        node = f"{topic}/Subscriptions/{name}/$management"
        add = "com.microsoft:add-rule"
        everything = {"sql-filter": {"expression": "1=1"}}
        wrong = {"sql-filter": {"expression": "a ~ 1"}}
        binary = {"correlation-filter": {"properties": {"a": b"\xff"}}}

        async def refusal(operation: str, body: dict[str, Any], at: str = node) -> tuple[int, str | None]:
            status, _, condition = await raw.request(at, operation, body)
            return status, condition

        assert await refusal(add, {"rule-name": "$default", "rule-description": everything}) == (
            409,
            "com.microsoft:entity-already-exists",
        )
        assert await refusal(add, {"rule-name": "r", "rule-description": wrong}) == (
            400,
            "com.microsoft:argument-error",
        )
        for description in ({}, binary):
            assert await refusal(add, {"rule-name": "r", "rule-description": description}) == (
                400,
                "com.microsoft:argument-error",
            )
        assert await refusal("com.microsoft:remove-rule", {"rule-name": "none"}) == (404, "amqp:not-found")
        assert await refusal(
            add, {"rule-name": "r", "rule-description": everything}, f"{topic}/$management"
        ) == (400, "amqp:not-allowed")


# -- refusals


async def test_a_receiver_of_the_wrong_kind_gets_the_services_error(
    servicebus_server: Service, raw: RawClient
) -> None:
    async with (
        new_queue(servicebus_server) as plain,
        new_queue(servicebus_server, requires_session=True) as sessions,
    ):
        for address, session in ((plain, "s"), (plain, None), (sessions, False)):
            attached = await raw.attach_receiver(address, session=session)
            error = read_as(p.ErrorField, (await raw.expect(p.Detach)).error)
            assert attached.source is None
            assert error is not None
            assert error.condition == "amqp:not-allowed"
            assert error.description is not None
            assert "sessionful message receiver" in error.description


async def test_a_deleted_entity_detaches_receivers_with_the_expected_words(
    servicebus_server: Service, raw: RawClient
) -> None:
    async with new_queue(servicebus_server) as queue:
        await raw.attach_receiver(queue)
    error = read_as(p.ErrorField, (await raw.expect(p.Detach)).error)
    assert error is not None
    assert error.condition == "amqp:not-found"
    assert error.description is not None
    assert error.description.startswith(f"The messaging entity '{queue}' could not be found.")
