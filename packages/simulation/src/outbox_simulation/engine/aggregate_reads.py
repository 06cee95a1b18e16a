"""Reads an aggregate at the service's API for a webhook's receiver when a skip marker comes, no older than the read.

The read goes through an instance of the API and meets the faults there: then the receiver does not know the state.
"""

import asyncio
import random

from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.system_under_test import ReadOne
from outbox_simulation.engine.webhook_double import NotRead
from outbox_simulation.invariants.records import FinallyListed

_PATIENCE_SECONDS = 5.0
"""The default timeout of httpx."""


class AggregateReads:
    """The reads of one run."""

    def __init__(self, deployment: Deployment, read: ReadOne, chance: random.Random) -> None:
        self._deployment, self._read, self._chance = deployment, read, chance

    async def __call__(self, aggregate: str) -> FinallyListed | None:
        """Reads an aggregate; None: it is gone. Raises NotRead."""
        api = self._deployment.any_api(self._chance)
        if api is None:
            raise NotRead("no instance takes requests")
        work = self._deployment.ground.loop.begin(api.instance, self._read(api.wired, aggregate))
        done, _ = await asyncio.wait({work}, timeout=_PATIENCE_SECONDS)
        if not done:
            raise NotRead("no answer in time")
        error = work.exception()
        if error is not None:
            raise NotRead(repr(error)) from error
        return work.result()
