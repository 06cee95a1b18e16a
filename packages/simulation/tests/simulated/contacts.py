"""The contact service under simulation: what clients want of it, and what it shows in the end."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

from azure.core.exceptions import AzureError

from application.directory import Search
from cosmos_outbox import Origin, Service
from cosmos_outbox.http import KeyedRequest
from cosmos_outbox.http.calls import calls
from cosmos_outbox.outbox.aggregate import Receipt
from cosmos_outbox.service import Wired
from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import ContactDetails
from infra.bootstrap import service
from infra.contacts_http import contacts
from infra.directory import FORM
from outbox_simulation.engine.system_under_test import Others, Reply, SimulatedClient, SimulatedService, Wish
from outbox_simulation.invariants.records import (
    Answered,
    Attempted,
    FinallyListed,
    Outcome,
    SeenEntry,
    Unsequenced,
)
from simulated.receiver import SimulatedReceiver, read
from tests.support.contacts_http import revised, view
from tests.support.use_cases import contacts_of, directory_of
from tests.torture.contacts import UPDATED, Contacts, expected, value_of
from tests.torture.other_version import UNSEQUENCED_ACTION, event, now, operations

_AT_ONCE_AGAIN = 0.2
"""Of the changes that were acknowledged."""
_READS = 0.2
"""Of what clients want of a contact that there is."""
_PAGES = (2, 5, 100)
_FINAL = {404, 409, 410, 412, 413, 415, 422}
"""No repetition changes these."""


def _values(operation: str, properties: Sequence[str]) -> dict[str, Any]:
    wanted = {name: value_of(operation, name) for name in properties}
    body: dict[str, Any] = {name: wanted[name] for name in ("email", "description") if name in wanted}
    if "name" in wanted:
        body["name"] = {"firstName": wanted["name"], "lastName": "Doe"}
    if "company" in wanted:
        body["company"] = {"companyName": wanted["company"]}
    return body


def _reply(receipt: Receipt[Contact], *, status: int = 200, replayed: bool = False) -> Reply:
    body = view(receipt.aggregate)
    return Reply(status, body["id"], body["sequence"], body, receipt.etag, replayed)


def _creation(name: str, *, key: str | None = None, reuses_key: bool = False) -> Wish:
    values = _values(name, tuple(UPDATED))

    async def create(wired: Wired, origin: Origin) -> Reply:
        details = ContactDetails.model_validate(values)
        contacts = contacts_of(wired)
        if key is None:
            return _reply(await contacts.create(details, origin), status=201)
        keyed = KeyedRequest("simulation", key, fingerprint=str(values))
        receipt, replayed = await contacts.create_once(details, origin, keyed)
        return _reply(receipt, status=201, replayed=replayed)

    return Wish(
        name, "create", create, events=expected("create", name, UPDATED), key=key, reuses_key=reuses_key
    )


def _change(
    name: str, contact: str, properties: Sequence[str], if_match: str | None, key: str | None = None
) -> Wish:
    values = _values(name, properties)
    versions = [if_match] if if_match else ()

    def revision(details: ContactDetails) -> ContactDetails:
        return revised(details, values)

    async def change(wired: Wired, origin: Origin) -> Reply:
        contacts = contacts_of(wired)
        if key is None:
            return _reply(await contacts.revise(UUID(contact), revision, origin, if_match=versions))
        keyed = KeyedRequest("simulation", key, fingerprint=str(values))
        answer = await contacts.revise_once(UUID(contact), revision, origin, keyed, if_match=versions)
        if answer.receipt is None:
            return Reply(200, contact, answer.sequence, replayed=True)
        return _reply(answer.receipt, replayed=answer.replayed)

    events = expected("change", name, properties)
    return Wish(name, "change", change, aggregate=contact, events=events, if_match=if_match, key=key)


def _read(name: str, contact: str, *, newest: bool) -> Wish:
    async def read(wired: Wired, origin: Origin) -> Reply:
        found = await contacts_of(wired).read(UUID(contact), origin, newest=newest)
        body = view(found.aggregate)
        return Reply(200, body["id"], body["sequence"], body, found.etag)

    return Wish(name, "read", read, aggregate=contact, newest=newest)


def _deletion(name: str, contact: str, key: str | None = None) -> Wish:
    async def delete(wired: Wired, origin: Origin) -> Reply:
        contacts = contacts_of(wired)
        if key is None:
            await contacts.delete(UUID(contact), origin)
            return Reply(204)
        answer = await contacts.delete_once(
            UUID(contact), origin, KeyedRequest("simulation", key, fingerprint="DELETE")
        )
        return Reply(204, contact, answer.sequence, replayed=answer.replayed)

    return Wish(name, "delete", delete, aggregate=contact, events=expected("delete", name), key=key)


async def act(client: SimulatedClient) -> None:
    """One thing that a client wants."""
    known, wish = sorted(client.etags), client.chance.random()
    contact = client.one_of(known) if known else None
    if contact is None or (wish < 0.2 and len(known) < client.aggregates):
        contact = await _create(client)
        if contact not in client.etags or client.chance.random() < 0.5:
            return  # else it is changed at once, perhaps where nobody has seen it yet
    if wish > 0.95:
        client.etags.pop(contact, None)
        key = _key(client)
        deletion = _deletion(client.next_name(), contact, key)
        if key is not None:
            await _answered(client, deletion)
        elif (await client.ask(deletion)).outcome == "unknown":
            await asyncio.sleep(0.3)
            await client.ask(deletion)
        return
    if client.chance.random() < _READS:
        await client.ask(_read(client.next_name(), contact, newest=client.chance.random() < 0.5))
        return
    again = True
    while again:
        again = await _changed(client, contact) and client.chance.random() < _AT_ONCE_AGAIN


def _new_key(client: SimulatedClient) -> str:
    return f"{client.name}-{client.chance.getrandbits(64):x}"


def _key(client: SimulatedClient) -> str | None:
    return _new_key(client) if client.chance.random() < 0.4 else None


async def _answered(client: SimulatedClient, wish: Wish) -> Answered:
    """What has a key is repeated until there is an answer, and sometimes after that."""
    answers = await asyncio.gather(*(client.ask(wish) for _ in range(client.chance.choice([1, 1, 1, 2]))))
    for _ in range(20):
        if any(each.outcome == "acknowledged" or each.status in _FINAL for each in answers):
            break
        await asyncio.sleep(0.3)
        answers = [await client.ask(wish)]
    done = next((each for each in answers if each.outcome == "acknowledged"), answers[0])
    if done.outcome == "acknowledged" and client.chance.random() < 0.2:
        await client.ask(wish)
    return done


async def _changed(client: SimulatedClient, contact: str) -> bool:
    """Whether it was."""
    properties = sorted(client.chance.sample(sorted(UPDATED), client.chance.randint(1, len(UPDATED))))
    if_match = client.etags.get(contact) if client.chance.random() < 0.3 else None
    name, key = client.next_name(), _key(client)
    wish = _change(name, contact, properties, if_match, key)
    answer = await (client.ask(wish) if key is None else _answered(client, wish))
    newest = client.etags.get(contact)
    if key is not None and answer.status == 412 and newest is not None:  # it reads again, and repeats
        rebased = replace(_change(name, contact, properties, newest, key), numbers=wish.numbers)
        answer = await _answered(client, rebased)
    if answer.outcome == "acknowledged" and contact in client.etags:
        client.etags[contact] = answer.etag
    return answer.outcome == "acknowledged"


async def _create(client: SimulatedClient) -> str | None:
    """Which one; None: nobody knows."""
    if client.chance.random() < 0.5:
        return _created(client, await client.ask(_creation(client.next_name())))
    key = _new_key(client)
    wish = _creation(client.next_name(), key=key)
    done = await _answered(client, wish)
    if done.outcome != "acknowledged":
        return None
    client.kept.append(wish)
    if client.chance.random() < 0.2:
        await client.ask(_creation(client.next_name(), key=key, reuses_key=True))
    return _created(client, done)


def _created(client: SimulatedClient, answer: Answered) -> str | None:
    if answer.outcome != "acknowledged" or answer.aggregate is None:
        return None
    client.etags[answer.aggregate] = answer.etag
    return answer.aggregate


async def act_as_another_version(others: Others, contact: str) -> None:
    """Change a contact as a later version does that adds fields, or store an event without a sequence."""
    name = f"others-{others.chance.getrandbits(48):x}"
    if others.chance.random() < 0.5:
        await _store_without_sequence(others, contact, name)
        return
    events = expected("change", name, ("email",))
    attempt = Attempted(
        at=others.time(), operation=name, number=1, call="change", aggregate=contact, events=events
    )
    others.history.add([attempt])
    outcome: Outcome = "refused"
    with suppress(AzureError, TimeoutError):
        async with asyncio.timeout(30), others.feed() as container:
            item = await container.read_item(contact, contact)
            if not item["data"]["deleted"]:
                outcome = "unknown"
                await container.execute_item_batch(operations(item, name), contact)
                outcome = "acknowledged"
    body = {"id": contact, "email": value_of(name, "email")} if outcome == "acknowledged" else None
    others.history.add([Answered(at=others.time(), operation=name, number=1, outcome=outcome, body=body)])


async def _store_without_sequence(others: Others, contact: str, name: str) -> None:
    event_id = str(UUID(int=others.chance.getrandbits(128), version=4))
    data = {"contactId": contact, "action": UNSEQUENCED_ACTION, "createdAt": now(), "source": name}
    others.history.add([Unsequenced(at=others.time(), document=event_id, aggregate=contact)])
    with suppress(AzureError, TimeoutError):
        async with asyncio.timeout(30), others.feed() as container:
            await container.create_item(event(contact, event_id, data))
        stored = Unsequenced(at=others.time(), document=event_id, aggregate=contact, stored=True)
        others.history.add([stored])


async def listed(wired: Wired, now: float) -> list[FinallyListed]:
    """All contacts."""
    found: list[FinallyListed] = []
    token: str | None = None
    while True:
        page = await contacts_of(wired).page(100, token, Origin("judge"))
        for contact in page.items:
            body = view(contact)
            found.append(FinallyListed(at=now, aggregate=body["id"], sequence=body["sequence"], body=body))
        token = page.continuation_token
        if token is None:
            return found


async def shown(wired: Wired, now: float) -> list[SeenEntry]:
    """All entries of the directory, in an order and on pages by the seed's time, each by the token before it."""
    found: list[SeenEntry] = []
    token: str | None = None
    size, sort = _PAGES[int(now * 100) % len(_PAGES)], FORM.orders[int(now * 1000) % len(FORM.orders)]
    while True:
        page = await directory_of(wired).search(Search({}, sort), size, token)
        for entry in page.items:
            data = entry.state.model_dump(mode="json", by_alias=True)
            found.append(
                SeenEntry(
                    at=now,
                    aggregate=entry.id,
                    sequence=entry.sequence,
                    event=None,
                    applied_at="",
                    data=data,
                )
            )
        token = page.continuation_token
        if token is None:
            return found


POSTING = SimulatedService(
    Service("contacts", aggregates=[Contact], names=service.names, untyped=Contact.aggregate_type),
    Contacts(),
    act,
    listed,
    shown,  # the receiver's, in its place
    read_models=(),
    errors={ContactDeleted: 404},
    others=act_as_another_version,
    receiver=SimulatedReceiver,
    read=read,
)
"""The same without its directory: another team's receiver takes the events."""

CONTACTS = SimulatedService(
    service,
    Contacts(),
    act,
    listed,
    shown,
    read_models=("directory",),
    errors={ContactDeleted: 404},
    others=act_as_another_version,
    get=next(each.handler for each in calls(service, [contacts]) if each.name == "get_contact"),
    posting=POSTING,
    over=("servicebus", "storagequeue", "webhook"),
)
