"""What is stored and sent is byte for byte what ``stored_bytes.json`` has, whichever code stores it.

Documents that other versions and other services read change only on purpose: then the file is written anew, by
``WRITE_STORED_BYTES=1``, and its difference is reviewed.
"""

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.cosmos.aggregates.unit_of_work import Lifetimes
from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions, ReactionInbox
from cosmos_outbox.cosmos.transaction import OnCommit
from cosmos_outbox.inbox.errors import ReactionRefused
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.aggregate import KeyedRequest
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.service import Service
from cosmos_outbox.servicebus.message import message_from_event
from cosmos_outbox.testing import in_memory
from domain.contact import Contact
from domain.values import Name
from tests.support.contacts import DETAILS, LATER, NOON, ORIGIN
from tests.support.memory import memory_store
from tests.support.own import HIERARCHICAL, TENANT, World
from tests.support.paths import ROOT
from tests.support.reactions import LIVES, Heap, HeapState, put_mark

FILE = ROOT / "tests" / "contract" / "stored_bytes.json"
_OF_THE_STORE = {"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"}


@contextmanager
def pinned() -> Iterator[None]:
    """The same time and the same ids in each run."""
    ids = count(1)

    def new_id() -> UUID:
        """The SDKs too ask for ids here, in a process in which a test has run in virtual time."""
        asks = str(sys._getframe(2).f_globals["__name__"])
        return SYSTEM.new_id() if asks.startswith("azure.") else UUID(int=next(ids), version=4)

    with using(replace(SYSTEM, now=lambda: NOON, new_id=new_id, random=random.Random(1))):
        yield


def as_stored(items: Any, reader: EventReader) -> Any:
    """The documents and the messages of the events, as texts."""
    plain = [{name: value for name, value in item.items() if name not in _OF_THE_STORE} for item in items]
    plain.sort(key=lambda item: str(item["id"]))
    events = [event for event in reader.events(plain) if isinstance(event, OutboxEvent)]
    return {
        "documents": [json.dumps(item) for item in plain],
        "messages": [repr(_message(event)) for event in events],
    }


def _message(event: OutboxEvent) -> Any:
    made = message_from_event(event, service=CloudEvents("/test"), partitioned=False)
    header = made.message_id, made.session_id, made.correlation_id, made.subject, made.content_type
    return header, made.application_properties, b"".join(made.body)


async def contacts() -> Any:
    """With and without a key: made, changed, refused, deleted."""
    async with memory_store() as store:
        with pinned():
            aggregates = Aggregates(store, store.claims)

            def change(contact: Contact) -> None:
                contact.rename(Name(first_name="Jane", last_name="Doe"), at=LATER)

            def make(new_id: UUID) -> Contact:
                return Contact.create(DETAILS, at=NOON, id=new_id)

            plain = (await aggregates.create(make(UUID(int=7)), ORIGIN)).aggregate
            await aggregates.change(Contact, plain.aggregate_id, change, ORIGIN)
            await aggregates.change(
                Contact, plain.aggregate_id, lambda contact: contact.delete(at=LATER), ORIGIN
            )
            key = KeyedRequest("caller", "key", "body")
            made, _ = await aggregates.create_once(make, key, ORIGIN)
            await aggregates.change_once(Contact, made.aggregate.aggregate_id, change, key_of("2"), ORIGIN)
            await aggregates.change_once(Contact, made.aggregate.aggregate_id, change, key_of("3"), ORIGIN)
        items = [*store.documents, *store.account.cosmos.items("crm", "claims")]
        return as_stored(items, EventReader())


def key_of(key: str) -> KeyedRequest:
    return KeyedRequest("caller", key, "body")


async def own(service: Service) -> Any:
    """A team's own documents, in each way in which they are written."""
    async with in_memory(service) as memory:
        world = World(service, memory.wired, memory.wired.outbox.feed, {})
        with pinned():
            async with world.transaction() as tx:
                tx.create(world.booking(seats=1.5, text="\u00e9\u2028"))
                tx.upsert(world.document("note-1", text="window"))
                tx.create(world.document("old"))
                tx.event("BookingMade", of=("booking", "b-1"), data={"seats": 1}, schema_version=3)
                tx.event("Noted", of=("note", "note-1"), document="note-1")
            stored = memory.read("b-1", world.key())
            assert stored is not None
            async with world.transaction() as tx:
                tx.replace(stored | {"seats": 2}, if_match=stored["_etag"])
                tx.patch("note-1", [{"op": "set", "path": "/text", "value": "aisle"}])
                tx.delete("old")
                tx.event("BookingMoved", of=("booking", "b-1"), data={"n": {"a": [1, 2.5, None]}})
                tx.event("BookingPaid", of=("booking", "b-1"))
        return as_stored(memory.documents, EventReader(paths=service.paths))


def message(sequence: int, heap: str) -> Event:
    """For a heap."""
    data = {"heap": heap, "mark": "a", "correlationId": "request-7"}
    offer = AggregateKey("offer", "o-1")
    return Event(str(UUID(int=90 + sequence)), offer, "OfferMade", sequence, NOON, data, source="/offers")


async def reactions() -> Any:
    """A message that changes a heap, one that it refuses, and a cursor."""
    async with memory_store() as store:
        with pinned():
            heap = Heap(HeapState(id="heap", created_at=NOON), is_new=True)
            await Aggregates(store, store.claims).create(heap, ORIGIN)
            lifetimes = Lifetimes(600, 600, int(LIVES.total_seconds()))
            targets = CosmosReactions(
                store.container, Heap, "marks", InOrder.NEWEST, lifetimes, OnCommit(), lambda: NOON
            )
            inbox = ReactionInbox(targets, lambda event: event.data["heap"], put_mark, lambda: NOON)
            await inbox.handle(message(1, "heap"))
            with pytest.raises(ReactionRefused):
                await inbox.handle(message(2, "none"))
        return as_stored(store.documents, EventReader())


STORIES: dict[str, Callable[[], Any]] = {
    "contacts": contacts,
    "own documents": lambda: own(TENANT),
    "own documents, hierarchical": lambda: own(HIERARCHICAL),
    "reactions": reactions,
}


@pytest.mark.parametrize("story", STORIES)
async def test_what_is_stored_and_sent_is_as_it_was(story: str) -> None:
    now = await STORIES[story]()
    if os.environ.get("WRITE_STORED_BYTES"):
        known = json.loads(FILE.read_text()) if FILE.exists() else {}
        FILE.write_text(json.dumps(known | {story: now}, indent=1) + "\n")
    assert now == json.loads(FILE.read_text())[story]
