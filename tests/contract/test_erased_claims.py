"""What an erased aggregate's messages claim is gone, whatever a relay that was paused stores afterwards."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.storage.blob.aio import ContainerClient

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.storagequeue.claims import ClaimEraser, ClaimReader
from cosmos_outbox.storagequeue.client import claim_container, queue_service
from cosmos_outbox.storagequeue.message import arrived
from cosmos_outbox.storagequeue.publisher import StorageQueuePublisher
from devstack.testing import Service, eventually
from tests.support.publishing import event, publish
from tests.support.serving import serving

SERVICE, LARGE = CloudEvents("/test"), "Quirina" * 10_000
PUT_MESSAGE = b"<QueueMessagesList><QueueMessage><MessageId>m</MessageId></QueueMessage></QueueMessagesList>"
ERIN = AggregateKey("contact", "erin")


class Account(BaseHTTPRequestHandler):
    """The part of a storage account that is used here: a queue that takes all, one container, whole blobs."""

    protocol_version = "HTTP/1.1"
    blobs: ClassVar[dict[str, bytes]]
    queued: ClassVar[list[str]]
    hold: ClassVar[threading.Event]
    """While it is not set, data that is stored waits at the server."""
    waiting: ClassVar[list[str]]

    @property
    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    @property
    def blob(self) -> str:
        return urlsplit(self.path).path.split("/", 3)[3]

    def do_POST(self) -> None:
        self.queued.append(self.body.decode().partition("<MessageText>")[2].partition("</MessageText>")[0])
        self.answer(201, PUT_MESSAGE)

    def do_PUT(self) -> None:
        body = self.body
        if body:
            self.waiting.append(self.blob)
            assert self.hold.wait(20)
        if self.headers.get("If-None-Match") == "*" and self.blob in self.blobs:
            self.answer(409, code="BlobAlreadyExists")
            return
        self.blobs[self.blob] = body
        self.answer(201)

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "comp" in query:
            self.answer(200, self.listed(query["prefix"][0]))
        elif self.blob not in self.blobs:
            self.answer(404, code="BlobNotFound")
        else:
            body, asked = self.blobs[self.blob], "x-ms-range" in self.headers
            if asked and not body:
                self.answer(416, code="InvalidRange")
            else:
                self.answer(206 if asked else 200, body)

    def listed(self, prefix: str) -> bytes:
        found = "".join(
            f"<Blob><Name>{name}</Name><Properties>"
            f"<Content-Length>{len(body)}</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for name, body in sorted(self.blobs.items())
            if name.startswith(prefix)
        )
        return f"<EnumerationResults><Blobs>{found}</Blobs><NextMarker/></EnumerationResults>".encode()

    def answer(self, status: int, body: bytes = b"", code: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml")
        self.send_header("x-ms-blob-type", "BlockBlob")
        if status == 206:
            self.send_header("Content-Range", f"bytes 0-{len(body) - 1}/{len(body)}")
        if code:
            self.send_header("x-ms-error-code", code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def account() -> type[Account]:
    free = threading.Event()
    free.set()
    return type("Kind", (Account,), {"blobs": {}, "queued": [], "waiting": [], "hold": free})


@pytest.fixture
async def connection(account: type[Account]) -> AsyncIterator[Connection]:
    with serving(account) as url:
        yield Connection(
            connection_string=f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AA==;"
            f"QueueEndpoint={url}/a;BlobEndpoint={url}/a;"
        )


@pytest.fixture
async def claims(connection: Connection) -> AsyncIterator[ContainerClient]:
    async with claim_container(connection, None, "event-claims") as client:
        yield client


def large(contact: str, sequence: int, action: str = "Changed") -> OutboxEvent:
    made = event(contact, sequence)
    data = {"id": made.id, "action": action, "sequence": sequence, "text": LARGE}
    return replace(made, action=action, data=data)


async def send(connection: Connection, claims: ContainerClient, *events: OutboxEvent) -> None:
    async with queue_service(connection, None) as client:
        relay = StorageQueuePublisher(
            client, ["erased"], service=SERVICE, encoded=True, senders=1, claims=claims
        )
        assert await publish(relay, events) == [Accepted()]


async def read(claims: ContainerClient, message: str) -> tuple[bytes, str]:
    """What a reader of the message gets: the data, and what it says of data that is not there."""
    delivery = await ClaimReader(claims).complete(arrived(base64.b64decode(message), "m", "s"))
    return delivery.body, str(delivery.properties.get("unreadable", ""))


async def test_the_claims_of_one_aggregate_are_emptied_and_no_others(
    connection: Connection, claims: ContainerClient, account: type[Account]
) -> None:
    again = replace(large("erin", 1), message_id="republished")
    await send(connection, claims, large("erin", 1), again, large("erin", 2, "Erased"), large("erin", 3))
    await send(connection, claims, large("otto", 1))
    eraser = ClaimEraser(claims)
    names = await eraser.of(ERIN)
    assert len(names) == 4
    assert await eraser.empty(names, living={"erin-3"}, kept={"Erased"}) == 2
    assert await eraser.empty(await eraser.of(ERIN), living={"erin-3"}, kept={"Erased"}) == 0

    found = [await read(claims, message) for message in account.queued]
    assert [len(body) > len(LARGE) for body, _ in found] == [False, False, True, True, True]
    assert all("was erased" in told for _, told in found[:2])
    assert await eraser.of(AggregateKey("contac", "t/erin")) == [], "no other aggregate has the same folder"


async def test_a_relay_that_stores_once_more_what_was_erased_brings_nothing_back(
    connection: Connection, claims: ContainerClient, account: type[Account]
) -> None:
    """It was paused with the page; another relay has sent it, and the erasing ends while the claim is under way."""
    await send(connection, claims, large("erin", 1))
    account.hold.clear()
    account.waiting.clear()
    async with asyncio.TaskGroup() as both:
        both.create_task(send(connection, claims, large("erin", 1)))
        await eventually(lambda: len(account.waiting) == 1, within=20)
        [name] = await ClaimEraser(claims).of(ERIN)
        assert await ClaimEraser(claims).empty([name], living=(), kept=()) == 1
        account.hold.set()
    assert account.blobs == {name: b""}
    assert [(await read(claims, each))[0] for each in account.queued] == [b"", b""]


async def test_a_claim_that_expired_meanwhile_is_no_failure_and_a_missing_container_is(
    connection: Connection, claims: ContainerClient, account: type[Account]
) -> None:
    await send(connection, claims, large("erin", 1))
    names = await ClaimEraser(claims).of(ERIN)
    account.blobs.clear()
    assert await ClaimEraser(claims).empty(names, living=(), kept=()) == 0
    account.listed = lambda *_: b"no XML"  # type: ignore[method-assign]  # a broken answer
    with pytest.raises(Unavailable, match="the blob container event-claims"):
        await ClaimEraser(claims).of(ERIN)


@pytest.mark.long
async def test_azurite_agrees(storage_server: Service) -> None:
    there = Connection(connection_string=storage_server.connection_string)
    async with claim_container(there, None, "erased-claims") as claims, queue_service(there, None) as queues:
        await claims.create_container()
        await queues.create_queue("erased")
        await send(there, claims, large("erin", 1), large("erin", 2))
        eraser = ClaimEraser(claims)
        assert await eraser.empty(await eraser.of(ERIN), living=(), kept=()) == 2
        await send(there, claims, large("erin", 1))
        assert await eraser.of(ERIN) == []
        bodies = {each.name: await (await claims.download_blob(each.name)).readall()
                  async for each in claims.list_blobs()}  # fmt: skip
        assert [*bodies.values()] == [b"", b""]
        messages = [each.content async for each in queues.get_queue_client("erased").receive_messages()]
        assert len(messages) == 3
        for each in messages:
            assert json.loads(base64.b64decode(each))["dataref"] in bodies
