"""The calls on tasks in a FastAPI program: a router under ``/api``, and an ASGI application under ``/mounted``."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from cosmos_outbox import running
from cosmos_outbox.http import Request, asgi_app, fastapi_router
from tests.support.tasks import service, tasks


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The function app beside it relays."""
    async with running(service, relay=False):
        yield


def user(request: Request) -> str | None:
    """As a program's own authentication would say."""
    return request.headers.get("X-User")


app = FastAPI(title="Tasks", lifespan=lifespan)
app.include_router(fastapi_router(service, [tasks], caller_of=user), prefix="/api")
app.mount("/mounted", asgi_app(service, [tasks]))
