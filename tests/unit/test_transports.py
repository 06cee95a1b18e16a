"""A service has the transport that it names: no other one's settings are needed, nor its triggers registered."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack

import azure.functions as func
import pytest

from cosmos_outbox import Event, Names, Service
from cosmos_outbox.composition.transports import KINDS
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.functions import app
from cosmos_outbox.inbox.entry import EntrySchema
from cosmos_outbox.publisher import Accepted, AggregateEvents, CloudEvents, Guarantees, Outcome, Publisher
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.environment import shown
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.transports import LOADERS, ServiceBus
from cosmos_outbox.testing import in_memory
from tests.contract.test_entries import FORM, Thing
from tests.support.functions import NO_CONTEXT, Calls
from tests.support.publishing import event, publish

COSMOS = {"COSMOS": "AccountEndpoint=http://c/;AccountKey=k"}
QUEUES = COSMOS | {"STORAGEQUEUE__queueServiceUri": "https://a.queue.core.windows.net"}


async def nothing(*_: object) -> None:
    """An effect."""


@pytest.fixture
def bookings() -> Service:
    """With two subscribers of its own events."""
    service = Service("bookings", aggregates=[], names=Names("d", "bookings"), transport="storagequeue")
    service.effect("booking-mails", of="booking")(nothing)
    service.effect("booking-calls", of="booking", subscription="calls")(nothing)
    return service


def test_a_transport_whose_settings_are_read_can_be_made() -> None:
    assert {*LOADERS, "own"} == {*KINDS}


def test_the_setting_beats_the_declaration(bookings: Service) -> None:
    there = {"TRANSPORT": "servicebus", "SERVICEBUS": "Endpoint=sb://s", "SERVICEBUS_TOPIC": "t"}
    assert bookings.settings(COSMOS | there).transport == ServiceBus(
        Connection(connection_string="Endpoint=sb://s"), "t"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"TRANSPORT": "pigeons"}, "TRANSPORT is 'pigeons': set it to one of servicebus, storagequeue"),
        (
            {"STORAGEQUEUE__queueServiceUri": ""},
            "neither STORAGEQUEUE nor STORAGEQUEUE__queueServiceUri is set",
        ),
        ({"STORAGEQUEUE_QUEUES": "A_B"}, "'A_B' can be no queue"),
        ({"STORAGEQUEUE_QUEUES": "a--b"}, "'a--b' can be no queue"),
        ({"STORAGEQUEUE_ENCODING": "utf8"}, "STORAGEQUEUE_ENCODING is 'utf8': set it to base64 or none"),
    ],
)
def test_a_wrong_setting_is_named(bookings: Service, settings: dict[str, str], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        bookings.settings(QUEUES | settings)


def bindings(service: Service) -> Iterator[dict[str, object]]:
    for function in app(service).get_functions():
        yield from (each.get_dict_repr() for each in function.get_bindings())


def test_the_triggers_are_those_of_the_transport(bookings: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUEUES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CALLS", "")
    found = [*bindings(bookings)]
    assert not [each for each in found if each["type"] == "serviceBusTrigger"]
    queues = {(each["queueName"], each["connection"]) for each in found if each["type"] == "queueTrigger"}
    assert queues == {("booking-mails", "STORAGEQUEUE"), ("calls", "STORAGEQUEUE")}


def test_a_service_bus_queue_has_its_own_trigger_and_one_subscriber(monkeypatch: pytest.MonkeyPatch) -> None:
    there = COSMOS | {"SERVICEBUS": "Endpoint=sb://s", "SERVICEBUS_QUEUE": "q"}
    one = Service("bookings", aggregates=[], names=Names("d", "c"))
    one.effect("mails", of="booking")(nothing)
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    [found] = [each for each in bindings(one) if each["type"] == "serviceBusTrigger"]
    assert (found["queueName"], found["isSessionsEnabled"]) == ("q", True)
    assert "topicName" not in found
    assert shown(one.settings(there))["SERVICEBUS_QUEUE"] == "q"
    one.effect("calls", of="booking")(nothing)
    with pytest.raises(Misconfigured, match="a queue has one subscriber, where the service has several"):
        one.settings(there)


ACCOUNT = {"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5"}


async def test_a_container_holds_one_read_model_or_effects_of_many_subscribers() -> None:
    environment = {**ACCOUNT, "ROOMS_CONTAINER": "things", "CALLS_CONTAINER": "mails", "KEPT_CONTAINER": "s"}
    form: EntrySchema[Thing] = FORM
    async with AsyncExitStack() as resources:
        made = CosmosDatabase("d", "s").open(environment, resources)
        for _ in range(2):
            made.entries("things", form, 600)
        made.effects("mails", "mails", 600)
        made.effects("calls", "calls", 600)
        for name in ("rooms", "mails", "kept"):
            with pytest.raises(Misconfigured, match=f"{name.upper()}_CONTAINER"):
                made.entries(name, form, 600)
        for name in ("things", "kept"):
            with pytest.raises(Misconfigured, match=f"{name.upper()}_CONTAINER"):
                made.effects(name, name, 600)


async def test_a_message_of_a_storage_queue_is_handled_by_its_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = {"TRANSPORT": "storagequeue", "STORAGEQUEUE": "UseDevelopmentStorage=true"}
    for name, value in storage.items():
        monkeypatch.setenv(name, value)
    service, mails = Service("bookings", aggregates=[], names=Names("d", "bookings")), list[str]()

    @service.effect("mails", of="booking")
    async def mail(reported: Event) -> None:
        mails.append(reported.action)

    data = {
        "id": "e1",
        "action": "Made",
        "sequence": 1,
        "createdAt": "2026-03-01T12:00:00Z",
        "bookingId": "1",
    }
    sent = {"specversion": "1.0", "id": "e1", "aggregatetype": "booking", "sequence": 1, "data": data}
    async with in_memory(service, environment=storage):
        queued = func.QueueMessage(id="m", body=json.dumps(sent).encode())
        await Calls(app(service)).run("mails", queued, NO_CONTEXT)
    assert mails == ["Made"]


class Kept:
    """A publisher that only remembers."""

    guarantees = Guarantees(True, True, mixes_aggregates=True, largest_message_bytes=None)

    def __init__(self) -> None:
        self.pages: list[Sequence[AggregateEvents]] = []

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        self.pages.append(page)
        return [Accepted() for _ in page]


async def test_a_service_opens_its_own_publisher_from_its_settings() -> None:
    kept, seen = Kept(), list[object]()

    def opened(settings: Mapping[str, str], service: CloudEvents, resources: AsyncExitStack) -> Publisher:
        seen.append((settings["BROKER"], service.source))
        resources.callback(seen.append, "closed")
        return kept

    service = Service("bookings", names=Names("d", "bookings"), transport=opened)
    environment = ACCOUNT | {"BROKER": "amqp://b"}
    wired = service.wire(environment)
    async with wired.resources:
        assert seen == [], "a process that sends nothing opens none"
        [outcome] = await publish(wired.relay.relay.publisher, [event("a", 1)])
        assert outcome == Accepted()
        assert [each.name for each in wired.operator.dependencies] == ["Cosmos DB"]
    assert seen == [("amqp://b", "/bookings"), "closed"]
    assert [each.aggregate.id for each in kept.pages[0]] == ["a"]
    assert shown(service.settings(environment))["TRANSPORT"] == "own"
    there = service.settings(
        environment | {"TRANSPORT": "servicebus", "SERVICEBUS": "e", "SERVICEBUS_TOPIC": "t"}
    )
    assert isinstance(there.transport, ServiceBus), "the setting beats the declaration"


def test_over_its_own_publisher_a_service_receives_nothing() -> None:
    service = Service("bookings", names=Names("d", "bookings"), transport=lambda *_: Kept())
    service.effect("mails", of="booking")(nothing)
    with pytest.raises(
        Misconfigured, match=r"mails cannot receive: the service's transport is own, .*broker"
    ):
        app(service)


def test_no_setting_and_no_name_stands_for_a_publisher_of_its_own() -> None:
    with pytest.raises(
        ValueError, match=r"transport is 'own': take one of .*, or a function that opens a publisher"
    ):
        Service("bookings", names=Names("d", "b"), transport="own")
    service = Service("bookings", names=Names("d", "b"))
    with pytest.raises(Misconfigured, match="TRANSPORT is 'own'"):
        service.settings(ACCOUNT | {"TRANSPORT": "own"})
