"""No document stops the relay, and no request makes the API fail, however broken they are."""

import json
from typing import Any
from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as st

from cosmos_outbox.functions import operators as operations
from cosmos_outbox.http import request as edge
from cosmos_outbox.http.message import Answer, Request
from tests.support import contacts_http as http

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
        http.contact_details, http.revision, edge.of_change, edge.page_request, edge.idempotency_key, edge.origin,
        edge.path_id, operations.wants_discarded, operations.events_request,
    ):  # fmt: skip

        @http.answering
        async def function(req: Request, parse: Any = parse) -> Answer:
            parse(req)
            return Answer(200)

        assert (await function(request)).status < 500
