"""The archive is read over HTTP, blob by blob: who works on one for long is not cut off in it."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest

from cosmos_outbox.blobs.archive import BlobArchive
from cosmos_outbox.outbox.archive import Archiver, Blob, blobs_of
from cosmos_outbox.outbox.archive_index import ArchiveIndex
from cosmos_outbox.outbox.originals import AsDelivered
from cosmos_outbox.preflight.archive_rules import archive
from cosmos_outbox.preflight.report import Finding
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.relay_feed import ARCHIVE_POLL_MS, LEASE_ACQUIRE_MS, LEASE_RENEW_MS
from infra.bootstrap import service as contacts
from tests.support.feed import event_document, read
from tests.support.paths import ROOT
from tests.support.serving import serving

PAGE = " ".join((ROOT / "docs" / "operate" / "costs.md").read_text().split())
LISTED = b"""<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>
<Blob><Name>a.jsonl</Name><Properties><Etag>1</Etag><BlobType>BlockBlob</BlobType></Properties></Blob>
<Blob><Name>b.jsonl</Name><Properties><Etag>1</Etag><BlobType>BlockBlob</BlobType></Properties></Blob>
</Blobs><NextMarker /></EnumerationResults>"""


class Answers(BaseHTTPRequestHandler):
    """As Blob Storage does; by the name of the container."""

    def do_GET(self) -> None:
        if "gone" in self.path:
            self.answer(404, "ContainerNotFound")
        elif "locked" in self.path:
            self.answer(200, **{"x-ms-has-immutability-policy": "true"})
        else:
            self.answer(403 if "closed" in self.path else 200, "AuthorizationPermissionMismatch")

    def do_PUT(self) -> None:
        assert self.headers["If-Match"]
        self.rfile.read(int(self.headers["Content-Length"]))
        if "readable" in self.path:
            self.answer(403, "AuthorizationPermissionMismatch")
        else:
            self.answer(412, "ConditionNotMet")

    def answer(self, status: int, code: str = "", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"x-ms-error-code": code, "Content-Length": "0", "ETag": '"1"', **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


@pytest.mark.parametrize(
    ("container", "as_app", "told"),
    [
        ("open", True, "ok       archive open: is there, and may be written"),
        ("open", False, "ok       archive open: is there"),
        ("gone", False, "wrong    archive gone: does not exist. Fix: create the blob container"),
        ("locked", False, "wrong    archive locked: has an immutability policy"),
        ("closed", False, "wrong    archive closed: access is denied"),
        ("readable", False, "ok       archive readable: is there"),
        ("readable", True, "wrong    archive readable: access is denied"),
    ],
)
async def test_preflight_looks_at_the_archive(container: str, as_app: bool, told: str) -> None:
    with serving(Answers) as address:
        [found] = await looked_at(f"{address}/a", container, as_app=as_app)
    assert str(found).startswith(told)
    assert ("Storage Blob Data Contributor" in str(found)) == (container == "readable" and as_app)


async def test_an_archive_that_does_not_answer_does_not_count_as_right() -> None:
    [found] = await looked_at("http://127.0.0.1:1/a", "open", as_app=False)
    assert str(found).startswith("unknown  archive open: cannot be reached")


async def looked_at(address: str, container: str, *, as_app: bool) -> list[Finding]:
    settings = contacts.settings(
        {
            "COSMOS": "AccountEndpoint=http://localhost:1/;AccountKey=a2V5;",
            "SERVICEBUS": "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=a2V5;",
            "ARCHIVE": f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AA==;BlobEndpoint={address};",
            "ARCHIVE_CONTAINER": container,
        }
    )
    return await archive(settings, None, as_app=as_app)


class Kept(BaseHTTPRequestHandler):
    """Keeps blobs, as far as an archive of one page asks."""

    blobs: ClassVar[dict[str, tuple[bytes, int]]] = {}
    asked: ClassVar[list[str]] = []

    def do_PUT(self) -> None:
        self.asked.append("write")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        _, version = self.blobs.get(self.path, (b"", 0))
        if self.headers["If-None-Match"] == "*" and version:
            self.answer(409, "BlobAlreadyExists")
        elif self.headers["If-Match"] not in (None, str(version)):
            self.answer(412, "ConditionNotMet")
        else:
            self.blobs[self.path] = body, version + 1
            self.answer(201, ETag=str(version + 1))

    def do_GET(self) -> None:
        self.asked.append("read")
        self.answer(404, "BlobNotFound")

    def do_HEAD(self) -> None:
        self.asked.append("read")
        body, version = self.blobs[self.path]
        self.answer(200, ETag=str(version), **{"Content-Length": str(len(body))})

    def answer(self, status: int, code: str = "", **headers: str) -> None:
        self.send_response(status)
        told_why = {"x-ms-error-code": code} if code else {}  # the SDK reads "or-" in its name as a policy's
        for name, value in {"Content-Length": "0", **told_why, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


async def test_what_an_archived_page_costs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kept, "blobs", {})
    monkeypatch.setattr(Kept, "asked", [])
    event = read({**event_document("a", 1), "_ts": 1_770_000_000})
    with serving(Kept) as address:
        connected = Connection(
            connection_string=f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AA==;BlobEndpoint={address}/a;"
        )
        async with AsyncExitStack() as resources:
            archiver = Archiver(BlobArchive(connected, "archive", None, resources), AsDelivered())
            await archiver.keep([event])
            of_a_page = Counter(Kept.asked)
            await archiver.keep([event])
            before = Counter(Kept.asked)
            await ArchiveIndex(archiver.archive).add("2026/02/02/a.jsonl", blobs_of([event])[0].body)
            of_an_entry = Counter(Kept.asked) - before
    assert [json.loads(body)["id"] for body, _ in Kept.blobs.values() if body] == [event.id]
    assert of_an_entry.total() == 1
    told(f"A page is {of_a_page['write']} writes and {of_a_page['read']} read of Blob Storage")
    usd = (of_a_page["write"] * 0.05 + of_a_page["read"] * 0.004) / 10_000
    told(
        f"its index is {of_an_entry['write']} write more each, {1e6 * of_an_entry['write'] * 0.05 / 10_000:.2f} USD"
    )
    told(f"{1e6 * usd:.2f} USD with n = 1, {1e6 / 50 * usd:.2f} USD with n = 50")


def test_what_an_archive_asks_of_the_store_is_told() -> None:
    feed, renewals, leases = (
        1000 / ARCHIVE_POLL_MS,
        4.95 / (LEASE_RENEW_MS / 1000),
        3 / (LEASE_ACQUIRE_MS / 1000),
    )
    every_second = feed + round(renewals, 1) + leases
    told(f"{feed:.1f} + {renewals:.1f} + {leases:.0f} = {every_second:.1f} RU/s, ")
    told(f"{every_second:.1f} RU/s, {every_second * 730 * 3600 * 0.25 / 1e6:.2f} USD a month")


def told(text: str) -> None:
    assert text in PAGE, f"docs/operate/costs.md, At rest: write {text}"


class TwoBlobs(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        listing = "comp=list" in self.path
        body = LISTED if listing else b"{}"
        self.send_response(200 if listing else 206)
        self.send_header("Content-Type", "application/xml" if listing else "application/jsonl")
        self.send_header("Content-Length", str(len(body)))
        if not listing:
            self.send_header("Content-Range", f"bytes 0-{len(body) - 1}/{len(body)}")
            self.send_header("ETag", '"1"')
            self.send_header("x-ms-blob-type", "BlockBlob")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


async def test_who_works_on_a_blob_for_long_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosmos_outbox.blobs.archive.CALL_SECONDS", 1.0)
    with serving(TwoBlobs) as address:
        connected = Connection(
            connection_string=f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AA==;BlobEndpoint={address}/a;"
        )
        async with AsyncExitStack() as resources:
            read: list[Blob] = []
            async for blob, _ in BlobArchive(connected, "archive", None, resources).blobs():
                await asyncio.sleep(1.2)  # longer than a call may take
                read.append(blob)
    assert read == [Blob("a.jsonl", b"{}"), Blob("b.jsonl", b"{}")]
