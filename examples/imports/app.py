"""The same as one FastAPI program: API, relay and jobs in one process."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from cosmos_outbox import running
from cosmos_outbox.http import READING, Answer, Answering, request
from cosmos_outbox.http import Request as Call
from examples.imports import http, worker
from examples.imports.service import FILES, imports, jobs, service

answering = Answering()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Events leave and jobs are run while the program serves."""
    stop = asyncio.Event()
    async with running(service) as at_work:
        app.state.health = at_work.health
        app.state.jobs = running_jobs = asyncio.create_task(worker.work(jobs(), stop, os.environ))
        try:
            yield
        finally:
            stop.set()
            await running_jobs
            await FILES.close()


app = FastAPI(title="Imports", lifespan=lifespan)


@answering.accepting(http.KEY)
async def _upload(call: Call) -> Answer:
    asked = http.upload(call)
    return http.accepted(call, await imports().accept(asked.name, asked.content, asked.origin, key=asked.key))


@answering
async def _status(call: Call) -> Answer:
    return http.shown(await imports().find(http.import_id(call), request.origin(call)))


@app.post("/imports", status_code=202)
async def upload(request: Request, name: str) -> Response:
    """Accept a file, the body; ``name`` is its name."""
    return _response(await _upload(await _call(request)))


@app.get("/imports/{id}")
async def status(request: Request) -> Response:
    """Returns how far an import is."""
    return _response(await _status(await _call(request)))


@app.get("/readyz")
async def ready() -> Response:
    """Whether relay and jobs do their work."""
    reason = "no jobs are run" if app.state.jobs.done() else await app.state.health.trouble()
    return Response(reason or "ready", 503 if reason else 200, media_type="text/plain")


async def _call(request: Request) -> Call:
    body = bytearray()
    if request.method not in READING:
        async for part in request.stream():
            body += part
            if len(body) > http.MAX_BYTES:
                break  # the rest is not read: the call refuses what is too large
    return Call(request.method, str(request.url), dict(request.headers), request.path_params, bytes(body))


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)
