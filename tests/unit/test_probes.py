"""Probes over a real socket: what they answer, and that a wrong request gets little."""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.worker import probes
from cosmos_outbox.worker.probes import Address


class Sick:
    """A worker whose state the test decides."""

    def __init__(self) -> None:
        self.silent_seconds = self.longest_round_seconds = 0.0
        self.reason: str | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0

    async def trouble(self) -> str | None:
        self.asked += 1
        await self.answers.wait()
        return self.reason

    def line(self) -> str:
        return "not logged here"


@asynccontextmanager
async def served(health: Sick, caplog: pytest.LogCaptureFixture) -> AsyncIterator[int]:
    caplog.set_level(logging.INFO)
    async with probes.answered(Address("127.0.0.1", 0), health):
        yield port_in(caplog.text)


def port_in(log: str) -> int:
    [port] = re.findall(r"are answered at 127\.0\.0\.1, port ([0-9]+)", log)
    return int(port)


async def get(port: int, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.json()


async def raw(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_worker_that_works_is_alive_and_ready(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Sick(), caplog) as port:
        assert await get(port, "/healthz") == (200, {"status": "alive"})
        assert await get(port, "/readyz?verbose=1") == (200, {"status": "ready"})


async def test_a_worker_that_waits_is_alive_and_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    vitals = Sick()
    vitals.reason = "events wait"
    async with served(vitals, caplog) as port:
        assert await get(port, "/healthz") == (200, {"status": "alive"})
        assert await get(port, "/readyz") == (503, {"status": "not ready", "reason": "events wait"})


async def test_a_loop_that_hangs_fails_the_liveness_probe(caplog: pytest.LogCaptureFixture) -> None:
    vitals = Sick()
    async with served(vitals, caplog) as port:
        vitals.silent_seconds = probes.STUCK_SECONDS
        assert (await get(port, "/healthz"))[0] == 200
        vitals.silent_seconds = probes.STUCK_SECONDS + 1
        assert await get(port, "/healthz") == (503, {"status": "stuck"})
    assert "a loop has had no iteration for 301 s" in caplog.text


async def test_nothing_else_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Sick(), caplog) as port:
        assert (await get(port, "/"))[0] == 404
        assert (await get(port, "/readyz/"))[0] == 404
        status, reported = await get(port, "/metrics")
        assert (status, "OTEL_METRICS_EXPORTER=prometheus" in reported["status"]) == (404, True)
        assert (await raw(port, b"POST /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        assert (await raw(port, b"\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        proxied = b"GET /healthz HTTP/1.1\r\nx: " + b"x" * 4_000 + b"\r\n\r\n"
        assert (await raw(port, proxied)).startswith(b"HTTP/1.1 200 ")
        assert await raw(port, b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n") == b""


async def test_who_says_nothing_is_cut_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 0.1)
    vitals = Sick()
    async with served(vitals, caplog) as port:
        assert await raw(port, b"GET /healthz") == b""
        vitals.answers.clear()  # a store that hangs: the platform takes no answer for a failed probe
        assert await raw(port, b"GET /readyz HTTP/1.1\r\n\r\n") == b""
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR], "that is everyday life"


async def test_idle_connections_do_not_keep_the_platforms_probes_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else anybody who reaches the port has the worker restarted: a probe without an answer is one that failed."""
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 3_600.0)
    async with served(Sick(), caplog) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(probes.MOST_CONNECTIONS)]
        for _, writer in held[:4]:
            writer.write(b"GET /healthz HTTP/1.1\r\nslowly: ")
        assert await get(port, "/healthz") == (200, {"status": "alive"})
        oldest, _ = held[0]
        assert await oldest.read() == b"", "the one that has been asking nothing for longest"
        assert not any(reader.at_eof() for reader, _ in held[2:])
        for _, writer in held:
            writer.close()
    assert "Traceback" not in caplog.text


async def test_an_address_that_is_taken_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"cannot be answered at 127.0.0.1, port {port}"):
            async with probes.answered(Address("127.0.0.1", port), Sick()):
                pass


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8080", Address("127.0.0.1", 8080)),
        ("0.0.0.0:8080", Address("0.0.0.0", 8080)),
        ("[::]:80", Address("::", 80)),
        ("worker:1", Address("worker", 1)),
        ("65535", Address("127.0.0.1", 65535)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "http://x:1", "70000", "65536", "x", "x:", "[::]", "::1", "8080 "])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Address.parse(text)
