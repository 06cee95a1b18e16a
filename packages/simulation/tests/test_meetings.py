"""Failures that are made to meet go to the one aggregate that a story is about, in their order, and then they end."""

import asyncio
import random
from collections.abc import Callable
from itertools import groupby

from azure.core.utils import CaseInsensitiveDict

from outbox_simulation.engine.http import SentRequest
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.meetings import COMMIT, MOMENTS, PARKING, THEFT, Meetings
from outbox_simulation.engine.trace import RunTrace

KINDS = {"behind", "throttled", "unavailable", "no_connection", "lost_after"}


def _request(about: str, container: str = "feed", *, batch: bool = False) -> SentRequest:
    headers = {"x-ms-documentdb-partitionkey": f'["{about}"]'}
    if batch:
        headers["x-ms-cosmos-is-batch-request"] = "True"
    method, path = ("POST", "docs") if batch else ("GET", f"docs/{about}")
    return SentRequest(method, f"/dbs/d/colls/{container}/{path}", CaseInsensitiveDict(headers), b"")


class Scene:
    """Meetings of which every moment is drawn by one seed."""

    def __init__(self, seed: int, *moments: str) -> None:
        self.loop = Loop()
        self.struck: list[tuple[float, str]] = []
        self.trace = RunTrace(self.loop.time)

        async def strike(_chance: random.Random, who: str) -> None:
            self.struck.append((self.loop.time(), who))

        chance = random.Random(seed)
        self.meetings = Meetings(
            frozenset(moments), chance, self.trace, self.loop, feed="feed", parked="parked", strike=strike
        )

    @property
    def stories(self) -> list[str]:
        return [each.about for each in self.trace if each.what == "story"]


def _watched(
    seed: int, begin: Callable[[Scene], str | None], seconds: int = 60
) -> tuple[Scene, list[str | None], list[float]]:
    """After the beginning: what befell each request about "a", one every 0.1 s, and how far its replicas lagged.

    ``seconds``: for so long, where a story has begun.
    """
    scene = Scene(seed, *MOMENTS)
    befell: list[str | None] = []
    lags: list[float] = []

    async def main() -> None:
        await asyncio.sleep(100)
        begin(scene)
        for _ in range(seconds * 10 if scene.stories else 20):
            befell.append(scene.meetings.befalls(_request("a"), "api"))
            lag = scene.meetings.lag_seconds(_request("a"))
            assert scene.meetings.befalls(_request("b"), "api") is None
            assert scene.meetings.lag_seconds(_request("b")) is None
            if lag is not None:
                lags.append(scene.loop.time() - lag)
            await asyncio.sleep(0.1)
        await scene.meetings.end()

    scene.loop.run(main())
    return scene, befell, lags


def test_what_follows_a_commit_befalls_its_aggregate_alone_one_trouble_after_the_other_and_ends() -> None:
    seen: set[str | None] = set()
    own: set[str | None] = set()
    lagged = 0
    for seed in range(150):

        def begin(scene: Scene) -> None:
            own.add(scene.meetings.befalls(_request("a", batch=True), "api"))

        scene, befell, lags = _watched(seed, begin)
        if not scene.stories:
            assert (set(befell), lags) == ({None}, [])
            continue
        assert scene.stories == ["a"]
        seen |= {*befell}
        troubles = [kind for kind, _ in groupby(befell) if kind is not None]
        assert len(troubles) <= 2
        assert befell[-1] is None
        assert len(set(lags)) <= 20  # one moment, but for the rounding
        if lags:
            lagged += 1
            assert max(lags) - min(lags) < 1e-6
            assert 90 < min(lags) < 100, "the replicas stand still before the commit"
    assert seen == {*KINDS, None}
    assert own == {None, "lost_after", "timed_out"}
    assert lagged > 10


def test_a_message_that_a_subscriber_never_gets_makes_a_story_about_its_aggregate() -> None:
    told = [_watched(seed, lambda scene: scene.meetings.stolen("a")) for seed in range(40)]
    assert any(scene.stories == ["a"] and lags for scene, _, lags in told)


def test_whoever_has_just_parked_is_struck_in_some_stories() -> None:
    def park(scene: Scene) -> None:
        scene.meetings.befalls(_request("p", "parked", batch=True), "relay-1.2")

    struck = [scene.struck for scene in (_watched(seed, park, seconds=10)[0] for seed in range(60))]
    times = [at for each in struck for at, who in each if who == "relay-1.2"]
    assert times
    assert all(100 <= at <= 104 for at in times)
    assert [] in struck


def test_no_story_begins_where_the_plan_has_none_or_when_all_is_over() -> None:
    def begin(scene: Scene) -> None:
        assert scene.meetings.befalls(_request("a", batch=True), "api") is None
        scene.meetings.stolen("a")

    for seed in range(40):
        calm = Scene(seed, "store.lag")

        async def main(scene: Scene = calm) -> None:
            begin(scene)

        calm.loop.run(main())
        over = Scene(seed, COMMIT, PARKING, THEFT)
        over.loop.run(over.meetings.end())
        begin(over)
        assert calm.stories == over.stories == []
