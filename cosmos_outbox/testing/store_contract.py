"""The contract of a subscriber's store, as tests that an adapter's own test class inherits. They need only pytest.

No test kills a process or simulates an old read: an adapter has to test its guarantees about both itself.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cosmos_outbox.composition.declarations import Store
from cosmos_outbox.inbox.effect import EffectRecord, EffectState
from cosmos_outbox.inbox.entry import Condition, Entry, EntrySchema, Stamp, VersionedEntry
from cosmos_outbox.inbox.errors import EntryChanged, NotSetAside, RecordChanged
from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.inbox.ports import Entries
from cosmos_outbox.inbox.set_aside import Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import UnknownContinuation

TTL_SECONDS = 600
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STAMP = Stamp(NOON, 1.5)


class Thing(BaseModel):
    """The state of an entry."""

    name: str


FORM = EntrySchema(Thing, search={"name": lambda thing: thing.name}, sorted_by=["name"])
KEY = AggregateKey("thing", "7")
Check = Callable[["SubscriberStoreContract", Store], Coroutine[Any, Any, None]]


def _over_a_store(check: Check) -> Callable[["SubscriberStoreContract", Path], None]:
    def test(self: "SubscriberStoreContract", tmp_path: Path) -> None:
        async def run() -> None:
            async with self.opened(tmp_path) as store:
                await check(self, store)

        asyncio.run(run())

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


class SubscriberStoreContract(ABC):
    """Tests of a subscriber's store. Inherit it in a test module, and define how an empty store is opened.

    Example::

        class TestMyStore(SubscriberStoreContract):
            def opened(self, folder):
                return my_store_in(folder)
    """

    read_model, subscription, effect = "things", "things", "mails"
    """The names of the read model, the subscription and the effect."""

    @abstractmethod
    def opened(self, folder: Path) -> AbstractAsyncContextManager[Store]:
        """Returns an empty store; ``folder`` belongs to the test."""

    @_over_a_store
    async def test_an_entry_is_read_as_it_was_written(self, store: Store) -> None:
        """State, sequence and event id are one write; a deleted entry has no state."""
        entries = self._entries(store)
        assert (await entries.read(KEY), await entries.newest(KEY)) == (None, None)
        for entry in (Entry(3, "an event", Thing(name="Ada"), healed=2), Entry[Thing](4, None, None)):
            before = await entries.newest(KEY)
            version = await entries.put(KEY, entry, STAMP, over=None if before is None else before.version)
            for read in (await entries.read(KEY), await entries.newest(KEY)):
                assert read == VersionedEntry(entry, version, None)

    @_over_a_store
    async def test_an_entry_is_written_over_its_version_alone(self, store: Store) -> None:
        """A repeated write whose first answer was lost fails too; a removed entry may be created again."""
        entries, entry = self._entries(store), Entry(1, "a", Thing(name="A"))
        first = await entries.put(KEY, entry, STAMP, over=None)
        with pytest.raises(EntryChanged):
            await entries.put(KEY, entry, STAMP, over=None)
        second = await entries.put(KEY, replace(entry, last_sequence=2), STAMP, over=first)
        for stale in (first, '"no version"'):
            with pytest.raises(EntryChanged):
                await entries.put(KEY, entry, STAMP, over=stale)
            with pytest.raises(EntryChanged):
                await entries.remove(KEY, over=stale)
        await entries.remove(KEY, over=second)
        with pytest.raises(EntryChanged):
            await entries.put(KEY, entry, STAMP, over=second)
        assert await entries.newest(KEY) is None
        await entries.put(KEY, replace(entry, last_sequence=5), STAMP, over=None)

    @_over_a_store
    async def test_of_many_writers_one_wins(self, store: Store) -> None:
        """All create the same entry concurrently."""
        entries = self._entries(store)
        writes = (entries.put(KEY, Entry(n, None, Thing(name=str(n))), STAMP, over=None) for n in range(8))
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(each) for each in outcomes].count(EntryChanged) == 7
        [won] = [n for n, each in enumerate(outcomes) if isinstance(each, str)]
        read = await entries.newest(KEY)
        assert read is not None
        assert (read.entry.last_sequence, read.version) == (won, outcomes[won])

    @_over_a_store
    async def test_the_state_of_another_form_is_none(self, store: Store) -> None:
        """It is empty until it is written again; a deleted entry has every form."""
        old, new = self._entries(store), self._entries(store, version=2)
        await old.put(KEY, Entry(3, "an event", Thing(name="A"), healed=2), STAMP, over=None)
        read = await new.newest(KEY)
        assert read is not None
        assert read.entry == Entry(3, "an event", None, 2, other_form=True)
        [(_, listed)] = (await new.page(None)).items
        assert listed.entry == read.entry
        await new.put(KEY, Entry(4, None, None), STAMP, over=read.version)
        deleted = await old.newest(KEY)
        assert deleted is not None
        assert deleted.entry.deleted

    @_over_a_store
    async def test_a_walk_goes_over_the_entries_that_are_not_deleted(self, store: Store) -> None:
        """Each entry is listed once, page by page."""
        entries = self._entries(store)
        for number in range(105):
            await entries.put(
                AggregateKey("thing", f"{number}"), Entry(1, None, Thing(name="A")), STAMP, over=None
            )
        await entries.put(AggregateKey("thing", "gone"), Entry(1, None, None), STAMP, over=None)
        await entries.save_progress({"position": None}, over=None)
        page = await entries.page(None)
        walked = [*page.items]
        while page.position is not None:
            page = await entries.page(page.position)
            walked += page.items
        assert sorted(int(key.id) for key, _ in walked) == list(range(105))
        assert await entries.newest(walked[0][0]) == walked[0][1]

    @_over_a_store
    async def test_the_progress_of_a_walk_is_written_at_its_version(self, store: Store) -> None:
        """The progress is not listed as an entry."""
        entries = self._entries(store)
        assert await entries.progress() is None
        first = await entries.save_progress({"position": "1", "counts": {"healed": 1}}, over=None)
        for stale in (None, '"no version"'):
            with pytest.raises(EntryChanged):
                await entries.save_progress({"position": "2"}, over=stale)
        second = await entries.save_progress({"position": "2"}, over=first)
        with pytest.raises(EntryChanged):
            await entries.save_progress({"position": "3"}, over=first)
        saved = await entries.progress()
        assert saved is not None
        assert (saved[0]["position"], saved[1]) == ("2", second)
        assert (await entries.page(None)).items == []

    @_over_a_store
    async def test_a_block_is_noted_at_the_version_and_a_write_ends_it(self, store: Store) -> None:
        """An entry shows since when events of its aggregate are held back."""
        entries = self._entries(store)
        version = await entries.put(KEY, Entry(1, "a", Thing(name="A")), STAMP, over=None)
        await entries.mark(KEY, version, NOON)
        marked = await entries.newest(KEY)
        assert marked is not None
        assert (marked.entry, marked.blocked_since) == (Entry(1, "a", Thing(name="A")), NOON)
        for key in (KEY, AggregateKey("thing", "none")):
            with pytest.raises(EntryChanged):
                await entries.mark(key, version, None)
        after = await entries.put(KEY, Entry(2, "b", Thing(name="B")), STAMP, over=marked.version)
        assert await entries.newest(KEY) == VersionedEntry(Entry(2, "b", Thing(name="B")), after, None)

    @_over_a_store
    async def test_living_entries_are_listed_page_by_page(self, store: Store) -> None:
        """The order is by a text and the id, both ways; one condition of each group must hold."""
        entries, listing = self._entries(store), store.listing(self.read_model, FORM)
        for number, name in enumerate(["Cid", "Ada", "Bob", "Bea", "Ada"]):
            key = AggregateKey("thing", str(number))
            await entries.put(key, Entry(number + 1, None, Thing(name=name)), STAMP, over=None)
        await entries.put(AggregateKey("thing", "9"), Entry(1, None, None), STAMP, over=None)
        for sort, ids in (("name", ["1", "4", "3", "2", "0"]), ("-name", ["0", "2", "3", "4", "1"])):
            page = await listing.page([], sort, 2, None)
            seen = [each.id for each in page.items]
            while page.continuation_token is not None:
                page = await listing.page([], sort, 2, page.continuation_token)
                seen += [each.id for each in page.items]
            assert seen == ids
        begins = await listing.page([[Condition("name", "B", beginning=True)]], "name", 9, None)
        assert [(each.state.name, each.sequence, each.late_seconds) for each in begins.items] == [
            ("Bea", 4, 1.5),
            ("Bob", 3, 1.5),
        ]
        assert not (await listing.page([[Condition("name", "B")]], "name", 9, None)).items
        either = [[Condition("name", "Ada"), Condition("name", "Cid")]]
        assert len((await listing.page(either, "name", 9, None)).items) == 3

    @_over_a_store
    async def test_a_token_is_of_its_list_alone(self, store: Store) -> None:
        """A token is refused by any other list, and reveals no sort key, which may be a person's name."""
        entries, listing = self._entries(store), store.listing(self.read_model, FORM)
        for number in range(3):
            await entries.put(
                AggregateKey("thing", f"{number}"), Entry(1, None, Thing(name="A")), STAMP, over=None
            )
        token = (await listing.page([], "name", 1, None)).continuation_token
        assert token is not None
        for sort, wrong in (("-name", token), ("name", "no token"), ("name", token[:-2])):
            with pytest.raises(UnknownContinuation):
                await listing.page([], sort, 1, wrong)
        assert [each.id for each in (await listing.page([], "name", 9, token)).items] == ["1", "2"]

    @_over_a_store
    async def test_a_record_is_created_once_and_changed_at_its_version(self, store: Store) -> None:
        """A redelivery does not reopen a record; a closed one has no message."""
        records, record = store.set_aside(self.subscription, TTL_SECONDS), self._record("1")
        await records.add(record)
        await records.add(replace(record, reason="another"))
        read = await records.get(record.id)
        assert replace(read, version=None) == record
        await records.change(read, RecordState.WAITING, "tried", attempts=1)
        with pytest.raises(RecordChanged):
            await records.change(read, RecordState.DISCARDED, "by another", attempts=0)
        tried = await records.get(record.id)
        assert (tried.reason, tried.attempts, tried.delivery) == ("tried", 1, record.delivery)
        await records.change(tried, RecordState.APPLIED, "done", attempts=2)
        await records.add(record)
        closed = await records.get(record.id)
        assert (closed.state, closed.delivery) == (RecordState.APPLIED, None)
        with pytest.raises(NotSetAside):
            await records.get(self._record("2").id)

    @_over_a_store
    async def test_open_records_are_listed_oldest_first_without_messages(self, store: Store) -> None:
        """Waiting and refused records are listed page by page, and counted."""
        records = store.set_aside(self.subscription, TTL_SECONDS)
        for minutes in (3, 1, 2):
            state = RecordState.REFUSED if minutes == 2 else RecordState.WAITING
            await records.add(self._record(str(minutes), minutes=minutes, state=state))
        page = await records.page(2, None)
        found = [*page.items]
        while page.continuation_token is not None:
            page = await records.page(2, page.continuation_token)
            found += page.items
        assert [(each.event_id, each.delivery) for each in found] == [("1", None), ("2", None), ("3", None)]
        assert (await records.count(RecordState.WAITING), await records.count(RecordState.REFUSED)) == (2, 1)
        older = records.older(NOON + timedelta(minutes=2))
        assert [each.event_id async for each in older] == ["1"]
        with pytest.raises(UnknownContinuation):
            await records.page(2, "no token")
        other = store.set_aside(f"{self.subscription}-2", TTL_SECONDS)
        assert (await other.page(2, None)).items == [], "each subscription has its own"

    @_over_a_store
    async def test_what_waits_is_found_by_its_aggregate_the_last_tried_last(self, store: Store) -> None:
        """A list has no messages, and a change of a listed record keeps its message."""
        records = store.set_aside(self.subscription, TTL_SECONDS)
        one, two, namesake = (AggregateKey(*key) for key in (("thing", "1"), ("thing", "2"), ("other", "1")))
        for key in (one, two, namesake):
            await records.add(self._record(str(key), key=key))
        assert [each.aggregate async for each in records.waiting(one)] == [one]
        assert await records.waits(two)
        assert not await records.waits(AggregateKey("other", "2"))
        for key, attempts in ((one, 1), (one, 2), (two, 1)):
            tried = await records.get(self._record(str(key), key=key).id)
            await records.change(tried, RecordState.WAITING, "", attempts=attempts)
        assert [each.aggregate async for each in records.waiting()] == [namesake, one, two]

    @_over_a_store
    async def test_the_record_of_an_effect_is_written_at_its_version(self, store: Store) -> None:
        """Each subscription has its own records."""
        records = store.effects(self.effect, "mails", TTL_SECONDS)
        assert await records.find("e-1") is None
        started = EffectRecord("e-1", EffectState.STARTED, NOON, "call-1")
        stored = await records.write(started)
        assert await records.find("e-1") == stored
        with pytest.raises(RecordChanged):
            await records.write(started)
        done = await records.write(replace(stored, state=EffectState.DONE))
        with pytest.raises(RecordChanged):
            await records.write(replace(stored, state=EffectState.FREE))
        assert await records.find("e-1") == done
        assert await store.effects(self.effect, "calls", TTL_SECONDS).find("e-1") is None

    @_over_a_store
    async def test_a_store_that_is_there_answers(self, store: Store) -> None:
        """An entry that one object has written is read by another one, as by another process."""
        await store.check()
        await self._entries(store).put(KEY, Entry(1, "a", Thing(name="A")), STAMP, over=None)
        assert await self._entries(store).newest(KEY) is not None

    def _entries(self, store: Store, version: int = 1) -> Entries[Thing]:
        return store.entries(self.read_model, replace(FORM, version=version), TTL_SECONDS)

    def _record(
        self,
        event_id: str,
        *,
        key: AggregateKey = KEY,
        minutes: int = 0,
        state: RecordState = RecordState.WAITING,
    ) -> Record:
        delivery = Delivery(
            self.subscription, f"m-{event_id}", 1, b"\xff\x00{", {"sequence": 1, "traceparent": "00-1"}
        )
        record = Record.of(delivery, None, state, "a reason", NOON + timedelta(minutes=minutes))
        return replace(record, event_id=event_id, aggregate=key, action="Changed", sequence=1)
