"""A FastAPI program whose changes are published: the API, the relay and a subscriber in one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from cosmos_outbox import Names, Service, running
from cosmos_outbox.http import Resource, fastapi_router
from examples.fastapi.directory import FORM, entry_of, first, project
from examples.fastapi.person import Details, Person

service = Service("people", [Person], Names(database="people", container="people", topic="people-events"))
people = Resource(
    "people", Person, new=Details, create=Person.add, change=Person.change, delete=Person.delete
)
DIRECTORY = service.read_model(
    "directory", of=Person, form=FORM, state_of=entry_of, project=project, first=first
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Relay and subscriber work while the program serves."""
    async with running(service) as at_work:
        app.state.health = at_work.health
        yield


app = FastAPI(title="People", lifespan=lifespan)
app.include_router(fastapi_router(service, [people]))


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
