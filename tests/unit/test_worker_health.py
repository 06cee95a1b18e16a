"""A worker that forwards nothing says so, to its log and to a probe: an idle worker must not look like a good one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cosmos_changefeed import ChangeFeedProcessor, EpkRange, Heartbeat
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.service import Wired
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker.running import RunningHealth


class Idle(ChangeFeedProcessor):
    """A processor that was not started, what its last look at the leases found, and how its loops are."""

    def __init__(self, *missing: EpkRange) -> None:
        self._missing = list(missing)
        self.leases = frozenset({"0"})
        self.balancing, self.reading = Heartbeat(), Heartbeat()

    @property
    def owned_leases(self) -> frozenset[str]:
        return self.leases

    @property
    def missing_ranges(self) -> list[EpkRange]:
        return self._missing

    @property
    def heartbeats(self) -> list[Heartbeat]:
        return [self.balancing, self.reading]


async def answers() -> None:
    """A store that answers."""


async def is_away() -> None:
    raise Unavailable("the store cannot be used at https://secret.example")


def wired(check: Callable[[], Awaitable[None]] = answers) -> Wired:
    return cast(Wired, SimpleNamespace(check=check))


def relay(processor: Idle, **fields: Any) -> relay_worker.RelayHealth:
    started = {"started": True} | fields
    return relay_worker.RelayHealth(
        wired(), asyncio.Event(), processor, relay_worker.ForwardingLog(), **started
    )


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

    health.wired = wired(is_away)
    for _ in range(3):
        assert await health.trouble() == "the store cannot be used: the log says why"
    assert caplog.text.count("the store cannot be used at https://secret.example") == 1, "once a minute"

    health.stop.set()
    assert await health.trouble() == "the worker is asked to stop"


async def test_a_relay_without_all_leases_is_not_ready() -> None:
    assert await relay(Idle(EpkRange("", "FF"))).trouble() == "a part of the feed has no lease"


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
    assert caplog.text.count("lease 0 waits") == 2, "what begins anew is logged at once"


class Vital(SimpleNamespace):
    """A worker of a process that has several."""

    async def trouble(self) -> str | None:
        reason: str | None = self.reason
        return reason


async def test_a_program_is_as_the_worst_of_its_workers_that_have_begun() -> None:
    well = Vital(silent_seconds=1.0, longest_round_seconds=60.0, reason=None)
    slow = Vital(silent_seconds=9.0, longest_round_seconds=20.0, reason=None)
    parts: Any = [SimpleNamespace(health=None), SimpleNamespace(health=well), SimpleNamespace(health=slow)]
    both, none = RunningHealth(parts), RunningHealth(parts[:1])
    assert (both.silent_seconds, both.longest_round_seconds, both.alive) == (9.0, 60.0, True)
    slow.silent_seconds = 301.0
    assert not both.alive
    assert (none.silent_seconds, none.longest_round_seconds, none.alive) == (0.0, 0.0, True)
