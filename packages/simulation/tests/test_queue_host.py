"""The simulation's Functions host over a storage queue: each message is settled by what its function did."""

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import azure.functions as func
import pytest

from devstack.functions.host_json import QueuesOptions
from outbox_simulation.engine import host
from outbox_simulation.engine.http import SentRequest, StoreResponse
from outbox_simulation.engine.instance import SimulatedInstance
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.queue_host import QueueHost
from outbox_simulation.engine.storage_queues import CONNECTION, StorageQueues
from outbox_simulation.engine.trace import RunTrace

NAME = "jobs"


class Account(StorageQueues):
    """Notes when it was asked for messages."""

    def __init__(self) -> None:
        super().__init__("directory")
        self.polls: list[float] = []

    def _serve(self, request: SentRequest) -> StoreResponse:
        self.polls += [self.now()] if request.method == "GET" else []
        return super()._serve(request)


@dataclass
class Stage:
    """One queue, and what was called with its messages: when, with which, for the how manieth time."""

    loop: Loop = field(default_factory=lambda: Loop(None))
    account: Account = field(default_factory=Account)
    does: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    """What the function does with a message; else nothing."""
    called: list[tuple[int, str, int]] = field(default_factory=list)
    timed_out: list[float] = field(default_factory=list)

    def put(self, *texts: str, plain: bool = False) -> None:
        for each in texts:
            self.account.account.queue(NAME).put(
                each if plain else base64.b64encode(each.encode()).decode(), 0
            )

    def left(self, suffix: str = "") -> list[str]:
        held = self.account.account.queue(f"{NAME}{suffix}").messages
        return [each.text if "{" in each.text else base64.b64decode(each.text).decode() for each in held]

    def begin(self, options: QueuesOptions) -> "Running":
        """Another process of the app."""
        stop, resources = asyncio.Event(), AsyncExitStack()
        instance = SimulatedInstance("trigger", self.loop.outside())
        made = QueueHost(
            cast(Any, SimpleNamespace(resources=resources)), stop, random.Random(1), RunTrace(self.loop.time),
            lambda: self.timed_out.append(self.loop.time()),
            environment={}, http=self.account.http, options=options,
        )  # fmt: skip

        async def work() -> None:
            async with resources:
                await asyncio.wait(made.listen(cast(Any, None), self._function()))

        return Running(instance, stop, self.loop.begin(instance, work()))

    def _function(self) -> Any:
        app = func.FunctionApp()

        @app.function_name("work")
        @app.queue_trigger(arg_name="message", connection="STORAGEQUEUE", queue_name=NAME)
        async def work(message: func.QueueMessage, context: func.Context) -> None:
            text = message.get_body().decode()
            self.called.append((round(self.loop.time()), text, message.dequeue_count or 0))
            if text in self.does:
                await self.does[text]()

        [function] = app.get_functions()
        return function


@dataclass
class Running:
    """One process."""

    instance: SimulatedInstance
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def ended(self) -> None:
        self.stop.set()
        await self.task


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("STORAGEQUEUE", CONNECTION)
    return Stage()


def _after(stage: Stage, seconds: float, options: QueuesOptions) -> None:
    """The app runs for so long, and is stopped."""

    async def told() -> None:
        running = stage.begin(options)
        await asyncio.sleep(seconds)
        await running.ended()

    stage.loop.run(told())


async def _fail() -> None:
    raise RuntimeError("it cannot be done")


def _lasts(seconds: float) -> Callable[[], Awaitable[None]]:
    return lambda: asyncio.sleep(seconds)


def test_messages_of_a_batch_are_worked_on_side_by_side_and_deleted(stage: Stage) -> None:
    stage.put("a", "b", "c")
    stage.does = dict.fromkeys("abc", _lasts(30))
    _after(stage, 40, QueuesOptions())
    assert stage.called == [(0, "a", 1), (0, "b", 1), (0, "c", 1)]
    assert stage.left() == []


def test_the_next_batch_is_asked_for_when_few_enough_are_left(stage: Stage) -> None:
    stage.put("a", "b", "c", "d", "e")
    stage.does = {"a": _lasts(30), "b": _lasts(20), **dict.fromkeys("cde", _lasts(5))}
    _after(stage, 60, QueuesOptions(batch_size=2, new_batch_threshold=1))
    assert stage.called == [(0, "a", 1), (0, "b", 1), (20, "c", 1), (20, "d", 1), (25, "e", 1)]


@pytest.mark.parametrize("seconds", [0, 10])
def test_what_failed_comes_again_after_the_time_of_host_json(stage: Stage, seconds: int) -> None:
    stage.put("a", "b")
    failures = iter([_fail, _fail])

    async def fail_twice() -> None:
        await next(failures, _lasts(0))()

    stage.does = {"a": fail_twice}
    _after(stage, 60, QueuesOptions(max_polling_interval=1, visibility_timeout=seconds))
    times = [at for at, text, _ in stage.called if text == "a"]
    assert [(text, count) for _, text, count in stage.called] == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
    assert all(0 <= later - at - seconds <= 2 for at, later in pairwise(times))
    assert stage.left() == stage.left("-poison") == []


def test_what_failed_too_often_is_poison(stage: Stage) -> None:
    stage.put("a", "b")
    stage.does = {"a": _fail}
    _after(stage, 60, QueuesOptions(max_dequeue_count=3))
    assert [count for _, text, count in stage.called if text == "a"] == [1, 2, 3]
    assert (stage.left(), stage.left("-poison")) == ([], ["a"])


def test_what_cannot_be_decoded_is_poison_without_a_call_and_holds_up_nothing(stage: Stage) -> None:
    stage.put('{"id": "plain"}', plain=True)
    stage.put("b")
    _after(stage, 5, QueuesOptions())
    assert stage.called == [(0, "b", 1)]
    assert (stage.left(), stage.left("-poison")) == ([], ['{"id": "plain"}'])


def test_what_a_crash_interrupts_comes_again_after_ten_minutes(stage: Stage) -> None:
    async def told() -> None:
        running = stage.begin(QueuesOptions())
        await asyncio.sleep(2)
        stage.loop.crash(running.instance)
        running = stage.begin(QueuesOptions())
        await asyncio.sleep(620)
        await running.ended()

    stage.put("a", "b")
    stage.does = {"a": _lasts(10)}
    stage.loop.run(told())
    [first, second, (at, text, count)] = stage.called
    assert (first, second) == ((0, "a", 1), (0, "b", 1))
    assert (text, count) == ("a", 2)
    assert 600 <= at <= 603
    assert stage.left() == []


@pytest.mark.parametrize("seconds", [300, 1_450])
def test_nobody_else_gets_a_message_whose_function_runs_for_longer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """300 seconds: it ends at the moment of a renewal."""
    monkeypatch.setattr(host, "FUNCTION_TIMEOUT_SECONDS", 5_000.0)
    stage.put("a")
    stage.does = {"a": _lasts(seconds)}

    async def told() -> None:
        hosts = [stage.begin(QueuesOptions()) for _ in range(2)]
        await asyncio.sleep(seconds + 700)
        for each in hosts:
            await each.ended()

    stage.loop.run(told())
    assert stage.called == [(0, "a", 1)]
    assert stage.left() == []


def test_a_call_that_lasts_too_long_ends_its_process(stage: Stage) -> None:
    stage.put("a")
    stage.does = {"a": _lasts(1_000)}
    _after(stage, 310, QueuesOptions())
    assert stage.timed_out == [pytest.approx(300, abs=1)]


def test_what_runs_when_the_host_stops_may_end_for_a_while_and_counts(stage: Stage) -> None:
    stage.put("short", "long")
    stage.does = {"short": _lasts(10), "long": _lasts(60)}
    _after(stage, 5, QueuesOptions())
    assert stage.loop.time() <= 5 + host.STOP_SECONDS
    assert stage.left() == ["long"]


def test_an_empty_queue_is_asked_less_and_less_often(stage: Stage) -> None:
    _after(stage, 600, QueuesOptions(max_polling_interval=60.0))
    pauses = [round(later - at, 3) for at, later in pairwise(stage.account.polls)]
    assert pauses[0] == pytest.approx(0.1, abs=0.03)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(60.0, abs=0.5)
    assert len(pauses) < 20
