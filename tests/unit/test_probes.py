"""Probes over a real socket: what they answer, and that whoever asks in a wrong way gets little."""

import asyncio
import contextlib
import json
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
from devstack.testing import eventually


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


@asynccontextmanager
async def served(vitals: Sick, caplog: pytest.LogCaptureFixture) -> AsyncIterator[int]:
    caplog.set_level(logging.INFO)
    async with probes.answered(Address("127.0.0.1", 0), vitals):
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
    assert "a loop has not come round for 301 s" in caplog.text


async def test_a_loop_whose_rounds_may_take_long_is_not_taken_for_one_that_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vitals = Sick()
    async with served(vitals, caplog) as port:
        vitals.longest_round_seconds = vitals.silent_seconds = 2 * probes.STUCK_SECONDS
        assert (await get(port, "/healthz"))[0] == 200
        vitals.silent_seconds += 1
        assert (await get(port, "/healthz"))[0] == 503


async def test_nothing_else_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Sick(), caplog) as port:
        assert (await get(port, "/"))[0] == 404
        assert (await get(port, "/readyz/"))[0] == 404
        status, told = await get(port, "/metrics")
        assert (status, "OTEL_METRICS_EXPORTER=prometheus" in told["status"]) == (404, True)
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


async def test_who_asks_for_much_and_reads_nothing_is_cut_off_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its connection would be held for ever, beyond those that are counted."""
    much = b"x" * 20_000_000
    monkeypatch.setattr(probes, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(probes, "scraped", lambda: (much, "text/plain"))
    async with served(Sick(), caplog) as port:
        caplog.set_level(logging.DEBUG)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await eventually(lambda: "was not answered: TimeoutError" in caplog.text)
        got = 0
        with contextlib.suppress(ConnectionResetError):
            while part := await reader.read(1_000_000):
                got += len(part)
        assert got < len(much)
        writer.close()


async def test_who_holds_all_connections_and_asks_nothing_does_not_keep_the_platform_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else whoever reaches the port has the worker restarted: a probe without an answer is one that failed."""
    async with served(Sick(), caplog) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(probes.MOST_CONNECTIONS)]
        for _, writer in held[:4]:
            writer.write(b"GET /healthz HTTP/1.1\r\nslowly: ")
        assert await get(port, "/healthz") == (200, {"status": "alive"})
        oldest, _ = held[0]
        assert await asyncio.wait_for(oldest.read(), 2) == b"", (
            "the one that has been asking nothing for longest"
        )
        assert not any(reader.at_eof() for reader, _ in held[2:])
        for _, writer in held:
            writer.close()
    assert "Traceback" not in caplog.text


async def test_each_connection_too_many_takes_the_place_of_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(Sick(), caplog) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(probes.MOST_CONNECTIONS)]
        more = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]  # all of them at once
        for reader, _ in held[:5]:
            assert await asyncio.wait_for(reader.read(), 2) == b""
        for each in more:
            each.close()
        for _, writer in held:
            writer.close()


async def test_who_waits_for_an_answer_is_not_cut_off_for_others_that_have_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vitals = Sick()
    vitals.answers.clear()
    async with served(vitals, caplog) as port:
        waiting = asyncio.create_task(raw(port, b"GET /readyz HTTP/1.1\r\n\r\n"))
        await eventually(lambda: vitals.asked == 1)
        for _ in range(probes.MOST_CONNECTIONS + 1):
            assert (await get(port, "/healthz"))[0] == 200
        vitals.answers.set()
        assert (await waiting).startswith(b"HTTP/1.1 200 ")


async def test_what_is_counted_is_given_as_prometheus_reads_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "scraped", lambda: (b"events_total 5\n", "text/plain; version=0.0.4"))
    async with served(Sick(), caplog) as port:
        head, _, body = (await raw(port, b"GET /metrics HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"Content-Type: text/plain; version=0.0.4\r\n" in head
    assert body == b"events_total 5\n"


async def test_when_the_worker_ends_nothing_listens_any_more(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Sick(), caplog) as port:
        assert (await get(port, "/healthz"))[0] == 200
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_who_asks_what_takes_long_does_not_keep_the_platform_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vitals = Sick()
    vitals.answers.clear()
    async with served(vitals, caplog) as port:
        ready = b"GET /readyz HTTP/1.1\r\n\r\n"
        asked = [asyncio.create_task(raw(port, ready)) for _ in range(probes.MOST_CONNECTIONS)]
        await eventually(lambda: vitals.asked == probes.MOST_CONNECTIONS)
        assert await get(port, "/healthz") == (200, {"status": "alive"})
        vitals.answers.set()
        answers = await asyncio.gather(*asked)
    assert sorted(answer[:13] for answer in answers) == [b""] + [b"HTTP/1.1 200 "] * (len(asked) - 1)


async def test_an_address_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"cannot be answered at 127.0.0.1, port {port}"):
            async with probes.answered(Address("127.0.0.1", port), Sick()):
                pass


async def test_without_an_address_nothing_listens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with probes.answered(None, Sick()):
        assert "answered at" not in caplog.text


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


async def test_an_answer_is_one_json_object_that_no_cache_keeps(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Sick(), caplog) as port:
        head, _, body = (await raw(port, b"GET /healthz HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert b"Cache-Control: no-store" in head
    assert json.loads(body) == {"status": "alive"}
