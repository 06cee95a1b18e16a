"""A run whose writes are kept, to be held against the models."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial

from cosmos_outbox.testing import simulating
from cosmos_outbox.testing.deriving.commands import Commands
from cosmos_outbox.testing.deriving.derived import subject
from cosmos_outbox.testing.deriving.resting_world import RestingWorld
from cosmos_outbox.testing.simulation.http import SentRequest, StoreResponse
from cosmos_outbox.testing.simulation.plan import THEN, SimulationPlan
from cosmos_outbox.testing.simulation.processes import EPOCH
from cosmos_outbox.testing.simulation.subject import Subject
from cosmos_outbox.testing.simulation.world import MakeWorld, SimulatedRun, run
from cosmos_outbox.wiring.service import Service
from tests.simulation.reacting import Pile
from tests.simulation.replayed.mirror import Mirror


def kept(
    plan: SimulationPlan, of: Subject, mirrors: Mapping[str, Mirror], world: MakeWorld | None = None
) -> SimulatedRun:
    """A run; each container's writes go to its mirror."""

    def saw(at: float, request: SentRequest, response: StoreResponse) -> None:
        for name, mirror in mirrors.items():
            if response.status < 300 and response.status != 207 and f"/colls/{name}/docs" in request.path:
                sent = request.by, request.method, request.path, request.headers, request.body
                mirror.carried_out(EPOCH + timedelta(seconds=at), *sent)

    # no model has much time, or a store that is put back
    return run(replace(plan, faults=plan.faults - {*THEN}), of, world, saw=saw)


def kept_of_piles(
    seed: int, service: Service, commands: Commands[Pile], mirrors: Mapping[str, Mirror]
) -> SimulatedRun:
    """The same of a small service, whose own ids come from the seed too: else each run is another one."""
    plan = simulating._plan(seed, None)
    with simulating._ids_by_luck():
        return kept(plan, subject(service, [commands]), mirrors, partial(RestingWorld, None))
