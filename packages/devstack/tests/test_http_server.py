"""The three HTTP servers answer what is odd as they answer all else, and write nothing of it into their logs."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.testing import Service, eventually, running
from devstack.testing.service import port_of
from functions.support import host

END = b"Host: x\r\nConnection: close\r\n\r\n"
MALFORMED = {
    "method": b"S3CRET\x81 / HTTP/1.1\r\n" + END,
    "path": b"GET /\x01S3CRET HTTP/1.1\r\n" + END,
    "header": b"GET / HTTP/1.1\r\nBad header\x00: S3CRET\r\n" + END,
    "length": b"GET / HTTP/1.1\r\nContent-Length: 1S3CRET\r\n" + END,
    "chunk": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + END + b"zS3CRET\r\n",
    "no HTTP": b"\x16\x03\x01S3CRET\r\n\r\n",
}


@pytest.fixture(scope="module", params=["cosmos", "servicebus", "functions"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("http") / "data"
    if request.param == "functions":
        with host(folder, "http") as app:
            yield app
        return
    with running(Service(request.param, folder)) as server:
        yield server


async def answer(service: Service, *packets: bytes) -> bytes:
    """What comes back until the server closes.

    A server that answers before the last packet closes with that packet unread, which resets the connection and may
    take the answer with it: then it is asked again.
    """
    for _ in range(20):
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            return await answer_of_one(service, *packets)
    raise AssertionError("each connection was reset")


async def answer_of_one(service: Service, *packets: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(service.addresses[-1]))
    try:
        for packet in packets:
            writer.write(packet)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("what", MALFORMED)
async def test_the_bytes_of_a_malformed_request_stay_out_of_the_log(service: Service, what: str) -> None:
    head, tail = MALFORMED[what][:-12], MALFORMED[what][-12:]

    assert b" 400 " in (await answer(service, head, tail)).partition(b"\r\n")[0]

    # Something that is logged after it, so that the log is complete.
    assert b" 400 " in await answer(service, b"GET /\x01last HTTP/1.1\r\n" + END)
    lines = await eventually(lambda: refusals(service))
    assert "S3CRET" not in service.log.read_text(errors="replace")
    assert "Traceback" not in service.log.read_text(errors="replace")
    assert all("it is no HTTP" in line for line in lines)


def refusals(service: Service) -> list[str]:
    return [line for line in service.log.read_text(errors="replace").splitlines() if "Error handling" in line]


async def test_a_line_break_in_a_path_is_answered_by_the_service(service: Service) -> None:
    """Each server has a form of its own for what is not there; aiohttp's is ``404: Not Found``."""
    plain = await answer(service, b"GET /missing HTTP/1.1\r\n" + END)
    broken = await answer(service, b"GET /now%0Ahere HTTP/1.1\r\n" + END)

    assert broken.partition(b"\r\n")[0] == plain.partition(b"\r\n")[0]
    assert b"404: Not Found" not in broken
