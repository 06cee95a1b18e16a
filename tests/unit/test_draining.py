"""A relay for a time ends when the time is over and not before; with ``--once``, when all is forwarded."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cosmos_outbox.operations.lease_status import LeaseStatus, RelayStatus
from cosmos_outbox.outbox.destination import Destination
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.worker import draining
from cosmos_outbox.worker.draining import Drained, Task, _Run
from cosmos_outbox.worker.relay import ForwardingLog
from tests.support.virtual_time import in_virtual_time

END = "the end of contacts"


@dataclass
class Observer:
    """What it answers, in turn, and True then; of the end of the feed alone."""

    answers: list[bool | Exception | None] = field(default_factory=list)
    positions: Callable[[], int] = lambda: 0
    asked: int = 0

    async def has_forwarded(self, token: str) -> bool | None:
        assert token == END
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def status(self) -> RelayStatus:
        waiting = int(asyncio.get_running_loop().time())  # always longer, whether anybody gets on or not
        return RelayStatus(
            [LeaseStatus("0", None, 1, waiting, 0.0, position=self.positions())], [], Counter()
        )


@dataclass
class Outbox:
    observer: Observer
    archiving: Any = None
    deadlines: Any = None
    feed: Any = field(default_factory=lambda: SimpleNamespace(id="contacts"))
    relay: Any = field(default_factory=lambda: SimpleNamespace(reading_seconds=60.0))
    destination: Destination = field(default_factory=lambda: Destination(""))
    tended: list[str] = field(default_factory=list)

    def container(self, name: str) -> str:
        return name

    @property
    def parking(self) -> Any:
        return SimpleNamespace(upkeep=self.noted("parked events"))

    def noted(self, what: str) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            self.tended.append(what)

        return act


@dataclass
class Health:
    outbox: Outbox
    started: bool = True
    processor: Any = field(
        default_factory=lambda: SimpleNamespace(missing_ranges=(), owned_leases=frozenset({"0"}))
    )
    forwarding: ForwardingLog = field(default_factory=lambda: ForwardingLog(forwarded=3))
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Ended:
    """How a run ended, and after how many seconds."""

    drained: Drained
    seconds: float
    fences: int
    """How often the end of the feed was looked up."""
    health: Health


def ended(
    task: Task,
    *answers: bool | Exception | None,
    monkeypatch: pytest.MonkeyPatch,
    archived: list[bool | Exception | None] | None = None,
    change: Callable[[Health], None] = lambda _: None,
    stop_at: float | None = None,
    bug: Exception | None = None,
    page_seconds: float = 0.0,
) -> Ended:
    """Of a relay whose work goes on until it is told to stop, or has a bug."""
    fences = 0

    async def fence(container: str, feed: object) -> str:
        nonlocal fences
        fences += 1
        return f"the end of {container}"

    async def work(health: Health) -> None:
        if bug is not None:
            await asyncio.sleep(3)
            raise bug
        await health.stop.wait()
        await asyncio.sleep(page_seconds)
        health.outbox.tended.append("the page in hand")

    monkeypatch.setattr(draining, "fence_everywhere", fence)
    monkeypatch.setattr(draining, "work", work)
    health = Health(Outbox(Observer(list(answers))))
    if archived is not None:
        health.outbox.archiving = SimpleNamespace(observer=Observer(archived))

    async def story() -> Ended:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        await asyncio.sleep(BEGAN)
        change(health)
        if stop_at is not None:
            loop.call_later(stop_at, stop.set)
        async with asyncio.timeout(5000):
            drained = await _Run(cast(Any, health), task, stop).drain()
        return Ended(drained, loop.time() - BEGAN, fences, health)

    return in_virtual_time(story())


BEGAN = 50.0
ALWAYS = [False] * 10_000
NOBODY_KNOWS = "Another relay may hold them, or there was no time: cosmos-outbox status tells"
AGAIN = "Run the command again"


def test_for_a_time_it_goes_on_though_all_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ended(Task(once=False, seconds=30), monkeypatch=monkeypatch)
    assert (done.drained.whole, done.drained.reason, done.seconds) == (True, "", 30)
    assert (done.drained.forwarded, done.drained.own) == (3, 1)
    assert done.drained.status is not None


def test_once_it_ends_when_all_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ended(Task(once=True), False, False, True, monkeypatch=monkeypatch)
    assert (done.drained.whole, done.drained.reason, done.seconds) == (True, "", 1.0)
    assert done.health.outbox.tended == ["parked events", "the page in hand"]
    assert done.fences == 1, "what is stored later is the next run's"


def test_the_page_in_hand_at_the_end_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ended(
        Task(once=False, seconds=1), False, False, False, True, page_seconds=4, monkeypatch=monkeypatch
    )
    assert (done.drained.whole, done.seconds) == (True, 5)
    assert done.health.outbox.tended == ["the page in hand"]


def test_deadlines_come_first_since_they_store_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(health: Health) -> None:
        health.outbox.deadlines = SimpleNamespace(meet=health.outbox.noted("deadlines"))

    done = ended(Task(once=True), False, True, change=change, monkeypatch=monkeypatch)
    assert done.health.outbox.tended == ["deadlines", "parked events", "the page in hand"]


def test_deadlines_that_the_store_does_not_take_hold_up_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def meet() -> None:
        raise Unavailable("the store is busy")

    def change(health: Health) -> None:
        health.outbox.deadlines = SimpleNamespace(meet=meet)

    assert ended(Task(once=True), change=change, monkeypatch=monkeypatch).drained.whole
    assert "deadlines wait: the store is busy" in caplog.text


def test_a_partition_that_was_split_meanwhile_has_its_end_looked_up_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = ended(Task(once=True), False, None, True, monkeypatch=monkeypatch)
    assert (done.drained.whole, done.fences) == (True, 2)

    def change(health: Health) -> None:
        health.processor.missing_ranges = ("a lease",)

    done = ended(Task(once=True), None, None, True, change=change, monkeypatch=monkeypatch)
    assert (done.drained.whole, done.fences) == (True, 1), "a lease is missing, and no partition was split"


def test_once_with_a_time_it_ends_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ended(Task(once=True, seconds=10), *ALWAYS, monkeypatch=monkeypatch)
    assert (done.drained.whole, done.seconds) == (False, 10)
    assert done.drained.reason == f"10 s are over. {NOBODY_KNOWS}. {AGAIN}"
    assert done.health.outbox.tended == ["the page in hand"]


def test_with_a_time_it_waits_as_long_as_that_also_when_nothing_gets_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = ended(Task(once=True, seconds=1000), *ALWAYS, monkeypatch=monkeypatch)
    assert (done.drained.whole, done.seconds) == (False, 1000)


def test_once_it_ends_when_all_is_archived_too(monkeypatch: pytest.MonkeyPatch) -> None:
    archived: list[bool | Exception | None] = [None, False, True]
    done = ended(Task(once=True), False, archived=archived, monkeypatch=monkeypatch)
    assert (done.drained.whole, archived) == (True, [])


def test_what_is_not_archived_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ended(Task(once=True, seconds=10), archived=[*ALWAYS], monkeypatch=monkeypatch)
    assert not done.drained.whole
    assert done.drained.reason == (
        f"10 s are over. They are forwarded, and not archived: the log says why. {AGAIN}"
    )


def test_a_relay_that_does_not_start_looks_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(health: Health) -> None:
        health.started = False

    done = ended(Task(once=True, seconds=10), change=change, monkeypatch=monkeypatch)
    assert (done.drained.whole, done.fences, done.seconds) == (False, 0, 10)
    assert done.drained.reason == f"10 s are over. {NOBODY_KNOWS}. {AGAIN}"


def test_nothing_gets_on_is_told_after_two_looks_a_page_and_its_lease_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twice the 60 s that a page may take: it is looked at once, and once again."""
    done = ended(Task(once=True), *ALWAYS, monkeypatch=monkeypatch)
    assert done.drained.reason == f"nothing gets on. {NOBODY_KNOWS}. {AGAIN}"
    assert 240 <= done.seconds <= 242

    def short(health: Health) -> None:
        health.outbox.relay.reading_seconds = 1.0

    done = ended(Task(once=True), *ALWAYS, change=short, monkeypatch=monkeypatch)
    assert 60 <= done.seconds <= 62, "twice the 15 s after which a dead relay's lease expires"


@pytest.mark.parametrize("who", ["another relay", "this relay", "the archive"])
def test_while_somebody_gets_on_it_waits(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def minutes() -> int:
        """Of the first ten."""
        return min(int((asyncio.get_running_loop().time() - BEGAN) // 60), 10)

    def change(health: Health) -> None:
        if who == "another relay":
            health.outbox.observer.positions = minutes
        elif who == "the archive":
            health.outbox.archiving.observer.positions = minutes
        else:
            for minute in range(1, 11):
                asyncio.get_running_loop().call_later(60 * minute, health.forwarding.sent, "0", 1)

    done = ended(Task(once=True), *ALWAYS, change=change, archived=[], monkeypatch=monkeypatch)
    assert done.drained.reason.startswith("nothing gets on")
    assert 700 <= done.seconds <= 860


def test_what_the_store_said_last_is_told_while_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Unavailable("the store is away")
    done = ended(Task(once=True, seconds=5), *[away] * 1000, monkeypatch=monkeypatch)
    assert done.drained.reason == f"5 s are over. the store is away. {AGAIN}"
    done = ended(Task(once=True, seconds=5), away, *ALWAYS, monkeypatch=monkeypatch)
    assert done.drained.reason == f"5 s are over. {NOBODY_KNOWS}. {AGAIN}"


def test_a_status_that_the_store_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> Any:
        raise Unavailable("the store is away")

    def change(health: Health) -> None:
        health.outbox.observer.status = away  # type: ignore[method-assign]

    done = ended(Task(once=True), change=change, monkeypatch=monkeypatch)
    assert (done.drained.whole, done.drained.status) == (True, None)
    done = ended(Task(once=True), *ALWAYS, change=change, monkeypatch=monkeypatch)
    assert done.drained.reason.startswith("nothing gets on")


def test_told_to_stop_it_says_what_its_own_leases_wait_for_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(health: Health) -> None:
        health.outbox.destination = Destination("partner")
        health.forwarding.failed("1", Unavailable("another one's lease waits"))
        health.forwarding.failed("0", Unavailable("the partner is away"))
        health.forwarding.failed("1", Unavailable("another one's lease waits"))

    done = ended(Task(once=True), *ALWAYS, change=change, stop_at=7.2, monkeypatch=monkeypatch)
    assert done.seconds == pytest.approx(7.2), "at once"
    assert done.drained.reason == (f"to partner: the relay was told to stop. the partner is away. {AGAIN}")


def test_a_bug_of_the_relay_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        ended(Task(once=True), *ALWAYS, bug=ZeroDivisionError("a bug"), monkeypatch=monkeypatch)


def drained(*works: Callable[[Health], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> Drained:
    """Of a service that has so many destinations."""

    async def fence(container: str, feed: object) -> str:
        return f"the end of {container}"

    outboxes = [Outbox(Observer(), destination=Destination(f"d{n}")) for n in range(len(works))]
    by_outbox = {id(outbox): work for outbox, work in zip(outboxes, works, strict=True)}

    async def work(health: Health) -> None:
        await by_outbox[id(health.outbox)](health)

    monkeypatch.setattr(draining, "fence_everywhere", fence)
    monkeypatch.setattr(draining, "work", work)
    monkeypatch.setattr(draining, "health_of", lambda outbox, stop: Health(outbox, stop=stop))

    async def story() -> Drained:
        service = SimpleNamespace(outbox=SimpleNamespace(each=outboxes, resources=AsyncExitStack()))
        async with asyncio.timeout(5000):
            return await draining.drain(
                cast(Any, service), asyncio.Event(), None, Task(once=False, seconds=100)
            )

    return in_virtual_time(story())


async def until_stopped(health: Health) -> None:
    await health.stop.wait()


def test_each_destination_is_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    done = drained(until_stopped, until_stopped, monkeypatch=monkeypatch)
    assert (done.forwarded, done.whole, done.own) == (6, True, 2)


def test_a_bug_of_one_relay_ends_all_and_each_ends_its_page_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    ended_at = list[float]()

    async def has_a_bug(_: Health) -> None:
        await asyncio.sleep(3)
        raise ZeroDivisionError("a bug")

    async def has_a_page(health: Health) -> None:
        await health.stop.wait()
        await asyncio.sleep(5)
        ended_at.append(asyncio.get_running_loop().time())
        raise ValueError("another bug")

    with pytest.raises(ZeroDivisionError):
        drained(has_a_bug, has_a_page, monkeypatch=monkeypatch)
    assert len(ended_at) == 1
    assert ended_at[0] < 10


def test_what_all_relays_did_is_whole_when_each_is() -> None:
    one = Drained(2, True, "", cast(Any, None), 1)
    two = Drained(3, False, "to a: events wait", None, 2)
    both = Drained.of([one, two, Drained(0, False, "to b: events wait")])
    assert (both.forwarded, both.whole, both.own) == (5, False, 3)
    assert (both.reason, both.status) == ("to a: events wait. to b: events wait", None)
