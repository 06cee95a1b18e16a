"""The directory over HTTP: parses a query into a checked search, and turns a page into a response."""

from typing import TYPE_CHECKING, Any

from application.directory import DirectoryEntry, Field, Search
from cosmos_outbox import ListedPage
from cosmos_outbox.http import Answer, FieldError, InvalidRequest, Request, json_response
from cosmos_outbox.http.listing import SORT, WRITTEN, sorting, written_in
from cosmos_outbox.http.request import PAGE, parameters, query
from cosmos_outbox.inbox.entry import Listed
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from domain.contact import Contact
from infra.directory import FORM, spelled

if TYPE_CHECKING:
    from cosmos_outbox.operations.subscriber import ReadModel

LONGEST = 250
"""The longest search text, in characters: no field is longer, except that an email address may have four more."""

PARAMETERS = (*(field.value for field in Field), SORT, WRITTEN)
"""The query parameters allowed beside those of the page."""


def search(request: Request) -> Search:
    """Returns the search in the query. Raises InvalidRequest, which names everything that is wrong."""
    given, wrong = parameters(request, *PAGE, *PARAMETERS)
    wanted = {field: given[field.value] for field in Field if field.value in given}
    wrong += [
        FieldError(field.value, f"must have 1 to {LONGEST} characters that are not spaces")
        for field, text in wanted.items()
        if not spelled(text) or len(text) > LONGEST
    ]
    sort = sorting(given, FORM.orders, wrong)
    if wrong:
        raise InvalidRequest(*wrong)
    return Search(wanted) if sort is None else Search(wanted, sort)


async def behind(request: Request, kept: "ReadModel[DirectoryEntry]") -> bool | None:
    """Whether the directory does not show yet what the query names; None: it names nothing. Raises InvalidRequest."""
    text = query(request, *PAGE, *PARAMETERS).get(WRITTEN)
    if text is None:
        return None
    contact, sequence = written_in(text)
    return not await kept.shows(AggregateKey(Contact.aggregate_type, contact), sequence)


def listed(page: ListedPage[DirectoryEntry], behind: bool | None, next_link: str | None) -> Answer:
    """Returns 200 with a page of entries, and the token and the address of the next page."""
    items, token = [_view(item) for item in page.items], page.continuation_token
    return json_response(
        200, {"items": items, "continuationToken": token, "nextLink": next_link, "behind": behind}
    )


def _view(listed: Listed[DirectoryEntry]) -> dict[str, Any]:
    return {
        "id": listed.id,
        **listed.state.model_dump(mode="json", by_alias=True),
        "sequence": listed.sequence,
        "appliedAt": listed.applied_at.isoformat(),
        "lateSeconds": listed.late_seconds,
        "blockedSince": listed.blocked_since.isoformat() if listed.blocked_since else None,
    }
