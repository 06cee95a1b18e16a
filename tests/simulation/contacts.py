"""The contact service under simulation: what clients want of it, and what it shows in the end."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from application.directory import Search
from application.errors import ContactNotFound
from cosmos_outbox import Origin
from cosmos_outbox.http import KeyedRequest
from cosmos_outbox.outbox.unit_of_work import Receipt
from cosmos_outbox.testing.judging.records import Answered, FinallyListed, SeenEntry
from cosmos_outbox.testing.simulation.subject import SimulatedClient, SimulatedService, Told, Wish
from cosmos_outbox.wiring.service import Wired
from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import ContactDetails
from infra.bootstrap import Application, service
from infra.contacts_http import revised, view
from tests.torture.contacts import UPDATED, Contacts, expected, value_of

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


def _told(receipt: Receipt[Contact], *, status: int = 200, replayed: bool = False) -> Told:
    body = view(receipt.aggregate)
    return Told(status, body["id"], body["sequence"], body, receipt.etag, replayed)


def _creation(name: str, *, key: str | None = None, reuses_key: bool = False) -> Wish:
    values = _values(name, tuple(UPDATED))

    async def create(wired: Wired, origin: Origin) -> Told:
        details = ContactDetails.model_validate(values)
        contacts = Application(wired).contacts
        if key is None:
            return _told(await contacts.create(details, origin), status=201)
        keyed = KeyedRequest("simulation", key, fingerprint=str(values))
        receipt, replayed = await contacts.create_once(details, origin, keyed)
        return _told(receipt, status=201, replayed=replayed)

    return Wish(
        name, "create", create, events=expected("create", name, UPDATED), key=key, reuses_key=reuses_key
    )


def _change(name: str, contact: str, properties: Sequence[str], if_match: str | None) -> Wish:
    values = _values(name, properties)

    async def change(wired: Wired, origin: Origin) -> Told:
        receipt = await Application(wired).contacts.revise(
            UUID(contact),
            lambda details: revised(details, values),
            origin,
            if_match=[if_match] if if_match else (),
        )
        return _told(receipt)

    events = expected("change", name, properties)
    return Wish(name, "change", change, aggregate=contact, events=events, if_match=if_match)


def _deletion(name: str, contact: str) -> Wish:
    async def delete(wired: Wired, origin: Origin) -> Told:
        await Application(wired).contacts.delete(UUID(contact), origin)
        return Told(204)

    return Wish(name, "delete", delete, aggregate=contact, events=expected("delete", name))


async def act(client: SimulatedClient) -> None:
    """One thing that a client wants."""
    known, wish = sorted(client.etags), client.chance.random()
    if not known or (wish < 0.2 and len(known) < client.aggregates):
        await _create(client)
        return
    contact = client.chance.choice(known)
    if wish > 0.95:
        client.etags.pop(contact, None)
        deletion = _deletion(client.next_name(), contact)
        if (await client.ask(deletion)).outcome == "unknown":
            await asyncio.sleep(0.3)
            await client.ask(deletion)
        return
    properties = sorted(client.chance.sample(sorted(UPDATED), client.chance.randint(1, len(UPDATED))))
    if_match = client.etags.get(contact) if client.chance.random() < 0.2 else None
    answer = await client.ask(_change(client.next_name(), contact, properties, if_match))
    if answer.outcome == "acknowledged" and contact in client.etags:
        client.etags[contact] = answer.etag


async def _create(client: SimulatedClient) -> None:
    if client.chance.random() < 0.5:
        _created(client, await client.ask(_creation(client.next_name())))
        return
    key = f"{client.name}-{client.chance.getrandbits(64):x}"
    wish = _creation(client.next_name(), key=key)
    answers = await asyncio.gather(*(client.ask(wish) for _ in range(client.chance.choice([1, 1, 1, 2]))))
    for _ in range(20):
        if any(each.outcome == "acknowledged" or each.status in _FINAL for each in answers):
            break
        await asyncio.sleep(0.3)
        answers = [await client.ask(wish)]
    done = next((each for each in answers if each.outcome == "acknowledged"), None)
    if done is None:
        return
    if client.chance.random() < 0.2:
        await client.ask(wish)
    if client.chance.random() < 0.2:
        await client.ask(_creation(client.next_name(), key=key, reuses_key=True))
    _created(client, done)


def _created(client: SimulatedClient, answer: Answered) -> None:
    if answer.outcome == "acknowledged" and answer.aggregate is not None:
        client.etags[answer.aggregate] = answer.etag


async def listed(wired: Wired, now: float) -> list[FinallyListed]:
    """All contacts."""
    found: list[FinallyListed] = []
    token: str | None = None
    while True:
        page = await Application(wired).contacts.page(100, token, Origin("judge"))
        for contact in page.items:
            body = view(contact)
            found.append(FinallyListed(at=now, aggregate=body["id"], sequence=body["sequence"], body=body))
        token = page.continuation_token
        if token is None:
            return found


async def shown(wired: Wired, now: float) -> list[SeenEntry]:
    """All entries of the directory."""
    found: list[SeenEntry] = []
    token: str | None = None
    while True:
        page = await Application(wired).directory.search(Search({}), 100, token)
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


CONTACTS = SimulatedService(
    service,
    Contacts(),
    act,
    listed,
    shown,
    read_models=("directory",),
    errors={ContactNotFound: 404, ContactDeleted: 404},
)
