"""A subscriber's store in a file: what becomes of the file, and what its rows tell at the edges of a page."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cosmos_outbox.inbox.effect import EffectItem, Open, RunningEffect, WhyOpen
from cosmos_outbox.inbox.entry import Entry, Stamp
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.inbox.set_aside import Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.settings.names import Named
from cosmos_outbox.sqlite import database as database_module
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.effects import SqliteEffects
from cosmos_outbox.sqlite.entries import SqliteEntries
from cosmos_outbox.sqlite.set_aside import SqliteSetAside
from cosmos_outbox.sqlite.store import SqliteFile
from tests.support.inbox import NOON, delivery, event


class Thing(BaseModel):
    name: str


FORM = EntryForm(Thing, search={"name": lambda thing: thing.name}, sorted_by=["name"])
KEYS = [AggregateKey("thing", f"{number}") for number in range(5)]
TTL = 600


class Clock:
    now = NOON

    def __call__(self) -> datetime:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(tmp_path / "store.db")
    yield made
    await made.close()


async def rows(database: Database, table: str) -> int:
    """How many there are, whatever a reader is shown of them."""
    query = f"SELECT COUNT(*) FROM {table}"
    return int(await database.run(lambda connection: connection.execute(query).fetchone()[0]))


async def test_a_file_is_made_with_its_folders_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "of" / "mine" / "store.db"
    for _ in range(2):
        made = Database(path)
        await made.check()
        await made.check()
        await made.close()
        await made.check()
        await made.close()
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]


async def test_who_reads_does_not_hold_up_who_writes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 0.05)
    entries = SqliteEntries(database, "things", FORM, TTL)
    for key in KEYS:
        await entries.put(key, Entry(1, None, Thing(name="A")), Stamp(NOON, None), over=None)
    reader = sqlite3.connect(database.path)
    try:
        reading = reader.execute("SELECT id FROM entries")
        assert reading.fetchone() == ("0",)
        await entries.put(AggregateKey("thing", "new"), Entry(1, None, None), Stamp(NOON, None), over=None)
    finally:
        reader.close()


async def test_of_a_file_that_is_no_store_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, closed = sqlite3.connect, list[str]()

    class Noted(sqlite3.Connection):
        def close(self) -> None:
            closed.append("closed")
            super().close()

    def noting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **options, factory=Noted)

    monkeypatch.setattr(sqlite3, "connect", noting)
    garbage = Database(tmp_path / "garbage.db")
    garbage.path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreAway):
        await garbage.check()
    assert closed == ["closed"]
    garbage.path.unlink()
    await garbage.check()
    await garbage.close()
    assert closed == ["closed", "closed"]


async def test_a_declared_file_is_checked_and_closed_with_the_service(tmp_path: Path) -> None:
    path, wal, garbage = (tmp_path / name for name in ("store.db", "store.db-wal", "garbage.db"))
    declared = SqliteFile(Named("MAILING_DATABASE", str(path)))
    async with AsyncExitStack() as resources:
        store = declared.open({}, resources)
        assert not path.exists()
        await store.check()
        await store.entries("things", FORM, TTL).put(
            KEYS[0], Entry(3, None, Thing(name="A"), healed=2), Stamp(NOON, None), over=None
        )
        lists = store.lists("things", "sweep", FORM.version)
        [seen] = (await lists.entries(None)).items
        assert (seen.key, seen.sequence, seen.deleted, seen.healed) == (KEYS[0], 3, False, 2)
        assert (await lists.count_sources(), (await lists.sources(None)).items) == (0, [])
        assert wal.exists()

        garbage.write_bytes(b"no database at all" * 1000)
        with pytest.raises(StoreAway):
            await declared.open({"MAILING_DATABASE": str(garbage)}, resources).check()
    assert not wal.exists(), "the last who closes it writes all into the file"


RUNNING: dict[str, Any] = {"running": RunningEffect(1, "e", "p", NOON)}
OPEN: dict[str, Any] = {"open": (Open(1, "e", WhyOpen.UNSURE, NOON),)}


async def test_pages_of_effects_end_where_no_more_are(database: Database) -> None:
    effects = SqliteEffects(database, "mails", TTL)
    items: list[dict[str, Any]] = [RUNNING, {}, OPEN, {}, RUNNING]
    for key, more in zip(KEYS, items, strict=True):
        await effects.write(key, EffectItem(1, 1, NOON, **more))
    other = SqliteEffects(database, "letters", TTL)
    await other.write(KEYS[0], EffectItem(1, 1, NOON))

    async def pages(size: int, *, unfinished: bool) -> list[list[str]]:
        found, position = [], None
        while True:
            page, position = await effects.page(size, position, unfinished=unfinished)
            found.append([key.id for key, _ in page])
            if position is None:
                return found

    assert await pages(2, unfinished=False) == [["0", "1"], ["2", "3"], ["4"]]
    assert await pages(5, unfinished=False) == [["0", "1", "2", "3", "4"]]
    assert await pages(4, unfinished=False) == [["0", "1", "2", "3"], ["4"]]
    assert await pages(3, unfinished=True) == [["0", "2", "4"]]
    assert await pages(1, unfinished=True) == [["0"], ["2"], ["4"]]


async def test_what_has_expired_leaves_the_file_with_the_next_write(database: Database) -> None:
    clock = Clock()
    effects = SqliteEffects(database, "mails", TTL, clock)
    await effects.write(KEYS[0], EffectItem(1, 1, NOON))
    await effects.write(KEYS[1], EffectItem(1, 1, NOON, **OPEN))
    clock.go_on(TTL)
    assert await effects.read(KEYS[0], fenced=True) is not None
    clock.go_on(1)
    assert await effects.read(KEYS[0], fenced=True) is None
    assert await rows(database, "effects") == 2
    await effects.write(KEYS[2], EffectItem(1, 1, NOON))
    assert await rows(database, "effects") == 2, "the second, with something open, and the third"

    records = SqliteSetAside(database, "s", TTL, clock)
    await records.add(waiting(1))
    await records.change(await records.get(waiting(1).id), RecordState.APPLIED, "done", attempts=1)
    clock.go_on(TTL + 1)
    assert await rows(database, "records") == 1
    await records.add(waiting(2))
    assert await rows(database, "records") == 1


def waiting(sequence: int, *, seconds: int = 0) -> Record:
    received = event(sequence, event_id=f"{sequence}")
    at = NOON + timedelta(seconds=seconds)
    return Record.of(delivery(received, sequence), received, RecordState.WAITING, "a reason", at)


async def test_pages_of_records_end_where_no_more_are_and_miss_none_of_one_time(database: Database) -> None:
    records = SqliteSetAside(database, "s", TTL)
    ids = {waiting(number, seconds=number // 3).id for number in range(5)}
    for number in range(5):
        await records.add(waiting(number, seconds=number // 3))
    await SqliteSetAside(database, "another", TTL).add(waiting(1))
    for size, lengths in ((2, [2, 2, 1]), (5, [5]), (4, [4, 1]), (1, [1] * 5)):
        found, token = list[list[str]](), None
        while True:
            page = await records.page(size, token)
            found.append([each.id for each in page.items])
            token = page.continuation_token
            if token is None:
                break
        assert [len(each) for each in found] == lengths
        assert {each for page in found for each in page} == ids
    assert [await records.count(state) for state in (RecordState.WAITING, RecordState.APPLIED)] == [5, 0]
    await records.change(await records.get(waiting(1).id), RecordState.APPLIED, "done", attempts=1)
    assert [await records.count(state) for state in (RecordState.WAITING, RecordState.APPLIED)] == [4, 1]
