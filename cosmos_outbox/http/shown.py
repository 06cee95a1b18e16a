"""An aggregate in an answer: each has its version as ``ETag``, and shows the aggregate in one way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

from cosmos_outbox.http import responses
from cosmos_outbox.http.conditions import ETAG, told_modified
from cosmos_outbox.http.listing import AS_OF
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import etag_header, json_response, last_modified_header, written_header
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.change_once import ChangeAnswer
from cosmos_outbox.outbox.unit_of_work import Page, Receipt, Versioned

A = TypeVar("A", bound=Aggregate[Any])

REPLAYED = {"Idempotency-Replayed": "true"}
"""On an answer to an earlier request with this key."""


@dataclass(frozen=True)
class Shown(Generic[A]):
    """The answers to calls on aggregates of one type."""

    view: Callable[[A], Mapping[str, Any]]
    """The aggregate as callers see it."""

    def created(self, req: Request, receipt: Receipt[A], *, replayed: bool = False) -> Answer:
        """201 with the aggregate, its location and its version; ``replayed``: the answer to an earlier request.

        The location is below the path that was called, wherever the API is mounted; the Functions host takes a slash
        too many at its end.
        """
        location = f"{urlsplit(req.url).path.rstrip('/')}/{quote(receipt.aggregate.aggregate_id, safe='')}"
        headers = {"Location": location} | _version(receipt)
        headers |= written_header(receipt.aggregate.aggregate_id, receipt.aggregate.state.last_sequence)
        if replayed:
            headers |= REPLAYED
        return json_response(201, self._body(receipt), headers)

    def changed(self, receipt: Receipt[A]) -> Answer:
        """200 with the aggregate and its version."""
        return json_response(200, self._body(receipt), _version(receipt))

    def answered(self, aggregate_id: str, answered: ChangeAnswer[A]) -> Answer:
        """As :meth:`changed`, of a change with a key; id and sequence alone when the aggregate has changed since."""
        if answered.receipt is None:
            answer = json_response(200, {"id": aggregate_id, "sequence": answered.sequence})
        else:
            answer = self.changed(answered.receipt)
        answer = answer.with_headers(written_header(aggregate_id, answered.sequence))
        return answer.with_headers(REPLAYED) if answered.replayed else answer

    def deleted(self, aggregate_id: str, answered: ChangeAnswer[A]) -> Answer:
        """204."""
        answer = responses.no_content().with_headers(written_header(aggregate_id, answered.sequence))
        return answer.with_headers(REPLAYED if answered.replayed else {})

    def found(self, req: Request, stored: Versioned[A]) -> Answer:
        """200 with the aggregate and its version, or 304 when the caller has that version."""
        return responses.stored(req, self._body(stored), stored.etag, told_modified(stored.aggregate))

    def listed(self, page: Page[A], next_link: str | None, as_of: datetime | None) -> Answer:
        """200 with a page of aggregates, the token and the address of the next page, and the list's ``asOf``."""
        items = [self._body(Versioned(*each)) for each in zip(page.items, page.etags, strict=True)]
        body = {"items": items, "continuationToken": page.continuation_token, "nextLink": next_link}
        return json_response(200, body | {AS_OF: None if as_of is None else f"{as_of:%Y-%m-%dT%H:%M:%SZ}"})

    def _body(self, of: Versioned[A] | Receipt[A]) -> dict[str, Any]:
        """The aggregate with its version, which is left out when others have replaced it since."""
        return {**self.view(of.aggregate), **({} if of.etag is None else {ETAG: of.etag})}


def _version(receipt: Receipt[Any]) -> dict[str, str]:
    return etag_header(receipt.etag) | last_modified_header(told_modified(receipt.aggregate))
