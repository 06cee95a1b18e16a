"""The receiver: an event is verified, then applied and committed, then answered.

``WEBHOOK_SECRETS``: the sender's secrets, separated by spaces; any of them will do, so they are changed without a gap.
``SOURCE``: where an aggregate is read when its events do not have its state, with ``{type}`` and ``{id}``.
The answers are those that the sender knows: 401 stops it, 400 parks the aggregate, after 409 and 5xx it tries again.
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from standardwebhooks import Webhook, WebhookVerificationError

from examples.receiver.inbox import CloudEvent, Current, Inbox, ReadAgain, Taken

LONGEST_BODY = 1_000_000
STRUCTURED = "application/cloudevents+json"


def application(file: Path, secrets: str, read_again: ReadAgain) -> FastAPI:
    """A receiver that keeps its data in this file. Raises ValueError: there is no secret."""
    verifiers = [Webhook(secret) for secret in secrets.split()]
    if not verifiers:
        raise ValueError("WEBHOOK_SECRETS is not set: unsigned requests could be anybody's")
    inbox = Inbox(file, read_again)
    app = FastAPI(title="Receiver")

    @app.post("/events")
    async def receive(request: Request) -> Response:
        """Take one event."""
        body = await body_of(request)
        if body is None:
            return Response("the body is too long", 413)
        if not is_signed(verifiers, body, dict(request.headers)):
            return Response("the signature is wrong, or its time", 401)
        try:
            event = event_of(body, request.headers.get("content-type", ""))
        except (ValueError, KeyError, TypeError):
            return Response("no structured CloudEvent", 400)
        taken = await run_in_threadpool(inbox.take, event)
        return Response(status_code=status_of(taken))

    @app.get("/entries/{kind}/{name}")
    async def entry(kind: str, name: str) -> dict[str, Any] | None:
        """What is known of an aggregate."""
        return await run_in_threadpool(inbox.state, kind, name)

    return app


async def body_of(request: Request) -> bytes | None:
    """None: it is too long, and not read to its end."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_BODY:
            return None
    return bytes(body)


def is_signed(verifiers: list[Webhook], body: bytes, headers: dict[str, str]) -> bool:
    """Whether one of the secrets has signed the body, at most five minutes ago."""
    for verifier in verifiers:
        try:
            verifier.verify(body, headers, json_parse=False)
        except (WebhookVerificationError, ValueError):  # ValueError: the headers are garbage
            continue
        return True
    return False


def event_of(body: bytes, content_type: str) -> CloudEvent:
    """The event in a body, not in headers, which nobody has signed. Raises ValueError, KeyError, TypeError."""
    if content_type.partition(";")[0].strip() != STRUCTURED:
        raise ValueError(content_type)
    said = json.loads(body)
    if not isinstance(said, dict):
        raise TypeError(said)
    sequence = said.get("sequence")
    if sequence is not None and type(sequence) is not int:
        raise ValueError(sequence)
    aggregate = (str(said["aggregatetype"]), str(said["subject"]))
    return CloudEvent(str(said["id"]), str(said["type"]), aggregate, sequence, dict(said["data"]))


def status_of(taken: Taken) -> int:
    """The answer to the sender."""
    return {Taken.TOO_EARLY: 409, Taken.UNREAD: 503}.get(taken, 204)


def reading(source: str) -> ReadAgain:
    """Reads at the service whose events these are. Raises ValueError: there is no such address."""
    if "{id}" not in source:
        raise ValueError("SOURCE is not set: a discarded event could not be made up for")

    def read_again(kind: str, name: str) -> Current | None:
        url = source.format(type=quote(kind, safe=""), id=quote(name, safe=""))
        answer = httpx.get(url, headers={"Cache-Control": "no-cache"})  # no older state than that of the call
        if answer.status_code in {404, 410}:
            return None
        shown = answer.raise_for_status().json()
        return Current(shown["sequence"], shown)  # in the form that your own state has

    return read_again


def from_environment() -> FastAPI:
    """For ``uvicorn --factory examples.receiver.app:from_environment``."""
    return application(database(), os.environ.get("WEBHOOK_SECRETS", ""), source())


def database() -> Path:
    """Where the data are."""
    return Path(os.environ.get("RECEIVER_DATABASE", "receiver.db"))


def source() -> ReadAgain:
    """As the environment names it. Raises ValueError."""
    return reading(os.environ.get("SOURCE", ""))
