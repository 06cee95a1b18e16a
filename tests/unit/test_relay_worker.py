"""A relay worker in virtual time: when it begins, what it does each minute beside the feed, and how it ends."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cosmos_outbox.cosmos.store import changefeed
from cosmos_outbox.outbox.deadlines import BEAT_SECONDS
from cosmos_outbox.outbox.destination import Destination
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.worker import archive, relay
from tests.support.processor import Processor, now
from tests.support.virtual_time import in_virtual_time


@dataclass
class Outbox:
    """What befalls a relay, and when each thing was done."""

    away: list[Exception] = field(default_factory=list)
    """What the store answers to the first looks at it."""
    fails: list[Exception] = field(default_factory=list)
    """What parked events meet when they are tended."""
    checked: list[float] = field(default_factory=list)
    did: dict[str, list[float]] = field(default_factory=dict)
    archiving: Any = None
    canary: Any = None
    deadlines: Any = None
    sent: int = 0
    listens: Any = None
    destination: Destination = field(default_factory=lambda: Destination(""))
    feed: str = "feed"
    leases: str = "leases"
    reading: Any = field(
        default_factory=lambda: SimpleNamespace(max_items=100, poll_delay_ms=250, lease_prefix="relay")
    )

    async def check(self) -> None:
        self.checked.append(now())
        if self.away:
            raise self.away.pop(0)

    def noted(self, what: str, fails: list[Exception] | None = None) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            self.did.setdefault(what, []).append(now())
            if fails:
                raise fails.pop(0)

        return act

    @property
    def parking(self) -> Any:
        return SimpleNamespace(upkeep=self.noted("parked", self.fails))

    @property
    def observer(self) -> Any:
        return SimpleNamespace(measure=self.noted("metrics"))

    @property
    def on_commit(self) -> Any:
        @contextmanager
        def listening(wake: Callable[[], None]) -> Iterator[None]:
            self.listens = wake
            yield
            self.listens = None

        return SimpleNamespace(listening=listening)

    @property
    def forwarding(self) -> Any:
        async def forward_committed(_: object) -> Any:
            return SimpleNamespace(sent=self.sent)

        return SimpleNamespace(compare="compare", forward_committed=forward_committed)


def work(
    outbox: Outbox,
    processor: Processor,
    monkeypatch: pytest.MonkeyPatch,
    *,
    until: float,
    look: Callable[[relay.RelayHealth], None] = lambda _: None,
    look_at: float = 0.5,
) -> float:
    """Relay until so many seconds have passed, and look at how it is meanwhile. When it ended."""
    monkeypatch.setattr(changefeed, "ChangeFeedProcessor", processor)

    async def story() -> float:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.call_later(until, stop.set)
        health, others = relay.health_of(cast(Any, outbox), stop), asyncio.all_tasks()
        loop.call_later(look_at, look, health)
        await relay.work(health)
        assert asyncio.all_tasks() == others
        return now()

    return in_virtual_time(story())


def test_the_relay_begins_when_the_store_answers_and_asks_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[tuple[bool, bool]] = []
    outbox, processor = Outbox([Unavailable("the store is away")] * 6), Processor([OSError("no network")])

    def look(health: relay.RelayHealth) -> None:
        looks.append((health.started, health.tried.is_set()))

    assert work(outbox, processor, monkeypatch, until=200, look=look) == 200
    assert outbox.checked == [0, 1, 3, 7, 15, 31, 61, 91]
    assert (processor.started, processor.stopped) == ([61, 91], [True])
    assert looks == [(False, True)], "it has tried, and waits"
    assert caplog.text.count("events wait: the store is away") == 1, "once a minute"


def test_a_relay_that_has_begun_is_woken_by_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, processor, looks = Outbox(), Processor(), list[bool]()

    def look(health: relay.RelayHealth) -> None:
        looks.extend([health.started, health.tried.is_set()])
        outbox.listens()

    assert work(outbox, processor, monkeypatch, until=10, look=look) == 10
    assert (looks, processor.woken, outbox.listens) == ([True, True], 1, None)


def test_a_stop_before_the_store_answers_ends_the_relay_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox([Unavailable("the store is away") for _ in range(100)], archiving="archiving")
    processor = Processor()
    assert work(outbox, processor, monkeypatch, until=40) == 40
    assert (processor.started, processor.stopped, outbox.did) == ([], [], {})


@pytest.mark.parametrize(
    ("away", "fails"),
    [
        ([Misconfigured("the container does not exist")], []),
        ([], [changefeed.ChangeFeedError("the container does not exist")]),
    ],
)
def test_what_only_a_deployment_can_repair_ends_the_relay(
    away: list[Exception], fails: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Misconfigured, match="the container does not exist"):
        work(Outbox(away), Processor(fails), monkeypatch, until=10)


def test_each_minute_parked_events_are_tended_and_metrics_told_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(fails=[Unavailable("the store is busy"), ValueError("a bug")])
    work(outbox, Processor(), monkeypatch, until=250)
    assert outbox.did == {"parked": [60, 120, 180, 240], "metrics": [60, 120, 180, 240]}
    assert "parked events wait: the store is busy" in caplog.text
    assert caplog.text.count("because of a bug") == 1


def test_what_is_done_beside_the_feed_is_cut_off_by_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(Outbox):
        @property
        def parking(self) -> Any:
            async def upkeep() -> None:
                try:
                    await asyncio.sleep(1000)
                finally:
                    await asyncio.sleep(3)

            return SimpleNamespace(upkeep=upkeep)

    assert work(Busy(), Processor(), monkeypatch, until=70) == 73


def test_deadlines_are_looked_at_and_the_canary_sings(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox()
    outbox.deadlines = SimpleNamespace(meet=outbox.noted("deadlines"))
    outbox.canary = SimpleNamespace(sing=outbox.noted("canary"))
    work(outbox, Processor(), monkeypatch, until=300)
    assert outbox.did["canary"] == [60, 120, 180, 240]
    first, *others = outbox.did["deadlines"]
    beat = BEAT_SECONDS
    assert 0 <= first < beat, "workers that begin at once look at other times"
    assert others == pytest.approx([first + beat * n for n in range(1, len(others) + 1)])
    assert len(others) == int((300 - first) // beat)


def test_the_archive_is_kept_beside_the_relay_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, float]] = []

    async def keep(_: object, archiving: Any, stop: asyncio.Event) -> None:
        try:
            await stop.wait()
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)  # a page in hand
            seen.append((archiving, now()))

    monkeypatch.setattr(archive, "keep", keep)
    outbox = Outbox(archiving="archiving")
    assert work(outbox, Processor(page_seconds=5), monkeypatch, until=10) == 18
    assert seen == [("archiving", 18)]


@pytest.mark.parametrize(("seconds", "ended", "stopped"), [(15, 25, [True]), (100, 30, [True, False])])
def test_a_stop_waits_for_the_page_in_hand_for_twenty_seconds(
    seconds: float, ended: float, stopped: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = Processor(page_seconds=seconds)
    assert work(Outbox(), processor, monkeypatch, until=10) == ended
    assert processor.stopped == stopped


def test_the_relay_reads_all_of_the_feed_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, processor, healths = Outbox(sent=7), Processor(), list[relay.RelayHealth]()
    work(outbox, processor, monkeypatch, until=10, look=healths.append)
    feed, leases, steps = processor.given
    assert (feed, leases, processor.options["lease_prefix"]) == ("feed", "leases", "relay")
    options = processor.options["options"]
    assert (options.poll_interval, options.max_items, options.mend_leases) == (0.25, 100, True)
    assert options.start == changefeed.StartFrom.beginning()
    assert (options.acquire_interval, options.renew_interval, options.expiration_interval) == (3, 4, 15)

    [health] = healths
    in_virtual_time(steps.handle("a page", SimpleNamespace(lease_token="0")))
    assert health.forwarding.forwarded == 7
    in_virtual_time(_call(processor.options["on_error"], "0", Unavailable("the broker is away")))
    assert health.forwarding.reason({"0"}) == "the broker is away"


async def _call(failed: Callable[..., None], lease: str, error: Exception) -> None:
    failed(lease, error)


def test_a_relay_that_ends_with_an_error_ends_the_others_which_give_back_what_they_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first error is the one that is told."""
    left: list[float] = []

    async def works(health: relay.RelayHealth) -> None:
        if cast(Any, health.outbox).destination.name == "broken":
            await asyncio.sleep(3)
            raise Misconfigured("the topic does not exist")
        await health.stop.wait()
        await asyncio.sleep(5)
        left.append(now())
        raise ValueError("a bug at the end")

    monkeypatch.setattr(changefeed, "ChangeFeedProcessor", Processor())
    monkeypatch.setattr(relay, "work", works)
    each = [Outbox(destination=Destination(name)) for name in ("broken", "")]
    service = SimpleNamespace(outbox=SimpleNamespace(each=each, resources=AsyncExitStack()))

    async def story() -> None:
        async with asyncio.timeout(60):
            await relay.run(cast(Any, service), asyncio.Event())

    with pytest.raises(Misconfigured, match="the topic does not exist"):
        in_virtual_time(story())
    assert left == [8]
