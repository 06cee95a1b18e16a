"""An operator's commands work while no app runs, say what is to be done, and show nothing personal in a list."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations import views
from cosmos_outbox.operations.views import names_of
from devstack.testing import Service, eventually
from domain.contact import Contact
from tests.support.command import Ended, run_command
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.deployed import SUBSCRIPTION, Deployed, deployed, relaying
from tests.support.use_cases import contacts_of

SECRET = "johndoe@contoso.com"
NAMES = [names_of(Contact)]


@dataclass
class World(Deployed):
    async def run(self, *arguments: str, **environment: str) -> Ended:
        """The command as an operator runs it, in the checkout, whose pyproject.toml names the service."""
        return await asyncio.to_thread(run_command, *arguments, environment=self.environment | environment)

    async def create(self) -> UUID:
        return (await contacts_of(self.application).create(DETAILS, ORIGIN)).aggregate.id

    async def store_poison(self, contact_id: UUID, **data: Any) -> str:
        """An event document that is none: it is parked, and later events behind it."""
        event_id = str(uuid4())
        await self.database.get_container_client("contacts").create_item(
            {
                "id": event_id, "partitionKey": str(contact_id), "type": "domainEvent", "aggregateType": "contact",
                "data": {"email": SECRET, **data}, "ttl": 600,
            }
        )  # fmt: skip
        return event_id

    async def set_aside(self, body: dict[str, Any]) -> None:
        await self.application.subscriber.receiver.receive(
            Delivery(SUBSCRIPTION, f"m-{uuid4()}", 1, json.dumps(body).encode(), {})
        )


@pytest.fixture
async def world(cosmos_server: Service, servicebus_server: Service) -> AsyncIterator[World]:
    async with deployed(cosmos_server, servicebus_server) as made:
        yield World(**vars(made))


async def caught_up(world: World) -> bool:
    status = await world.application.outbox.observer.status()
    return bool(status.leases) and not any(lease.lag for lease in status.leases)


async def parked(world: World) -> list[dict[str, Any]]:
    page = await world.application.outbox.parking.page(100, None)
    items: list[dict[str, Any]] = views.parked_list(page, NAMES, 0)["items"]
    return items


async def test_a_service_without_a_relay_says_what_to_do_and_one_that_is_well_says_so(world: World) -> None:
    ended = await world.run("status")
    assert (ended.code, ended.err) == (1, "")
    first, *rest = ended.out.splitlines()
    assert first == "contacts: 1 thing(s) want attention"
    assert "has no lease for partition(s) 0" in rest[0]
    assert "cosmos-outbox relay" in rest[0]

    await world.create()
    async with relaying(world.environment):
        await eventually(lambda: caught_up(world))
    ended = await world.run("status")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("contacts: all is well\nrelay: lease 0 of ")
    assert ended.out.splitlines()[1].endswith(": nothing waits")
    assert "contact-directory: 0 message(s) set aside" in ended.out


async def test_parked_events_are_counted_listed_shown_replayed_and_given_up(world: World) -> None:
    contact_id = await world.create()
    async with relaying(world.environment):
        await eventually(lambda: caught_up(world))
        await world.store_poison(contact_id)
        await eventually(lambda: parked(world))
        await contacts_of(world.application).delete(contact_id, ORIGIN)

        async def both() -> bool:
            return len(await parked(world)) == 2

        await eventually(both)
        await eventually(lambda: caught_up(world))
    status = await world.run("status", "--json")
    told = json.loads(status.out)
    assert (status.code, told["relay"]["parkedEvents"], told["relay"]["parkedContacts"]) == (1, 2, 1)
    answer = views.relay_status(await world.application.outbox.observer.status(), NAMES)
    assert told["relay"].keys() == answer.keys(), "as the call over HTTP tells it"
    assert any("2 event(s) are parked, of 1 contact" in each for each in told["attention"])

    listed = await world.run("parked")
    assert listed.code == 1
    assert SECRET not in listed.out
    [poison, deletion, summary] = listed.out.splitlines()
    assert ("inTheWay" in poison, "ContactDeletedEvent 2" in deletion) == (True, True)
    assert f"cosmos-outbox replay contact {contact_id}" in summary
    assert json.loads((await world.run("parked", "--json")).out)["items"] == await parked(world)

    parking_id = poison.split()[0]
    shown = await world.run("parked", parking_id)
    assert (shown.code, json.loads(shown.out)["document"]["data"]["email"]) == (0, SECRET)

    refused = await world.run("replay", "contact", str(contact_id))
    assert (refused.code, refused.out) == (1, "")
    [line] = refused.err.splitlines()
    assert line.startswith("replay: ")
    assert "Discard the event, or remove the reason, then replay again" in line

    waiting = await world.run("discard", "parked", deletion.split()[0], "--reason", "a test")
    assert waiting.code == 1
    given_up = await world.run("discard", "parked", parking_id, "--reason", "a test")
    assert (given_up.code, given_up.err) == (0, "")
    sent = await world.run("replay", "contacts", str(contact_id))
    assert (sent.code, sent.err) == (0, "")
    assert "event(s) of contact" in sent.out
    assert (await world.run("parked")).out == "0 event(s) parked\n"
    assert "a test" in (await world.run("parked", "--discarded")).out

    events = await world.run("events", "contact", str(contact_id))
    assert (events.code, events.err) == (0, "")
    poisoned, deleted, *_ = events.out.splitlines()
    assert (poisoned, deleted.partition(" at ")[0]) == ("-: unreadable: discarded", "2: ContactDeletedEvent")
    assert SECRET not in events.out
    page = await world.application.outbox.event_list.page(AggregateKey("contact", str(contact_id)), 100, None)
    same = json.loads((await world.run("events", "contact", str(contact_id), "--json")).out)
    assert same == views.event_list(page, NAMES)


async def test_messages_set_aside_are_listed_shown_and_given_up(world: World) -> None:
    await world.set_aside({"email": SECRET})
    listed = await world.run("set-aside")
    assert listed.code == 1
    assert SECRET not in listed.out
    name, record = listed.out.split()[:2]
    assert name == "contact-directory:"
    assert record in (await world.run("set-aside", "contact-directory")).out
    assert "1 refused" in (await world.run("status")).out

    shown = await world.run("set-aside", record)
    assert (shown.code, SECRET in shown.out) == (0, True)
    found = await world.application.subscriber.retrier.show(record)
    same = views.set_aside_record(found, NAMES)
    assert {**json.loads(shown.out), "ageSeconds": 0} == {**same, "ageSeconds": 0}

    applied = await world.run("apply", record)
    assert (applied.code, "read their reasons" in applied.err) == (1, True)
    assert (await world.run("discard", "set-aside", record, "--reason", "a test")).code == 0
    gone = await world.run("apply", record)
    assert (gone.code, "no open record has the id" in gone.err) == (1, True)
    assert (await world.run("set-aside")).code == 0


WRONG = [
    (["events", "invoice", "7"], 1, "contacts has no aggregates of type invoice; it has: contact"),
    (["events", "contact", "7"], 1, "events: no event of contact 7 is stored or parked"),
    (["parked", "7"], 1, "take an id from cosmos-outbox parked"),
    (["parked", "0" * 32], 1, "take an id from the list of parked events"),
    (["set-aside", "mails"], 1, "name a subscriber of contacts (contact-directory)"),
    (["apply", "0" * 32], 1, "take an id from cosmos-outbox set-aside"),
    (["replay", "contact", "7"], 1, "replay: "),
    (["discard", "parked", "0" * 32, "--reason", " "], 2, "a reason has 1 to 500 characters"),
    (["status", "--service", "nowhere"], 2, "there is no Service there"),
]


async def test_a_failure_is_one_line_that_says_what_to_do(world: World) -> None:
    away = {"COSMOS": "AccountEndpoint=http://127.0.0.1:9/;AccountKey=a2V5;"}
    wrong: list[tuple[list[str], int, str, dict[str, str]]] = [
        *((*each, {}) for each in WRONG),
        (["parked"], 2, "cosmos-outbox preflight", away),
        (["parked"], 2, "COSMOS", {"COSMOS": ""}),
    ]
    all_ended = await asyncio.gather(
        *(world.run(*arguments, **environment) for arguments, _, _, environment in wrong)
    )
    for (arguments, code, told, _), ended in zip(wrong, all_ended, strict=True):
        assert (ended.code, ended.out) == (code, ""), arguments
        assert told in ended.err, arguments
        assert "Traceback" not in ended.err, arguments
        lines = [line for line in ended.err.splitlines() if not line.startswith((" ", "usage:"))]
        assert len(lines) == 1, arguments
