"""A loop that goes round is distinguished from one that hangs, and its last round from those before."""

from datetime import UTC, datetime

from cosmos_changefeed.clock import Clock
from cosmos_changefeed.heartbeat import Heartbeat


def test_a_loop_is_silent_since_the_end_of_its_last_round() -> None:
    now = [100.0]
    heartbeat = Heartbeat(Clock(lambda: datetime.now(UTC), lambda: now[0]))
    assert heartbeat.silent_seconds == 0.0
    now[0] = 130.0
    assert heartbeat.silent_seconds == 30.0
    heartbeat.beat()
    assert heartbeat.silent_seconds == 0.0
    now[0] = 135.0
    assert heartbeat.silent_seconds == 5.0


def test_a_round_that_failed_is_reported_until_one_does_not() -> None:
    heartbeat, seen = Heartbeat(), list[bool]()
    for failed in (True, False):
        seen.append(heartbeat.failed)
        heartbeat.beat(failed=failed)
    assert [*seen, heartbeat.failed] == [False, True, False]
