"""Attacks on a team that subscribes, with a file of its own and the publisher's API: nothing is lost or done twice."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cosmos_outbox.inbox.entry import After, Entry, Found
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import Receiver
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.settings.names import Named
from cosmos_outbox.sources.http import HttpApi
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
    with pytest.raises(StoreAway, match=r"store\.db cannot be used: database is locked"):
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
    with pytest.raises(StoreAway, match="full"):
        await entries.put(AggregateKey("thing", "8"), large, STAMP, over=None)
    assert await adds(database) == (1,), "what is there can be read"
    await database.run(lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchall())
    assert await entries.read(AggregateKey("thing", "8")) is None
    await entries.put(AggregateKey("thing", "8"), large, STAMP, over=None)
    await inbox.handle(event(2))
    assert await adds(database) == (1, 2)


PROCESS = """
import asyncio, sys
from pathlib import Path
from cosmos_outbox.kernel.clock import utc_now
from examples.subscriber.sqlite_store import File
from tests.contract.test_third_door import inbox_over
from tests.support.inbox import event

async def main():
    database = File(Path(sys.argv[1]), utc_now)
    inbox = inbox_over(database)
    for sequence in range(1, 21):
        await asyncio.gather(*(inbox.handle(event(sequence)) for _ in range(2)))
    await database.close()

asyncio.run(main())
"""


async def run_program(text: str, database: File) -> Ended:
    arguments = ["tests.support.program", text, str(database.path)]
    return await asyncio.to_thread(run_module, *arguments, environment=os.environ)


async def test_processes_that_share_a_file_apply_each_event_once(database: File) -> None:
    ended = await asyncio.gather(*(run_program(PROCESS, database) for _ in range(3)))
    assert [each.code for each in ended] == [0, 0, 0], "".join(each.err for each in ended)
    assert await adds(database) == tuple(range(1, 21))


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


async def test_a_process_that_dies_after_its_entry_and_before_its_message_is_done_has_applied_it_once(
    database: File,
) -> None:
    assert (await run_program(DIES, database)).code == 9
    inbox = inbox_over(database)
    await inbox.handle(event(2))  # the broker brings it again
    await inbox.handle(event(3))
    assert await adds(database) == (1, 2, 3)


class Api:
    """A publisher's API, and another host to which it may send a caller."""

    def __init__(self) -> None:
        self.status = 302
        self.headers: dict[str, str] = {}
        self.elsewhere: list[dict[str, str]] = []
        self.address = ""

    async def get(self, request: web.Request) -> web.Response:
        return web.Response(status=self.status, headers=self.headers)

    async def other(self, request: web.Request) -> web.Response:
        self.elsewhere.append(dict(request.headers))
        return web.json_response({"name": "Eve", "sequence": 9})


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made, runners = Api(), []
    for path, handler in (("/other", made.other), ("/things/{id}", made.get)):
        app = web.Application()
        app.router.add_get(path, handler)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
    other, own = (f"http://127.0.0.1:{each.addresses[0][1]}" for each in runners)
    made.headers, made.address = {"Location": f"{other}/other"}, f"{own}/things"
    yield made
    for runner in runners:
        await runner.cleanup()


def name_of(body: Mapping[str, Any]) -> str:
    return str(body["name"])


async def test_the_key_goes_to_no_other_host_and_a_login_page_is_no_answer(api: Api) -> None:
    """An API behind a sign-in sends every caller there: that hits every aggregate, and is waited for."""
    declared = HttpApi(Named("THINGS_API"), key=Named("THINGS_KEY"))
    source = declared.made({"THINGS_API": api.address, "THINGS_KEY": "secret"}, name_of)
    for status in (301, 302, 303, 307, 308):
        api.status = status
        for read in (source.read, source.newest):
            with pytest.raises(StoreAway, match=f"answers {status}"):
                await read(KEY)
    assert api.elsewhere == []
    await source.close()


@pytest.mark.parametrize(
    ("retry_after", "pause"), [("7", 7.0), ("", 1.0), ("\u00b2", 1.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0)]
)
async def test_a_publisher_that_throttles_is_waited_for_as_long_as_it_says(
    api: Api, retry_after: str, pause: float
) -> None:
    source = HttpApi(Named("THINGS_API")).made({"THINGS_API": api.address}, name_of)
    api.status, api.headers = 429, {"Retry-After": retry_after}
    with pytest.raises(StoreAway) as raised:
        await source.newest(KEY)
    assert raised.value.retry_after_seconds == pause
    await source.close()
