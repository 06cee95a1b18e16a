"""An operator's commands work while no app runs, say what is to be done, and show nothing personal in a list."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.stuck import StuckKind, StuckList
from devstack.testing import Service, eventually
from tests.support.command import Ended, run_command
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.deployed import SUBSCRIPTION, Deployed, deployed, relaying
from tests.support.use_cases import contacts_of, subscriber_of

SECRET = "johndoe@contoso.com"


@dataclass
class World(Deployed):
    async def run(self, *arguments: str, **environment: str) -> Ended:
        """The command as an operator runs it, in the checkout, whose pyproject.toml names the service."""
        return await asyncio.to_thread(run_command, *arguments, environment=self.environment | environment)

    @property
    def stuck(self) -> StuckList:
        return self.application.stuck

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
        await subscriber_of(self.application).receiver.receive(
            Delivery(SUBSCRIPTION, f"m-{uuid4()}", 1, json.dumps(body).encode(), {})
        )


@pytest.fixture
async def world(cosmos_server: Service, servicebus_server: Service) -> AsyncIterator[World]:
    port = servicebus_server.addresses[1].rpartition(":")[2]
    async with deployed(cosmos_server, servicebus_server, SERVICEBUS_ADMIN_PORT=port) as made:
        yield World(**vars(made))


async def caught_up(world: World) -> bool:
    status = await world.application.operator.observer.status()
    return bool(status.leases) and not any(lease.lag for lease in status.leases)


async def parked(world: World) -> list[dict[str, Any]]:
    page = await world.stuck.page(100, None)
    return [dict(each.view()) for each in page.items if each.kind is StuckKind.EVENT]


async def test_status_says_what_to_do_without_a_relay_and_when_all_is_well(world: World) -> None:
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
    assert ended.out.startswith(
        "contacts: nothing is wrong; 1 message(s) wait in the broker\nrelay: lease 0 of "
    )
    assert ended.out.splitlines()[1].endswith(": nothing waits")
    assert "contact-directory: 1 message(s) in the broker, 0 set aside" in ended.out

    ended = await world.run("status", SERVICEBUS_ADMIN_PORT="1")
    assert (ended.code, ended.err) == (0, "")
    assert "contact-directory: broker not read (cannot be reached" in ended.out


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
    printed = json.loads(status.out)
    assert (status.code, printed["relay"]["parkedEvents"]) == (1, 2)
    assert printed["relay"]["parkedAggregates"] == {"contact": 1}
    answer = (await world.application.operator.observer.status()).view()
    assert printed["relay"].keys() == answer.keys(), "as the call over HTTP answers"
    assert any("2 event(s) are parked, of 1 contact" in each for each in printed["attention"])

    listed = await world.run("stuck", "list")
    assert listed.code == 1
    assert SECRET not in listed.out
    [poison, deletion, summary] = listed.out.splitlines()
    assert ("inTheWay" in poison, f"event ContactDeletedEvent 2 of contact {contact_id}" in deletion) == (
        True,
        True,
    )
    assert summary.startswith("2 stuck. Mend the reason, then cosmos-outbox retry ID")
    assert json.loads((await world.run("stuck", "--json")).out)["items"] == await parked(world)

    stuck_id = poison.split()[0]
    shown = await world.run("stuck", "show", stuck_id)
    assert (shown.code, json.loads(shown.out)["payload"]["data"]["email"]) == (0, SECRET)

    refused = await world.run("retry", stuck_id)
    assert (refused.code, refused.out) == (1, "")
    [line] = refused.err.splitlines()
    assert line.startswith("retry: ")
    assert "Discard the event, or remove the reason, then replay again" in line

    waiting = await world.run("discard", deletion.split()[0], "--reason", "a test")
    assert waiting.code == 1
    given_up = await world.run("discard", stuck_id, "--reason", "a test")
    assert (given_up.code, given_up.err) == (0, "")
    sent = await world.run("retry", deletion.split()[0])
    assert (sent.code, sent.out, sent.err) == (0, "2 sent or applied\n", "")
    assert (await world.run("stuck")).out == "nothing is stuck\n"
    assert "a test" in (await world.run("stuck", "--discarded")).out

    events = await world.run("events", "contact", str(contact_id))
    assert (events.code, events.err) == (0, "")
    poisoned, deleted, *_ = events.out.splitlines()
    assert (poisoned, deleted.partition(" at ")[0]) == ("-: unreadable: discarded", "2: ContactDeletedEvent")
    assert SECRET not in events.out
    page = await world.application.operator.event_list.page(
        AggregateKey("contact", str(contact_id)), 100, None
    )
    same = json.loads((await world.run("events", "contact", str(contact_id), "--json")).out)
    assert same == page.view()


WRONG = [
    (["events", "invoice", "7"], 1, "contacts has no aggregates of type invoice; it has: contact"),
    (["stuck", "show", "7"], 1, "take an id from the list of what is stuck"),
    (["retry", "0" * 32], 1, "retry: nothing is stuck under this id"),
    (["discard", "0" * 32, "--reason", " "], 2, "a reason has 1 to 500 characters"),
    (["status", "--service", "missing"], 2, "there is no Service there"),
]


async def test_a_failure_is_one_line_that_says_what_to_do(world: World) -> None:
    away = {"COSMOS": "AccountEndpoint=http://127.0.0.1:9/;AccountKey=a2V5;"}
    wrong: list[tuple[list[str], int, str, dict[str, str]]] = [
        *((*each, {}) for each in WRONG),
        (["stuck"], 2, "cosmos-outbox preflight", away),
        (["stuck"], 2, "COSMOS", {"COSMOS": ""}),
    ]
    all_ended = await asyncio.gather(
        *(world.run(*arguments, **environment) for arguments, _, _, environment in wrong)
    )
    for (arguments, code, printed, _), ended in zip(wrong, all_ended, strict=True):
        assert (ended.code, ended.out) == (code, ""), arguments
        assert printed in ended.err, arguments
        assert "Traceback" not in ended.err, arguments
        lines = [line for line in ended.err.splitlines() if not line.startswith((" ", "usage:"))]
        assert len(lines) == 1, arguments
