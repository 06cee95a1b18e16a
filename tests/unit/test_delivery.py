"""What no message can carry is parked with its reason, and is offered to no publisher that has a limit."""

from dataclasses import replace

from cosmos_outbox.outbox.publisher import Guarantees
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.testing.simulation.bus_publisher import BusPublisher
from tests.support.any_document import nested
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.publishing import event


async def test_an_event_that_has_no_form_in_json_is_parked_and_holds_up_no_other() -> None:
    declared = Guarantees(ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=1000)
    publisher, lot = BusPublisher(guarantees=declared), FakeParkingLot()
    deep, other = replace(event("a", 1), data={"deep": nested(200_000)}), event("b", 1)
    result = await Relay(publisher, lot).forward([deep, other])
    assert (result.sent, result.parked) == (1, 1)
    refusal = lot.stored[deep.aggregate].refusal
    assert refusal is not None
    assert refusal.reason == "the event's data has no form in JSON (RecursionError)"
