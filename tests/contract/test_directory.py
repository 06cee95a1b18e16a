"""The directory in Cosmos DB: the inbox's rules over the real store, with lost answers and replicas that lag."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from application.directory import DirectoryEntry, Field, Search, entry_of, project
from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.aggregates.idempotency import CosmosClaims
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.cosmos.inbox.listing import CosmosItems, token_key
from cosmos_outbox.cosmos.inbox.source import CosmosSource
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.inbox.entry import Entry, EntrySchema, Stamp
from cosmos_outbox.inbox.errors import StoreUnavailable, Unstorable
from cosmos_outbox.inbox.healing import Counts, Healing, WalkProgress
from cosmos_outbox.inbox.message import SKIP_MARKER, Event, TolerantReader
from cosmos_outbox.inbox.read_model import HealReason, SkipReason, StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.lists.listing import Listing, TokenKey
from cosmos_outbox.operations.subscriber import ReadModel
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.servicebus.message import message_from_event
from devstack.testing import Service
from domain.contact import Contact
from domain.values import ContactDetails, Name
from infra.bootstrap import DIRECTORY as READ_MODEL
from infra.directory import FORM, CosmosDirectory
from tests.support.azure import CLAIMS, CONTACTS, DIRECTORY, contacts_database
from tests.support.contacts import DETAILS, LATER, ORIGIN
from tests.support.feed import EVENTS
from tests.support.reading import reader_of
from tests.support.short_pages import shorten_pages
from tests.support.use_cases import Contacts

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
READER = reader_of(READ_MODEL)
PARTITIONS = 4


@dataclass
class Process:
    """One process of the app, with clients and session tokens of its own."""

    contacts: Contacts
    entries: CosmosEntries[DirectoryEntry]
    inbox: StateInbox[DirectoryEntry]
    directory: CosmosDirectory
    stored: Container
    key: TokenKey
    """Of the lists."""

    async def create(self, **details: Any) -> UUID:
        return (await self.contacts.create(DETAILS.model_copy(update=details), ORIGIN)).aggregate.id

    async def describe(self, contact_id: UUID, **details: Any) -> None:
        def revised(before: ContactDetails) -> ContactDetails:
            return before.model_copy(update=details)

        await self.contacts.revise(contact_id, revised, ORIGIN)

    async def events(self, contact_id: UUID) -> list[Event]:
        """What the relay sends of a contact, as the subscriber reads it."""
        query = "SELECT * FROM c WHERE c.type = 'domainEvent'"
        items, _ = await self.stored.page(query, {}, 100, None, partition_key=str(contact_id))
        found = [each for item in items if isinstance(each := EVENTS.event(item), OutboxEvent)]
        messages = [
            message_from_event(each, service=CloudEvents("/contacts"), partitioned=False)
            for each in sorted(found, key=lambda each: each.sequence or 0)
        ]
        received = [READER.event(b"".join(message.body), {}) for message in messages]
        return [each for each in received if each is not None]

    async def entry(self, contact_id: UUID) -> Entry[DirectoryEntry] | None:
        found = await self.entries.newest(key_of(contact_id))
        return None if found is None else found.entry


def entry_as_created(at: datetime) -> DirectoryEntry:
    return entry_of(DETAILS.model_dump(mode="json", by_alias=True) | {"createdAt": at})


def key_of(contact_id: UUID) -> AggregateKey:
    return AggregateKey("contact", str(contact_id))


def started(client: CosmosClient, database: str) -> Process:
    stored, listed = Container(client, database, CONTACTS), Container(client, database, DIRECTORY)
    entries = CosmosEntries(listed, FORM, deleted_ttl_seconds=600)
    lifetimes = Lifetimes(events=600, requests=600)
    aggregates = Aggregates(
        lambda origin: CosmosUnitOfWork(stored, "t", origin, lifetimes),
        CosmosClaims(Container(client, database, CLAIMS), 600),
    )
    key = token_key(listed)
    return Process(
        Contacts(aggregates, lambda: LATER, uuid4),
        entries,
        StateInbox(entries, CosmosSource(stored, "contact", entry_of), project),
        CosmosDirectory(Listing(CosmosItems(listed), FORM, "t", key)),
        stored,
        key,
    )


@dataclass
class Place:
    connection: str
    database: str


@pytest.fixture
async def place(cosmos: Service) -> AsyncIterator[Place]:
    async with contacts_database(cosmos) as database:
        yield Place(cosmos.connection_string, database.id)


@pytest.fixture
async def here(place: Place) -> AsyncIterator[Process]:
    async with CosmosClient.from_connection_string(place.connection) as client:
        yield started(client, place.database)


@pytest.fixture
async def there(place: Place) -> AsyncIterator[Process]:
    """Another process, which has written nothing and holds no session token."""
    async with CosmosClient.from_connection_string(place.connection) as client:
        yield started(client, place.database)


async def test_every_event_alone_leads_to_the_contact_as_it_is_stored(here: Process) -> None:
    """From the entry of the first version, so that no step is taken from the source."""
    contact_id = await here.create()
    first = entry_as_created(NOON)
    await here.entries.put(key_of(contact_id), Entry(1, None, first), Stamp(NOON, None), over=None)
    await here.describe(contact_id, name=Name(first_name="A", last_name="B"), email="a@b.org", company=None)
    await here.contacts.delete(contact_id, ORIGIN)
    before: Entry[DirectoryEntry] | None = None
    for event in (await here.events(contact_id))[1:]:
        before = await here.entry(contact_id)
        await here.inbox.handle(event)
    assert here.inbox.counts == {None: 4}
    assert before is not None
    assert before.state == DirectoryEntry(
        first_name="A", last_name="B", email="a@b.org", created_at=NOON, modified_at=LATER
    )
    after = await here.entry(contact_id)
    assert after is not None
    assert (after.state, after.last_sequence) == (None, 5)


def model(process: Process) -> ReadModel[DirectoryEntry]:
    return ReadModel(process.inbox, None, Mock())


async def test_who_waits_for_a_write_finds_it_in_the_list_though_replicas_lag(
    cosmos: Service, here: Process, there: Process
) -> None:
    for number in range(3):
        contact_id = await here.create(email=f"number-{number}@contoso.com")
        assert not await model(there).shows(key_of(contact_id), 1, seconds=0), "there is no entry"
        [event] = await here.events(contact_id)
        await cosmos.faults.add("lag", seconds=600, share=0.5, count=None)
        waiting = asyncio.create_task(model(there).shows(key_of(contact_id), 1, seconds=20))
        await here.inbox.handle(event)
        assert await waiting
        assert not await model(there).shows(key_of(contact_id), 2, seconds=0)
        for sort in ("name", "-changed"):
            search = Search({Field.EMAIL: f"number-{number}@contoso.com"}, sort)
            found = await there.directory.search(search, 10, None)
            assert [item.id for item in found.items] == [str(contact_id)]
        await cosmos.faults.clear()


async def test_a_store_that_is_away_shows_no_write_and_the_wait_ends(cosmos: Service, here: Process) -> None:
    contact_id = await here.create()
    [event] = await here.events(contact_id)
    await here.inbox.handle(event)
    await cosmos.faults.add("unavailable", operation="read", count=None)
    assert not await model(here).shows(key_of(contact_id), 1, seconds=0.2)
    await cosmos.faults.clear()
    assert await model(here).shows(key_of(contact_id), 1)


async def test_two_processes_apply_one_event_once(here: Process, there: Process) -> None:
    contact_id = await here.create()
    for email in ("john@contoso.com", "jane@contoso.com"):
        event = (await here.events(contact_id))[-1]
        await asyncio.gather(*(process.inbox.handle(event) for process in (here, there) for _ in range(3)))
        await here.describe(contact_id, email=email)
    entry = await here.entry(contact_id)
    assert entry is not None
    assert entry.last_sequence == 2
    both = here.inbox.counts + there.inbox.counts
    assert (both[HealReason.NEW], both[None]) == (1, 1)


async def test_an_answer_that_is_lost_changes_nothing_in_the_end(cosmos: Service, here: Process) -> None:
    contact_id = await here.create()
    await here.describe(contact_id, email="jane@contoso.com")
    for event in await here.events(contact_id):
        await cosmos.faults.add("drop-after-commit", count=2, operation="batch", container=DIRECTORY)
        for _ in range(10):
            try:
                await here.inbox.handle(event)
            except StoreUnavailable:
                continue
            break
        await cosmos.faults.clear()
    entry = await here.entry(contact_id)
    assert entry is not None
    assert (entry.last_sequence, entry.state and entry.state.email) == (2, "jane@contoso.com")


async def test_over_replicas_that_lag_nothing_is_lost_and_nothing_comes_back(
    cosmos: Service, here: Process, there: Process
) -> None:
    contact_id = await here.create()
    await here.describe(contact_id, email="jane@contoso.com")
    await here.describe(contact_id, company=None)
    events = await here.events(contact_id)
    await cosmos.faults.add("lag", seconds=600, count=None)
    await here.inbox.handle(events[0])
    await there.inbox.handle(events[2])
    skip_marker = replace(events[1], id=str(uuid4()), action=SKIP_MARKER)
    await there.inbox.handle(skip_marker)
    entry = await here.entry(contact_id)
    assert entry is not None
    assert (entry.last_sequence, entry.state and entry.state.company) == (3, None)
    await here.contacts.delete(contact_id, ORIGIN)
    await there.inbox.heal(key_of(contact_id))
    for event in events:
        await there.inbox.handle(event)
    deleted = await here.entry(contact_id)
    assert deleted is not None
    assert (deleted.last_sequence, deleted.state) == (4, None)
    assert SkipReason.CONFLICT not in here.inbox.counts + there.inbox.counts


async def test_a_deleted_entry_keeps_only_what_is_needed_and_expires(here: Process) -> None:
    contact_id = await here.create()
    await here.contacts.delete(contact_id, ORIGIN)
    for event in await here.events(contact_id):
        await here.inbox.handle(event)
    item = await here.entries.container.read(str(contact_id), str(contact_id))
    assert item is not None
    assert (item["lastSequence"], item["ttl"], item["data"], item["search"]) == (2, 600, None, {})
    assert "contoso" not in str(item)


@pytest.mark.parametrize(
    ("kind", "error"),
    [(Kind.INVALID, Unstorable), (Kind.TOO_LARGE, Unstorable), (Kind.DENIED, StoreUnavailable)],
)
async def test_a_refusal_of_the_store_hits_one_contact_and_an_outage_hits_all(
    here: Process, monkeypatch: pytest.MonkeyPatch, kind: Kind, error: type[Exception]
) -> None:
    contact_id = await here.create()
    [event] = await here.events(contact_id)

    async def refused(*_: object, **__: object) -> None:
        raise StoreFailed(Failure(kind, "400/0"))

    monkeypatch.setattr(here.entries.container, "execute", refused)
    with pytest.raises(error):
        await here.inbox.handle(event)


PEOPLE = [("Ada", "Berg", "Oslo"), ("ADA", "Åsen", "Oslo"), ("Bo", "Adams", "Bergen"), ("Cy", "Dahl", "oslo")]


async def listed(here: Process, count: int) -> None:
    for number in range(count):
        first, last, city = PEOPLE[number % len(PEOPLE)]
        state = DirectoryEntry(
            first_name=first,
            last_name=last,
            email=f"p{number}@contoso.com",
            company="Contoso",
            city=city,
            country="NO",
            created_at=NOON + timedelta(seconds=number // 3),
            modified_at=NOON + timedelta(hours=number % 4) if number % 4 else None,
        )
        await here.entries.put(key_of(uuid4()), Entry(number, None, state), Stamp(NOON, None), over=None)
    await here.entries.put(key_of(uuid4()), Entry(9, None, None), Stamp(NOON, None), over=None)


async def pages(here: Process, search: Search, size: int) -> list[list[tuple[str, str]]]:
    """First names and ids, page by page."""
    found, token = [], None
    while True:
        page = await here.directory.search(search, size, token)
        found.append([(item.state.first_name, item.id) for item in page.items])
        token = page.continuation_token
        if token is None:
            return found


async def test_the_directory_is_paged_over_all_partitions_in_each_order(here: Process) -> None:
    await listed(here, 7)
    for sort in ("name", "changed"):
        found = await pages(here, Search({}, sort), 3)
        assert list(map(len, found)) == [3, 3, 1]
        flat = [each for page in found for each in page]
        assert len({each_id for _, each_id in flat}) == 7
        whole = await here.directory.search(Search({}, sort), 100, None)
        assert flat == [(item.state.first_name, item.id) for item in whole.items]
        back = [each for page in await pages(here, Search({}, f"-{sort}"), 3) for each in page]
        assert back == flat[::-1], f"-{sort}"


async def test_a_short_page_of_the_store_does_not_end_the_directory(
    here: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await listed(here, 7)
    shorten_pages(monkeypatch)
    assert list(map(len, await pages(here, Search({}), 5))) == [5, 2]


WANTED: list[tuple[dict[Field, str], list[str]]] = [
    ({Field.NAME: "ada"}, ["Ada", "ADA", "Bo"]),
    ({Field.NAME: "ada b"}, ["Ada"]),
    ({Field.NAME: "åse"}, ["ADA"]),
    ({Field.EMAIL: "P1@Contoso.com"}, ["ADA"]),
    ({Field.CITY: "OSLO"}, ["Ada", "ADA", "Cy"]),
    ({Field.CITY: "oslo", Field.NAME: "c"}, ["Cy"]),
    ({Field.COMPANY: "contoso", Field.COUNTRY: "no"}, ["Ada", "ADA", "Bo", "Cy"]),
    ({Field.COUNTRY: "n"}, []),
]


async def test_the_directory_is_searched(here: Process) -> None:
    await listed(here, len(PEOPLE))
    for wanted, first_names in WANTED:
        page = await here.directory.search(Search(wanted), 10, None)
        assert [item.state.first_name for item in page.items] == first_names, wanted


async def test_two_processes_that_make_the_key_at_once_have_one(here: Process, there: Process) -> None:
    """Each makes one: the one that is stored counts."""
    made = await asyncio.gather(*(each.key.close("s", "p") for each in (here, there) * 3))
    for process in (here, there):
        assert {await process.key.open("s", token) for token in made} == {"p"}


async def test_a_lost_answer_to_the_key_leaves_one_key(
    cosmos: Service, here: Process, there: Process
) -> None:
    await cosmos.faults.add("drop-after-commit", count=1, operation="create", container=DIRECTORY)
    with contextlib.suppress(OutboxError):
        await here.key.close("s", "p")
    token = await there.key.close("s", "p")
    assert await here.key.open("s", token) == "p"


async def test_an_id_reused_after_its_tombstone_is_unlisted_and_logged(
    here: Process, caplog: pytest.LogCaptureFixture
) -> None:
    contact_id = await here.create()
    await here.contacts.delete(contact_id, ORIGIN)
    for event in await here.events(contact_id):
        await here.inbox.handle(event)
    for item in (await here.stored.page("SELECT * FROM c", {}, 9, None, partition_key=str(contact_id)))[0]:
        await here.stored.execute(str(contact_id), [Write.delete(item["id"], item["_etag"])])  # as TTL does
    await here.contacts.aggregates.create(Contact.create(DETAILS, at=LATER, id=contact_id), ORIGIN)
    [created] = await here.events(contact_id)
    await here.inbox.handle(created)
    healing = healing_of(here, [])
    progress = await healing.rebuild(lambda _: None)
    assert progress.last_counts == Counts(sources=1, ahead=1)
    assert f"contact {contact_id} exists, but its entry was deleted at sequence 2" in caplog.text
    assert (await here.directory.search(Search({}), 9, None)).items == []

    await healing.rebuild(lambda _: None, source_wins=True)
    assert [item.id for item in (await here.directory.search(Search({}), 9, None)).items] == [str(contact_id)]


async def test_walks_over_all_partitions_heal_all_but_what_is_blocked(
    here: Process, there: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.cosmos.inbox.entries._PAGE", 2)
    behind, missing, deleted, parked, gone = [await here.create() for _ in range(5)]
    for contact_id in (behind, deleted, parked, gone):
        await here.inbox.handle((await here.events(contact_id))[0])
    await here.describe(behind, email="walked@contoso.com")
    await here.describe(parked, email="parked@contoso.com")
    await here.contacts.delete(deleted, ORIGIN)
    for item in (await here.stored.page("SELECT * FROM c", {}, 9, None, partition_key=str(gone)))[0]:
        await here.stored.execute(str(gone), [Write.delete(item["id"], item["_etag"])])  # as TTL does
    held = [key_of(parked)]

    async def walked(process: Process, days: int) -> WalkProgress:
        healing = healing_of(process, held, utc_now() + timedelta(days=days))
        await healing.run(seconds=30)
        progress = await healing.progress()
        assert progress is not None
        assert progress.side is None
        return progress

    assert (await walked(here, 0)).last_counts == Counts(entries=4, sources=4, healed=1, blocked=1, gone=1), (
        "most is young"
    )
    assert (await walked(here, 1)).last_counts == Counts(entries=3, sources=4, healed=3, blocked=1)
    found = [await here.entry(contact_id) for contact_id in (behind, missing, deleted, parked, gone)]
    assert [entry and entry.last_sequence for entry in found] == [2, 1, 2, 1, 1]
    [listed] = [
        item for item in (await here.directory.search(Search({}), 9, None)).items if item.id == str(parked)
    ]
    assert listed.blocked_since is not None
    for event in (await here.events(parked))[1:]:
        await here.inbox.handle(event)
    [listed] = (await here.directory.search(Search({Field.EMAIL: "parked@contoso.com"}), 9, None)).items
    assert (listed.sequence, listed.blocked_since) == (2, None)
    held.clear()
    assert (await walked(there, 2)).last_counts == Counts(entries=3, sources=4), (
        "once more, in another process"
    )
    assert (await walked(here, 3)).last_counts == Counts(), "nothing has changed since"


def healing_of(
    process: Process, blocked: list[AggregateKey], now: datetime | None = None, version: int = 1
) -> Healing[Any]:
    async def held() -> list[AggregateKey]:
        return blocked

    source = process.inbox.source
    assert isinstance(source, CosmosSource)
    inbox = process.inbox if now is None else replace(process.inbox, clock=lambda: now)
    return Healing(inbox, source, version, held, timedelta(days=10))


async def test_a_walk_compares_all_but_the_source_that_cannot_be_read(
    here: Process, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad, last = [await here.create() for _ in range(3)]
    await here.describe(bad, email="unreadable@contoso.com")

    def state_of(data: Any) -> DirectoryEntry:
        if data["email"] == "unreadable@contoso.com":
            raise SystemExit
        return entry_of(data)

    assert isinstance(here.inbox.source, CosmosSource)
    here.inbox = replace(here.inbox, source=replace(here.inbox.source, state_of=state_of))
    progress = await healing_of(here, []).rebuild(lambda _: None)
    assert progress.last_counts == Counts(entries=2, sources=3, healed=2, failed=1)
    assert f"the walk cannot compare contact {bad}" in caplog.text
    assert [await here.entry(each) is not None for each in (good, bad, last)] == [True, False, True]


class OldEntry(TolerantReader):
    """The form of the entry before: it lacks what the present one needs."""

    email: str


OLD_FORM = EntrySchema(
    version=0, model=OldEntry, search={"email": lambda entry: entry.email}, sorted_by=["email"]
)


async def test_unreadable_entries_are_healed_by_an_event_and_by_a_walk(
    here: Process, caplog: pytest.LogCaptureFixture
) -> None:
    old = CosmosEntries(here.entries.container, OLD_FORM, deleted_ttl_seconds=600)
    described, silent = [await here.create() for _ in range(2)]
    for contact_id in (described, silent):
        state = OldEntry(email="johndoe@contoso.com")
        [created] = await here.events(contact_id)
        await old.put(key_of(contact_id), Entry(1, created.id, state), Stamp(NOON, None), over=None)
    assert (await here.directory.search(Search({}), 9, None)).items == [], "no text to sort by"
    by_mail = await here.directory.search(Search({}, Field.EMAIL), 9, None)
    assert by_mail.items == []
    assert "2 of 2 entries are left out of a list" in caplog.text
    [created] = await here.events(silent)
    await here.inbox.handle(created)
    assert here.inbox.counts == {SkipReason.APPLIED_BEFORE: 1}
    await here.describe(described, email="jane@contoso.com")
    await here.inbox.handle((await here.events(described))[-1])
    assert here.inbox.counts[HealReason.FORM] == 1
    progress = await healing_of(here, []).rebuild(lambda _: None)
    assert progress.last_counts == Counts(entries=2, sources=2, rewritten=1)
    entry = await here.entry(silent)
    assert entry is not None
    assert (entry.last_event_id, entry.state) == (created.id, entry_as_created(LATER))
    assert len((await here.directory.search(Search({}), 9, None)).items) == 2


async def test_a_readable_entry_of_another_schema_is_listed_and_not_built_upon(here: Process) -> None:
    contact_id = await here.create()
    [created] = await here.events(contact_id)
    await here.inbox.handle(created)
    newer = replace(FORM, version=2, search={**FORM.search, "city": lambda _: "a text of the new form"})
    entries = CosmosEntries(here.entries.container, newer, deleted_ttl_seconds=600)
    read = await entries.read(key_of(contact_id))
    assert read is not None
    assert (read.entry.other_form, read.entry.state, read.entry.deleted) == (True, None, False)
    container = here.entries.container
    listing = CosmosDirectory(Listing(CosmosItems(container), newer, "t", token_key(container)))
    assert len((await listing.search(Search({}), 9, None)).items) == 1
    inbox = replace(here.inbox, entries=entries)
    await inbox.heal(key_of(contact_id))
    assert len((await listing.search(Search({Field.CITY: "a text of the new form"}), 9, None)).items) == 1
    again = await here.entries.read(key_of(contact_id))
    assert again is not None
    assert again.entry.other_form, "nor by an instance of the version before"
