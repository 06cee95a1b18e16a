"""An aggregate's document numbers its next event, and is refused where it says no number or the last that can be."""

from typing import Any

import pytest

from cosmos_outbox.cosmos.own.documents import Raised
from cosmos_outbox.cosmos.own.numbering import Numbering
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.contacts import NOON

LARGEST = 9_007_199_254_740_991
"""Of larger integers a reader of JSON may make another one."""


def number(last: Any) -> list[int | None]:
    """The sequence of the next event of a seat, by what its document says of the one before."""
    raised = Raised("e", AggregateKey("seat", "a"), "Held", NOON, {}, "a", 1)
    return Numbering({"seat": "/last"}).number([raised], {"a": Write.replace({"id": "a", "last": last}, "v")})


@pytest.mark.parametrize("last", [0, 41, LARGEST - 1])
def test_the_next_event_has_the_next_number(last: int) -> None:
    assert number(last) == [last + 1]


@pytest.mark.parametrize("last", [-1, LARGEST, LARGEST + 1, True, 1.0, "1", None])
def test_what_is_no_number_of_an_event_or_the_last_that_can_be_is_refused(last: Any) -> None:
    with pytest.raises(ValueError, match="/last of the document of seat"):
        number(last)
