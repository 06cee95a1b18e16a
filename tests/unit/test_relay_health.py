"""The worker's health line says when a part of the feed has no lease: an idle worker must not look like a good one."""

import asyncio
import logging

import pytest

from changefeed import ChangeFeedProcessor, EpkRange
from devstack.testing import eventually
from infra import relay_worker


class Idle(ChangeFeedProcessor):
    """A processor that was not started, and what its last look at the leases found."""

    def __init__(self, *missing: EpkRange) -> None:
        self._missing = list(missing)

    @property
    def owned_leases(self) -> frozenset[str]:
        return frozenset()

    @property
    def missing_ranges(self) -> list[EpkRange]:
        return self._missing


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ([EpkRange("", "3F"), EpkRange("7F", "FF")], "events wait: 2 part(s) of the feed have no lease"),
        ([], "no event waits"),
    ],
)
async def test_missing_leases_are_in_the_health_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, missing: list[EpkRange], told: str
) -> None:
    monkeypatch.setattr(relay_worker, "HEALTH_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    stop = asyncio.Event()
    telling = asyncio.create_task(relay_worker._tell_health(Idle(*missing), relay_worker.Health(), stop))
    await eventually(lambda: "health: 0 lease(s)" in caplog.text)
    stop.set()
    await telling
    assert told in caplog.text
