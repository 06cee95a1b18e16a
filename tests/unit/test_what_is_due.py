"""A service looks for what is due where one of its aggregates can be due, and nowhere else."""

from dataclasses import replace
from datetime import timedelta

import azure.functions as func

from cosmos_outbox import Names, OwnContainer, Service
from cosmos_outbox.functions import app as function_app
from cosmos_outbox.functions.relay import relay_functions
from cosmos_outbox.outbox.unit_of_work import Origin
from cosmos_outbox.preflight.containers import needed
from cosmos_outbox.testing import in_memory
from cosmos_outbox.testing.simulation.processes import KEY
from tests.support.functions import Calls
from tests.support.held import HOLD, let_go
from tests.support.offers import NOON, Offer
from tests.support.reactions import Heap

CONNECTIONS = {
    "COSMOS": f"AccountEndpoint=https://cosmos.invalid/;AccountKey={KEY};",
    "SERVICEBUS": "Endpoint=sb://localhost;SharedAccessKeyName=nobody;SharedAccessKey=bm93aGVyZQ==",
}
WITHOUT = Service("heaps", [Heap], Names(database="heaps", container="heaps", topic="heap-events"))
WITH = replace(WITHOUT, aggregates=[Heap, Offer])
OWN = replace(WITHOUT, aggregates=[], own=OwnContainer("/tenantId", {"heap": None}))
OWN_WITH = replace(OWN, own=OwnContainer("/tenantId", {"heap": None}, due={HOLD: let_go}))


def functions(service: Service) -> set[str]:
    app = func.FunctionApp()
    app.register_functions(relay_functions(service))
    return {str(each.get_function_name()) for each in app.get_functions()}


async def test_only_who_can_be_due_costs_anything() -> None:
    for service, is_due in ((WITHOUT, False), (WITH, True)):
        assert ("meet_deadlines" in functions(service)) == is_due
        [feed] = [each for each in needed(service.settings(CONNECTIONS), service) if each.name == "heaps"]
        assert ("/due" in feed.queried) == is_due
        assert {"/type", "/data/deleted"} <= {*feed.queried}
        assert (service.wire(CONNECTIONS).outbox.deadlines is not None) == is_due
        async with in_memory(service):
            assert (service().outbox.deadlines is not None) == is_due


async def test_the_timer_lets_happen_what_is_due() -> None:
    call = Calls(function_app(WITH))
    async with in_memory(WITH, now=NOON - timedelta(minutes=5)) as memory:
        await WITH().aggregates.create(Offer.make(NOON), Origin("test"))
        for passed, happened in ((1, ["OfferMade"]), (5, ["OfferMade", "OfferClosed"])):
            memory.clock.pass_by(minutes=passed)
            await call.run("meet_deadlines", None)
            assert [each.action for each in memory.events] == happened


async def test_nor_in_a_container_of_a_teams_own() -> None:
    for service, is_due in ((OWN, False), (OWN_WITH, True)):
        assert ("meet_deadlines" in functions(service)) == is_due
        [feed] = [each for each in needed(service.settings(CONNECTIONS), service) if each.name == "heaps"]
        assert (HOLD in feed.queried) == is_due
        assert {"/type", "/aggregateId"} <= {*feed.queried}
        assert (service.wire(CONNECTIONS).outbox.deadlines is not None) == is_due
