"""A loop that goes round is distinguished from one that hangs, and its last round from those before."""

from datetime import UTC, datetime

from cosmos_changefeed.clock import Clock
from cosmos_changefeed.pulse import Pulse


def test_a_loop_is_silent_since_the_end_of_its_last_round() -> None:
    now = [100.0]
    pulse = Pulse(Clock(lambda: datetime.now(UTC), lambda: now[0]))
    assert pulse.silent_seconds == 0.0
    now[0] = 130.0
    assert pulse.silent_seconds == 30.0
    pulse.beat()
    assert pulse.silent_seconds == 0.0
    now[0] = 135.0
    assert pulse.silent_seconds == 5.0


def test_a_round_that_failed_is_reported_until_one_does_not() -> None:
    pulse, seen = Pulse(), list[bool]()
    for failed in (True, False):
        seen.append(pulse.failed)
        pulse.beat(failed=failed)
    assert [*seen, pulse.failed] == [False, True, False]
