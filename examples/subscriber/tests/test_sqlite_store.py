"""The store in a file does what every subscriber's store has to do, and what only a file can do wrong."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cosmos_outbox import EntrySchema, Named, TolerantReader, store
from cosmos_outbox.errors import StoreUnavailable
from cosmos_outbox.testing import SubscriberStoreContract
from examples.subscriber import sqlite_store
from examples.subscriber.sqlite_store import SqliteFile, SqliteStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Thing(TolerantReader):
    name: str


FORM = EntrySchema(Thing, search={"name": lambda thing: thing.name}, sorted_by=["name"])
KEY, STAMP = store.AggregateKey("thing", "7"), store.Stamp(NOON, None)


@asynccontextmanager
async def opened(path: Path, now: datetime | None = None) -> AsyncIterator[SqliteStore]:
    async with AsyncExitStack() as resources:
        declared = SqliteFile(Named("FILE", str(path)), lambda: now or datetime.now(UTC))
        yield declared.open({}, resources)


class TestSqliteStore(SubscriberStoreContract):
    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[SqliteStore]:
        async with opened(folder / "store.db") as made:
            yield made


async def test_two_processes_share_a_file_and_its_tokens(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "store.db"
    async with opened(path) as mine, opened(path) as theirs:
        for number in range(2):
            key = store.AggregateKey("thing", f"{number}")
            await mine.entries("a", FORM, 600).put(
                key, store.Entry(1, None, Thing(name="A")), STAMP, over=None
            )
        token = (await mine.listing("a", FORM).page([], "name", 1, None)).continuation_token
        page = await theirs.listing("a", FORM).page([], "name", 1, token)
        assert [each.id for each in page.items] == ["1"]
        assert (await theirs.entries("b", FORM, 600).page(None)).items == []


async def test_what_has_expired_is_gone_and_removed_from_the_file(tmp_path: Path) -> None:
    path, later = tmp_path / "store.db", NOON + timedelta(seconds=601)
    async with opened(path, NOON) as made:
        for name, ttl in (("things", 600), ("kept", None)):
            await made.entries(name, FORM, ttl).put(KEY, store.Entry(4, None, None), STAMP, over=None)
    async with opened(path, later) as made:
        assert await made.entries("things", FORM, 600).read(KEY) is None
        assert await made.entries("kept", FORM, None).read(KEY) is not None
        await made.entries("things", FORM, 600).put(
            KEY, store.Entry(1, None, Thing(name="A")), STAMP, over=None
        )
    with sqlite3.connect(path) as connection:
        [(left,)] = connection.execute("SELECT count(*) FROM documents").fetchall()
    connection.close()
    assert left == 2


async def test_what_was_removed_is_in_no_file_any_more(tmp_path: Path) -> None:
    """Not in a free page, and not in a journal."""
    async with opened(tmp_path / "store.db") as made:
        entries = made.entries("things", FORM, 600)
        version = await entries.put(KEY, store.Entry(1, None, Thing(name="Lovelace")), STAMP, over=None)
        assert holding(tmp_path, b"Lovelace")
        await entries.remove(KEY, over=version)
        assert not holding(tmp_path, b"Lovelace")


def holding(folder: Path, text: bytes) -> list[Path]:
    return [each for each in folder.iterdir() if text in each.read_bytes()]


async def test_records_are_read_a_page_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and though each is tried while they are listed."""
    monkeypatch.setattr(sqlite_store, "_PAGE", 2)
    async with opened(tmp_path / "store.db") as made:
        records, asked = made.set_aside("s", 600), list[int]()
        for number in range(5):
            await records.add(record(number))
        select = made.file.select

        async def noted(*arguments: Any) -> Any:
            found = await select(*arguments)
            asked.append(len(found))
            return found

        monkeypatch.setattr(made.file, "select", noted)
        assert [each.enqueued_number async for each in records.waiting(KEY)] == [*range(5)]
        assert [each.enqueued_number async for each in records.older(NOON + timedelta(1))] == [*range(5)]
        tried = list[int]()
        async for each in records.waiting():
            if each.enqueued_number not in tried:
                await records.change(each, store.RecordState.WAITING, "", attempts=1)
                tried.append(each.enqueued_number)
        assert sorted(tried) == [*range(5)]
        assert max(asked) == 2


def record(number: int) -> store.Record:
    waiting = store.RecordState.WAITING
    return store.Record(f"{number:032}", waiting, "", NOON, f"m-{number}", number, None, KEY, None, None)


async def test_a_file_that_cannot_be_used_is_a_store_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "no-folder").write_text("a file")
    (tmp_path / "garbage.db").write_bytes(b"no database at all" * 1000)
    for path in (tmp_path / "no-folder" / "store.db", tmp_path / "garbage.db"):
        async with opened(path) as made:
            with pytest.raises(StoreUnavailable, match="cannot be used"):
                await made.check()
