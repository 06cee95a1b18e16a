"""Profiles with few faults, and those often: one kind of mistake comes to light where no other fault hides it."""

import random
from collections.abc import Mapping
from typing import Any

from tests.torture.strike import Strike, deaths_of_relays, in_order, leases_lost, thieves, times

_BATCHES: Mapping[str, Any] = {"operation": "batch", "container": "contacts"}


def parked_contacts(chance: random.Random, seconds: float) -> list[Strike]:
    """Contacts are parked, discarded and replayed while the broker is away for longer than the SDK tries.

    Relays die, and leases are lost: then what was discarded long ago is delivered again.
    """
    busy = {"kind": "throttle", "count": 100_000, "forSeconds": 8.0}
    strikes = [
        *(Strike(at, "poison contact", "contacts") for at in times(chance, seconds, 4.0)),
        *(Strike(at, "operator", "parked events") for at in times(chance, seconds, 3.0)),
        *(Strike(at, "servicebus", "servicebus", fault=busy) for at in times(chance, seconds, 16.0)),
        *(Strike(at, "other version", "contacts") for at in times(chance, seconds, 6.0)),
        *leases_lost(chance, seconds, 15.0, ("all",)),
        *deaths_of_relays(chance, seconds, 60.0),
    ]
    return in_order(strikes)


def interrupted_replays(chance: random.Random, seconds: float) -> list[Strike]:
    """Each time the operator replays, the broker refuses some of the sends; and the process that replays dies.

    Between two visits of the operator the broker takes all, so that more is parked behind what waits.
    """
    full = {"kind": "full", "count": None, "share": 0.5, "forSeconds": 1.5}
    visits = list(times(chance, seconds, 2.5))
    strikes = [
        *(Strike(at, "poison contact", "contacts") for at in times(chance, seconds, 2.0)),
        *(Strike(at - 0.1, "servicebus", "servicebus", fault=full) for at in visits),
        *(Strike(at, "operator", "parked events") for at in visits),
        *(Strike(at, "kill", "functions", 0.2) for at in times(chance, seconds, 30.0)),
    ]
    return in_order(strikes)


def moving_leases(chance: random.Random, seconds: float) -> list[Strike]:
    """Parked contacts go on changing, and get relays that know nothing of it; all reads of what is parked are old."""
    lag = {"kind": "lag", "container": "parked-events", "seconds": 600.0, "count": None}
    strikes = [
        Strike(0.1, "lag", "cosmos", fault=lag),
        *(Strike(at, "poison contact", "contacts", seconds - at) for at in times(chance, 0.5 * seconds, 2.5)),
        Strike(chance.uniform(0.3, 0.35) * seconds, "kill", "worker", 0.2),
        Strike(chance.uniform(0.4, 0.5) * seconds, "kill", "functions", 0.2),
    ]
    return in_order(strikes)


def unserved_tokens(chance: random.Random, seconds: float) -> list[Strike]:
    """All replicas in reach lag, and have not seen what clients have seen."""
    lag = {"kind": "lag", "container": "contacts", "seconds": 15.0, "count": None, "forSeconds": 6.0}
    unserved = {"kind": "session-not-available", "container": "contacts", "count": 4}
    strikes = [
        *(Strike(at, "lag", "cosmos", fault=lag) for at in times(chance, seconds, 5.0)),
        *(Strike(at, "lag", "cosmos", fault=unserved) for at in times(chance, seconds, 0.7)),
    ]
    return in_order(strikes)


def lost_answers(chance: random.Random, seconds: float) -> list[Strike]:
    """Batches are committed and their answers lost; then all batches get 429, for longer than the SDK repeats one."""
    lost = {"kind": "drop-after-commit", "count": 3, **_BATCHES}
    throttled = {"kind": "throttle", "count": 100_000, "forSeconds": 4.5, "retryAfterMs": 200, **_BATCHES}
    return [
        Strike(at, "cosmos", "cosmos", fault=fault)
        for at in times(chance, seconds, 7.0)
        for fault in (lost, throttled)
    ]


def regions_failing_over(chance: random.Random, seconds: float) -> list[Strike]:
    """Answers are lost, the region takes no writes for a while, and refusals do not say which state they are about.

    All replicas lag, and contacts are parked during it.
    """
    lag = {"kind": "lag", "seconds": 15.0, "count": None, "forSeconds": 6.0}
    lost = {"kind": "drop-after-commit", "operation": "batch", "count": 3}
    forbidden = {"kind": "write-forbidden", "count": None, "forSeconds": 3.5}
    untold = {"kind": "no-session-token", "operation": "batch", "count": None, "forSeconds": 6.0}
    strikes = [
        *(
            Strike(at, "cosmos", "cosmos", fault=fault | {"container": container})
            for container in ("contacts", "parked-events", "directory", "claims", "leases")
            for at in times(chance, seconds, 9.0)
            for fault in (lag, lost, forbidden, untold)
        ),
        *(Strike(at, "poison contact", "contacts") for at in times(chance, seconds, 6.0)),
        *(Strike(at, "operator", "parked events") for at in times(chance, seconds, 5.0)),
        *deaths_of_relays(chance, seconds, 30.0),
    ]
    return in_order(strikes)


def floods(chance: random.Random, seconds: float) -> list[Strike]:
    """Contacts whose waiting events need several batches, while the topic refuses every other send."""
    return [Strike(at, "flood", "contacts") for at in times(chance, seconds, 15.0)]


def deaths_between_pages(chance: random.Random, seconds: float) -> list[Strike]:
    """The second relay dies while the broker refuses a page; it has read the page ahead, before the last checkpoint."""
    return [Strike(at, "death between pages", "worker") for at in times(chance, seconds, 14.0)]


def stolen_messages(chance: random.Random, seconds: float) -> list[Strike]:
    """The app's subscriber meets lost, late and repeated messages, sick entries, late writes, and old reads."""
    source = {"kind": "lag", "operation": "read", "container": "contacts", "seconds": 8.0, "count": None}
    entry = {"kind": "lag", "operation": "read", "container": "directory", "versions": 3, "share": 0.5}
    strikes = [
        Strike(0.1, "lag", "cosmos", fault=source),
        Strike(0.1, "lag", "cosmos", fault=entry | {"count": None}),
        *thieves(chance, seconds, number=8, interval=1.0),
        *(Strike(at, "kill", "functions", 0.2) for at in times(chance, seconds, 25.0)),
    ]
    return in_order(strikes)


def nothing(_chance: random.Random, _seconds: float) -> list[Strike]:
    """Only load."""
    return []


def failing_writes(_chance: random.Random, seconds: float) -> list[Strike]:
    """All the time some batches fail, however fast they come, and some of them more often than the SDK repeats one."""
    fault = {"kind": "unavailable", "share": 0.5, "count": None, "forSeconds": seconds - 0.4, **_BATCHES}
    return [Strike(0.2, "cosmos", "cosmos", fault=fault)]


def broker_away(_chance: random.Random, seconds: float) -> list[Strike]:
    """Service Bus is away for most of the run."""
    return [Strike(1.0, "kill", "servicebus", seconds - 2.0)]


def broker_away_and_host_killed(_chance: random.Random, seconds: float) -> list[Strike]:
    """While Service Bus is away, the host dies."""
    return [Strike(1.0, "kill", "servicebus", seconds - 2.0), Strike(seconds - 2.0, "kill", "functions", 0.2)]
