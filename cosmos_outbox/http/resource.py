"""An aggregate as a resource: each answer has its version as ``ETag``, and shows the aggregate in one way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import azure.functions as func

from cosmos_outbox.http import responses
from cosmos_outbox.http.responses import etag_header, json_response
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.unit_of_work import Page, Receipt, Versioned

A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class Resource(Generic[A]):
    """The answers to calls on aggregates of one type."""

    path: str
    """Below ``/api/``, without a slash: ``orders``."""
    view: Callable[[A], Mapping[str, Any]]
    """The aggregate as callers see it."""

    def created(self, receipt: Receipt[A], *, replayed: bool = False) -> func.HttpResponse:
        """201 with the aggregate, its location and its version; ``replayed``: the answer to an earlier request."""
        location = f"/api/{self.path}/{quote(receipt.aggregate.aggregate_id, safe='')}"
        headers = {"Location": location} | etag_header(receipt.etag)
        if replayed:
            headers["Idempotency-Replayed"] = "true"
        return json_response(201, self.view(receipt.aggregate), headers)

    def changed(self, receipt: Receipt[A]) -> func.HttpResponse:
        """200 with the aggregate and its version."""
        return json_response(200, self.view(receipt.aggregate), etag_header(receipt.etag))

    def found(self, req: func.HttpRequest, stored: Versioned[A]) -> func.HttpResponse:
        """200 with the aggregate and its version, or 304 when the caller has that version."""
        return responses.stored(req, self.view(stored.aggregate), stored.etag)

    def listed(self, page: Page[A]) -> func.HttpResponse:
        """200 with a page of aggregates and the token of the next page."""
        items = [self.view(aggregate) for aggregate in page.items]
        return json_response(200, {"items": items, "continuationToken": page.continuation_token})
