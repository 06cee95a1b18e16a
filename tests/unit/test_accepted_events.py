"""What the broker has of a page in hand is remembered, as much as there is room for: the oldest is forgotten first."""

from cosmos_outbox.outbox.accepted import AcceptedEvents
from tests.support.publishing import event


def test_what_was_tried_again_lately_is_not_the_oldest() -> None:
    first, second, third = (event("a", sequence) for sequence in (1, 2, 3))
    known = AcceptedEvents(most=2)
    known.add([first, second])
    assert known.without([first]) == []
    known.add([third])
    assert known.without([first, second, third]) == [second]
