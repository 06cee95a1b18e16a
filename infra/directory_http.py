"""The directory over HTTP: a search becomes a checked value, and a page becomes an answer."""

from typing import Any

from application.directory import DirectoryEntry, Field, Search
from cosmos_outbox import ListedPage
from cosmos_outbox.http import Answer, FieldError, InvalidRequest, Request, json_response
from cosmos_outbox.http.request import PAGE, parameters
from cosmos_outbox.inbox.entry import Listed
from infra.directory import spelled

LONGEST = 250
"""The longest text to search for, in characters: no field is longer, but for an email address by four."""

PARAMETERS = (*(field.value for field in Field), "sort")
"""What may stand in the query beside the page."""


def search(request: Request) -> Search:
    """The search in the query. Raises InvalidRequest, which names everything that is wrong."""
    query, wrong = parameters(request, *PAGE, *PARAMETERS)
    wanted = {field: query[field.value] for field in Field if field.value in query}
    wrong += [
        FieldError(field.value, f"must have 1 to {LONGEST} characters that are not spaces")
        for field, text in wanted.items()
        if not spelled(text) or len(text) > LONGEST
    ]
    sort = query.get("sort", Field.NAME.value)
    if sort not in [*Field]:
        wrong.append(FieldError("sort", f"must be one of {', '.join(field.value for field in Field)}"))
    if wrong:
        raise InvalidRequest(*wrong)
    return Search(wanted, Field(sort))


def listed(page: ListedPage[DirectoryEntry]) -> Answer:
    """200 with a page of entries and the token of the next page."""
    return json_response(
        200,
        {"items": [_view(item) for item in page.items], "continuationToken": page.continuation_token},
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
