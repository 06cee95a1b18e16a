"""Injects correlated faults: faults of one aggregate within seconds of an important step of it.

A story begins with a commit, with a change of what is parked, or with a message that a subscriber never gets. The
answer to that step may be lost; then the requests to the same aggregate meet one fault after the other, and its
replicas show an earlier moment. Each story is drawn anew. A process that has just parked events may be struck.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from devstack.http_in_memory import SentRequest
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.trace import RunTrace

COMMIT, PARKING, THEFT = "meet.commit", "meet.parking", "meet.theft"
MOMENTS = (COMMIT, PARKING, THEFT)
"""The steps that can begin a story."""

_BEGINS: Mapping[str, float] = {COMMIT: 0.2, PARKING: 0.3, THEFT: 0.7}
"""The share of these steps that begin one."""
_FIRST_BEGINS = 0.5
"""The share of an aggregate's first commits, before any reader has seen it."""
_OWN = (None, None, "lost_after", "timed_out")
"""The possible faults of the request that begins the story."""
_TROUBLES = ("behind", "behind", "throttled", "unavailable", "no_connection", "lost_after")
_MOST_REQUESTS = 4
_LONGEST_TROUBLE_SECONDS = 8.0
_LAGS = 0.7
"""The share of stories after which the replicas lag."""
_STEALS = 0.3
"""The share of stories begun by a commit in which a message is stolen."""
_LONGEST_LAG_SECONDS = 45.0
_STOOD_SECONDS = 8.0
"""The longest time before the story at which the replicas stopped."""
_STRUCK = 0.6
"""The share of processes struck after they have parked something."""
_SOON_SECONDS = 4.0


@dataclass(eq=False)
class _Trouble:
    """A fault of the next requests, or of all requests for some seconds."""

    kind: str
    requests: int = 0
    seconds: float = 0.0
    until: float | None = None
    """The end; known from its first request on."""

    def meets(self, now: float) -> bool:
        """Returns whether a request meets it now."""
        if self.requests:
            self.requests -= 1
            return True
        if self.until is None:
            self.until = now + self.seconds
        return now < self.until


@dataclass(eq=False)
class _Story:
    about: str
    """The aggregate's id, or the container's path: requests that name it are of this story."""
    stands: float
    """The moment that the replicas show."""
    until: float
    troubles: list[_Trouble] = field(default_factory=list)
    lags: bool = False
    steals: bool = False
    """Whether a subscriber never gets one message of the aggregate."""


Strike = Callable[[random.Random, str], Awaitable[None]]
"""Strikes the process of this name, in one way or another."""


class Meetings:
    """The stories of one run."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        moments: frozenset[str],
        chance: random.Random,
        trace: RunTrace,
        loop: Loop,
        *,
        feed: str,
        parked: str,
        strike: Strike,
    ) -> None:
        """``feed`` and ``parked``: the containers of the aggregates, and of what is parked."""
        self._moments = moments
        self._chance = chance
        self._trace = trace
        self._loop = loop
        self._feed, self._parked = f"/colls/{feed}/docs", f"/colls/{parked}/docs"
        self._strike = strike
        self._stories: list[_Story] = []
        self._struck: set[asyncio.Task[None]] = set()
        self._known: set[str] = set()
        self._over = False

    async def end(self) -> None:
        """Ends all stories, begins none, and restarts struck processes."""
        self._over = True
        self._stories.clear()
        if self._struck:
            await asyncio.wait(self._struck)

    # -- the store's questions

    def fault_of(self, request: SentRequest, who: str) -> str | None:
        """Returns the fault of a request that this process sends now; it may begin a story."""
        if self._over:
            return None
        found = self._trouble(request)
        if found is None and request.kind == "batch":
            if COMMIT in self._moments and self._feed in request.path:
                about = request.headers.get("x-ms-documentdb-partitionkey", "").strip('[]"')
                return self._begin(COMMIT, about)
            if PARKING in self._moments and self._parked in request.path:
                return self._begin(PARKING, self._parked, who)
        return found

    def lag_seconds(self, request: SentRequest) -> float | None:
        """Returns the lag of the replicas that answer it; None: their usual one."""
        now = self._loop.time()
        for story in self._stories:
            if story.lags and story.about in request.goes_to and now < story.until:
                return now - story.stands
        return None

    def hold(self, about: str, stands: float, seconds: float) -> None:
        """Makes the replicas that answer about this show that moment, for this time from now on."""
        self._stories.append(_Story(about, stands, self._loop.time() + seconds, lags=True))
        self._trace.note("story", about, f"the replicas stand still for {seconds:.1f} s")

    # -- the broker's questions

    def steals(self, aggregate: str) -> bool:
        """Returns whether another receiver gets the message of this aggregate that the topic takes now."""
        now = self._loop.time()
        for story in self._stories:
            if story.about == aggregate and story.steals and now < story.until:
                story.steals = self._chance.random() < 0.5
                return not story.steals
        return False

    def stolen(self, aggregate: str) -> None:
        """Begins a story: a subscriber never gets a message of this aggregate, or gets it late."""
        if THEFT in self._moments and not self._over:
            self._begin(THEFT, aggregate)

    # -- stories

    def _trouble(self, request: SentRequest) -> str | None:
        now = self._loop.time()
        self._stories = [each for each in self._stories if now < each.until]
        for story in self._stories:
            if story.about not in request.goes_to:
                continue
            while story.troubles:
                if story.troubles[0].meets(now):
                    return story.troubles[0].kind
                story.troubles.pop(0)
        return None

    def _begin(self, moment: str, about: str, who: str = "") -> str | None:
        chance = self._chance
        share = _FIRST_BEGINS if moment == COMMIT and about not in self._known else _BEGINS[moment]
        self._known.add(about)
        if not about or chance.random() >= share or any(each.about == about for each in self._stories):
            return None
        now = self._loop.time()
        most = 1 if moment == THEFT else 2
        story = _Story(
            about,
            stands=now - chance.choice([0.01, chance.uniform(0.0, _STOOD_SECONDS)]),
            until=now + chance.uniform(1.0, _LONGEST_LAG_SECONDS),
            troubles=[self._drawn() for _ in range(chance.randint(0, most))],
            lags=chance.random() < _LAGS,
            steals=moment == COMMIT and chance.random() < _STEALS,
        )
        self._stories.append(story)
        own = chance.choice(_OWN) if moment != THEFT else None
        parts = [
            own or "",
            *(f"{each.kind} x{each.requests or f'{each.seconds:.1f} s'}" for each in story.troubles),
        ]
        parts += ["the replicas stand still"] if story.lags else []
        parts += ["a message is stolen"] if story.steals else []
        self._trace.note("story", about, f"after a {moment[5:]}: {', '.join(filter(None, parts))}")
        if moment == PARKING and chance.random() < _STRUCK:
            self._later(who)
        return own

    def _drawn(self) -> _Trouble:
        kind = self._chance.choice(_TROUBLES)
        if self._chance.random() < 0.5:
            return _Trouble(kind, requests=self._chance.randint(1, _MOST_REQUESTS))
        return _Trouble(kind, seconds=self._chance.uniform(0.1, _LONGEST_TROUBLE_SECONDS))

    def _later(self, who: str) -> None:
        seconds = self._chance.uniform(0.0, _SOON_SECONDS)

        async def strike() -> None:
            await asyncio.sleep(seconds)
            if not self._over:
                await self._strike(self._chance, who)

        task = self._loop.create_task(strike(), context=self._loop.outside())
        self._struck.add(task)
        task.add_done_callback(self._struck.discard)
