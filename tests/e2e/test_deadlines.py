"""A worker meets deadlines over real sockets, whatever answers are lost, and its events leave in order."""

from datetime import timedelta
from pathlib import Path

import pytest

from cosmos_outbox import Names, Origin, Service, running
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.testing import LocalAzure, eventually
from tests.support.offers import Offer

service = Service(
    "offers", aggregates=[Offer], names=Names(database="offers", container="offers", topic="offer-events")
)


@pytest.mark.long  # tests/contract/test_deadlines.py and packages/simulation/tests/test_deadlines.py, without a process
@pytest.mark.own_stack
async def test_an_offer_runs_out_by_itself_and_one_that_was_accepted_does_not(tmp_path: Path) -> None:
    with LocalAzure(tmp_path, service) as azure:
        async with running(service, environment=azure.settings), running(service, environment=azure.settings):
            aggregates = service().aggregates
            soon = utc_now() + timedelta(seconds=2)
            left, accepted = Offer.make(soon), Offer.make(soon)
            for each in (left, accepted):
                await aggregates.create(each, Origin("request-1"))
            await aggregates.change(Offer, accepted.aggregate_id, Offer.accept, Origin("request-2"))
            await azure.cosmos.faults.add("drop-after-commit", count=3, operation="batch", container="offers")

            async def has_run_out() -> bool:
                found = await aggregates.read(Offer, left.aggregate_id, Origin("test"))
                return found.aggregate.state.closed_as == "expired"

            await eventually(has_run_out, within=60)
            told = await azure.receive("watch", 4, topic="offer-events")
    events = {
        offer.aggregate_id: [
            (each.data["action"], each.data.get("closedAs"), each.data["sequence"])
            for each in told
            if each.data["offerId"] == offer.aggregate_id
        ]
        for offer in (left, accepted)
    }
    assert events == {
        left.aggregate_id: [("OfferMade", None, 1), ("OfferClosed", "expired", 2)],
        accepted.aggregate_id: [("OfferMade", None, 1), ("OfferClosed", "accepted", 2)],
    }
