"""What the nemesis can do, and when: the parts that the plans of all profiles are made of."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "kill",
    "pause",
    "split",
    "split unattended",
    "delete leases",
    "cosmos",
    "lag",
    "servicebus",
    "poison",
    "poison contact",
    "other version",
    "flood",
    "death between pages",
    "operator",
    "thief",
    "refuse entry",
    "operator of the subscriber",
]

QUIET_END_SECONDS = 1.0
"""Nothing new is started so short before the end: it would be healed before it is felt."""


LATE_SECONDS = 6.0
"""Longer than a caller waits for the store."""


@dataclass(frozen=True)
class Strike:
    """One thing that the nemesis does. ``at`` and ``seconds`` (how long it lasts) in seconds of the run."""

    at: float
    kind: Kind
    target: str
    seconds: float = 0.0
    fault: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the summary calls it."""
        if self.fault.get("kind") == "lag":
            return f"lag {self.fault['container']}"
        return (
            f"{self.kind} {self.fault['kind']}" if self.fault and self.kind != "refuse entry" else self.kind
        )


def times(chance: random.Random, seconds: float, interval: float) -> Iterator[float]:
    at = chance.uniform(0.2, 1.0) * interval
    while at < seconds - QUIET_END_SECONDS:
        yield at
        at += chance.uniform(0.5, 1.5) * interval


def faults(
    chance: random.Random, seconds: float, kind: Kind, faults: tuple[Mapping[str, Any], ...], interval: float
) -> Iterator[Strike]:
    for at in times(chance, seconds, interval):
        yield Strike(at, kind, kind, fault=chance.choice(faults))


def leases_lost(
    chance: random.Random, seconds: float, interval: float, shares: tuple[str, ...]
) -> Iterator[Strike]:
    for at in times(chance, seconds, interval):
        yield Strike(at, "delete leases", "leases", fault={"kind": chance.choice(shares)})


def deaths_of_relays(chance: random.Random, seconds: float, interval: float) -> Iterator[Strike]:
    for target in ("functions", "worker"):
        for at in times(chance, seconds, interval):
            yield Strike(at, "kill", target, chance.uniform(0.1, 1.5))


def thieves(chance: random.Random, seconds: float, *, number: int, interval: float) -> Iterator[Strike]:
    """Messages of the app's subscription are stolen; some of its entries are sick, some of its writes arrive late."""
    late = {
        "kind": "late",
        "operation": "batch",
        "container": "directory",
        "count": 2,
        "seconds": LATE_SECONDS,
    }
    refused = {
        "kind": "refuse",
        "operation": "read",
        "container": "directory",
        "count": None,
        "forSeconds": 3.0,
    }
    for _ in range(number):
        yield Strike(0.2, "thief", "contact-directory", seconds - QUIET_END_SECONDS)
    for at in times(chance, seconds - LATE_SECONDS, 1.5 * interval):
        yield Strike(at, "cosmos", "cosmos", fault=late)
    for at in times(chance, seconds, 5.0 * interval):
        yield Strike(at, "refuse entry", "directory", fault=refused)
    # What is set aside after the operator has gone home is left to the timer.
    for at in times(chance, 0.6 * seconds, 3.0 * interval):
        yield Strike(at, "operator of the subscriber", "set-aside")


def in_order(strikes: list[Strike]) -> list[Strike]:
    return sorted(strikes, key=lambda strike: strike.at)
