"""A container or topic that does not exist is reported by its own name, with what to do; nothing else is blamed."""

import asyncio
import time

import pytest
from azure.cosmos.aio import CosmosClient
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, Kind, classify
from cosmos_outbox.outbox.publisher import CloudEvents, Unknown
from cosmos_outbox.servicebus.inspection import try_sending
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.settings.errors import CannotCheck, Misconfigured
from cosmos_outbox.settings.transports import servicebus_of
from devstack.testing import Service, eventually
from infra.bootstrap import service as contact_service
from tests.support.azure import (
    CONTACTS,
    Topic,
    contacts_database,
    cosmos_connection,
    servicebus_connection,
)
from tests.support.publishing import event, publish


@pytest.mark.parametrize("missing", ["parked eventś", "no-claims"])
async def test_a_missing_container_is_reported_by_its_own_name(cosmos_server: Service, missing: str) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        container = Container(client, database.id, missing)
        with pytest.raises(Misconfigured, match=f"container {missing} of database {database.id}") as raised:
            await container.check()
        for other in ("COSMOS_LEASE_CONTAINER", "COSMOS_CLAIM_CONTAINER", CONTACTS):
            assert other not in str(raised.value)
        assert "create" in str(raised.value)

        with pytest.raises(StoreFailed) as failed:
            await container.execute("p", [Write.create({"id": "i", "partitionKey": "p"})])
        assert failed.value.failure.kind is Kind.NO_CONTAINER
        assert missing in str(failed.value.failure.passing())


async def test_a_container_deleted_while_it_is_used_is_reported_by_its_name(cosmos_server: Service) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        container = Container(client, database.id, CONTACTS)
        await container.check()
        await database.delete_container(CONTACTS)
        with pytest.raises(Misconfigured, match=f"container {CONTACTS} of database {database.id}"):
            await container.check()
        for call in (
            lambda: container.read("i", "p"),
            lambda: container.execute("p", [Write.create({"id": "i", "partitionKey": "p"})]),
            lambda: container.page("SELECT * FROM c", {}, 10, None, partition_key="p"),
        ):
            with pytest.raises(StoreFailed) as failed:
                await call()
            assert f"container {CONTACTS} of database {database.id}" in str(failed.value.failure.error())


async def test_a_missing_database_is_reported_with_the_wanted_container(cosmos_server: Service) -> None:
    async with CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client:
        with pytest.raises(Misconfigured, match="container contacts of database no-such-database"):
            await Container(client, "no-such-database", "contacts").check()


async def test_the_sdks_own_clients_show_it_too(cosmos_server: Service) -> None:
    """As the relay worker uses them for the feed and the leases."""
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        leases = client.get_database_client(database.id).get_container_client("my-leases")
        with pytest.raises(SDK_ERRORS) as error:
            await leases.create_item({"id": "i", "partitionKey": "p"})
        assert f"container my-leases of database {database.id}" in str(classify(error.value).error())


async def test_an_item_that_does_not_exist_is_no_missing_container(cosmos_server: Service) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        assert await Container(client, database.id, CONTACTS).read("i", "p") is None


async def test_a_missing_topic_is_reported_as_what_it_is(servicebus_server: Service) -> None:
    connection = servicebus_connection(servicebus_server)
    async with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        publisher = ServiceBusPublisher(
            client, "no-such-topic", service=CloudEvents("/test"), partitioned=False, senders=2
        )
        [outcome] = await publish(publisher, [event("a", 1)])
        await publisher.close()
    assert isinstance(outcome, Unknown)
    assert "topic no-such-topic (SERVICEBUS_TOPIC) does not exist" in outcome.reason
    assert "create it" in outcome.reason
    assert "key" not in outcome.reason


async def test_a_look_at_a_missing_topic_says_so_too(servicebus_server: Service) -> None:
    settings = contact_service.settings(
        {"COSMOS": "AccountEndpoint=x;AccountKey=y;", "SERVICEBUS": servicebus_connection(servicebus_server)}
    )
    with pytest.raises(CannotCheck, match="topic no-such-topic does not exist"):
        await try_sending(
            servicebus_of(settings.transport).connection, None, "no-such-topic", seconds=20, is_queue=False
        )


async def test_a_topic_deleted_under_open_links_is_reported_as_missing(servicebus_server: Service) -> None:
    topic = Topic(servicebus_server)
    await topic.create()
    connection = servicebus_connection(servicebus_server)
    async with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        publisher = ServiceBusPublisher(
            client, topic.name, service=CloudEvents("/test"), partitioned=False, senders=2
        )
        await publish(publisher, [event("a", 1)])
        await topic.delete()
        reasons: list[str] = []
        async with asyncio.timeout(60):
            while not any(
                f"topic {topic.name} (SERVICEBUS_TOPIC) does not exist" in reason for reason in reasons
            ):
                [outcome] = await publish(publisher, [event("a", 2)])
                assert isinstance(outcome, Unknown)
                reasons.append(outcome.reason)
        await publisher.close()
    assert len(reasons) <= 2, "the link's end, then the answer to a new one"


@pytest.mark.needs_a_socket("a way that takes time")
async def test_a_check_of_a_topic_measures_a_round_trip_without_the_opening(
    servicebus_server: Service,
) -> None:
    settings = contact_service.settings(
        {"COSMOS": "AccountEndpoint=x;AccountKey=y;", "SERVICEBUS": servicebus_connection(servicebus_server)}
    )
    topic = Topic(servicebus_server)
    await topic.create()

    async def less_than_half() -> bool:
        began = time.monotonic()
        seconds = await try_sending(
            servicebus_of(settings.transport).connection, None, topic.name, seconds=20, is_queue=False
        )
        return 0 < seconds < (time.monotonic() - began) / 2

    await eventually(less_than_half)  # not always the first time, on a busy machine
    await topic.delete()
