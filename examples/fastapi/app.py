"""A FastAPI program whose changes are published: the API, the relay and a subscriber in one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from cosmos_outbox import Names, Origin, Service, running, utc_now
from cosmos_outbox.errors import (
    AggregateNotFound,
    ConcurrentChange,
    OutboxError,
    PreconditionFailed,
    Throttled,
    Unavailable,
)
from examples.fastapi.directory import FORM, entry_of, project
from examples.fastapi.person import NewDetails, Person

service = Service("people", [Person], Names(database="people", container="people", topic="people-events"))
DIRECTORY = service.read_model("directory", of=Person, form=FORM, state_of=entry_of, project=project)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Relay and subscriber work while the program serves."""
    async with running(service) as at_work:
        app.state.health = at_work.health
        yield


app = FastAPI(title="People", lifespan=lifespan)
Cached = Annotated[str, Header()]
STATUS: dict[type[Exception], int] = {
    AggregateNotFound: 404, ConcurrentChange: 409, PreconditionFailed: 412, ValidationError: 422, Throttled: 429,
}  # fmt: skip


@app.exception_handler(OutboxError)
@app.exception_handler(ValidationError)
async def refused(_: Request, error: Exception) -> JSONResponse:
    """What the store refuses, or a patch that breaks a rule, and what to do about it."""
    status = STATUS.get(type(error), 503 if isinstance(error, Unavailable) else 400)
    return JSONResponse(
        {"detail": str(error)}, status, {"Retry-After": "1"} if status in (429, 503) else None
    )


@app.post("/people", status_code=201)
async def add(details: NewDetails, response: Response) -> dict[str, Any]:
    """Add a person: it and its event are stored in one transaction."""
    receipt = await service().aggregates.create(Person.add(details, at=utc_now()), _origin())
    response.headers["Location"] = f"/people/{receipt.aggregate.aggregate_id}"
    return _shown(receipt.aggregate, receipt.etag, response)


@app.get("/people/{person_id}")
async def get(person_id: UUID, response: Response, cache_control: Cached = "") -> dict[str, Any]:
    """A person. ``Cache-Control: no-cache`` asks for no older state than that of the call."""
    newest = "no-cache" in cache_control
    found = await service().aggregates.read(Person, str(person_id), _origin(), newest=newest)
    return _shown(found.aggregate, found.etag, response)


@app.patch("/people/{person_id}")
async def change(
    person_id: UUID,
    patch: dict[str, Any],
    response: Response,
    if_match: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Change what the patch names; each changed property is an event."""

    def changed(person: Person) -> None:
        person.change(NewDetails.model_validate(person.details | patch), at=utc_now())

    receipt = await service().aggregates.change(
        Person, str(person_id), changed, _origin(), if_match={if_match} if if_match else ()
    )
    return _shown(receipt.aggregate, receipt.etag, response)


@app.delete("/people/{person_id}", status_code=204)
async def delete(person_id: UUID) -> None:
    """Delete a person."""
    at = utc_now()
    await service().aggregates.change(Person, str(person_id), lambda person: person.delete(at=at), _origin())


@app.get("/directory")
async def directory(after: str | None = None) -> dict[str, Any]:
    """A page of the directory, by name."""
    page = await service().read_model(DIRECTORY).listing.page([], "name", 50, after)
    items = [{"id": each.id, "sequence": each.sequence} | each.state.model_dump() for each in page.items]
    return {"items": items, "after": page.continuation_token}


@app.get("/readyz")
async def ready() -> JSONResponse:
    """Whether relay and subscriber do their work."""
    reason = await app.state.health.trouble()
    return JSONResponse({"status": reason or "ready"}, 503 if reason else 200)


def _origin() -> Origin:
    return Origin(correlation_id=str(uuid4()))


def _shown(person: Person, etag: str | None, response: Response) -> dict[str, Any]:
    if etag:
        response.headers["ETag"] = etag
    return {"id": person.aggregate_id, **person.details, "sequence": person.state.last_sequence}
