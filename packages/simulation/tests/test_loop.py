"""Virtual time, a seeded order, crashes without last words, pauses; and nothing of it outlives the run."""

import asyncio
import gc
import importlib
import itertools
import logging
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from unittest.mock import AsyncMock, Mock

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.cosmos.aio._global_endpoint_manager_async import _GlobalEndpointManager

from outbox_simulation.engine.guard import ReachedOut
from outbox_simulation.engine.instance import SimulatedInstance, name_of_current
from outbox_simulation.engine.loop import Loop, Stuck
from outbox_simulation.engine.trace import RunTrace


@pytest.fixture(autouse=True, scope="module")
def what_others_left() -> None:
    """Is not looked through by each test that looks for garbage."""
    gc.collect()
    gc.freeze()


def test_time_jumps_to_the_next_timer() -> None:
    loop, began = Loop(), time.monotonic()

    async def main() -> float:
        await asyncio.sleep(86_400)
        async with asyncio.timeout(5):
            await asyncio.sleep(4)
        return asyncio.get_running_loop().time()

    assert loop.run(main()) == 86_404
    assert time.monotonic() - began < 5


def test_a_timeout_ends_what_waits_too_long() -> None:
    async def main() -> str:
        try:
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        except TimeoutError:
            return f"after {asyncio.get_running_loop().time():g} s"
        return "never"

    assert Loop().run(main()) == "after 5 s"


def _order(pick: random.Random | None) -> list[int]:
    seen: list[int] = []

    async def tell(number: int) -> None:
        await asyncio.sleep(1)
        seen.append(number)

    async def main() -> None:
        await asyncio.gather(*(tell(number) for number in range(20)))

    Loop(pick).run(main())
    return seen


def test_the_order_is_the_seeds() -> None:
    assert _order(random.Random(1)) == _order(random.Random(1))
    assert _order(random.Random(1)) != _order(random.Random(2))


def test_without_a_seed_the_order_is_that_of_asyncio() -> None:
    seen: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(50):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(0)

    Loop().run(main())
    assert seen == list(range(50))


def test_of_a_crashed_instance_nothing_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    loop = Loop(random.Random(3))

    async def work() -> None:
        said.append("begun")
        try:
            async with asyncio.timeout(100):
                await asyncio.sleep(10)
            said.append("went on")
        finally:
            said.append("finally")
            await asyncio.sleep(0)

    async def main() -> list[str]:
        victim = SimulatedInstance("victim", loop.outside())
        loop.begin(victim, work())
        loop.begin(victim, asyncio.sleep(20))
        await asyncio.sleep(5)
        loop.crash(victim)
        await asyncio.sleep(1000)
        gc.collect()
        return list(said)

    with caplog.at_level(logging.DEBUG):
        assert loop.run(main()) == ["begun"]
        gc.collect()
    assert not loop.complaints
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_the_instance_had_sent_goes_on() -> None:
    arrived: list[str] = []
    loop = Loop()

    async def client() -> None:
        loop.call_later(3, lambda: arrived.append(name_of_current()), context=loop.outside())
        await asyncio.sleep(100)

    async def main() -> None:
        instance = SimulatedInstance("client", loop.outside())
        loop.begin(instance, client())
        await asyncio.sleep(1)
        loop.crash(instance)
        await asyncio.sleep(10)

    loop.run(main())
    assert arrived == ["world"]


def test_a_task_that_never_began_leaves_no_warning() -> None:
    loop = Loop()

    async def main() -> None:
        instance = SimulatedInstance("stillborn", loop.outside())
        loop.begin(instance, asyncio.sleep(1))
        loop.crash(instance)
        loop.begin(SimulatedInstance("late", loop.outside()), asyncio.sleep(1000))

    loop.run(main())
    gc.collect()  # a coroutine that was never awaited would warn now, which is an error here
    assert not loop.complaints


def test_a_pause_holds_everything_back_and_then_lets_it_come_at_once() -> None:
    ticks: list[float] = []
    loop = Loop()

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    async def main() -> None:
        instance = SimulatedInstance("ticker", loop.outside())
        loop.begin(instance, tick())
        await asyncio.sleep(2.5)
        loop.pause(instance, 10)
        await asyncio.sleep(11.9)

    loop.run(main())
    assert ticks == [1, 2, 12.5, 13.5]


def test_a_paused_instance_can_crash() -> None:
    loop = Loop(random.Random(1))

    async def main() -> str:
        instance = SimulatedInstance("one", loop.outside())
        task = loop.begin(instance, asyncio.sleep(1, "done"))
        loop.pause(instance, 5)
        await asyncio.sleep(3)
        loop.crash(instance)
        await asyncio.sleep(10)
        return "done" if task.done() else "pending"

    assert loop.run(main()) == "pending"


def test_the_code_of_an_instance_knows_whose_it_is() -> None:
    loop = Loop()
    names: list[str] = []

    async def work() -> None:
        names.append(name_of_current())
        await asyncio.gather(asyncio.sleep(1), asyncio.create_task(other()))

    async def other() -> None:
        names.append(name_of_current())

    async def main() -> None:
        await loop.begin(SimulatedInstance("api-1", loop.outside()), work())
        names.append(name_of_current())

    loop.run(main())
    assert names == ["api-1", "api-1", "world"]


def test_nobody_waits_for_ever() -> None:
    with pytest.raises(Stuck, match="nobody has anything to do"):
        Loop().run(asyncio.Event().wait())


def test_who_never_waits_is_found() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="somebody never waits"):
        Loop().run(main())


def test_an_error_that_nobody_looked_at_is_told() -> None:
    loop = Loop()

    async def fail() -> None:
        raise ValueError("nobody reads this")

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task
        gc.collect()

    loop.run(main())
    assert [told for told in loop.complaints if "nobody reads this" in told]


def test_a_time_limit_ends_the_run_and_is_no_error_of_the_service() -> None:
    loop = Loop()

    async def reach_the_limit() -> None:
        pytest.fail("Timeout >120.0s")

    async def main() -> None:
        task = asyncio.create_task(reach_the_limit())
        await asyncio.sleep(1)
        del task
        gc.collect()
        await asyncio.sleep(1)

    with pytest.raises(pytest.fail.Exception, match="Timeout"):
        loop.run(main())
    assert loop.complaints == []


def test_an_error_that_the_sdk_itself_leaves_unread_is_its_own() -> None:
    away = Mock(_GetDatabaseAccount=AsyncMock(side_effect=ServiceRequestError("nobody reads this")))
    loop = Loop()

    async def main() -> None:
        look = _GlobalEndpointManager._refresh_database_account_and_health(away)
        task = asyncio.create_task(look)
        await asyncio.sleep(1)
        assert task.done()
        del task
        gc.collect()

    loop.run(main())
    assert loop.complaints == []


def test_loops_in_a_row_leave_nothing() -> None:
    async def forever() -> None:
        try:
            for _ in itertools.count():
                await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)

    def one(seed: int) -> None:
        loop = Loop(random.Random(seed))

        async def main() -> None:
            for number in range(20):
                instance = SimulatedInstance(f"n{number}", loop.outside())
                loop.begin(instance, forever())
                await asyncio.sleep(1)
                if number % 2:
                    loop.crash(instance)

        loop.run(main())

    for seed in range(2):
        one(seed)
        gc.collect()  # what is made once for all is there then, or gone
    before = len(gc.get_objects())
    for seed in range(5):
        one(seed)
    gc.collect()
    assert len(gc.get_objects()) - before < 25


def test_what_others_froze_stays_frozen() -> None:
    """To look at it all, after each run, takes longer than most runs."""
    gc.freeze()
    before = gc.get_freeze_count()
    Loop().run(asyncio.sleep(1))
    assert gc.get_freeze_count() >= before > 0


def test_at_the_end_each_closes_what_it_opened_though_it_awaits_on_the_way() -> None:
    """What another catches from it would leave it half open, for the collector to close amid the next run."""
    closed: list[str] = []

    async def works() -> None:
        try:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(1)
                closed.append("never told: nobody waits any more")
        finally:
            closed.append("its client")

    async def process() -> None:
        try:
            await works()
        except Exception as error:  # noqa: BLE001 - as a process notes why it ended
            closed.append(repr(error))

    loop = Loop(None)

    async def main() -> None:
        loop.begin(SimulatedInstance("relay", loop.outside()), process())
        await asyncio.sleep(1)

    loop.run(main())
    assert closed == ["its client"]


def _open_file() -> None:
    tempfile.TemporaryFile().close()


def _open_thread() -> None:
    threading.Thread(target=print).start()


def _open_socket() -> None:
    socket.socket().close()


def _open_process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def _open_database() -> None:
    sqlite3.connect("nothing.db")


@pytest.mark.parametrize("reach_out", [_open_file, _open_thread, _open_socket, _open_process, _open_database])
def test_what_opens_something_real_is_named(reach_out: Callable[[], None]) -> None:
    async def main() -> None:
        reach_out()

    with pytest.raises(ReachedOut, match=rf"test_loop\.py:\d+ in {reach_out.__name__}"):
        Loop().run(main())


def test_what_an_import_keeps_of_the_code_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pytest's import does with the modules whose assertions it rewrites."""

    class Keeping(SourceFileLoader):
        def exec_module(self, module: ModuleType) -> None:
            for name in ("__pycache__", "notes"):
                (tmp_path / name).mkdir()
                with os.fdopen(os.open(tmp_path / name / "by Python", os.O_CREAT | os.O_WRONLY), "wb"):
                    pass
                with (tmp_path / name / "by pytest").open("wb"):
                    pass

    class Finding(MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
            return spec_from_loader(name, Keeping(name, __file__)) if name == "imported_late" else None

    async def main() -> None:
        importlib.import_module("imported_late")

    monkeypatch.setattr(sys, "meta_path", [Finding(), *sys.meta_path])
    with pytest.raises(ReachedOut, match="a file was opened"):
        Loop().run(main())
    assert {f"{each.relative_to(tmp_path)}" for each in tmp_path.glob("*/by pytest")} == {
        "__pycache__/by pytest"
    }


def test_what_a_task_opens_or_keeps_quiet_ends_the_run_at_once() -> None:
    went_on: list[str] = []

    async def careless() -> None:
        try:
            _open_socket()
        except BaseException:  # noqa: BLE001 - what a careless program does
            await asyncio.sleep(0)
            went_on.append("after it was kept quiet")

    async def main(work: Callable[[], Coroutine[None, None, None]]) -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        went_on.append("a second later")
        await task

    async def honest() -> None:
        _open_socket()

    for work in (careless, honest):
        with pytest.raises(ReachedOut, match=r"a socket was opened in a simulation: .*test_loop\.py:\d+"):
            Loop().run(main(work))
    assert went_on == []


def test_a_thread_for_blocking_work_is_refused() -> None:
    with pytest.raises(RuntimeError, match="a thread"):
        Loop().run(asyncio.to_thread(print))


def test_the_trace_tells_who_did_what_and_when() -> None:
    loop = Loop()
    trace = RunTrace(loop.time)

    async def work() -> None:
        await asyncio.sleep(1.5)
        trace.note("publish", "contact-1", "accepted")

    async def main() -> None:
        await loop.begin(SimulatedInstance("relay-1", loop.outside()), work())
        trace.note("crash", instance="relay-1")
        trace.end()
        trace.note("too late")

    loop.run(main())
    assert [(step.at, step.instance, step.what, step.about) for step in trace] == [
        (1.5, "relay-1", "publish", "contact-1"),
        (1.5, "relay-1", "crash", ""),
    ]
    assert trace.about("contact-1") == trace.steps[:1]


def test_the_digest_is_of_every_word() -> None:
    def digest(detail: str, at: float) -> str:
        trace = RunTrace(lambda: at)
        trace.note("publish", "contact-1", detail)
        return trace.digest()

    assert digest("accepted", 1) == digest("accepted", 1)
    assert len({digest("accepted", 1), digest("refused", 1), digest("accepted", 1.0000000001)}) == 3
