"""``function_app.py`` behaves in Microsoft's runtime as in devstack's host.

All functions are indexed, each kind of trigger takes the host's payload, and a failure reaches the host: the relay's
promises rest on that.
"""

import json
import logging
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from devstack.testing import Service
from tests.runtime.host import TRACE_PARENT, Host
from tests.runtime.protos import StatusResult, TypedData
from tests.support.azure import CONTACTS, Topic, contacts_database
from tests.support.contacts import DETAILS_JSON
from tests.support.paths import ROOT

HTTP_FUNCTIONS = {
    "create_contact", "list_contacts", "get_contact", "patch_contact", "delete_contact", "health",
    "list_stuck", "get_stuck", "retry_stuck", "discard_stuck", "unrouted",
}  # fmt: skip


@pytest.fixture
async def topic(servicebus_server: Service) -> Topic:
    """A topic of the test's own."""
    created = Topic(servicebus_server)
    await created.create()
    return created


@pytest.fixture
async def contacts(
    cosmos_server: Service, servicebus_server: Service, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ContainerProxy]:
    """The container of a deployment that the app's settings lead to."""
    async with contacts_database(cosmos_server) as database:
        for name, value in {
            "COSMOS": cosmos_server.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
        }.items():
            monkeypatch.setenv(name, value)
        yield database.get_container_client(CONTACTS)


@pytest.fixture
async def host() -> Host:
    """The runtime with the app indexed, without any setting: indexing must need none."""
    return await Host.started(ROOT)


async def test_the_runtime_indexes_every_function(host: Host) -> None:
    http = {name for name in host.functions if host.trigger(name)["type"] == "httpTrigger"}
    others = {name: host.trigger(name)["type"] for name in host.functions if name not in http}
    assert http >= HTTP_FUNCTIONS
    assert others.items() >= {"relay": "cosmosDBTrigger", "contact_directory": "serviceBusTrigger"}.items()


async def test_the_host_is_configured_to_retry_the_relay_for_ever(host: Host) -> None:
    retry = host.functions["relay"].retry_options
    assert (retry.retry_strategy, retry.max_retry_count) == ("exponential_backoff", -1)
    assert (retry.minimum_interval, retry.maximum_interval) == (timedelta(seconds=1), timedelta(minutes=1))


async def test_the_host_gets_how_to_read_the_feed_and_the_subscription(host: Host) -> None:
    feed, subscription = host.trigger("relay"), host.trigger("contact_directory")
    assert (feed["connection"], feed["containerName"]) == ("COSMOS", "contacts")
    assert (feed["startFromBeginning"], feed["createLeaseContainerIfNotExists"]) == (True, False)
    assert (subscription["connection"], subscription["isSessionsEnabled"]) == ("SERVICEBUS", True)
    assert subscription["subscriptionName"] == "contact-directory"


@pytest.mark.usefixtures("contacts")
async def test_a_contact_is_created_read_changed_and_deleted_over_http(host: Host) -> None:
    created = await host.call("create_contact", "POST", "contacts", DETAILS_JSON)
    assert created.status_code == "201"
    contact = json.loads(created.text)
    path, params = f"contacts/{contact['id']}", {"id": contact["id"]}
    assert created.headers["location"] == f"/api/{path}"

    read = await host.call("get_contact", "GET", path, params=params)
    assert (read.status_code, json.loads(read.text)["name"]) == ("200", DETAILS_JSON["name"])
    version = {"if-none-match": read.headers["etag"]}
    same = await host.call("get_contact", "GET", path, params=params, headers=version)
    assert (same.status_code, same.text) == ("304", "")

    patch = {"name": {"firstName": "Jane"}, "description": None}
    changed = await host.call("patch_contact", "PATCH", path, patch, params=params)
    assert changed.status_code == "200"
    assert json.loads(changed.text)["name"] == {"firstName": "Jane", "lastName": "Doe"}

    stale = {"if-match": read.headers["etag"]}
    late = await host.call("patch_contact", "PATCH", path, patch, params=params, headers=stale)
    assert late.status_code == "412"

    page = await host.call("list_contacts", "GET", "contacts?pageSize=10")
    assert [item["id"] for item in json.loads(page.text)["items"]] == [contact["id"]]

    deleted = await host.call("delete_contact", "DELETE", path, params=params)
    assert (deleted.status_code, deleted.text) == ("204", "")
    assert (await host.call("get_contact", "GET", path, params=params)).status_code == "404"


async def feed(contacts: ContainerProxy) -> list[dict[str, Any]]:
    """What the trigger's feed has, system properties included, in the awkward order."""
    found = [dict(item) async for item in contacts.query_items_change_feed(start_time="Beginning")]
    return sorted(found, key=lambda item: item["type"] == "domainEvent" and -item["data"]["sequence"])


async def two_changes(host: Host) -> str:
    """The id of a contact that was created, and then changed in two ways at once."""
    created = await host.call("create_contact", "POST", "contacts", DETAILS_JSON)
    contact_id = str(json.loads(created.text)["id"])
    patch = {"name": {"firstName": "Jane"}, "email": "jane@contoso.com"}
    changed = await host.call(
        "patch_contact", "PATCH", f"contacts/{contact_id}", patch, params={"id": contact_id}
    )
    assert changed.status_code == "200"
    return contact_id


@pytest.mark.parametrize("kind", ["json", "string"])
async def test_the_relay_takes_the_feed_as_the_host_sends_it(
    kind: str, host: Host, contacts: ContainerProxy, topic: Topic
) -> None:
    contact_id = await two_changes(host)
    documents = await feed(contacts)
    assert [item["type"] for item in documents].count("domainEvent") == 3
    relayed = await host.invoke("relay", TypedData(**{kind: json.dumps(documents)}), {})
    assert relayed.result.status == StatusResult.Success, relayed.result.exception.message

    messages = await topic.receive(contact_id, 3)
    assert [message.application_properties[b"sequence"] for message in messages] == [1, 2, 3]  # type: ignore[index]  # every message has some
    assert messages[0].subject == "ContactCreatedEvent"
    traces = {message.application_properties[b"traceparent"] for message in messages}  # type: ignore[index]
    assert traces == {TRACE_PARENT.encode()}, "the host's own, since the caller sent none"
    assert {message.message_id for message in messages} == {
        item["id"] for item in documents if item["type"] == "domainEvent"
    }

    again = await host.invoke("relay", TypedData(**{kind: json.dumps(documents)}), {})
    assert again.result.status == StatusResult.Success
    assert await topic.is_empty(contact_id)


async def test_a_batch_neither_sent_nor_parked_fails_and_so_comes_again(
    host: Host, contacts: ContainerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSMOS_PARKED_CONTAINER", "not-there")
    await two_changes(host)
    relayed = await host.invoke("relay", TypedData(json=json.dumps(await feed(contacts))), {})
    assert relayed.result.status == StatusResult.Failure
    assert relayed.result.exception.message.startswith("NotDelivered: the parked events cannot be read: ")


def message(event: Mapping[str, Any], session: str, **also: str) -> tuple[TypedData, dict[str, TypedData]]:
    """A message and its metadata as the Service Bus extension 5.x describes them to the worker."""
    properties = {
        "sequence": event["sequence"], "cloudEvents_type": event["action"], "cloudEvents_subject": session, **also
    }  # fmt: skip
    texts = {
        "MessageId": event["id"],
        "SessionId": session,
        "PartitionKey": session,
        "Subject": event["action"],
        "Label": event["action"],
        "ContentType": "application/json",
        "CorrelationId": "request-1",
        "LockToken": "5d5b3a5e-7c0f-4c8e-9d0e-0d9a1f6f6a11",
    }
    others = {
        "DeliveryCount": 1,
        "SequenceNumber": 7,
        "EnqueuedTimeUtc": "2026-03-01T12:00:00.123Z",
        "EnqueuedTime": "2026-03-01T12:00:00.123Z",
        "ExpiresAtUtc": "9999-12-31T23:59:59.9999999Z",
        "ExpiresAt": "9999-12-31T23:59:59.9999999Z",
        "ApplicationProperties": properties,
        "UserProperties": properties,
        "MessageReceiver": {},
        "MessageActions": {},
    }
    metadata = {name: TypedData(string=value) for name, value in texts.items()}
    metadata |= {name: TypedData(json=json.dumps(value)) for name, value in others.items()}
    return TypedData(string=json.dumps(event)), metadata


EVENT = {
    "id": "d6a5f4b2-6c2e-4d1c-8a63-1d6a0c8f9b10",
    "contactId": "b5e2e7aa-1f0e-4f57-9f0e-3f2f6d1a7c11",
    "action": "ContactNameUpdatedEvent",
    "sequence": 2,
    "createdAt": "2026-03-01T12:00:00Z",
    "name": {"firstName": "Jane", "lastName": "Doe"},
}


@pytest.mark.parametrize("properties", [{"aggregateType": "contact"}, {}], ids=["named", "as before"])
async def test_the_subscriber_takes_a_message_as_the_host_sends_it(
    host: Host, contacts: ContainerProxy, caplog: pytest.LogCaptureFixture, properties: dict[str, str]
) -> None:
    contact_id = await two_changes(host)
    event = EVENT | {"contactId": contact_id}
    with caplog.at_level(logging.INFO, "cosmos_outbox.inbox.receiver"):
        received = await host.invoke("contact_directory", *message(event, contact_id, **properties))
    assert received.result.status == StatusResult.Success, received.result.exception.message
    lines = [
        record.getMessage() for record in caplog.records if record.name == "cosmos_outbox.inbox.receiver"
    ]
    assert (
        f"received {event['action']} {event['id']} of contact {contact_id}, sequence 2 [request-1]" in lines
    )
    listed = await host.call("search_directory", "GET", "directory")
    assert [item["id"] for item in json.loads(listed.text)["items"]] == [contact_id]


async def test_a_message_that_is_no_event_is_kept_as_refused_and_done(
    host: Host, contacts: ContainerProxy
) -> None:
    _, metadata = message(EVENT, str(EVENT["contactId"]))
    received = await host.invoke("contact_directory", TypedData(string='{"id": 1}'), metadata)
    assert received.result.status == StatusResult.Success, received.result.exception.message
    listed = await host.call("list_stuck", "GET", "stuck")
    [record] = json.loads(listed.text)["items"]
    assert record["state"] == "refused"
