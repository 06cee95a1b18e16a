"""The archive is read over HTTP, blob by blob: who works on one for long is not cut off in it."""

import asyncio
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from cosmos_outbox.blobs.archive import BlobArchive
from cosmos_outbox.outbox.archive import Blob
from cosmos_outbox.settings.connections import Connection
from tests.support.serving import serving

LISTED = b"""<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>
<Blob><Name>a.jsonl</Name><Properties><Etag>1</Etag><BlobType>BlockBlob</BlobType></Properties></Blob>
<Blob><Name>b.jsonl</Name><Properties><Etag>1</Etag><BlobType>BlockBlob</BlobType></Properties></Blob>
</Blobs><NextMarker /></EnumerationResults>"""


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
