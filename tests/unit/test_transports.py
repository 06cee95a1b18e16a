"""A service has the transport that it names: no other one's settings are needed, nor its triggers registered."""

from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from cosmos_outbox import Names, Service
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.functions import app
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.environment import shown
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.transports import LOADERS, ServiceBus, StorageQueue
from cosmos_outbox.wiring.storagequeue import claim_erasers
from cosmos_outbox.wiring.subscribing import SubscriberService
from cosmos_outbox.wiring.transports import KINDS

COSMOS = {"COSMOS": "AccountEndpoint=http://c/;AccountKey=k"}
QUEUES = COSMOS | {"STORAGEQUEUE__queueServiceUri": "https://a.queue.core.windows.net"}

WEBHOOK = {
    "TRANSPORT": "webhook",
    "WEBHOOK_URL": "https://example.com/events",
    "WEBHOOK_SECRETS": "whsec_" + "a" * 44,
}


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
    assert {*LOADERS} == {*KINDS}


def test_a_service_over_storage_queues_needs_nothing_of_service_bus(bookings: Service) -> None:
    transport = bookings.settings(QUEUES).transport
    assert transport == StorageQueue(
        Connection(address="https://a.queue.core.windows.net"), ("booking-mails", "calls")
    )
    assert not [name for name in shown(bookings.settings(QUEUES)) if name.startswith("SERVICEBUS")]


def test_the_setting_beats_the_declaration(bookings: Service) -> None:
    there = {"TRANSPORT": "servicebus", "SERVICEBUS": "Endpoint=sb://s", "SERVICEBUS_TOPIC": "t"}
    assert bookings.settings(COSMOS | there).transport == ServiceBus(
        Connection(connection_string="Endpoint=sb://s"), "t"
    )


def test_queues_are_named_by_the_setting_or_by_the_subscriptions(bookings: Service) -> None:
    named = bookings.settings(QUEUES | {"STORAGEQUEUE_QUEUES": "one, two,one"}).transport
    subscribed = bookings.settings(QUEUES).transport
    assert isinstance(named, StorageQueue)
    assert isinstance(subscribed, StorageQueue)
    assert named.queues == ("one", "two")
    assert subscribed.queues == ("booking-mails", "calls")


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
        (
            {"STORAGEQUEUE_CLAIMS__credential": "managedidentity"},
            "STORAGEQUEUE_CLAIMS__blobServiceUri is not",
        ),
    ],
)
def test_a_wrong_setting_is_named(bookings: Service, settings: dict[str, str], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        bookings.settings(QUEUES | settings)


def test_a_service_that_nobody_of_its_own_listens_to_names_its_queues() -> None:
    silent = Service("bookings", aggregates=[], names=Names("d", "c"), transport="storagequeue")
    with pytest.raises(Misconfigured, match="STORAGEQUEUE_QUEUES is not set"):
        silent.settings(QUEUES)


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


def test_who_only_subscribes_has_a_transport_too() -> None:
    mailing = SubscriberService("mailing", None, transport="storagequeue")  # type: ignore[arg-type]  # not opened
    assert mailing.declared_transport().transport == "storagequeue"


def test_a_queue_of_service_bus_has_a_trigger_of_its_own_and_one_subscriber(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_a_function_app_whose_subscriber_would_get_nothing_is_not_made(
    bookings: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (COSMOS | WEBHOOK).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        Misconfigured, match="booking-mails cannot receive: the service's transport is webhook"
    ):
        app(bookings)
    alone = Service("bookings", aggregates=[], names=Names("d", "bookings"), transport="webhook")
    assert "relay" in {each.get_function_name() for each in app(alone).get_functions()}


async def test_whoever_erases_is_given_the_claims_where_the_transport_keeps_some(bookings: Service) -> None:
    there = bookings.settings(
        QUEUES | {"STORAGEQUEUE_CLAIMS__blobServiceUri": "https://a.blob.core.windows.net"}
    )
    async with AsyncExitStack() as resources:
        assert len(claim_erasers(there.transports, resources)) == 1
        assert claim_erasers(bookings.settings(QUEUES).transports, resources) == ()
        assert claim_erasers(bookings.settings(COSMOS | WEBHOOK).transports, resources) == ()


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("azure.storage.queue", r"azure-storage-queue: not installed.*cosmos-outbox\[storagequeue\]"),
        ("standardwebhooks", r"standardwebhooks: not installed.*cosmos-outbox\[webhook\]"),
    ],
)
def test_a_package_that_a_destination_needs_is_missed_when_the_host_lists_the_functions(
    module: str, told: str, bookings: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not first when an event is sent."""
    bookings.sends_to("partner", "webhook")
    monkeypatch.setattr(
        "cosmos_outbox.settings.extras.find_spec", lambda name: None if name == module else name
    )
    with pytest.raises(Misconfigured, match=told):
        app(bookings)


@pytest.mark.parametrize(
    ("transport", "setting"), [("storagequeue", "STORAGEQUEUE"), ("servicebus", "SERVICEBUS")]
)
async def test_a_connection_string_that_is_none_is_told_in_a_line_when_it_is_used(
    transport: str, setting: str, bookings: Service
) -> None:
    wrong = COSMOS | {"TRANSPORT": transport, setting: "no connection string", "SERVICEBUS_TOPIC": "t"}
    wired = bookings.wire(wrong)
    async with wired.resources:
        told = rf"the connection {setting} cannot be one of"
        with pytest.raises(Misconfigured, match=told):
            wired.subscriptions["booking-mails"].subscriber.queues()
        with pytest.raises(Misconfigured, match=told):
            await wired.outbox.relay.publisher.publish([], 0.0)


@pytest.mark.parametrize(
    "service",
    [
        Service("bookings", aggregates=[], names=Names("d", "bookings")),
        SubscriberService("guests", CosmosDatabase("guests", "set-aside"), topic="guest-events"),
    ],
    ids=["publishes", "only subscribes"],
)
def test_a_store_that_no_text_leads_to_is_told_in_a_line(service: Service | SubscriberService) -> None:
    wrong = {"COSMOS": "no connection string", "SERVICEBUS": "Endpoint=sb://b", "SERVICEBUS_TOPIC": "t"}
    with pytest.raises(Misconfigured, match="the connection COSMOS cannot be one of Cosmos DB"):
        service.wire(wrong)
