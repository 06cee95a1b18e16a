"""Attacks on a team that subscribes, with a file of its own: nothing is lost or done twice."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cosmos_outbox.inbox.entry import After, Entry, Found
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.read_model import StateInbox
from cosmos_outbox.inbox.receiver import Receiver
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from examples.subscriber import sqlite_store
from examples.subscriber.sqlite_store import File, SqliteEntries, SqliteSetAside
from tests.contract.test_entries import FORM, STAMP, TTL, Thing
from tests.support.command import Ended, run_module
from tests.support.inbox import KEY, NOON, FakeSource, delivery, event


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[File]:
    made = File(tmp_path / "store.db", utc_now)
    yield made
    await made.close()


def adding(state: Thing, received: Event) -> After[Thing]:
    return After(state.model_copy(update={"adds": (*state.adds, received.data["adds"])}))


def inbox_over(database: File) -> StateInbox[Thing]:
    source: FakeSource[Thing] = FakeSource()
    source.change(KEY, Found(1, Thing(name="Ada", adds=(1,))))
    return StateInbox(SqliteEntries(database, "entries", FORM, TTL), source, adding, lambda: NOON)


async def adds(database: File) -> tuple[int, ...]:
    read = await SqliteEntries(database, "entries", FORM, TTL).read(KEY)
    assert read is not None
    assert read.entry.state is not None
    return read.entry.state.adds


async def test_a_file_that_another_process_holds_is_waited_for(
    database: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.1)
    inbox = inbox_over(database)
    await inbox.handle(event(1))
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c",
        "import sqlite3, sys\n"
        "held = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "held.execute('BEGIN IMMEDIATE')\n"
        "print('held', flush=True)\n"
        "sys.stdin.readline()\n"
        "held.execute('ROLLBACK')\n",
        str(database.path), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    with pytest.raises(StoreUnavailable, match=r"store\.db cannot be used: database is locked"):
        await database.get("entries", KEY.id)
    waits: list[float] = []

    async def paused(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            await holder.communicate(b"\n")

    receiver = Receiver(lambda _: event(2), inbox.handle, SqliteSetAside(database, "s", TTL), sleep=paused)
    await receiver.receive(delivery(event(2), 2))
    assert len(waits) >= 2
    assert await adds(database) == (1, 2)
    assert (await receiver.set_aside.page(10, None)).items == [], "it hit everybody, and no aggregate"


async def test_a_disk_that_is_full_is_waited_for_and_leaves_nothing_half(database: File) -> None:
    inbox = inbox_over(database)
    await inbox.handle(event(1))
    full = "PRAGMA max_page_count = 1"  # it cannot be less than the file has
    await database.run(lambda connection: connection.execute(full).fetchall())
    large = Entry(1, None, Thing(name="x" * 100_000))
    entries = SqliteEntries(database, "entries", FORM, TTL)
    with pytest.raises(StoreUnavailable, match="full"):
        await entries.put(AggregateKey("thing", "8"), large, STAMP, over=None)
    assert await adds(database) == (1,), "what is there can be read"
    await database.run(lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchall())
    assert await entries.read(AggregateKey("thing", "8")) is None
    await entries.put(AggregateKey("thing", "8"), large, STAMP, over=None)
    await inbox.handle(event(2))
    assert await adds(database) == (1, 2)


async def run_program(text: str, database: File) -> Ended:
    arguments = ["tests.support.program", text, str(database.path)]
    return await asyncio.to_thread(run_module, *arguments, environment=os.environ)


DIES = """
import asyncio, os, sys
from pathlib import Path
from cosmos_outbox.kernel.clock import utc_now
from examples.subscriber.sqlite_store import File, SqliteEntries
from tests.contract.test_third_door import inbox_over
from tests.support.inbox import event

put = SqliteEntries.put
async def put_and_die(self, *given, **named):
    await put(self, *given, **named)
    os._exit(9)

async def main():
    inbox = inbox_over(File(Path(sys.argv[1]), utc_now))
    await inbox.handle(event(1))
    SqliteEntries.put = put_and_die
    await inbox.handle(event(2))

asyncio.run(main())
"""


async def test_a_process_that_dies_between_entry_and_completion_applies_once(database: File) -> None:
    assert (await run_program(DIES, database)).code == 9
    inbox = inbox_over(database)
    await inbox.handle(event(2))  # the broker brings it again
    await inbox.handle(event(3))
    assert await adds(database) == (1, 2, 3)
