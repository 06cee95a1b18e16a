"""No document stops the relay, and no request makes the API fail, however broken they are."""

import json
from typing import Any
from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as st

from cosmos_outbox.functions.operator import operations
from cosmos_outbox.http import conditions
from cosmos_outbox.http import request as edge
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.outbox.relay import Relay
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support import contacts_http as http
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.feed import EVENTS, contact_key, event_document

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
FIELDS = ["id", "partitionKey", "data", "ttl", "_ts", "_lsn"]
INNER = ["id", "contactId", "action", "sequence", "createdAt", "correlationId", "traceparent", "tracestate"]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A valid event document with some of its fields replaced by anything, or left out."""
    document = event_document(draw(st.sampled_from("ab")), draw(st.integers(1, 5)))
    for level, names in ((document, FIELDS), (document["data"], INNER)):
        for name in draw(st.lists(st.sampled_from(names), max_size=2)):
            if isinstance(level, dict):
                level[name] = draw(JSON)
                if draw(st.booleans()):
                    level.pop(name)
    return document


def owner(event: FeedEvent) -> str | None:
    return event.aggregate.id if event.aggregate else None


@given(st.lists(documents() | st.dictionaries(st.text(max_size=8), JSON, max_size=5), max_size=6))
async def test_no_document_stops_the_relay_and_none_is_forgotten(items: list[dict[str, Any]]) -> None:
    publisher, lot = BusPublisher(), FakeParkingLot()
    events = EVENTS.events(items)
    forwarded = await Relay(publisher, lot).forward(events)
    assert forwarded.sent + forwarded.parked == len(events)
    parked = {(owner(one.event), one.event.id) for one in lot.parked.values()}
    assert {(owner(event), event.id) for event in events} == set(publisher.sent) | parked


@given(st.lists(documents(), min_size=1, max_size=6))
async def test_a_document_that_is_valid_keeps_its_contacts_order(items: list[dict[str, Any]]) -> None:
    publisher, lot = BusPublisher(), FakeParkingLot()
    healthy = [event_document("healthy", sequence, lsn=sequence) for sequence in (3, 1, 2)]
    await Relay(publisher, lot).forward(EVENTS.events([*items, *healthy]))
    assert publisher.of(contact_key("healthy")) == [
        event_document("healthy", sequence)["id"] for sequence in (1, 2, 3)
    ]


HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "Content-Type",
            "Content-Encoding",
            "If-Match",
            "If-None-Match",
            "Idempotency-Key",
            "x-correlation-id",
            "traceparent",
            "tracestate",
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=40)
    | st.sampled_from(["application/json", "application/merge-patch+json", '"1"', "*"]),
)
BODIES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())
PARAMETERS = st.dictionaries(st.sampled_from(["pageSize", "continuationToken"]), st.text(max_size=20))


@given(HEADERS, BODIES, PARAMETERS, st.text(max_size=50))
async def test_no_request_makes_the_edge_fail(
    headers: dict[str, str], body: bytes, parameters: dict[str, str], path: str
) -> None:
    request = Request(
        "POST",
        f"http://localhost/api/contacts?{urlencode(parameters)}",
        headers,
        {"id": path, "path": path},
        body,
    )
    for parse in (
        http.contact_details, http.revision, conditions.of_change, edge.page_request, edge.idempotency_key, edge.origin,
        edge.path_id, operations.parking_id, operations.discard_reason,
    ):  # fmt: skip

        @http.answering
        async def function(req: Request, parse: Any = parse) -> Answer:
            parse(req)
            return Answer(200)

        assert (await function(request)).status < 500
