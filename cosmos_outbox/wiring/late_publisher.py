"""A broker's SDK is imported by the processes that send: a process that answers HTTP alone starts without it."""

import gc
from collections.abc import Callable, Sequence
from functools import cached_property

from cosmos_outbox.outbox.publisher import AggregateEvents, Guarantees, Outcome, Publisher


class LatePublisher:
    """A publisher that is made when it is first needed. See :class:`cosmos_outbox.outbox.publisher.Publisher`."""

    def __init__(self, make: Callable[[], Publisher]) -> None:
        self._make = make

    @property
    def guarantees(self) -> Guarantees:
        """Those of the publisher."""
        return self._publisher.guarantees

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """As the publisher does."""
        return await self._publisher.publish(page, until)

    @cached_property
    def _publisher(self) -> Publisher:
        publisher = self._make()
        # What is loaded stays. A full collection of it takes 50 ms, and a busy relay has one each second.
        if gc.isenabled():
            gc.freeze()
        return publisher
