"""A subscriber's entries in memory, in Cosmos DB and in SQLite: one suite over all, as the port promises."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient
from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.cosmos.inbox.listing import CosmosItems
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.token_key import token_key
from cosmos_outbox.inbox.effect import EffectRecord, EffectState
from cosmos_outbox.inbox.entry import After, Entry, Found, Stamp
from cosmos_outbox.inbox.errors import EntryChanged, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.form import Condition, EntryForm, Listing
from cosmos_outbox.inbox.ports import Entries
from cosmos_outbox.inbox.set_aside import Record, RecordState
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists.listing import EntryListing
from cosmos_outbox.outbox.errors import UnknownContinuation
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.entries import SqliteEntries
from cosmos_outbox.sqlite.listing import token_key as sqlite_key
from cosmos_outbox.sqlite.store import SqliteStore
from devstack.testing import Service
from tests.support.azure import DIRECTORY, EFFECTS, SET_ASIDE, contacts_database
from tests.support.inbox import NOON, FakeEntries, FakeSource, delivery, event

pytestmark = pytest.mark.needs_a_socket("the other form of each test is a file, written by a thread")

KEY = AggregateKey("thing", "7")
TTL = 600


class Thing(BaseModel):
    name: str
    adds: tuple[int, ...] = ()


FORM = EntryForm(Thing, search={"name": lambda thing: thing.name}, sorted_by=["name"])
STAMP = Stamp(NOON, 1.5)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(tmp_path / "folder" / "store.db")
    yield made
    await made.close()


@pytest.fixture(params=["fake", "devstack", "sqlite"])
async def entries(
    request: pytest.FixtureRequest, cosmos_server: Service, database: Database
) -> AsyncIterator[Entries[Thing]]:
    if request.param == "fake":
        yield FakeEntries()
    elif request.param == "sqlite":
        yield SqliteEntries(database, "things", FORM, TTL)
    else:
        async with (
            contacts_database(cosmos_server) as made,
            CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
        ):
            yield CosmosEntries(Container(client, made.id, DIRECTORY), FORM, TTL)


async def test_an_entry_is_read_as_it_was_written(entries: Entries[Thing]) -> None:
    assert await entries.read(KEY) is None
    assert await entries.newest(KEY) is None
    entry = Entry(3, "an event", Thing(name="Ada", adds=(1, 2)), healed=2)
    await entries.put(KEY, entry, STAMP, over=None)
    for read in (entries.read, entries.newest):
        found = await read(KEY)
        assert found is not None
        assert (found.entry, found.blocked_since) == (entry, None)


async def test_an_entry_is_written_only_over_the_version_that_was_read(entries: Entries[Thing]) -> None:
    first, second = Entry(1, "a", Thing(name="A")), Entry(2, "b", Thing(name="B"))
    await entries.put(KEY, first, STAMP, over=None)
    with pytest.raises(EntryChanged):
        await entries.put(KEY, second, STAMP, over=None)
    read = await entries.newest(KEY)
    assert read is not None
    await entries.put(KEY, second, STAMP, over=read.version)
    with pytest.raises(EntryChanged):
        await entries.put(KEY, replace(second, last_sequence=3), STAMP, over=read.version)
    with pytest.raises(EntryChanged):
        await entries.remove(KEY, over=read.version)
    read = await entries.newest(KEY)
    assert read is not None
    assert read.entry == second


async def test_of_many_writers_one_wins(entries: Entries[Thing]) -> None:
    writes = [entries.put(KEY, Entry(n, None, Thing(name=str(n))), STAMP, over=None) for n in range(1, 9)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(each) for each in outcomes].count(EntryChanged) == 7
    [(won, version)] = [(n, each) for n, each in enumerate(outcomes, start=1) if isinstance(each, str)]
    read = await entries.newest(KEY)
    assert read is not None
    assert (read.entry.last_sequence, read.version) == (won, version)


async def test_a_removed_entry_is_gone_and_may_be_made_again(entries: Entries[Thing]) -> None:
    await entries.put(KEY, Entry(1, "a", Thing(name="A")), STAMP, over=None)
    old = await entries.newest(KEY)
    assert old is not None
    await entries.remove(KEY, over=old.version)
    assert await entries.newest(KEY) is None
    await entries.put(KEY, Entry(5, None, Thing(name="B")), STAMP, over=None)
    again = await entries.newest(KEY)
    assert again is not None
    assert again.entry.last_sequence == 5


async def test_a_deleted_entry_keeps_its_place_and_no_state(entries: Entries[Thing]) -> None:
    await entries.put(KEY, Entry(4, None, None), STAMP, over=None)
    read = await entries.read(KEY)
    assert read is not None
    assert read.entry == Entry(4, None, None)
    assert read.entry.deleted


class NewThing(BaseModel):
    name: str
    size: int
    """An entry of the version before has none, and cannot be read."""


async def test_the_state_of_another_form_is_no_state_until_it_is_written_again(
    in_two_forms: tuple[Entries[Thing], Entries[Thing], Entries[NewThing]],
) -> None:
    """Whether it could be read, as in a form with another text to search by, or not."""
    old, alike, unlike = in_two_forms
    await old.put(KEY, Entry(3, "an event", Thing(name="A"), healed=2), STAMP, over=None)
    for newer in (alike, unlike):
        for read in (await newer.read(KEY), await newer.newest(KEY)):
            assert read is not None
            assert read.entry == Entry(3, "an event", None, 2, other_form=True)
            assert not read.entry.deleted
    source: FakeSource[Thing] = FakeSource()
    source.change(KEY, Found(3, Thing(name="B")))
    inbox = StateInbox(alike, source, lambda state, _: After(state), lambda: NOON)
    await inbox.heal(KEY)
    read = await alike.read(KEY)
    assert read is not None
    assert read.entry == Entry(3, "an event", Thing(name="B"), 2)
    await alike.put(KEY, Entry(4, None, None), STAMP, over=read.version)
    deleted = await old.read(KEY)
    assert deleted is not None
    assert deleted.entry.deleted, "it has every form"


@pytest.fixture(params=["devstack", "sqlite"])
async def in_two_forms(
    request: pytest.FixtureRequest, cosmos_server: Service, database: Database
) -> AsyncIterator[tuple[Entries[Thing], Entries[Thing], Entries[NewThing]]]:
    newer = replace(FORM, version=2)
    other = EntryForm(NewThing, search={}, sorted_by=[], version=2)
    if request.param == "sqlite":
        yield (
            SqliteEntries(database, "things", FORM, TTL),
            SqliteEntries(database, "things", newer, TTL),
            SqliteEntries(database, "things", other, TTL),
        )
        return
    async with (
        contacts_database(cosmos_server) as made,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        container = Container(client, made.id, DIRECTORY)
        yield (
            CosmosEntries(container, FORM, TTL),
            CosmosEntries(container, newer, TTL),
            CosmosEntries(container, other, TTL),
        )


async def test_a_list_of_sqlite_leaves_out_what_cannot_be_read(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    other = EntryForm(NewThing, search=dict[str, Any](), sorted_by=[], version=2)
    for number, name in enumerate("ABC"):
        key = AggregateKey("thing", str(number))
        await SqliteEntries(database, "things", FORM, TTL).put(
            key, Entry(1, None, Thing(name=name)), STAMP, over=None
        )
    read = await SqliteEntries(database, "things", other, TTL).read(AggregateKey("thing", "1"))
    assert read is not None
    search = EntryForm(NewThing, search={"name": lambda thing: thing.name}, sorted_by=["name"], version=2)
    await SqliteEntries(database, "things", search, TTL).put(
        AggregateKey("thing", "1"), Entry(1, None, NewThing(name="B", size=1)), STAMP, over=read.version
    )
    store = SqliteStore(database, sqlite_key(database))
    listing = store.listing("things", search)
    first = await listing.page([], "name", 2, None)
    assert [each.id for each in first.items] == ["1"]
    second = await listing.page([], "name", 2, first.continuation_token)
    assert (list(second.items), second.continuation_token) == ([], None)
    assert "1 of 2 entries are left out of a list" in caplog.text
    alike = await store.listing("things", replace(FORM, version=3)).page([], "name", 9, None)
    assert [each.state.name for each in alike.items] == ["A", "B", "C"], "shown as far as it can be read"
    page = await SqliteEntries(database, "things", search, TTL).page(None)
    assert [read.entry.other_form for _, read in page.items] == [True, False, True]


async def test_the_inbox_over_it_applies_each_event_once(entries: Entries[Thing]) -> None:
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


@pytest.fixture(params=["devstack", "sqlite"])
async def listed(
    request: pytest.FixtureRequest, cosmos_server: Service, database: Database
) -> AsyncIterator[tuple[Entries[Thing], Listing[Thing]]]:
    if request.param == "sqlite":
        yield (
            SqliteEntries(database, "things", FORM, TTL),
            SqliteStore(database, sqlite_key(database)).listing("things", FORM),
        )
        return
    async with (
        contacts_database(cosmos_server) as made,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        container = Container(client, made.id, DIRECTORY)
        yield (
            CosmosEntries(container, FORM, TTL),
            EntryListing(CosmosItems(container), FORM, "t", token_key(container)),
        )


async def test_living_entries_are_listed_page_by_page(
    listed: tuple[Entries[Thing], Listing[Thing]],
) -> None:
    entries, listing = listed
    for number, name in enumerate(["Cid", "Ada", "Bob", "Bea", "Ada"]):
        key = AggregateKey("thing", str(number))
        await entries.put(key, Entry(number + 1, None, Thing(name=name)), STAMP, over=None)
    await entries.put(AggregateKey("thing", "9"), Entry(1, None, None), STAMP, over=None)
    seen, token = [], None
    while True:
        page = await listing.page([], "name", 2, token)
        seen += [(each.state.name, each.id) for each in page.items]
        token = page.continuation_token
        if token is None:
            break
    assert seen == [("Ada", "1"), ("Ada", "4"), ("Bea", "3"), ("Bob", "2"), ("Cid", "0")]
    back: list[tuple[str, str]] = []
    while token is not None or not back:
        page = await listing.page([], "-name", 2, token)
        back += [(each.state.name, each.id) for each in page.items]
        token = page.continuation_token
    assert back == [("Cid", "0"), ("Bob", "2"), ("Bea", "3"), ("Ada", "4"), ("Ada", "1")]
    begins = await listing.page([[Condition("name", "B", beginning=True)]], "name", 9, None)
    assert [each.state.name for each in begins.items] == ["Bea", "Bob"]
    assert not (await listing.page([[Condition("name", "B")]], "name", 9, None)).items, "it is the whole text"
    either = [[Condition("name", "Ada"), Condition("name", "Cid")]]
    assert len((await listing.page(either, "name", 9, None)).items) == 3
    [first, *_] = begins.items
    assert (first.sequence, first.applied_at, first.late_seconds) == (4, NOON, 1.5)
    with pytest.raises(UnknownContinuation):
        await listing.page([], "name", 2, "no token")


async def test_an_entry_without_the_text_of_a_newer_form_is_not_in_the_lists_that_are_sorted_by_it(
    listed: tuple[Entries[Thing], Listing[Thing]],
) -> None:
    """Until it is written again; a page that ended with it would have no end to tell."""
    entries, listing = listed
    before = replace(entries, form=EntryForm(Thing, search={}, sorted_by=[]))  # type: ignore[type-var]  # a dataclass
    for number, form in enumerate((before, entries, before, entries)):
        await form.put(AggregateKey("thing", str(number)), Entry(1, None, Thing(name="A")), STAMP, over=None)
    for sort, ids in (("name", ["1", "3"]), ("-name", ["3", "1"])):
        first = await listing.page([], sort, 1, None)
        second = await listing.page([], sort, 1, first.continuation_token)
        assert [each.id for page in (first, second) for each in page.items] == ids
        assert second.continuation_token is None


async def test_a_token_tells_nothing_and_is_of_its_list_alone(
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


async def test_a_list_of_another_read_model_or_file_takes_no_token_of_this_one(
    database: Database, tmp_path: Path
) -> None:
    other = Database(tmp_path / "other.db")
    store = SqliteStore(database, sqlite_key(database))
    for number in range(3):
        for file, name in ((database, "a"), (database, "b"), (other, "a")):
            key = AggregateKey("thing", str(number))
            await SqliteEntries(file, name, FORM, TTL).put(
                key, Entry(1, None, Thing(name="A")), STAMP, over=None
            )
    token = (await store.listing("a", FORM).page([], "name", 1, None)).continuation_token
    for listing in (
        store.listing("b", FORM),
        SqliteStore(other, sqlite_key(other)).listing("a", FORM),
    ):
        with pytest.raises(UnknownContinuation):
            await listing.page([], "name", 1, token)
    again = Database(database.path)
    page = await SqliteStore(again, sqlite_key(again)).listing("a", FORM).page([], "name", 9, token)
    assert [each.id for each in page.items] == ["1", "2"], "another process opens it"
    for each in (other, again):
        await each.close()


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


async def test_two_read_models_and_two_processes_share_a_file(database: Database) -> None:
    other = Database(database.path)
    mine, theirs = SqliteEntries(database, "a", FORM, TTL), SqliteEntries(other, "b", FORM, TTL)
    same = SqliteEntries(other, "a", FORM, TTL)
    await asyncio.gather(
        *(each.put(KEY, Entry(1, None, Thing(name=each.name)), STAMP, over=None) for each in (mine, theirs))
    )
    read = await same.read(KEY)
    assert read is not None
    assert read.entry.state == Thing(name="a")
    await other.close()


async def test_a_deleted_entry_of_sqlite_expires_and_is_removed(database: Database) -> None:
    now = NOON
    entries = SqliteEntries(database, "things", FORM, TTL, lambda: now)
    for_good = SqliteEntries(database, "kept", FORM, None, lambda: now)
    for each in (entries, for_good):
        await each.put(KEY, Entry(4, None, None), STAMP, over=None)
    now = NOON + timedelta(seconds=TTL + 1)
    assert await entries.read(KEY) is None
    assert await for_good.read(KEY) is not None
    await entries.put(AggregateKey("thing", "8"), Entry(1, None, Thing(name="A")), STAMP, over=None)
    left = await database.run(lambda connection: connection.execute("SELECT id FROM entries").fetchall())
    assert sorted(row["id"] for row in left) == ["7", "8"], "the kept one, and the new one"


async def test_a_deleted_entry_of_cosmos_is_kept_for_good_where_nothing_else_could_tell(
    cosmos_server: Service,
) -> None:
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


async def test_a_file_that_cannot_be_used_is_a_store_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "no-folder").write_text("a file")
    database = Database(tmp_path / "no-folder" / "store.db")
    with pytest.raises(StoreAway, match=r"store\.db cannot be used"):
        await SqliteEntries(database, "things", FORM, TTL).read(KEY)
    garbage = Database(tmp_path / "garbage.db")
    garbage.path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreAway):
        await garbage.check()
    for each in (database, garbage):
        await each.close()


async def test_a_walk_goes_over_the_entries_that_are_not_deleted(entries: Entries[Thing]) -> None:
    for number in range(105):
        await entries.put(
            AggregateKey("thing", f"{number}"), Entry(1, None, Thing(name="A")), STAMP, over=None
        )
    await entries.put(AggregateKey("thing", "gone"), Entry(1, None, None), STAMP, over=None)
    position, walked = None, list[str]()
    while position is not None or not walked:
        page = await entries.page(position)
        walked += [key.id for key, _ in page.items]
        position = page.position
    assert sorted(walked, key=int) == [f"{number}" for number in range(105)]
    key, listed = (await entries.page(None)).items[0]
    assert await entries.newest(key) == listed


async def test_where_a_walk_is_is_written_at_the_version_that_was_read(entries: Entries[Thing]) -> None:
    assert await entries.progress() is None
    first = await entries.save_progress({"position": "1"}, over=None)
    for stale in (None, "no version"):
        with pytest.raises(EntryChanged):
            await entries.save_progress({"position": "2"}, over=stale)
    second = await entries.save_progress({"position": "2"}, over=first)
    with pytest.raises(EntryChanged):
        await entries.save_progress({"position": "3"}, over=first)
    saved = await entries.progress()
    assert saved is not None
    assert (saved[0]["position"], saved[1]) == ("2", second)
    assert (await entries.page(None)).items == [], "it is no entry"


async def test_a_block_is_noted_at_the_version_and_an_event_ends_it(entries: Entries[Thing]) -> None:
    await entries.put(KEY, Entry(1, None, Thing(name="A")), STAMP, over=None)
    before = await entries.newest(KEY)
    assert before is not None
    await entries.mark(KEY, before.version, NOON)
    marked = await entries.newest(KEY)
    assert marked is not None
    assert (marked.entry, marked.blocked_since) == (before.entry, NOON)
    for key in (KEY, AggregateKey("thing", "none")):
        with pytest.raises(EntryChanged):
            await entries.mark(key, "no version", None)
    await entries.put(KEY, Entry(2, None, Thing(name="B")), STAMP, over=marked.version)
    after = await entries.newest(KEY)
    assert after is not None
    assert after.blocked_since is None


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
            with pytest.raises(StoreAway, match="400"):
                await entries.page(position)
