"""A worker that forwards nothing says so, to its log and to a probe: an idle worker must not look like a good one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cosmos_changefeed import ChangeFeedProcessor, EpkRange, Pulse
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.telemetry import work as pulse
from cosmos_outbox.telemetry.work import Work
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker import running, vitals
from cosmos_outbox.worker import subscriber as subscriber_worker
from cosmos_outbox.worker.running import RunningHealth
from devstack.testing import eventually
from tests.support.telemetry import recording
from tests.support.virtual_time import in_virtual_time


class Idle(ChangeFeedProcessor):
    """A processor that was not started, what its last look at the leases found, and how its loops are."""

    def __init__(self, *missing: EpkRange) -> None:
        self._missing = list(missing)
        self.leases = frozenset({"0"})
        self.balancing, self.reading = Pulse(), Pulse()

    @property
    def owned_leases(self) -> frozenset[str]:
        return self.leases

    @property
    def missing_ranges(self) -> list[EpkRange]:
        return self._missing

    @property
    def pulses(self) -> list[Pulse]:
        return [self.balancing, self.reading]


async def answers() -> None:
    """A store that answers."""


async def is_away() -> None:
    raise Unavailable("the store cannot be used at https://secret.example")


def outbox(check: Callable[[], Awaitable[None]] = answers) -> Outbox:
    return cast(Outbox, SimpleNamespace(check=check))


def relay(processor: Idle, **fields: Any) -> relay_worker.RelayHealth:
    started = {"started": True} | fields
    return relay_worker.RelayHealth(
        outbox(), processor, relay_worker.ForwardingLog(), asyncio.Event(), **started
    )


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ([EpkRange("", "3F"), EpkRange("7F", "FF")], "events wait: 2 part(s) of the feed have no lease"),
        ([], "no event waits"),
    ],
)
async def test_missing_leases_are_in_the_health_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, missing: list[EpkRange], told: str
) -> None:
    monkeypatch.setattr(vitals, "HEALTH_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    stop = asyncio.Event()
    telling = asyncio.create_task(vitals.tell_health(relay(Idle(*missing)), stop))
    await eventually(lambda: "health: 1 lease(s)" in caplog.text)
    stop.set()
    await telling
    assert told in caplog.text


async def test_a_relay_that_forwards_is_ready_and_one_that_does_not_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    processor = Idle()
    health = relay(processor)
    assert await health.trouble() is None

    processor.reading.beat(failed=True)
    assert await health.trouble() == "events wait: the log says why"
    processor.reading.beat()
    assert await health.trouble() is None

    processor.balancing.beat(failed=True)
    assert await health.trouble() == "events wait: the log says why"
    processor.balancing.beat()

    health.outbox = outbox(is_away)
    for _ in range(3):
        assert await health.trouble() == "the store cannot be used: the log says why"
    assert caplog.text.count("the store cannot be used at https://secret.example") == 1, "once a minute"

    health.stop.set()
    assert await health.trouble() == "the worker is told to stop"


async def test_a_relay_that_has_not_started_is_alive_and_not_ready() -> None:
    processor = Idle()
    processor.reading._at -= 1000
    health = relay(processor, started=False)
    assert health.silent_seconds == 0
    assert await health.trouble() == "the relay has not started: the log says what it waits for"


async def test_a_relay_without_all_leases_is_not_ready() -> None:
    assert await relay(Idle(EpkRange("", "FF"))).trouble() == "a part of the feed has no lease"


async def test_a_failure_that_is_over_is_not_in_the_health_line_any_more() -> None:
    processor = Idle()
    health = relay(processor)
    health.forwarding.failed("0", Unavailable("the store was away"))
    processor.reading.beat(failed=True)
    assert "events wait: the store was away" in health.line()
    processor.reading.beat()
    assert "no event waits" in health.line()


async def test_what_one_lease_sends_does_not_hide_what_another_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    processor = Idle()
    processor.leases = frozenset({"0", "1"})
    health = relay(processor)
    health.forwarding.failed("0", Unavailable("lease 0 waits"))
    processor.reading.beat(failed=True)
    health.forwarding.sent("1", 5)
    assert "5 event(s) forwarded, events wait: lease 0 waits" in health.line()
    assert "delivered again" not in caplog.text

    health.forwarding.failed("0", Unavailable("lease 0 waits"))
    assert caplog.text.count("lease 0 waits") == 1, "once a minute, whatever other leases do"
    health.forwarding.sent("0", 1)
    assert "delivered again" in caplog.text
    health.forwarding.failed("0", Unavailable("lease 0 waits"))
    assert caplog.text.count("lease 0 waits") == 2, "what begins anew is told at once"


def test_a_reading_of_the_feed_that_fails_is_counted_and_a_page_that_failed_not_twice() -> None:
    """Who forwards a page counts what befell it."""
    with recording() as recorded:
        log = relay_worker.ForwardingLog()
        for error in (OSError("no network"), OSError("no network"), Unavailable("a page is not sent")):
            log.failed("0", error)
        assert recorded.points("outbox.relay.failed_rounds") == [({"outbox.reason": "store_away"}, 2)]


async def test_the_newest_reason_of_the_own_leases_is_told() -> None:
    processor = Idle()
    processor.leases = frozenset({"0", "1"})
    health = relay(processor)
    processor.reading.beat(failed=True)
    for lease in ("1", "0"):
        health.forwarding.failed(lease, Unavailable(f"lease {lease} waits"))
    assert health.line().endswith("events wait: lease 0 waits")
    health.forwarding.failed("1", Unavailable("lease 1 waits"))
    assert health.line().endswith("events wait: lease 1 waits")


async def test_what_a_lease_waited_for_that_others_have_now_is_not_told() -> None:
    processor = Idle()
    processor.leases = frozenset({"1"})
    health = relay(processor)
    health.forwarding.failed("1", Unavailable("lease 1 waits"))
    health.forwarding.failed("0", Unavailable("lease 0 waits"))
    processor.reading.beat(failed=True)
    assert "events wait: lease 1 waits" in health.line()


async def test_the_slowest_loop_counts() -> None:
    processor = Idle()
    processor.reading._at -= 1000
    assert relay(processor).silent_seconds >= 1000
    work = Work(pulses=[pulse.Pulse(), pulse.Pulse()])
    work.pulses[1]._at -= 1000
    assert (
        subscriber_worker.SubscriberHealth(outbox(), [Work(), work], asyncio.Event()).silent_seconds >= 1000
    )


async def test_a_relay_that_is_told_to_send_for_ten_minutes_is_not_restarted_in_its_page() -> None:
    settings = SimpleNamespace(relay=SimpleNamespace(reading_seconds=600.0))
    health = relay_worker.RelayHealth(
        cast(Outbox, settings), Idle(), relay_worker.ForwardingLog(), asyncio.Event(), started=True
    )
    assert health.longest_round_seconds == 3000
    assert (
        subscriber_worker.SubscriberHealth(outbox(), [Work()], asyncio.Event()).longest_round_seconds == 120
    )


async def test_a_subscriber_says_why_it_applies_nothing(caplog: pytest.LogCaptureFixture) -> None:
    health = subscriber_worker.SubscriberHealth(
        outbox(), [Work(received=2), Work(received=3)], asyncio.Event()
    )
    assert await health.trouble() is None
    assert health.line() == "0 session(s), 5 message(s) received, no failure"
    health.works[0].waiting_for = "Service Bus cannot be reached at secret.example"
    assert await health.trouble() == "messages wait: the log says why", "the other one receives"
    assert health.line().endswith("messages wait: Service Bus cannot be reached at secret.example")
    health.works[0].waiting_for = None
    away = subscriber_worker.SubscriberHealth(outbox(is_away), [Work()], asyncio.Event())
    for _ in range(3):
        assert await away.trouble() == "the store cannot be used: the log says why"
    assert caplog.text.count("the store cannot be used at https://secret.example") == 1, "once a minute"
    health.stop.set()
    assert await health.trouble() == "the worker is told to stop"


class Vital(SimpleNamespace):
    """A worker of a process that has several."""

    async def trouble(self) -> str | None:
        reason: str | None = self.reason
        return reason


async def test_several_workers_are_as_the_one_that_is_worst() -> None:
    well = Vital(silent_seconds=1.0, longest_round_seconds=60.0, reason=None)
    slow = Vital(silent_seconds=9.0, longest_round_seconds=20.0, reason=None)
    both = vitals.Several([well, slow])
    assert (both.silent_seconds, both.longest_round_seconds, await both.trouble()) == (9.0, 60.0, None)
    slow.reason = "events wait"
    assert await both.trouble() == "events wait"
    none = vitals.Several([])
    assert (none.silent_seconds, none.longest_round_seconds, await none.trouble()) == (0.0, 0.0, None)


async def test_a_program_is_as_the_worst_of_its_workers_that_have_begun() -> None:
    hangs = Vital(silent_seconds=301.0, longest_round_seconds=20.0, reason=None)
    begins: Any = SimpleNamespace(health=None)
    works: Any = SimpleNamespace(health=hangs)
    health = RunningHealth([begins, works])
    assert (health.silent_seconds, health.longest_round_seconds, health.alive) == (301.0, 20.0, False)
    hangs.silent_seconds = 300.0
    assert health.alive
    assert RunningHealth([begins]).alive


def test_the_end_of_a_program_cuts_off_what_takes_too_long_and_waits_for_what_it_gives_back() -> None:
    ended: list[float] = []

    async def worker() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(3)
            ended.append(asyncio.get_running_loop().time())

    async def story() -> float:
        tasks = [asyncio.create_task(worker()), asyncio.create_task(asyncio.sleep(5))]
        await running._end([])  # a program may run neither of the two
        await running._end(tasks)
        return asyncio.get_running_loop().time()

    assert (in_virtual_time(story()), ended) == (28.0, [28.0]), "25 s, and then what is held is given back"


class Flaky:
    """Work that a bug ends the first time, with personal data in the error's text."""

    def __init__(self) -> None:
        self.rounds = 0

    async def __call__(self) -> None:
        self.rounds += 1
        if self.rounds == 1:
            raise ValueError("quirina@contoso.example is no number")

    async def again(self) -> bool:
        return self.rounds > 1


async def test_a_bug_does_not_end_the_upkeep_of_a_relay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(relay_worker, "UPKEEP_PAUSE_SECONDS", 0.01)
    work, stop = Flaky(), asyncio.Event()
    upkeep = asyncio.create_task(relay_worker._every_minute("parked events wait", work, stop))
    await eventually(work.again)
    stop.set()
    await upkeep
    assert "parked events wait, because of a bug: ValueError in __call__" in caplog.text
    assert "quirina" not in caplog.text


async def test_a_bug_does_not_end_what_a_subscriber_does_beside_its_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work, stop = Flaky(), asyncio.Event()
    beside = asyncio.create_task(subscriber_worker._every(0.01, stop, "effects wait", work))
    await eventually(work.again)
    stop.set()
    await beside
    assert "effects wait, because of a bug: ValueError in __call__" in caplog.text
    assert "quirina" not in caplog.text
