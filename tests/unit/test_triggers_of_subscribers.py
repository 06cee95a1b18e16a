"""A subscriber receives from a topic, or from a queue; where nothing can be received, it is refused."""

import json
from typing import Any

import azure.functions as func
import pytest
from azure.functions import meta
from azure.functions.servicebus import ServiceBusMessageInConverter

from cosmos_outbox import Event, Named, Names, Service, SqliteFile, SubscriberService
from cosmos_outbox.functions import app as function_app
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.testing import Message, in_memory, message
from tests.support.functions import NO_CONTEXT, Calls, of_app
from tests.support.tasks import Task


def arrived(told: Message) -> Any:
    """A message as a function gets it."""
    properties = meta.Datum(json.dumps(told.properties), "json")
    return ServiceBusMessageInConverter.decode(
        meta.Datum(told.body, "bytes"),
        trigger_metadata={
            "MessageId": meta.Datum(told.id, "string"),
            "SequenceNumber": meta.Datum("1", "json"),
            "ApplicationProperties": properties,
            "UserProperties": properties,
        },
    )


def declared(app: func.FunctionApp, name: str) -> dict[str, Any]:
    trigger = of_app(app)[name].get_trigger()
    assert trigger is not None
    told: dict[str, Any] = trigger.get_dict_repr()
    return told


@pytest.mark.parametrize(
    ("queue", "source"), [("", ("topicName", "cars")), ("car-queue", ("queueName", "car-queue"))]
)
async def test_a_message_is_handled_whether_a_topic_or_a_queue_brings_it(
    queue: str, source: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICEBUS_QUEUE", queue)
    dealer, mails = SubscriberService("dealer", SqliteFile(Named("DEALER", "dealer.db")), topic="cars"), []

    @dealer.effect("mails", of="car")
    async def mail(told: Event) -> None:
        mails.append((told.aggregate.id, told.action))

    app = function_app(dealer)
    trigger = declared(app, "mails")
    assert (trigger[source[0]], trigger["isSessionsEnabled"]) == (source[1], True)
    async with in_memory(dealer):
        sold = message(("car", "1"), "Sold", 1, data={"price": 5})
        await Calls(app).run("mails", arrived(sold), NO_CONTEXT)
    assert mails == [("1", "Sold")]


async def test_a_message_of_a_storage_queue_is_handled_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = {"TRANSPORT": "storagequeue", "STORAGEQUEUE": "UseDevelopmentStorage=true"}
    for name, value in storage.items():
        monkeypatch.setenv(name, value)
    dealer, mails = SubscriberService("dealer", SqliteFile(Named("DEALER", "dealer.db")), topic="cars"), []

    @dealer.effect("mails", of="car")
    async def mail(told: Event) -> None:
        mails.append((told.aggregate.id, told.action))

    app = function_app(dealer)
    assert (declared(app, "mails")["type"], declared(app, "mails")["queueName"]) == ("queueTrigger", "mails")
    sold = message(("car", "1"), "Sold", 1, data={"price": 5})
    event = {
        "specversion": "1.0", "id": sold.id, "source": "/cars", "type": "Sold", "subject": "1", "aggregatetype": "car",
        "sequence": 1, "datacontenttype": "application/json", "data": sold.data,
    }  # fmt: skip
    async with in_memory(dealer, environment=storage):
        await Calls(app).run("mails", func.QueueMessage(id="m", body=json.dumps(event)), NO_CONTEXT)
    assert mails == [("1", "Sold")]


def test_a_queue_in_the_place_of_the_topic_is_not_that_of_another_team(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SERVICEBUS_QUEUE", "office-queue")
    office = Service("office", [Task], Names(database="d", container="c", topic="office-events"))
    for name, topic in (("moves", Named("MOVES_TOPIC", "building-events")), ("news", None)):
        office.reaction(name, of="building", to=Task, target=lambda _: "7", order="any", topic=topic)(_leave)
    app = function_app(office)
    assert declared(app, "moves")["topicName"] == "building-events"
    assert declared(app, "news")["queueName"] == "office-queue"


def _leave(task: Task | None, event: Event) -> None:
    """Changes nothing."""


def test_who_would_receive_nothing_is_told_so_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSPORT", "webhook")
    office = Service("office", [Task], Names(database="d", container="c", topic="office-events"))
    office.reaction("news", of="building", to=Task, target=lambda _: "7", order="any")(_leave)
    with pytest.raises(Misconfigured, match="news cannot receive: the service's transport is webhook"):
        function_app(office)
