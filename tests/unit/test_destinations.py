"""Which events a destination is for, what can be declared of one, and what it is given of its own."""

import socket
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cosmos_outbox import functions
from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.http.resource import Resource
from cosmos_outbox.outbox import destination
from cosmos_outbox.outbox.destination import ALL, Destination, working_for
from cosmos_outbox.outbox.feed import FeedEvent, Unread
from cosmos_outbox.outbox.telemetry import GaugeReading
from cosmos_outbox.preflight import checks
from cosmos_outbox.preflight.plan import plan_for
from cosmos_outbox.preflight.report import Status
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Names
from cosmos_outbox.settings.own_container import OwnContainer
from cosmos_outbox.wiring.service import Service
from examples.fastapi.person import Details, Person
from tests.support.receiver import SECRET

ID = "11111111-1111-4111-8111-111111111111"
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def read(**changes: Any) -> FeedEvent:
    data = {
        "id": ID,
        "personId": "p",
        "action": "Renamed",
        "sequence": 1,
        "createdAt": "2026-03-01T12:00:00Z",
    }
    item = {
        "id": ID, "partitionKey": "p", "type": "domainEvent", "aggregateType": "person", "_ts": 1_772_366_400,
        "data": data | changes.pop("data", {}), **changes,
    }  # fmt: skip
    [event] = EventReader().events([item])
    return event


PARTNER = Destination("partner", frozenset({"person"}), frozenset({"Renamed"}), BEGIN, frozenset({"canary"}))

FOR_IT: Mapping[str, tuple[Destination, FeedEvent, bool]] = {
    "what it is for": (PARTNER, read(), True),
    "all, where nothing is chosen": (Destination("partner"), read(), True),
    "another type": (PARTNER, read(aggregateType="note", aggregateId="p"), False),
    "another action": (PARTNER, read(data={"action": "Added"}), False),
    "raised before it began": (PARTNER, read(data={"createdAt": "2026-03-01T11:59:59.999Z"}), False),
    "not read just now": (PARTNER, Unread(read(data={"action": "Added"}), "the store is away"), False),  # type: ignore[arg-type]
    "raised before it began, and not read": (
        PARTNER, Unread(read(data={"createdAt": "2026-03-01T11:59:59.999Z"}), "the store is away"), False  # type: ignore[arg-type]
    ),
    "no valid event, of its kind": (PARTNER, read(data={"sequence": "first"}), True),
    "no valid event, of another kind": (PARTNER, read(data={"sequence": "first", "action": "Added"}), False),
    "no valid event, of no kind": (PARTNER, read(data={"action": None}), True),
    "no valid event, stored before it began": (PARTNER, read(data={"sequence": "first"}, _ts=1_772_366_399), False),
    "of no aggregate": (Destination("partner"), read(aggregateType=None), False),
    "of no aggregate, at the service's own": (ALL, read(aggregateType=None), True),
    "the service's own affair": (
        Destination("partner", never=frozenset({"person"})), read(), False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOR_IT)
def test_an_event_is_for_a_destination_or_is_passed_over(name: str) -> None:
    of, event, wanted = FOR_IT[name]
    assert of.takes(event) is wanted


def people() -> Service:
    return Service("people", [Person], Names(database="d", container="people", topic="people-events"))


@pytest.mark.parametrize("name", ["", "Partner", "a_b", "-a", "a--b", "a" * 21, "1st", "archive"])
def test_a_name_that_settings_leases_and_functions_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be called"):
        people().sends_to(name, "webhook")


def test_what_cannot_be_right_is_refused_where_it_is_declared() -> None:
    service = people()
    service.sends_to("partner", "webhook")
    with pytest.raises(ValueError, match="two destinations"):
        service.sends_to("partner", "storagequeue")
    with pytest.raises(ValueError, match="leave it out for all"):
        service.sends_to("other", "webhook", on=[])
    with pytest.raises(ValueError, match="does not have: note"):
        service.sends_to("other", "webhook", of=["note"])
    with pytest.raises(ValueError, match="take one of"):
        service.sends_to("other", "pigeon")  # type: ignore[arg-type]  # as a caller without a type checker
    own = Service("bookings", own=OwnContainer("/tenantId", {"booking": None}))
    own.sends_to("partner", "webhook", of=["booking"], on=["BookingMade"])
    assert own.destinations[0].of.types == frozenset({"booking"})


SETTINGS = {
    "COSMOS": "AccountEndpoint=https://localhost:1/;AccountKey=a2V5;",
    "SERVICEBUS": "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true;",
    "BIG_PARTNER_WEBHOOK_URL": "https://partner.example.com/events",
    "BIG_PARTNER_WEBHOOK_SECRETS": SECRET,
    "BIG_PARTNER_WEBHOOK_RATE": "7",
}


def test_its_settings_have_its_name_in_front_and_none_is_anothers() -> None:
    service = people()
    service.sends_to("big-partner", "webhook")
    settings = service.settings(SETTINGS | {"WEBHOOK_RATE": "99"})
    transport = settings.destinations["big-partner"]
    assert transport.name == "webhook"
    assert transport.shown()["WEBHOOK_RATE"] == 7
    assert settings.transport.name == "servicebus"
    with pytest.raises(
        Misconfigured, match=r"destination big-partner.* BIG_PARTNER_ in front.*WEBHOOK_SECRETS"
    ):
        service.settings(SETTINGS | {"BIG_PARTNER_WEBHOOK_SECRETS": "", "WEBHOOK_SECRETS": SECRET})
    queue = {"BIG_PARTNER_TRANSPORT": "servicebus", "BIG_PARTNER_SERVICEBUS": SETTINGS["SERVICEBUS"]}
    with pytest.raises(Misconfigured, match="SERVICEBUS_TOPIC is not set"):
        service.settings(SETTINGS | queue)
    assert service.settings(
        SETTINGS | queue | {"BIG_PARTNER_SERVICEBUS_TOPIC": "theirs"}
    ).transport.destination == ("people-events")


async def test_it_is_checked_before_a_start_without_the_subscribers_of_the_service() -> None:
    service = people()
    service.sends_to("big-partner", "webhook")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    settings = SETTINGS | {"BIG_PARTNER_WEBHOOK_URL": f"http://127.0.0.1:{port}/"}
    plan = plan_for(
        service, settings, other_subscriptions=("theirs",), survive=timedelta(hours=1), as_app=False,
        emulator_port=5300,
    )  # fmt: skip
    [partner] = plan.destinations
    assert (partner.subscriptions, partner.other_subscriptions) == ((), ())
    [finding] = await checks.check_destination(partner, None)
    assert finding.status is Status.UNKNOWN
    assert finding.subject == f"destination big-partner (BIG_PARTNER_*), receiver 127.0.0.1:{port}"


def trigger_of(function: Any) -> dict[str, Any]:
    return dict(function.get_trigger().get_dict_repr())


def test_it_has_functions_calls_and_leases_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    service = people()
    service.sends_to("big-partner", "webhook")
    made = {str(each.get_function_name()): each for each in functions.app(service).get_functions()}
    added = {
        "relay_big_partner", "watch_relay_big_partner", "tend_parked_big_partner",
        "list_parked_big_partner", "get_parked_big_partner", "discard_parked_big_partner", "replay_parked_big_partner",
    }  # fmt: skip
    assert {name for name in made if "partner" in name} == added
    own, its = (trigger_of(made[name]) for name in ("relay", "relay_big_partner"))
    assert (own["leaseContainerPrefix"], its["leaseContainerPrefix"]) == ("relay-", "big-partner-relay-")
    assert {name for name in own if own[name] != its[name]} == {"leaseContainerPrefix"}
    retries: list[Any] = [
        made[name].get_settings_dict("retry_policy") for name in ("relay", "relay_big_partner")
    ]
    assert retries[0] == retries[1]
    assert retries[1]["max_retry_count"] == "-1"


@pytest.mark.parametrize("name", ["parked", "people"])
def test_a_destination_whose_calls_another_call_would_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """``GET parked/{id}`` and ``GET people/{id}`` come first: nobody would see what is parked for it."""
    for setting, value in SETTINGS.items():
        monkeypatch.setenv(setting.replace("BIG_PARTNER", name.upper()), value)
    service = people()
    service.sends_to(name, "webhook")
    resource = Resource("people", Person, new=Details, create=Person.add)
    with pytest.raises(
        ValueError, match=rf"list_parked_{name} would get no call: get_\w+ takes GET /{name}/"
    ):
        functions.app(service, resources=[resource]).get_functions()


def test_a_measurement_tells_its_destination_and_nothing_of_the_services_own() -> None:
    reading = GaugeReading(60)
    reading.set(1)
    with working_for(Destination("partner")):
        reading.set(2)
    told = [(each.value, dict(each.attributes or {})) for each in reading(None)]  # type: ignore[arg-type]  # not read
    assert told == [(1, {}), (2, {"outbox.destination": "partner"})]
    assert destination.current() == ""
