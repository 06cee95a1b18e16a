"""An operator reaches every aggregate of a service by its type, and is shown what is late and what is at risk."""

from collections import Counter

import pytest

from cosmos_outbox.cli.status import attention_of_relay, in_lines
from cosmos_outbox.cosmos.relay.forwarding import Instance
from cosmos_outbox.functions import operators as operations
from cosmos_outbox.http.message import Request
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.relay_status import LeaseStatus, RelayStatus
from cosmos_outbox.outbox.errors import AggregateNotFound

TYPES = ["account", "transfer"]
_WAIT = "nothing is wrong; 3 message(s) wait in the broker"
_UNREAD = "mails: nothing is wrong, but for the broker, which was not read"


def test_the_path_names_the_type_of_an_aggregate() -> None:
    asked = Request("GET", "/api/events/account/7", route={"type": "account", "id": "7"})
    assert operations.named_aggregate(asked, TYPES) == AggregateKey("account", "7")


def test_a_type_that_the_service_lacks_is_answered_with_those_it_has() -> None:
    asked = Request("GET", "/api/events/contact/7", route={"type": "contact", "id": "7"})
    with pytest.raises(AggregateNotFound, match="no contact; it has: account, transfer"):
        operations.named_aggregate(asked, TYPES)


def test_each_type_has_its_own_count() -> None:
    status = RelayStatus([], ["7"], Counter(account=2), parked_events=5)
    document = status.view()
    assert (document["parkedAggregates"], document["parkedEvents"]) == ({"account": 2}, 5)
    assert (document["late"], document["eventsAtRisk"]) == (True, True)
    assert (document["missingLeases"], document["leases"]) == (["7"], [])


@pytest.mark.parametrize(
    ("seconds", "used", "late", "at_risk"),
    [(60, 0.0, False, False), (61, 0.0, True, False), (432_000, 0.5, True, True), (None, 0.0, False, False)],
)
def test_what_is_late_and_what_is_at_risk_are_distinguished(
    seconds: int | None, used: float, late: bool, at_risk: bool
) -> None:
    leases = [LeaseStatus("0", "o", 1, seconds, used), LeaseStatus("1", "o", 0, None, 0.0)]
    document = RelayStatus(leases, [], Counter()).view()
    assert (document["late"], document["eventsAtRisk"]) == (late, at_risk)
    wants = list(attention_of_relay(document))
    begins = ["events are at risk: "] if at_risk else ["the relay is late: "] if late else []
    assert [want[: len(begin)] for want, begin in zip(wants, begins, strict=True)] == begins


@pytest.mark.parametrize(
    ("in_broker", "first", "last"),
    [
        (0, "mails: all is well", "letters: 0 message(s) in the broker, 0 set aside"),
        (3, f"mails: {_WAIT}", "letters: 3 message(s) in the broker, 0 set aside"),
        ("it is away", _UNREAD, "letters: broker not read (it is away), 0 set aside"),
        (None, "mails: all is well", "letters: no subscription in the broker, 0 set aside"),
    ],
)
def test_messages_that_wait_in_the_broker_are_shown(
    in_broker: int | str | None, first: str, last: str
) -> None:
    """A service whose mail server is away for all holds its messages there, and has set none aside."""
    subscriber = {"name": "letters", "setAside": {"waiting": 0}, "lastWalk": None, "inBroker": in_broker}
    lines = [*in_lines({"service": "mails", "attention": [], "subscribers": [subscriber]}, 60)]
    assert (lines[0], lines[-1]) == (first, last)


def test_an_instance_shows_what_it_has_forwarded_and_its_aggregates() -> None:
    process = Instance({"COSMOS_DATABASE": "d"}, forwarded=206)
    reported = operations.instance(process, TYPES)
    assert (reported["forwarded"], reported["aggregates"], reported["settings"]) == (
        206,
        TYPES,
        {"COSMOS_DATABASE": "d"},
    )
