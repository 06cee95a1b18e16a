"""A run whose writes are kept, to be held against the models."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from cosmos_outbox.cosmos.inbox.reactions import ReactionInbox
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.service import Service
from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation import simulating
from outbox_simulation.derived_invariants.commands import Commands
from outbox_simulation.derived_invariants.derived import subject
from outbox_simulation.derived_invariants.resting_world import RestingWorld
from outbox_simulation.engine.instance import name_of_current
from outbox_simulation.engine.plan import THEN, SimulationPlan
from outbox_simulation.engine.processes import EPOCH
from outbox_simulation.engine.system_under_test import Subject
from outbox_simulation.engine.world import MakeWorld, SimulatedRun, run
from replayed.commits import Ended
from replayed.mirror import Mirror
from simulated.reacting import Pile


def kept(
    plan: SimulationPlan, of: Subject, mirrors: Mapping[str, Mirror], world: MakeWorld | None = None
) -> SimulatedRun:
    """A run; each container's writes go to its mirror."""

    def saw(at: float, request: SentRequest, response: StoreResponse) -> None:
        for name, mirror in mirrors.items():
            if response.status < 300 and response.status != 207 and f"/colls/{name}/docs" in request.path:
                sent = request.by, request.method, request.path, request.headers, request.body
                mirror.carried_out(EPOCH + timedelta(seconds=at), *sent)

    # no model has much time, a store that is put back, or an API without tombstones
    return run(replace(plan, faults=plan.faults - {*THEN, "proxy"}), of, world, saw=saw)


def kept_of_piles(
    seed: int, service: Service, commands: Commands[Pile], mirrors: Mapping[str, Mirror]
) -> SimulatedRun:
    """The same of a small service."""
    plan = simulating._plan(seed, None)
    return kept(plan, subject(service, [commands]), mirrors, partial(RestingWorld, None))


@contextmanager
def calls_kept(steps: MutableSequence[Any]) -> Iterator[None]:
    """Between the commits, each call of a reaction that ends well."""

    def noting(name: str, how: str) -> Callable[..., Awaitable[None]]:
        call = getattr(ReactionInbox, name)

        async def called(self: ReactionInbox[Any], event: Event, *more: Any) -> None:
            await call(self, event, *more)
            steps.append(Ended(how, self.reactions.name, event.id, name_of_current()))

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name, how in (("handle", "handled"), ("apply", "handled"), ("give_up", "gave up")):
            patch.setattr(ReactionInbox, name, noting(name, how))
        yield
