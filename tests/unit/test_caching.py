"""Who may keep an answer: nobody keeps personal data, but for a caller's own cache, which asks before each use."""

import pytest
from azure.functions.http import HttpResponseConverter

from cosmos_outbox.functions import operators
from cosmos_outbox.functions.http import response
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import json_response
from cosmos_outbox.outbox.aggregate import Versioned
from cosmos_outbox.outbox.errors import AggregateNotFound
from domain.contact import Contact
from tests.support import contacts_http as contacts
from tests.support.contacts import DETAILS, NOON

CONTACT = Versioned(Contact.create(DETAILS, at=NOON), '"1"')


def request(known: str | None = None) -> Request:
    headers = {} if known is None else {"If-None-Match": known}
    return Request("GET", "http://localhost/api/x", headers)


def on_the_wire(answer: Answer) -> dict[str, str]:
    """The headers as the host gets them, the library's own among them."""
    datum = HttpResponseConverter.encode(response(answer), expected_type=None)
    return {name.lower(): header.value for name, header in datum.value["headers"].items()}


async def answered(answer: Answer | Exception) -> dict[str, str]:
    @Answering([(AggregateNotFound, 404, "Not found")])
    async def function(req: Request) -> Answer:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return on_the_wire(await function(request()))


@pytest.mark.parametrize(
    "answer", [json_response(200, {"email": "j@d.org"}), AggregateNotFound("x"), KeyError("x")]
)
async def test_an_answer_is_kept_by_nobody_and_is_no_other_type_than_it_says(
    answer: Answer | Exception,
) -> None:
    """A key in ``x-functions-key`` is none for a shared cache, which would keep an answer, a 404 too."""
    headers = await answered(answer)
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


async def test_what_was_not_modified_says_the_same_of_itself_as_the_whole_answer() -> None:
    """A cache replaces the headers that it has kept by those of a 304: JSON must not become text by that."""
    for whole, again in (
        (contacts.shown.found(request(), CONTACT), contacts.shown.found(request('"1"'), CONTACT)),
        (
            operators.show_page(request()),
            operators.show_page(request(operators.show_page(request()).headers["ETag"])),
        ),
    ):
        assert (again.status, again.body) == (304, b"")
        first, second = await answered(whole), await answered(again)
        assert first.pop("x-correlation-id") != second.pop("x-correlation-id")
        assert first == second
