"""The plan of all faults and their times is drawn from the seed alone, before anything runs."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.torture import few_faults
from tests.torture.strike import Strike, deaths_of_relays, faults, in_order, leases_lost, thieves, times


@dataclass(frozen=True)
class Profile:
    """What goes wrong in a run, and how long a client pauses between two requests, in seconds from .. to.

    ``hosts``: how many Functions hosts serve the clients, each with a memory of its own. ``workers``: how many worker
    processes each host has; the batches of one lease go to them in turn. ``page``: how many changes a relay reads at
    once; with few, a page waits behind another that fails. ``page_of_the_worker``: the same of the second relay, which
    reads a page ahead; None: as the others.
    """

    strikes: Callable[[random.Random, float], list[Strike]]
    pauses: tuple[float, float] = (0.05, 0.3)
    hosts: int = 1
    workers: int = 1
    page: int = 1000
    page_of_the_worker: int | None = None
    ends_quietly: bool = False
    """Whether the run ends without one more change of every contact: what is wrong then stays wrong."""


KILLS = {"functions": 15.0, "cosmos": 11.0, "servicebus": 11.0, "worker": 15.0, "subscriber": 12.0}
"""Mean seconds from one SIGKILL of a process to the next."""

COSMOS_FAULTS: tuple[Mapping[str, Any], ...] = (
    {"kind": "drop-after-commit", "operation": "batch", "container": "contacts", "count": 2},
    {"kind": "drop-after-commit", "operation": "batch", "container": "contacts", "count": 4},
    {"kind": "drop-after-commit", "operation": "replace", "container": "leases", "count": 2},
    {"kind": "drop-after-commit", "container": "parked-events", "count": 2},
    {"kind": "drop-after-commit", "operation": "create", "container": "claims", "count": 2},
    {"kind": "unavailable", "container": "claims", "count": 4},
    {"kind": "drop-after-commit", "operation": "batch", "container": "directory", "count": 3},
    {"kind": "unavailable", "container": "directory", "count": 4},
    {"kind": "throttle", "container": "directory", "count": 10},
    {"kind": "fail-before-commit", "operation": "batch", "container": "contacts", "count": 2},
    {"kind": "fail-before-commit", "operation": "feed", "count": 3},
    {"kind": "throttle", "container": "contacts", "count": 20},
    {"kind": "throttle", "count": 10, "retryAfterMs": 500},
    {"kind": "retry-with", "operation": "batch", "count": 3},
    {"kind": "unavailable", "operation": "batch", "count": 3},
    {"kind": "unavailable", "count": 8},
    {"kind": "slow", "operation": "batch", "count": 3, "seconds": 0.8},
    {"kind": "slow", "container": "leases", "count": 2, "seconds": 2.0},
)

LAGS: tuple[Mapping[str, Any], ...] = (
    {"kind": "lag", "container": "contacts", "seconds": 2.0, "share": 0.5, "count": None, "forSeconds": 6.0},
    {"kind": "lag", "container": "contacts", "seconds": 15.0, "share": 0.5, "count": None, "forSeconds": 6.0},
    {"kind": "lag", "container": "contacts", "versions": 2, "count": None, "forSeconds": 4.0},
    {"kind": "lag", "container": "parked-events", "seconds": 30.0, "count": None, "forSeconds": 10.0},
    {
        "kind": "lag",
        "container": "parked-events",
        "versions": 1,
        "share": 0.5,
        "count": None,
        "forSeconds": 9.0,
    },
    {"kind": "lag", "container": "leases", "seconds": 2.0, "share": 0.5, "count": None, "forSeconds": 4.0},
    {"kind": "lag", "container": "claims", "seconds": 15.0, "count": None, "forSeconds": 8.0},
    {
        "kind": "lag",
        "container": "directory",
        "seconds": 15.0,
        "share": 0.5,
        "count": None,
        "forSeconds": 8.0,
    },
    {"kind": "lag", "container": "directory", "versions": 3, "count": None, "forSeconds": 8.0},
    {"kind": "session-not-available", "container": "contacts", "count": 6},
    {"kind": "session-not-available", "container": "parked-events", "count": 3},
)
"""Replicas of a container that lag, some of them or all, for a while; and none in reach that has what a client has."""

SERVICEBUS_FAULTS: tuple[Mapping[str, Any], ...] = (
    {"kind": "drop-after-commit", "count": 1},
    {"kind": "drop-after-commit", "count": 3},
    {"kind": "fail-before-commit", "count": 2},
    {"kind": "throttle", "count": 1000, "forSeconds": 1.5},
    {"kind": "unauthorized", "count": 2},
    {"kind": "slow", "count": 1000, "forSeconds": 3.0, "seconds": 0.3},
    {"kind": "detach"},
    {"kind": "disconnect"},
)


LEASE_FAULTS: tuple[Mapping[str, Any], ...] = (
    {"kind": "drop-after-commit", "operation": "create", "container": "leases", "count": 2},
    {"kind": "drop-after-commit", "operation": "replace", "container": "leases", "count": 2},
    {"kind": "retry-with", "operation": "create", "container": "leases", "count": 1},
    {"kind": "slow", "operation": "create", "container": "leases", "count": 1, "seconds": 2.0},
    {"kind": "lag", "container": "leases", "seconds": 20.0, "share": 0.5, "count": None, "forSeconds": 4.0},
    {"kind": "lag", "container": "contacts", "seconds": 15.0, "share": 0.5, "count": None, "forSeconds": 4.0},
)
"""What meets a relay that makes a lease, or looks whether one is missing."""


def everything(chance: random.Random, seconds: float) -> list[Strike]:
    """All kinds of faults, one over the other; for most of the time a replica of some container lags."""
    strikes = [
        *(
            Strike(at, "kill", target, chance.uniform(0.1, 1.5))
            for target, interval in KILLS.items()
            for at in times(chance, seconds, interval)
        ),
        *(
            Strike(at, "pause", chance.choice(sorted(KILLS)), chance.uniform(0.3, 3.0))
            for at in times(chance, seconds, 8.0)
        ),
        *(Strike(at, "pause", "worker", 18.0) for at in times(chance, seconds, 50.0)),
        *(Strike(at, "split", "cosmos") for at in times(chance, seconds, 25.0)),
        *(Strike(at, "poison", "contacts") for at in times(chance, seconds, 6.0)),
        *(Strike(at, "poison contact", "contacts") for at in times(chance, seconds, 9.0)),
        *(Strike(at, "operator", "parked events") for at in times(chance, seconds, 12.0)),
        *faults(chance, seconds, "cosmos", COSMOS_FAULTS, 2.5),
        *faults(chance, seconds, "servicebus", SERVICEBUS_FAULTS, 3.0),
        *(Strike(at, "lag", "cosmos", fault=chance.choice(LAGS)) for at in times(chance, seconds, 1.5)),
        *leases_lost(chance, seconds, 40.0, ("one", "half")),
        *_unattended_splits(chance, seconds, 40.0),
        *(Strike(at, "flood", "contacts") for at in times(chance, seconds, 45.0)),
        *(Strike(at, "death between pages", "worker") for at in times(chance, seconds, 30.0)),
        *_throttled_after_a_lost_answer(chance, seconds, 9.0),
        *(Strike(at, "other version", "contacts") for at in times(chance, seconds, 9.0)),
        *thieves(chance, seconds, number=2, interval=4.0),
    ]
    return in_order(strikes)


def lost_leases(chance: random.Random, seconds: float) -> list[Strike]:
    """Leases are deleted; the second relay lives long enough to mend it, mostly."""
    strikes = [
        *leases_lost(chance, seconds, 20.0, ("one", "half", "all")),
        *_unattended_splits(chance, seconds, 40.0),
        *deaths_of_relays(chance, seconds, 30.0),
        *(Strike(at, "split", "cosmos") for at in times(chance, seconds, 25.0)),
        *faults(chance, seconds, "cosmos", LEASE_FAULTS, 3.0),
    ]
    return in_order(strikes)


def unattended_splits(chance: random.Random, seconds: float) -> list[Strike]:
    """Partitions are split while no relay runs. No lease is deleted: to read again would heal what a split lost."""
    strikes = [
        *_unattended_splits(chance, seconds, 12.0),
        *deaths_of_relays(chance, seconds, 30.0),
        *faults(chance, seconds, "cosmos", LEASE_FAULTS, 3.0),
    ]
    return in_order(strikes)


def old_reads(chance: random.Random, seconds: float) -> list[Strike]:
    """Replicas that lag, what parks a contact, and deaths, since a new process has no session: all else is quiet."""
    kinds = ("lag", "poison", "poison contact", "operator", "split")
    forgetful = ("functions", "worker")
    strikes = everything(chance, seconds)
    return [
        each for each in strikes if each.kind in kinds or (each.kind == "kill" and each.target in forgetful)
    ]


PROFILES: dict[str, Profile] = {
    # A process reads its own writes and not those of another one: two hosts, so that lagging replicas show.
    "everything": Profile(everything, hosts=2, page_of_the_worker=5),
    "everything-in-two-workers": Profile(everything, workers=2, page_of_the_worker=5),
    "old-reads": Profile(old_reads, hosts=2),
    "lost-leases": Profile(lost_leases, hosts=2),
    "unattended-splits": Profile(unattended_splits, hosts=2),
    "parked-contacts": Profile(few_faults.parked_contacts, hosts=2),
    "interrupted-replays": Profile(few_faults.interrupted_replays, hosts=2),
    "moving-leases": Profile(few_faults.moving_leases, hosts=2),
    "unserved-tokens": Profile(few_faults.unserved_tokens, hosts=2),
    "stolen-messages": Profile(few_faults.stolen_messages, pauses=(0.2, 0.7), hosts=2, ends_quietly=True),
    "lost-answers": Profile(few_faults.lost_answers),
    "regions-failing-over": Profile(few_faults.regions_failing_over, hosts=2),
    "floods": Profile(few_faults.floods),
    "deaths-between-pages": Profile(few_faults.deaths_between_pages, page_of_the_worker=5),
    "floods-in-small-pages": Profile(few_faults.floods, page=5),
    "nothing": Profile(few_faults.nothing),
    # Without pauses a fault meets each request of a change as often as any other.
    "failing-writes": Profile(few_faults.failing_writes, pauses=(0.0, 0.01)),
    "broker-away": Profile(few_faults.broker_away),
    "broker-away-and-host-killed": Profile(few_faults.broker_away_and_host_killed),
}


def plan(profile: str, seed: int, seconds: float) -> list[Strike]:
    """The strikes of a run, in order. The same arguments give the same plan."""
    return PROFILES[profile].strikes(random.Random(f"plan {seed}"), seconds)


def _unattended_splits(chance: random.Random, seconds: float, interval: float) -> Iterator[Strike]:
    for at in times(chance, seconds, interval):
        yield Strike(at, "split unattended", "relays", chance.uniform(1.0, 3.0))


def _throttled_after_a_lost_answer(
    chance: random.Random, seconds: float, interval: float
) -> Iterator[Strike]:
    """A batch is committed and its answer lost; then its repetitions by the SDK are answered by 429."""
    batch = {"operation": "batch", "container": "contacts"}
    for at in times(chance, seconds, interval):
        yield Strike(at, "cosmos", "cosmos", fault={"kind": "drop-after-commit", "count": 1} | batch)
        yield Strike(at + 0.01, "cosmos", "cosmos", fault={"kind": "throttle", "count": 12} | batch)
