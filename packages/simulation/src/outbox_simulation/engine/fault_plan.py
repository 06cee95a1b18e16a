"""Draws a broker's fault rates from the seed, before the run: each seed has its own mix."""

from dataclasses import dataclass, fields, replace
from random import Random
from typing import Self

_LIKELIEST = 0.08
"""The highest chance of one fault, at one call."""


@dataclass(frozen=True)
class FaultRates:
    """The chances of each fault at one call; 0: never."""

    refuse_one: float = 0.0
    """One event of a send is refused for good, as for a value that Service Bus does not take."""
    refuse_mix: float = 0.0
    """A send of several aggregates is refused, and from then on every such send of its publisher. A webhook: the
    receiver refuses everything for a while, as with a 401."""
    busy: float = 0.0
    quota: float = 0.0
    """The topic is full."""
    outage: float = 0.0
    """The broker is unavailable for some seconds."""
    lost_before: float = 0.0
    """There is no answer, and nothing was done."""
    lost_after: float = 0.0
    """There is no answer, and all was done."""
    cut: float = 0.0
    """The connection ends: requests in flight were done or not, and a session is free at once, or after its lock."""
    lock_lost: float = 0.0
    """The broker releases a session's lock before its time."""
    again: float = 0.0
    """A message comes again although its completion was answered."""
    stolen: float = 0.0
    """Another receiver takes a message of a subscription and completes it: it is lost, as its sequence will show."""
    buried: float = 0.0
    """A message is dead-lettered from outside: it comes late. A webhook: one aggregate's events fail for a while."""
    longest_outage_seconds: float = 60.0
    longest_way_seconds: float = 0.0
    """The longest time from a client to the broker, or back."""

    @classmethod
    def drawn(cls, random: Random) -> Self:
        """Draws about half of the broker's own faults, each with the seed's rate."""
        chances = {
            each.name: random.uniform(0.0, _LIKELIEST) if random.random() < 1 / 2 else 0.0
            for each in fields(cls)
            if not each.name.startswith("longest") and each.name not in {"stolen", "buried"}
        }
        chances["outage"] /= 10  # an outage hits all messages, and lasts
        return cls(**chances, longest_way_seconds=random.choice([0.01, 0.1, 3.0]))

    @property
    def in_fair_weather(self) -> Self:
        """Returns only the faults of single messages; the broker and the way to it are well."""
        return replace(self, busy=0.0, quota=0.0, outage=0.0, lost_before=0.0, lost_after=0.0, cut=0.0)

    @property
    def is_calm(self) -> bool:
        """Whether the broker has no faults at all."""
        return self == CALM


CALM = FaultRates()
