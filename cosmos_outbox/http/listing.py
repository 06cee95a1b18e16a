"""Parses a list's query into its order and filters, and builds the address of the next page."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from pydantic import ValidationError

from cosmos_outbox.http.message import Request
from cosmos_outbox.http.problems import FieldError, InvalidRequest
from cosmos_outbox.http.request import MAX_PAGE_SIZE, PAGE, parameters, query
from cosmos_outbox.http.validation import field_errors, form_of
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.selection import Order, Selection, orders

SORT, IDS, CHANGED_SINCE = "sort", "ids", "changedSince"
AS_OF = "asOf"
"""A property of a list's first page: pass it as ``changedSince`` of the next list, and no change is missed."""
_REPLICAS_LAG = timedelta(minutes=1)
"""The assumed maximum of replica lag and clock difference, whose changes a page may miss. Cosmos DB guarantees a bound
only for bounded staleness (https://learn.microsoft.com/azure/cosmos-db/consistency-levels)."""
WRITTEN = "written"
"""The query parameter by which a search of a read model waits for a write."""
_WRITTEN = re.compile(r"([^:/?#\\]{1,128}):([0-9]{1,15})")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ZONED = re.compile(r".*T.*(Z|[+-]\d\d:\d\d)")


def names(kind: type[Aggregate[Any]]) -> tuple[str, ...]:
    """Returns the query parameters of a list of these aggregates, without those of paging."""
    return (SORT, IDS, CHANGED_SINCE, *found_by(kind))


def selection(request: Request, kind: type[Aggregate[Any]]) -> Selection:
    """Parses the query. Raises InvalidRequest, which names every wrong parameter."""
    given, wrong = parameters(request, *PAGE, *names(kind))
    made = Selection(
        _order(given, kind, wrong),
        {field: _equal(given[name], kind, name, wrong) for name, field in found_by(kind).items() if name in given},
        _ids(given, wrong),
        _since(given, wrong),
    )  # fmt: skip
    if wrong:
        raise InvalidRequest(*wrong)
    return made


def as_of(token: str | None) -> datetime | None:
    """Returns a first page's ``asOf``; None for later pages, as some may lack changes made after the first page."""
    return utc_now() - _REPLICAS_LAG if token is None else None


def next_link(request: Request, token: str | None, *also: str) -> str | None:
    """Returns path and query of the page with this token: the same query without a function key."""
    if token is None:
        return None
    given = query(request, *PAGE, *also)
    kept = {name: value for name, value in given.items() if name in also or name == PAGE[0]}
    return f"{urlsplit(request.url).path}?{urlencode({**kept, PAGE[1]: token})}"


def written_in(text: str) -> tuple[str, int]:
    """Parses the aggregate's id and sequence from a header ``Written``. Raises InvalidRequest."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        must = "must be the header Written of a write's answer"
        raise InvalidRequest(FieldError(WRITTEN, must, "malformed"))
    return found[1], int(found[2])


def found_by(kind: type[Aggregate[Any]]) -> Mapping[str, str]:
    """Maps the name in the query to the property."""
    return {kind.state_type.model_fields[name].alias or name: name for name in kind.found_by}


def sorting(given: Mapping[str, str], orders: Sequence[str], wrong: list[FieldError]) -> str | None:
    """Returns the order that the query names; None: it names none, or one not in ``orders``, added to ``wrong``."""
    if SORT not in given or given[SORT] in orders:
        return given.get(SORT)
    wrong.append(FieldError(SORT, f"must be one of {', '.join(orders)}", "not_one_of"))
    return None


def _order(given: Mapping[str, str], kind: type[Aggregate[Any]], wrong: list[FieldError]) -> Order | None:
    found = sorting(given, orders(kind), wrong)
    return None if found is None else Order(found)


def _ids(given: Mapping[str, str], wrong: list[FieldError]) -> list[str] | None:
    if IDS not in given:
        return None
    ids = given[IDS].split(",")
    if len(ids) > MAX_PAGE_SIZE or not all(map(_UUID.fullmatch, ids)):
        must = f"must be 1 to {MAX_PAGE_SIZE} UUIDs with commas between them"
        wrong.append(FieldError(IDS, must, "malformed"))
        return None
    return sorted({str(UUID(each)) for each in ids})


def _since(given: Mapping[str, str], wrong: list[FieldError]) -> datetime | None:
    if CHANGED_SINCE not in given:
        return None
    try:
        at = datetime.fromisoformat(given[CHANGED_SINCE]) if _ZONED.fullmatch(given[CHANGED_SINCE]) else None
    except ValueError:
        at = None
    if at is None:
        zoned = "must be a time with a zone, such as 2026-03-01T12:00:00Z"
        wrong.append(FieldError(CHANGED_SINCE, zoned, "malformed"))
    return at


def _equal(text: str, kind: type[Aggregate[Any]], name: str, wrong: list[FieldError]) -> Any:
    """Returns the value as it is stored, normalised by the field's own rules."""
    adapter = form_of(kind.state_type.model_fields[found_by(kind)[name]])
    try:
        return adapter.dump_python(adapter.validate_python(text), mode="json")
    except ValidationError as problems:
        wrong += field_errors(problems, name)
    return None
