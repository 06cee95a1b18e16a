"""A subscriber's entries in Cosmos DB, and the lists of them."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from azure.cosmos.aio import CosmosClient
from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.cosmos.inbox.listing import CosmosItems, token_key
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.inbox.effect import EffectRecord, EffectState
from cosmos_outbox.inbox.entry import After, Condition, Entry, EntrySchema, Found, Stamp
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.ports import Entries
from cosmos_outbox.inbox.read_model import StateInbox
from cosmos_outbox.inbox.set_aside import Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists.listing import Listing
from cosmos_outbox.outbox.errors import UnknownContinuation
from devstack.testing import Service
from tests.support.azure import DIRECTORY, EFFECTS, SET_ASIDE, contacts_database
from tests.support.inbox import NOON, FakeSource, delivery, event

KEY = AggregateKey("thing", "7")
TTL = 600


class Thing(BaseModel):
    name: str
    adds: tuple[int, ...] = ()


FORM = EntrySchema(Thing, search={"name": lambda thing: thing.name}, sorted_by=["name"])
STAMP = Stamp(NOON, 1.5)


@pytest.fixture
async def listed(cosmos_server: Service) -> AsyncIterator[tuple[Entries[Thing], Listing[Thing]]]:
    async with (
        contacts_database(cosmos_server) as made,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        container = Container(client, made.id, DIRECTORY)
        yield (
            CosmosEntries(container, FORM, TTL),
            Listing(CosmosItems(container), FORM, "t", token_key(container)),
        )


async def test_the_inbox_over_it_applies_each_event_once(
    listed: tuple[Entries[Thing], Listing[Thing]],
) -> None:
    entries, _ = listed
    source: FakeSource[Thing] = FakeSource()

    def project(state: Thing, received: Event) -> After[Thing]:
        return After(state.model_copy(update={"adds": (*state.adds, received.data["adds"])}))

    source.change(KEY, Found(1, Thing(name="Ada", adds=(1,))))
    inbox = StateInbox(entries, source, project, lambda: NOON)
    await inbox.handle(event(1))
    outcomes = await asyncio.gather(*(inbox.handle(event(2)) for _ in range(3)))
    await inbox.handle(event(3))
    await inbox.handle(event(2))
    assert len(outcomes) == 3
    read = await entries.newest(KEY)
    assert read is not None
    assert read.entry.state == Thing(name="Ada", adds=(1, 2, 3))


async def test_an_entry_without_a_newer_schemas_text_is_in_no_list_sorted_by_it(
    listed: tuple[Entries[Thing], Listing[Thing]],
) -> None:
    """Until it is written again; a page that ended with it would have no end to name."""
    entries, listing = listed
    before = replace(entries, form=EntrySchema(Thing, search={}, sorted_by=[]))  # type: ignore[type-var]  # a dataclass
    for number, form in enumerate((before, entries, before, entries)):
        await form.put(AggregateKey("thing", str(number)), Entry(1, None, Thing(name="A")), STAMP, over=None)
    for sort, ids in (("name", ["1", "3"]), ("-name", ["3", "1"])):
        first = await listing.page([], sort, 1, None)
        second = await listing.page([], sort, 1, first.continuation_token)
        assert [each.id for page in (first, second) for each in page.items] == ids
        assert second.continuation_token is None


async def test_a_token_reveals_nothing_and_is_of_its_list_alone(
    listed: tuple[Entries[Thing], Listing[Thing]],
) -> None:
    """The list is sorted by what may be a person's name."""
    entries, listing = listed
    for number, name in enumerate(["Lovelace", "Lovelace", "Lovelace"]):
        key = AggregateKey("thing", str(number))
        await entries.put(key, Entry(1, None, Thing(name=name)), STAMP, over=None)
    token = (await listing.page([], "name", 1, None)).continuation_token
    assert token is not None
    assert (await listing.page([], "name", 1, None)).continuation_token != token, "each is closed anew"
    padded = token + "=" * (-len(token) % 4)
    assert b"lovelace" not in base64.urlsafe_b64decode(padded).lower()
    with pytest.raises(UnknownContinuation):
        await listing.page([[Condition("name", "L", beginning=True)]], "name", 1, token)
    with pytest.raises(UnknownContinuation):
        await listing.page([], "-name", 1, token)
    for forged in ("AAAA", "A" * 20_000, "\u00e9", token[:-2], f"{token}AAAA"):
        with pytest.raises(UnknownContinuation):
            await listing.page([], "name", 1, forged)
    rest = await listing.page([], "name", 9, token)
    assert [each.id for each in rest.items] == ["1", "2"]


async def test_two_processes_share_a_database_of_cosmos(cosmos_server: Service) -> None:
    async with contacts_database(cosmos_server) as made, AsyncExitStack() as resources:
        environment = {"COSMOS": cosmos_server.connection_string, "COSMOS_DATABASE": made.id}
        mine, theirs = (CosmosDatabase(set_aside=SET_ASIDE).open(environment, resources) for _ in range(2))
        entry, received = Entry(3, None, Thing(name="Ada")), event(1)
        await mine.entries(DIRECTORY, FORM, TTL).put(KEY, entry, STAMP, over=None)
        record = Record.of(delivery(received), received, RecordState.WAITING, "a reason", NOON)
        await mine.set_aside("s", TTL).add(record)
        await mine.effects(EFFECTS, "mails", TTL).write(EffectRecord("e-1", EffectState.DONE, NOON))

        read = await theirs.entries(DIRECTORY, FORM, TTL).newest(KEY)
        assert read is not None
        assert read.entry == entry
        page = await theirs.listing(DIRECTORY, FORM).page([], "name", 9, None)
        assert [(each.id, each.state) for each in page.items] == [(KEY.id, entry.state)]
        walked = await theirs.entries(DIRECTORY, FORM, TTL).page(None)
        assert [key for key, _ in walked.items] == [KEY]
        assert (await theirs.set_aside("s", TTL).get(record.id)).delivery == record.delivery
        found = await theirs.effects(EFFECTS, "mails", TTL).find("e-1")
        assert found is not None
        assert found.state is EffectState.DONE


async def test_without_a_source_a_deleted_entry_of_cosmos_never_expires(cosmos_server: Service) -> None:
    """Without a source: an entry that expired would be made anew by an event that comes late."""
    async with (
        contacts_database(cosmos_server) as made,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        for key, ttl in (("7", TTL), ("8", None)):
            entries = CosmosEntries(Container(client, made.id, DIRECTORY), FORM, ttl)
            await entries.put(AggregateKey("thing", key), Entry(4, None, None), STAMP, over=None)
        stored = made.get_container_client(DIRECTORY)
        assert [(await stored.read_item(key, key))["ttl"] for key in ("7", "8")] == [TTL, -1]


async def test_a_list_of_cosmos_whose_token_is_not_taken_begins_anew(
    cosmos_server: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.cosmos.inbox.entries._PAGE", 2)
    async with (
        contacts_database(cosmos_server) as made,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        entries = CosmosEntries(Container(client, made.id, DIRECTORY), FORM, TTL)
        for number in range(3):
            await entries.put(
                AggregateKey("thing", f"{number}"), Entry(1, None, Thing(name="A")), STAMP, over=None
            )
        first = await entries.page(None)
        assert await entries.page("what the store has never given") == first

        async def refused(*_: object, **__: object) -> None:
            raise StoreFailed(Failure(Kind.INVALID, "400"))

        monkeypatch.setattr(entries.container, "page", refused)
        for position in (None, first.position):
            with pytest.raises(StoreUnavailable, match="400"):
                await entries.page(position)
