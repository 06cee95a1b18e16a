"""Each mistake in a request gets the status and the field that the API promises, before any use case is called."""

import asyncio
import json
import re
from typing import Any
from urllib.parse import urlencode

import azure.functions as func
import pytest

from cosmos_outbox.functions import operators as operations
from cosmos_outbox.functions.function_app import App, routes
from cosmos_outbox.functions.http import http_function, paths
from cosmos_outbox.http import request as edge
from cosmos_outbox.http.answering import STATUS_OF
from cosmos_outbox.http.calls import calls, no_such_call
from cosmos_outbox.http.message import READING, Answer, Request
from cosmos_outbox.http.problems import (
    LONGEST_NAME,
    FieldError,
    InvalidRequest,
    RequestError,
    RequestTooLarge,
    UnsupportedMediaType,
)
from cosmos_outbox.http.responses import Representation
from cosmos_outbox.inbox import errors as inbox
from cosmos_outbox.outbox import errors
from cosmos_outbox.outbox.aggregate import Receipt, Versioned
from cosmos_outbox.settings.errors import InfraError, Misconfigured, Overloaded
from cosmos_outbox.testing import call
from domain.contact import Contact
from domain.errors import ContactDeleted
from function_app import app
from infra.bootstrap import service
from infra.contacts_http import contacts
from tests.support import contacts_http as http
from tests.support.contacts import DETAILS, DETAILS_JSON, NOON
from tests.support.functions import functions
from tests.support.openapi import takes

CONTACT = Contact.create(DETAILS, at=NOON)


def request(
    method: str = "POST",
    body: bytes = b"",
    *,
    content_type: str | None = "application/json",
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
    route: dict[str, str] | None = None,
) -> Request:
    typed = {} if content_type is None else {"Content-Type": content_type}
    url = "http://localhost/api/contacts" + (f"?{urlencode(params)}" if params else "")
    return Request(method, url, typed | (headers or {}), route or {}, body)


async def refused(parse: Any) -> tuple[int, list[str], dict[str, Any]]:
    @http.answering
    async def function(req: Request) -> Answer:
        parse()
        return Answer(200)

    response = await function(request())
    document = json.loads(response.body)
    assert response.media_type == "application/problem+json"
    assert document["status"] == response.status
    return response.status, [error["field"] for error in document["errors"]], document


@pytest.mark.parametrize("raised", [SystemExit("no mail server"), asyncio.CancelledError()])
async def test_what_is_no_exception_is_answered_as_a_bug(raised: BaseException) -> None:
    """Unanswered, the caller would wait until the host gives up."""

    @http.answering
    async def function(req: Request) -> Answer:
        raise raised

    assert (await function(request())).status == 500


@pytest.mark.parametrize(
    ("sent", "status", "fields"),
    [
        (request(body=b"{"), 400, ["body"]),
        (request(body=b""), 400, ["body"]),
        (request(body=b"\xff\xfe"), 400, ["body"]),
        (request(body=b"[" * 60_000), 400, ["body"]),
        (request(body=b'{"a": NaN}'), 400, ["body"]),
        (request(body=b'{"email": "\\ud800@x.org"}'), 400, ["body"]),
        (request(body=b'{"email": "a@b.org", "email": "c@d.org"}'), 400, ["body"]),
        (request(body=b'{"name": {"firstName": "A", "lastName": "D", "firstName": "B"}}'), 400, ["body"]),
        (request(body=b"[]"), 400, ["body"]),
        (request(body=b"null"), 400, ["body"]),
        (request(body=b" " * 65_537), 413, ["body"]),
        (request(body=b"{}", content_type="text/plain"), 415, ["Content-Type"]),
        (request(body=b"{}", content_type=None), 415, ["Content-Type"]),
        (request(body=b"{}", content_type="application/merge-patch+json"), 415, ["Content-Type"]),
        (request(body=b"{}"), 400, ["name", "email"]),
    ],
)
async def test_a_bad_contact_is_refused(sent: Request, status: int, fields: list[str]) -> None:
    got, named, _ = await refused(lambda: http.contact_details(sent))
    assert (got, named) == (status, fields)


@pytest.mark.parametrize("media_type", ["application/merge-patch+json", "application/json"])
def test_a_patch_is_taken_in_both_media_types(media_type: str) -> None:
    revision = http.revision(request(body=b'{"description": null}', content_type=media_type))
    assert revision(DETAILS.model_copy(update={"description": "x"})) == DETAILS


async def test_a_patch_that_is_a_list_is_refused() -> None:
    status, fields, _ = await refused(lambda: http.revision(request(body=b'[{"op": "add"}]')))
    assert (status, fields) == (400, ["body"])


@pytest.mark.parametrize(
    "header", ["", " ", ",", "abc", '"abc', 'abc"', '"a" "b"', '"a", *', "*, *", 'w/"a"', 'W/ "a"', "'a'"]
)
async def test_an_if_match_that_is_none_is_refused(header: str) -> None:
    status, fields, _ = await refused(lambda: edge.if_match(request(headers={"If-Match": header})))
    assert (status, fields) == (400, ["If-Match"])


async def called(name: str, sent: Request) -> Answer:
    """What a function of the app answers."""
    served = functions()[name].get_user_function()
    asked = func.HttpRequest(
        sent.method, sent.url, headers=sent.headers, route_params=sent.route, body=sent.body
    )
    got = await served(asked)
    return Answer(got.status_code, got.get_body(), got.headers, got.mimetype)


ROUTES = {route.name: route for route in routes([*functions().values()])}


@pytest.mark.parametrize("header", edge.HONOURED)
async def test_a_condition_or_a_key_that_a_call_would_ignore_is_refused(header: str) -> None:
    """Nothing is set: a call that takes the header fails in another way."""
    for name in sorted(ROUTES):
        method = ROUTES[name].method
        sent = request(method, headers={header: '"1"'}, route={"id": str(CONTACT.id), "type": "contact"})
        answer = await called(name, sent)
        errors = json.loads(answer.body)["errors"] if answer.status >= 400 else []
        is_of_page = (name, header) == ("get_operations_page", "If-None-Match")
        taken = is_of_page or header in takes(name) or (method == "GET" and header == "Idempotency-Key")
        assert (header in [error["field"] for error in errors if "honoured" in error["reason"]]) == (
            not taken
        ), name
        assert taken or answer.status == 400, name


def test_the_calls_that_take_a_condition_or_a_key_are_these() -> None:
    assert {name: taken for name in ROUTES if (taken := takes(name) & {*edge.HONOURED})} == {
        "create_contact": {"Idempotency-Key"},
        "get_contact": {"If-None-Match"},
        "patch_contact": {*edge.HONOURED},
        "put_contact": {*edge.HONOURED},
        "delete_contact": {*edge.HONOURED},
    }


async def test_a_path_that_is_not_there_is_not_blamed_on_a_condition() -> None:
    sent = request("DELETE", headers={"If-Match": '"1"'}, route={"path": "nothing"})
    assert (await called("unrouted", sent)).status == 404


@pytest.mark.parametrize(
    ("patch", "fields"),
    [
        ({"emial": None}, ["emial"]),
        ({"name": {"firstNmae": None}}, ["name.firstNmae"]),
        ({"company": {"companyName": "C", "tax": None}}, ["company.tax"]),
        ({"emial": None, "name": {"x": 1, "y": None}}, ["emial", "name.y", "name.x"]),
        ({"id": None, "createdAt": None}, ["id", "createdAt"]),
        ({"": None}, [""]),
        ({"x" * 1000: 1}, ["x" * 99 + "…"]),
        ({"x" * 1000: None}, ["x" * 99 + "…"]),
    ],
)
async def test_a_patch_that_removes_what_no_contact_has_is_refused(
    patch: dict[str, Any], fields: list[str]
) -> None:
    status, named, document = await refused(lambda: http.revised(DETAILS, patch))
    assert (status, named) == (400, fields)
    assert {error["reason"] for error in document["errors"]} == {"is not a field that can be set here"}


@pytest.mark.parametrize(
    "patch", [{"description": None}, {"company": None}, {"company": {"companyName": "C", "city": None}}]
)
def test_a_patch_may_remove_what_is_not_there(patch: dict[str, Any]) -> None:
    without = DETAILS.model_copy(update={"description": None, "company": None})
    assert http.revised(without, patch).description is None


@pytest.mark.parametrize(
    ("header", "versions"),
    [
        ('"1-a"', {'"1-a"'}),
        ('"1", "2"', {'"1"', '"2"'}),
        (', "1",,\t"a,b" ,', {'"1"', '"a,b"'}),  # RFC 9110, 5.6.1: an empty element of a list is ignored
        ('W/"1"', {'W/"1"'}),  # equal to no stored version, which are all strong (RFC 9110, 13.1.1)
        ('W/"1", "1"', {'W/"1"', '"1"'}),
        ("*", set()),  # any version, and there is one: a contact that is not there is a 404 in any case
        (" * ", set()),
    ],
)
def test_an_if_match_names_versions(header: str, versions: set[str]) -> None:
    assert edge.if_match(request(headers={"if-match": header})) == versions


def test_without_an_if_match_any_version_will_do() -> None:
    assert edge.if_match(request()) == frozenset()


@pytest.mark.parametrize(
    ("method", "headers", "taken"),
    [
        ("POST", {"Content-Type": "text/plain"}, {"Accept": "application/json"}),
        (
            "PATCH",
            {"Content-Type": "application/json-patch+json"},
            {"Accept-Patch": "application/json, application/merge-patch+json"},
        ),
        (
            "PATCH",
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
            {"Accept-Encoding": "identity"},
        ),
    ],
)
async def test_a_body_of_another_kind_is_answered_with_those_that_are_taken(
    method: str, headers: dict[str, str], taken: dict[str, str]
) -> None:
    """RFC 5789, 2.2, and RFC 9110, 15.5.16."""
    sent = Request(method, "http://x/api/contacts/1", headers=headers, body=b"{}")
    parse = http.revision if method == "PATCH" else http.contact_details

    @http.answering
    async def handler(req: Request) -> Answer:
        parse(req)
        return Answer(200)

    answer = await handler(sent)
    reported = {
        name: value for name, value in dict(answer.headers).items() if name.lower().startswith("accept")
    }
    assert (answer.status, reported) == (415, taken)


@pytest.mark.parametrize(
    "text", ["", "0", "101", "-1", "1.5", "ten", "1e1", "٣", "1000000000000", "0101", " 5", "5 "]
)
async def test_a_bad_page_size_is_refused(text: str) -> None:
    status, fields, _ = await refused(lambda: edge.page_request(request(params={"pageSize": text})))
    assert (status, fields) == (400, ["pageSize"])


@pytest.mark.parametrize("size", [1, 100])
def test_page_sizes_from_1_to_100_are_taken(size: int) -> None:
    assert edge.page_request(request(params={"pageSize": str(size)})) == (size, None)


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("br, gzip", 415), ("Identity", 400)])
async def test_a_body_that_is_packed_is_refused_as_such(coding: str, status: int) -> None:
    sent = request(body=b"{}", headers={"Content-Encoding": coding})
    got, fields, _ = await refused(lambda: http.contact_details(sent))
    assert (got, "Content-Encoding" in fields) == (status, status == 415)


@pytest.mark.parametrize(
    ("sign", "many", "nested"),
    [("x", 1, False), ("é", 40, True), ("\N{GRINNING FACE}", 40, False), ("\0", 5_000, True), ('"', 1, True)],
)
async def test_the_answer_to_long_unknown_names_is_no_larger_than_the_request(
    sign: str, many: int, nested: bool
) -> None:
    room = 60_000 // many
    width = len(json.dumps(sign, ensure_ascii=False).encode()) - 2
    names = {f"{number}{sign * max(1, (room - 10) // width)}": 0 for number in range(many)}
    sent = json.dumps(DETAILS_JSON | {"name": names} if nested else names, ensure_ascii=False).encode()[
        :65_536
    ]
    status, fields, document = await refused(lambda: http.contact_details(request(body=sent)))
    assert status == 400
    assert fields
    assert max(map(len, fields)) <= LONGEST_NAME
    assert len(json.dumps(document)) < 70_000


@pytest.mark.parametrize(
    ("parse", "names"),
    [
        (edge.page_request, "pagesize=1&ContinuationToken=x"),
        (edge.page_request, "state=discarded"),
        (operations.wants_discarded, "State=discarded"),
        (operations.events_request, "continuationToken=x"),
    ],
)
async def test_a_parameter_that_the_call_does_not_have_is_refused(parse: Any, names: str) -> None:
    """Else a caller who misspells the token gets the first page for ever."""
    sent = request("GET", params=dict(each.split("=") for each in names.split("&")))
    status, fields, _ = await refused(lambda: parse(sent))
    assert (status, fields) == (400, [each.partition("=")[0] for each in names.split("&")])


@pytest.mark.parametrize(
    ("parse", "query", "field"),
    [
        (edge.page_request, "pageSize=1&pageSize=2", "pageSize"),
        (operations.events_request, "before=7&before=3", "before"),
        (operations.events_request, "before=", "before"),
        (operations.wants_discarded, "state=", "state"),
    ],
)
async def test_a_parameter_that_stands_twice_or_is_empty_is_refused(
    parse: Any, query: str, field: str
) -> None:
    sent = Request("GET", f"http://localhost/api/x?{query}")
    status, fields, _ = await refused(lambda: parse(sent))
    assert (status, fields) == (400, [field])


async def test_an_id_under_which_nothing_can_be_stored_has_no_events() -> None:
    """Asked for it, the store refuses the request, which would be taken for a setting that is wrong."""
    longest = request("GET", route={"type": "contact", "id": "x" * 1023})
    assert operations.named_aggregate(longest, ["contact"]).id == "x" * 1023
    longer = request("GET", route={"type": "contact", "id": "é" * 512})
    assert (await refused(lambda: operations.named_aggregate(longer, ["contact"])))[0] == 404


async def test_an_empty_continuation_token_is_refused() -> None:
    status, fields, _ = await refused(lambda: edge.page_request(request(params={"continuationToken": ""})))
    assert (status, fields) == (400, ["continuationToken"])


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "new", "b5e2e7aa498247359422c39a7c4af5c2", "{b5e2e7aa-4982-4735-9422-c39a7c4af5c2}",
        "urn:uuid:b5e2e7aa-4982-4735-9422-c39a7c4af5c2", "b5e2e7aa-4982-4735-9422-c39a7c4af5c2 ",
        "b5e2e7aa-4982-4735-9422-c39a7c4af5cg",
    ],
)  # fmt: skip
async def test_an_id_that_is_no_uuid_is_not_found(text: str) -> None:
    [get] = [call for call in calls(service, [contacts]) if call.name == "get_contact"]
    assert (await get.handler(request("GET", route={"id": text}))).status == 404


def test_an_id_may_be_written_in_capitals() -> None:
    sent = request(route={"id": "B5E2E7AA-4982-4735-9422-C39A7C4AF5C2"})
    assert str(edge.path_id(sent)) == "b5e2e7aa-4982-4735-9422-c39a7c4af5c2"


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (InvalidRequest(FieldError("f", "r")), 400, None),
        (UnsupportedMediaType(FieldError("f", "r"), accepted={}), 415, None),
        (RequestTooLarge(FieldError("f", "r")), 413, None),
        (errors.AggregateNotFound("x"), 404, None),
        (ContactDeleted("x"), 404, None),
        (errors.UnknownContinuation("x"), 400, None),
        (errors.PreconditionFailed("x"), 412, None),
        (errors.ConcurrentChange("x"), 409, "1"),
        (errors.IdempotencyKeyReused("x"), 422, None),
        (errors.AnswerErased("x"), 410, None),
        (errors.ChangeTooLarge("x"), 413, None),
        (errors.Unpublishable("x"), 400, None),
        (errors.Throttled("x", retry_after_seconds=2.6), 429, "3"),
        (errors.Throttled("x", retry_after_seconds=0.01), 429, "1"),
        (errors.Throttled("x", retry_after_seconds=0.0), 429, "1"),
        (errors.Unavailable("x"), 503, "5"),
        (errors.Unavailable("x", retry_after_seconds=31.2), 503, "32"),
        (errors.OutcomeUnknown("x"), 503, "5"),
        (errors.NotStuck("x"), 404, None),
        (errors.StillUnsendable("x"), 409, None),
        (errors.NotDelivered("x"), 503, "5"),
        (Overloaded("x", retry_after_seconds=12.0), 503, "12"),
        (inbox.StoreUnavailable("x"), 503, "1"),
        (inbox.ConcurrentUpdate("x"), 503, "1"),
        (Misconfigured("COSMOS is missing"), 500, None),
    ],
)
def test_every_error_has_its_status(error: Exception, status: int, retry_after: str | None) -> None:
    response = http.answering.answer(error)
    assert response.status == status
    assert response.headers.get("Retry-After") == retry_after


def _leaves(kind: type[Exception]) -> set[type[Exception]]:
    return {kind}.union(*(_leaves(sub) for sub in kind.__subclasses__()))


def test_no_error_that_a_caller_can_meet_is_without_a_status() -> None:
    met = {kind for kind, _, _ in STATUS_OF} | {errors.OutcomeUnknown}
    bases = {errors.OutboxError, InfraError, RequestError}
    shown_as_not_stuck = {errors.NotParked}
    of_operators = {
        *(inbox.NotApplied, inbox.OutOfOrder, inbox.RecordChanged),
        *(inbox.ConcurrentUpdate, inbox.StoreUnavailable),
    }
    of_infra = _leaves(RequestError) | {Misconfigured, Overloaded}
    assert met == (_leaves(errors.OutboxError) | of_infra | of_operators) - bases - shown_as_not_stuck


def test_a_misconfigured_service_logs_what_and_does_not_answer_it(caplog: pytest.LogCaptureFixture) -> None:
    response = http.answering.answer(Misconfigured("COSMOS is missing"))
    assert b"COSMOS" not in response.body
    assert caplog.messages == ["answered 500: COSMOS is missing"]


async def test_an_unexpected_error_is_answered_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    @http.answering
    async def function(req: Request) -> Answer:
        raise ZeroDivisionError("secret")

    response = await function(request())
    assert response.status == 500
    assert b"secret" not in response.body
    assert "Traceback" in caplog.text


# The host joins headers of one name with a comma, ASGI's edge with a comma and a space.
@pytest.mark.parametrize(
    "header",
    ["", '""', "a b", '"a"b"', "x" * 256, "\u00e9", "\t", "a,a", "a, a", '"a","b"', '"a", "b"', '"a,b"'],
)
async def test_a_bad_idempotency_key_is_refused(header: str) -> None:
    status, fields, _ = await refused(
        lambda: edge.idempotency_key(request(headers={"Idempotency-Key": header}))
    )
    assert (status, fields) == (400, ["Idempotency-Key"])


@pytest.mark.parametrize("header", ['"8e03978e-40d5"', "8e03978e-40d5", ' "8e03978e-40d5" '])
def test_an_idempotency_key_is_taken_quoted_or_bare(header: str) -> None:
    assert edge.idempotency_key(request(headers={"Idempotency-Key": header})) == "8e03978e-40d5"
    assert edge.idempotency_key(request()) is None


SETTINGS = service.settings({"COSMOS": "x", "SERVICEBUS": "x"})


def fingerprint(body: bytes) -> str:
    return edge.keyed(request(body=body), SETTINGS, "key").fingerprint


@pytest.mark.parametrize(
    "same",
    [
        b'{ "email" : "a@b.org",\n"name": {"lastName": "D\xc3\xb6e", "firstName": "J"}, "n": [1, 20] }',
        b'{"n": [1.0, 2e1], "name": {"firstName": "J", "lastName": "D\\u00f6e"}, "email": "a@b.org"}',
    ],
)
def test_a_request_is_known_by_the_json_value_that_was_sent(same: bytes) -> None:
    body = '{"email": "a@b.org", "name": {"firstName": "J", "lastName": "Döe"}, "n": [1, 20]}'.encode()
    assert fingerprint(same) == fingerprint(body)


@pytest.mark.parametrize(
    "other",
    [b'{"a": 1, "b": null}', b'{"a": "1"}', b'{"a": 2}', b'{"A": 1}', b'{"a": [1]}', b'{"a": true}'],
)
def test_another_json_value_is_another_request_even_of_equal_meaning(other: bytes) -> None:
    """``null`` and a field that is left out: a later version of the service may distinguish the two."""
    assert fingerprint(other) != fingerprint(b'{"a": 1}')


def test_a_change_is_known_by_what_it_asks_for_and_not_by_its_condition() -> None:
    def of(body: bytes, method: str = "PUT") -> str:
        return edge.keyed_change(request(method, body), SETTINGS, "key", lambda error: None).fingerprint

    assert of(b'{"a": 1}') == of(b'{"etag": "\\"7\\"", "a": 1}')
    assert len({of(b'{"a": 1}'), of(b'{"a": 2}'), of(b'{"a": 1}', "PATCH")}) == 3


async def test_a_body_that_readers_of_json_disagree_on_has_no_fingerprint() -> None:
    status, fields, _ = await refused(lambda: fingerprint(b'{"a": 9007199254740993}'))
    assert (status, fields) == (400, ["body"])


def test_the_place_of_an_aggregate_with_a_free_id_is_an_address() -> None:
    """RFC 9110, section 10.2.2: Location is a URI reference. A letter like ö is none, nor is a space."""

    class Town(Contact):
        aggregate_id = "Köln? 1/2"  # of a service of one's own

    town, at_towns = Town.create(DETAILS, at=NOON), Request("POST", "http://localhost/api/towns?code=key")
    headers = Representation(http.view).created(at_towns, Receipt(town, '"1"')).headers
    assert headers["Location"] == "/api/towns/K%C3%B6ln%3F%201%2F2"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        *[('"1"', 304), ('W/"1"', 304), ("*", 304), (" * ", 304), ('"0", "1"', 304), (',"0",, W/"1" ,', 304)],
        *[('"2"', 200), ("1", 200), ("", 200)],
        *[('"a, *, b"', 200), ('"0, "1", 2"', 200), ('"0,1"', 200), ('*, "2"', 200)],
    ],
)
def test_a_version_that_the_caller_has_is_not_sent_again(header: str, status: int) -> None:
    response = http.shown.found(request("GET", headers={"If-None-Match": header}), Versioned(CONTACT, '"1"'))
    assert response.status == status
    assert response.headers["ETag"] == '"1"'
    assert bool(response.body) == (status == 200)


SMALL_APP = App()


@SMALL_APP.route(route="contacts", methods=["POST", *READING])
@http_function
async def several(req: Request) -> Answer:
    return Answer(200)


@SMALL_APP.route(route="contacts/{id}/notes/{note}", methods=["DELETE"])
@http_function
async def nested(req: Request) -> Answer:
    return Answer(200)


@SMALL_APP.route(route="{*path}", methods=["GET"])
@http_function
async def everything_else(req: Request) -> Answer:
    return Answer(200)


@pytest.mark.parametrize(
    ("path", "status", "allow"),
    [
        ("contacts", 405, "GET, HEAD, POST"), ("contacts/", 405, "GET, HEAD, POST"),
        ("contacts/1/notes/2", 405, "DELETE"),
        ("contacts/1", 404, None), ("contacts/1/notes/", 404, None), ("x", 404, None), ("", 404, None),
    ],
)  # fmt: skip
def test_an_unknown_path_or_method_is_distinguished(path: str, status: int, allow: str | None) -> None:
    response = no_such_call(request("PUT"), path.removesuffix("/"), paths(SMALL_APP), "look elsewhere")
    assert response.status == status
    assert response.headers.get("Allow") == allow


@pytest.mark.parametrize("path", ["contacts/", "contacts//"])
def test_a_slash_too_many_is_not_blamed_on_the_method(path: str) -> None:
    """As the host routes ``GET /api/contacts//``: to the function that takes what no other takes."""
    response = no_such_call(request("GET"), path.removesuffix("/"), paths(SMALL_APP), "look elsewhere")
    assert response.status == 404
    assert "Allow" not in response.headers


def test_a_requests_cause_is_taken_from_well_formed_headers_only() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    good = edge.origin(request(headers={"x-correlation-id": "order-7", "traceparent": trace}))
    assert (good.correlation_id, good.traceparent) == ("order-7", trace)
    for text in ("x" * 129, "a b", "é", "", "<script>"):
        bad = edge.origin(request(headers={"x-correlation-id": text, "traceparent": text}))
        assert re.fullmatch(r"[0-9a-f-]{36}", bad.correlation_id)
        assert bad.traceparent is None
    assert (
        edge.origin(request(headers={"traceparent": "00-" + "0" * 32 + "-b7ad6b7169203331-01"})).traceparent
        is None
    )
    assert edge.origin(request(headers={"traceparent": trace.replace("00-", "ff-", 1)})).traceparent is None


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (" rojo=1 ,\t, fw529a3039@dt=FfffffeC8a;p:1", "rojo=1,fw529a3039@dt=FfffffeC8a;p:1"),
        ("k=" + "v" * 256, "k=" + "v" * 256),
        (f"k={'v' * 255},l={'v' * 252}", f"k={'v' * 255},l={'v' * 252}"),
        (f"k={'v' * 255},l={'v' * 253}", None),
        ("", None),
        (",", None),
        ("rojo=1,rojo=2", None),
        ("Rojo=1", None),
        ("rojo", None),
        ("rojo=", None),
        ("rojo=a=b", None),
        ("rojo=\xe9", None),
        ("k=" + "v" * 257, None),
        (",".join(f"k{number}=1" for number in range(33)), None),
    ],
)
def test_a_tracestate_is_kept_if_it_is_one_and_not_too_long(
    given: str, state: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """https://www.w3.org/TR/trace-context/#tracestate-header"""
    origin = edge.origin(request(headers={"traceparent": TRACE, "tracestate": given}))
    assert (origin.traceparent, origin.tracestate) == (TRACE, state)
    assert caplog.text == ""


def test_a_tracestate_without_a_valid_traceparent_is_ignored() -> None:
    for headers in ({"tracestate": "rojo=1"}, {"tracestate": "rojo=1", "traceparent": "00-1"}):
        assert edge.origin(request(headers=headers)).tracestate is None


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("no-cache", True),
        ("max-age=0, No-Cache", True),
        ("max-age=0", False),
        ("no-cacheable", False),
        ("", False),
    ],
)
def test_who_asks_for_no_cache_wants_the_newest_state(header: str, wanted: bool) -> None:
    assert edge.wants_newest(request("GET", headers={"Cache-Control": header})) is wanted


@pytest.mark.parametrize(
    ("method", "route"), [(method, path.route) for path in paths(app) for method in sorted(path.methods)]
)
async def test_no_call_answers_who_names_a_version_of_the_api(method: str, route: str) -> None:
    """It would be taken for that version's answer. Nothing is looked up for it: no store is here."""
    path = re.sub(r"\{\w+\}", str(CONTACT.id), route)
    answer = await call(app, method, f"/api/{path}?api-version=2026-01-01")
    [reported] = json.loads(answer.get_body())["errors"]
    assert (answer.status_code, reported["field"], reported["code"]) == (400, "api-version", "not_honoured")


async def test_a_version_without_a_value_is_one_too() -> None:
    @http.answering
    async def function(req: Request) -> Answer:
        return Answer(200)

    assert (await function(Request("GET", "http://x/api/y?api-version="))).status == 400


async def test_a_call_of_the_services_own_may_take_a_version() -> None:
    @http.answering.accepting("api-version")
    async def function(req: Request) -> Answer:
        return Answer(200)

    assert (await function(Request("GET", "http://x/api/y?api-version=2026-01-01"))).status == 200
