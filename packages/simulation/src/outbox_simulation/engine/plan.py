"""Draws each seed's own mix: the kinds of faults, their rates, page sizes, partitions, skew.

A mix finds more than one average: if everything fails a little, nothing fails for long. The rate of a kind
is drawn for that kind alone, so a plan with fewer kinds is the same plan in all else.
"""

import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from cosmos_outbox.settings.transports import Name
from outbox_simulation.engine.correlated_faults import MOMENTS, PARKING
from outbox_simulation.engine.fault_plan import CALM, FaultRates
from outbox_simulation.engine.store import StoreFaults
from outbox_simulation.engine.transports import settings_over

STORE = (
    "no_connection",
    "lost_before",
    "lost_after",
    "silent",
    "throttled",
    "unavailable",
    "timed_out",
    "retry_with",
    "write_forbidden",
    "behind",
    "slow",
    "lag",
)
BUS = (
    "refuse_one",
    "refuse_mix",
    "busy",
    "quota",
    "outage",
    "lost_before",
    "lost_after",
    "cut",
    "lock_lost",
    "again",
    "stolen",
    "buried",
)
STRIKES = (
    "crash",
    "pause",
    "deploy",
    "split",
    "lost lease",
    "store away",
    "bus away",
    "skew",
    "floods",
    "others",
    "discards",
    "operators",
    "host",
    "rollout",
    "sessions",
    "triggers",
    "lists",
    "proxy",
    "handlers",
)
"""``floods``: many changes of one aggregate at once; ``others``: writers past the service; ``discards``: some events
that the broker refuses are discarded; ``operators``: two of them at once; ``host``: the Functions host relays;
``rollout``: another version is deployed; ``sessions``: with another number of them; ``triggers``: the host subscribes;
``lists``: clients page through them; ``proxy``: the read model's source is the service's HTTP API, in whose place a
proxy answers for a while; ``handlers``: some calls of subscribers' functions raise what is no ``Exception``.
"""

THEN = ("then.publish again", "then.restore", "then.days", "then.away")
"""The operations after a run: a run has one of them, or none."""

AFTERWARDS = ("then.keys", "lost lease", *THEN)
"""The order of operations: see :mod:`outbox_simulation.engine.post_run_checks`."""

PLOTS = ("plot.again", "plot.moved", "plot.two hands", "plot.absent", "plot.alone")
"""See :mod:`outbox_simulation.engine.scripted_scenarios`: a run has one of them, or none."""

KINDS = frozenset(
    [
        *(f"store.{name}" for name in STORE),
        *(f"bus.{name}" for name in BUS),
        *STRIKES,
        *MOMENTS,
        *PLOTS,
        *AFTERWARDS,
    ],
)

NOT_OVER: Mapping[Name, Set[str]] = {
    "storagequeue": {"bus.refuse_mix", "sessions"},
    "webhook": {
        # There are no queues, no locks and no subscribers:
        *(
            "bus.stolen",
            "bus.lock_lost",
            "meet.theft",
            "plot.absent",
            "sessions",
            "triggers",
            "proxy",
            "handlers",
        ),
        # The sample receiver reads an aggregate only when one of its events comes; no walk goes through all of them. If
        # the last event expired unsent, it would never learn of it:
        "then.away",
    },
}
"""The kinds that a transport does not have, or that are not simulated over it."""

_NEEDS = {"bus.refuse_one": "meet.parking", "bus.stolen": "meet.theft"}
"""Faults that begin a story are used only where that story is."""

_LIKELIEST = {"slow": 0.03, "lag": 0.6, "silent": 0.004}
_LIKELIEST_OF_BUS = {"outage": 0.006, "refuse_one": 0.12, "stolen": 0.1}
_PLOTTED, _THEN = 0.6, 0.3
"""The shares of seeds with a plot, and with an operation afterwards."""
_BY_THE_PAGE = 0.4
_SESSIONS = ["aggregate", "2", "4", "32"]
_ANY = 0.02
"""The largest share of requests with a fault of the store; the kinds listed above have their own."""


_OVER_ANOTHER = 0.3
"""The share of seeds that do not use Service Bus."""


def drawn_transport(seed: int, known: Sequence[Name]) -> Name:
    """Draws the seed's transport among those that a service is simulated over; most seeds get the first."""
    chance = random.Random(f"{seed}:transport")  # noqa: S311 - no secret
    return chance.choice(known[1:]) if known[1:] and chance.random() < _OVER_ANOTHER else known[0]


@dataclass(frozen=True)
class SimulationPlan:
    """One run, before it runs. The same plan gives the same run."""

    seed: int
    faults: frozenset[str]
    """The possible kinds, of ``KINDS``."""
    aggregates: int = 8
    """The most aggregates that exist at once."""
    seconds: float = 60.0
    """The end of clients and faults, in virtual time; then everything gets the time to finish."""
    shuffled: bool = True
    """Whether the next ready handle is drawn by the seed; else the first goes first."""
    transport: Name = "servicebus"

    @classmethod
    def drawn(cls, seed: int, *, shuffled: bool = True, transport: Name = "servicebus") -> "SimulationPlan":
        """Draws the seed's plan."""
        chance = random.Random(f"{seed}:plan")  # noqa: S311 - no secret
        share = chance.choice([0.15, 0.4, 0.7])
        alone = sorted(KINDS - {*PLOTS, *THEN})
        kinds = {kind: random.Random(f"{seed}:is {kind}").random() for kind in alone}  # noqa: S311 - no secret
        faults = frozenset(kind for kind, drawn in kinds.items() if drawn < share)
        for name, of, likely in (("plot", PLOTS, _PLOTTED), ("then", THEN, _THEN)):
            one = random.Random(f"{seed}:{name}")  # noqa: S311 - no secret
            faults |= {one.choice(of)} if one.random() < likely else set()
        if "proxy" in faults:
            # The API lists nothing: with its only message lost, or its events expired, an aggregate has no entry.
            faults -= {"then.away", "bus.stolen", "meet.theft"}
        plan = cls(seed, faults - NOT_OVER.get(transport, set()), aggregates=chance.choice([2, 4, 8, 12]),
                   shuffled=shuffled, transport=transport)  # fmt: skip
        return replace(plan, seconds=chance.choice([30.0, 60.0, 90.0]))

    def chance(self, of: str) -> random.Random:
        """Returns the random source of one purpose alone."""
        return random.Random(f"{self.seed}:{of}")  # noqa: S311 - no secret

    @property
    def store(self) -> StoreFaults:
        """The faults of requests to the store."""
        chance = self.chance("lag seconds")
        seconds = chance.choice([0.5, 5.0, 20.0])
        return StoreFaults(
            **{name: self._share(f"store.{name}", _LIKELIEST.get(name, _ANY)) for name in STORE},
            lag_seconds=seconds,
            longest_seconds=chance.choice([1.0, 6.0]),
            near=chance.choice([1.0, 10.0, 30.0]),
        )

    @property
    def bus(self) -> FaultRates:
        """The faults of the broker."""
        shares = {name: self._share(f"bus.{name}", _LIKELIEST_OF_BUS.get(name, 0.06)) for name in BUS}
        if not any(shares.values()):
            return CALM
        return FaultRates(**shares, longest_way_seconds=self.chance("ways").choice([0.01, 0.1, 3.0]))

    @property
    def settings(self) -> dict[str, str]:
        """The service's settings, in its environment."""
        chance = self.chance("settings")
        return settings_over(self.transport) | {
            "RELAY_MAX_ITEMS": chance.choice(["1", "3", "10", "100"]),
            "RELAY_POLL_DELAY_MS": "2000",
            "RELAY_SEND_SECONDS": chance.choice(["10", "60"]),
            "SERVICEBUS_SESSIONS": chance.choice(_SESSIONS),
            "WEBHOOK_SECONDS": chance.choice(["1", "4", "10"]),
            "WEBHOOK_CONCURRENCY": chance.choice(["1", "8"]),
        }

    @property
    def settings_after(self) -> dict[str, str] | None:
        """The settings of the version that is deployed in the middle of the run; None: none is."""
        if self.faults.isdisjoint({"rollout", "sessions"}):
            return None
        chance, before = self.chance("settings after"), self.settings
        after = before | {
            "RELAY_MAX_ITEMS": chance.choice(["1", "3", "10", "100"]),
            "RELAY_POLL_DELAY_MS": chance.choice(["500", "2000", "4000"]),
        }
        others = [each for each in _SESSIONS if each != before["SERVICEBUS_SESSIONS"]]
        number, seconds = chance.choice(others), chance.choice(["10", "60"])
        after |= {"SERVICEBUS_SESSIONS": number} if "sessions" in self.faults else {}
        return after | ({"RELAY_SEND_SECONDS": seconds} if self.no_relay_during_it else {})

    @property
    def no_relay_during_it(self) -> bool:
        """Whether another number of sessions is deployed as docs/use/messages.md requires; else side by side."""
        return "sessions" in self.faults and self.chance("no relay").random() < _BY_THE_PAGE

    @property
    def duplicate_window_seconds(self) -> float:
        """The topic's window: in some runs a repeated send comes after its end."""
        return self.chance("window").choice([20.0, 60.0, 600.0])

    @property
    def discards(self) -> bool:
        """Whether some events that the broker refuses are discarded."""
        return not self.faults.isdisjoint({"discards", PARKING})

    @property
    def operators(self) -> int:
        """The number of operators at work at once."""
        return 1 if self.faults.isdisjoint({"operators", PARKING, "plot.two hands"}) else 2

    @property
    def hosts(self) -> int:
        """The number of relay workers that the Functions host replaces with the relay's trigger."""
        if "plot.alone" in self.faults:
            return 2
        return self.chance("hosts").choice([1, 1, 2]) if "host" in self.faults else 0

    @property
    def subscriber_hosts(self) -> int:
        """The number of subscriber workers that the Functions host replaces with the subscribers' triggers."""
        return self.chance("triggers").choice([1, 1, 2]) if "triggers" in self.faults else 0

    @property
    def partitions(self) -> int:
        """The initial number of each container's physical partitions."""
        return self.chance("partitions").choice([1, 1, 2, 3])

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.seconds:g} s, {self.aggregates} aggregates, {self.partitions} partition(s), "
            f"{'shuffled' if self.shuffled else 'first in, first out'}"
            f"{'' if self.transport == 'servicebus' else f', over {self.transport}'}; "
            f"{', '.join(sorted(self.faults)) or 'no faults'}"
        )

    def _share(self, kind: str, most: float) -> float:
        there = {kind, _NEEDS.get(kind, kind)} & self.faults
        return self.chance(kind).uniform(most / 10, most) if there else 0.0
