"""What the outbox measures can be told apart: kinds of events, and ages from a tenth of a second to days."""

from cosmos_outbox.outbox import telemetry
from tests.support.telemetry import recording


def test_the_events_of_a_commit_are_counted_by_the_type_of_the_aggregate_and_their_own() -> None:
    with recording() as recorded:
        telemetry.stored(
            [("contact", "Created"), ("contact", "Changed"), ("contact", "Changed"), ("task", "Changed")]
        )
        counted = {
            (told["outbox.aggregate.type"], told["outbox.event.type"]): count
            for told, count in recorded.points("outbox.events.stored")
        }
    assert counted == {("contact", "Created"): 1, ("contact", "Changed"): 2, ("task", "Changed"): 1}


def test_ages_are_told_in_bounds_that_grow() -> None:
    """Whoever reads a histogram takes an age for what lies between two of them."""
    assert [*telemetry.AGES] == sorted(telemetry.AGES)
    assert 1 in telemetry.AGES
