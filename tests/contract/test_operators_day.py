"""An operator's day: the functions of a service as the host calls them, over the clients that the service has."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import azure.functions as func
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.servicebus import NEXT_AVAILABLE_SESSION

from cosmos_outbox.functions.function_app import app as function_app
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.names import Names
from devstack.testing import Service as Server
from examples.fastapi.directory import FORM, entry_of, project
from examples.fastapi.person import Person
from tests.support.azure import Topic
from tests.support.emulators import Gap
from tests.support.functions import NO_CONTEXT, Calls
from tests.support.partner import added, renamed


class Day:
    """A service, the functions of its app, and what is in its feed."""

    def __init__(self, wired: Wired, app: func.FunctionApp, topic: Topic) -> None:
        self.wired, self.call, self._topic = wired, Calls(app), topic

    async def store(self, person: str, event_id: str, **data: Any) -> None:
        """A document of somebody beside the service, as an event of this person."""
        document = {
            "id": event_id, "partitionKey": person, "type": "domainEvent", "aggregateType": "person", "data": data,
            "ttl": 600,
        }  # fmt: skip
        await self.wired.outbox.feed.create_item(document)

    async def read(self, function: str) -> None:
        """The host gives a trigger all that is in the feed, from its beginning."""
        changes = [
            func.Document.from_dict(dict(each))
            async for each in self.wired.outbox.feed.query_items_change_feed(start_time="Beginning")
        ]
        await self.call.run(function, func.DocumentList(changes), NO_CONTEXT)

    async def sent(self, name: str, *, count: int = 1, of: str = "person") -> list[str | None]:
        """What came to the topic of this aggregate."""
        return [each.subject for each in await self._topic.receive(name, count, of=of)]

    async def bury(self) -> None:
        """What waits for the directory comes to the dead letters."""
        topic = self._topic
        async with (
            servicebus_client(Connection(topic.service.connection_string), None) as client,
            client.get_subscription_receiver(
                topic.name, "directory", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20
            ) as receiver,
        ):
            for message in await receiver.receive_messages(10):
                await receiver.dead_letter_message(message, reason="a test")


def make_prompt(wired: Wired) -> None:
    """A lease that is missing is made again at once."""
    operator = wired.operator
    prompt = replace(operator, observer=replace(operator.observer, mending_patience_seconds=0.1))
    vars(wired)["operator"] = prompt  # in the place of what was made


@pytest.fixture
async def day(
    cosmos_server: Server, servicebus_server: Server, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Day]:
    topic = Topic(servicebus_server)
    await topic.create("directory")
    async with CosmosClient.from_connection_string(cosmos_server.connection_string) as client:
        database = await client.create_database(topic.name)
        for name in ("people", "people-parked", "people-claims", "people-set-aside", "directory"):
            await database.create_container(name, PartitionKey("/partitionKey"), default_ttl=-1)
        await database.create_container("people-leases", PartitionKey("/id"), default_ttl=-1)
    settings: Mapping[str, str] = {
        "COSMOS": cosmos_server.connection_string,
        "COSMOS_DATABASE": topic.name,
        "SERVICEBUS": servicebus_server.connection_string,
        "RELAY_SEND_SECONDS": "5",  # a discarding waits for as long, until nobody sends the event any more
        "SERVICEBUS_TOPIC": topic.name,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    service = Service("people", [Person], Names(container="people"))
    service.read_model("directory", of=Person, form=FORM, state_of=entry_of, project=project)
    wired = service.wire(settings)
    make_prompt(wired)
    async with wired.resources:
        with service.taken_from(wired):
            yield Day(wired, function_app(service), topic)
    await topic.delete()


@pytest.mark.known_gap(Gap.PAGE_SIZE)
async def test_an_operator_discards_a_blocking_event_and_replays_those_behind_it(day: Day) -> None:
    call, person = day.call, await added(day.wired)
    await day.store(person, "made-by-hand", secret="Xanthippe")
    await renamed(day.wired, person, "Ada")
    await day.read("relay")

    instance = await call("get_instance")
    assert (instance["forwarded"], instance["aggregates"]) == (1, ["person"])
    assert (await call("get_relay"))["parkedAggregates"] == {"person": 1}
    page = await call("list_stuck", query="pageSize=1")
    rest = await call("list_stuck", query=f"continuationToken={page['continuationToken']}")
    [bad, behind] = page["items"] + rest["items"]
    assert (bad["eventId"], bad["state"], bad["aggregateId"]) == ("made-by-hand", "inTheWay", person)
    assert (behind["sequence"], behind["state"]) == (2, "waiting")
    assert "Xanthippe" not in str(bad), "a list holds no personal data"
    shown = await call("get_stuck", id=bad["id"])
    assert shown["payload"]["data"] == {"secret": "Xanthippe"}
    past = (await call("list_events", type="person", id=person))["items"]
    assert {each["eventId"]: each["stuckId"] for each in past if each["sequence"] != 1} == {
        "made-by-hand": bad["id"],
        behind["eventId"]: behind["id"],
    }
    older = await call("list_events", query="before=2", type="person", id=person)
    assert [each["sequence"] for each in older["items"]] == [1], "what is below the second one"

    answer = await call("retry_stuck", {}, status=409, id=behind["id"])
    assert "made-by-hand" in answer["detail"], "it is in the way"
    reason = {"reason": "made by hand"}
    answer = await call("discard_stuck", reason, status=409, id=behind["id"])
    assert "made-by-hand" in answer["detail"], "that one is in the way"
    await call("discard_stuck", {"reason": " "}, status=400, id=bad["id"])
    assert await call("discard_stuck", reason, status=204, id=bad["id"]) is None
    [given_up] = (await call("list_stuck", query="state=discarded"))["items"]
    assert (given_up["id"], given_up["discardReason"]) == (bad["id"], "made by hand")
    answer = await call("retry_stuck", {}, id=behind["id"])
    assert answer == {"retried": 2, "remaining": False}
    assert await day.sent(person, count=3) == [
        "PersonAddedEvent",
        "EventDiscarded",
        "PersonRenamedEvent",
    ]
    assert (await call("list_stuck"))["items"] == []
    assert (await call("get_relay"))["parkedAggregates"] == {}


async def test_a_relay_is_watched_and_gets_back_the_leases_that_are_missing(
    day: Day, caplog: pytest.LogCaptureFixture
) -> None:
    looks = []
    for _ in range(2):
        looks.append((await day.call("get_relay"))["missingLeases"])
        await day.call.run("watch_relay", None)
    assert looks == [["0"], []]
    assert caplog.text.count("the relay has no lease for partition(s)") == 1


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_what_the_service_needs_is_asked_at_once(day: Day) -> None:
    found = (await day.call("get_dependencies"))["items"]
    assert [(each["name"], each["ok"], each["detail"]) for each in found] == [
        ("Cosmos DB", True, None),
        ("Service Bus", True, None),
    ]
    assert await day.call("health") == {"status": "healthy"}


async def test_what_came_to_the_dead_letters_is_collected_and_applied(day: Day) -> None:
    call, person = day.call, await added(day.wired)
    await day.read("relay")
    await day.bury()
    assert await call("collect_dead_letters", {}) == {"collected": 1, "emptied": True}
    [aside] = (await call("list_stuck"))["items"]
    assert (aside["aggregateId"], aside["reason"]) == (person, "dead letter: a test")
    assert await call("retry_stuck", {}, id=aside["id"]) == {"retried": 1, "remaining": False}
    assert (await call("list_stuck"))["items"] == []
    kept = day.wired.subscriptions["directory"].read_model
    assert kept is not None
    entry = await kept.inbox.entries.read(AggregateKey("person", person))
    assert entry is not None, "the message was applied"
