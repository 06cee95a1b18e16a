"""Whether a receiver can be reached is told without a post: at each kind of address, and by TLS where events go so."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.webhook import Webhook
from cosmos_outbox.webhook.reaching import reach
from devstack.testing import eventually


def target(url: str) -> Webhook:
    return Webhook(url, ["a secret"])


@asynccontextmanager
async def listening(at: str, got: list[bytes]) -> AsyncIterator[int]:
    """The port of one that keeps all that each connection brings, until its end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read())
        writer.close()

    try:
        server = await asyncio.start_server(serve, at, 0)
    except OSError:
        pytest.skip(f"this machine has no {at}")
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("at", "host"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("::1", "[::1]")]
)
async def test_a_receiver_is_reached_by_a_connection_that_brings_nothing_and_ends(
    at: str, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []
    async with listening(at, got) as port:
        assert 0 <= await reach(target(f"http://{host}:{port}/events"), seconds=5) < 5
        await eventually(lambda: got)
    assert got == [b""]
    assert caplog.records == []


async def test_one_that_speaks_no_tls_or_is_not_there_is_away() -> None:
    async with listening("127.0.0.1", []) as port:
        with pytest.raises(Unavailable, match=f"^127.0.0.1:{port} cannot be reached"):
            await reach(target(f"https://127.0.0.1:{port}/secret"), seconds=0.05)
    with pytest.raises(Unavailable, match="ConnectionRefusedError") as told:
        await reach(target(f"http://127.0.0.1:{port}/secret"), seconds=5)
    assert "secret" not in str(told.value)


@dataclass
class Net:
    """What DNS answers, and who takes connections; ``opened``: each that was tried, with the name for TLS."""

    names: dict[str, list[str]]
    deaf: set[str] = field(default_factory=set)
    opened: list[tuple[str, int, str | None]] = field(default_factory=list)
    closed: int = 0

    def close(self) -> None:
        self.closed += 1

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        if host not in self.names:
            raise socket.gaierror  # as for an address of IPv6, where there is no IPv6
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.names[host]]

    async def open_connection(
        self, host: str, port: int, *, ssl: object, server_hostname: str | None
    ) -> "tuple[None, Net]":
        assert (ssl is None) == (server_hostname is None)
        self.opened.append((host, port, server_hostname))
        if host in self.deaf:
            raise ConnectionRefusedError
        return None, self


@pytest.fixture
async def net(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Net]:
    def made(names: dict[str, list[str]], *deaf: str) -> Net:
        net = Net(names, {*deaf})
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", net.getaddrinfo)
        monkeypatch.setattr(asyncio, "open_connection", net.open_connection)
        return net

    return made


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("http://localhost/", ("127.0.0.1", 80, None)),
        ("https://localhost/", ("127.0.0.1", 443, "localhost")),
        ("https://receiver.example/events", ("8.8.8.8", 443, "receiver.example")),
        ("https://receiver.example:8443/events", ("8.8.8.8", 8443, "receiver.example")),
    ],
)
async def test_the_port_and_the_certificates_name_are_those_of_the_url(
    url: str, opened: tuple[str, int, str | None], net: Callable[..., Net]
) -> None:
    found = net({"localhost": ["127.0.0.1"], "receiver.example": ["10.0.0.4", "8.8.8.8"]})
    await reach(target(url), seconds=5)
    assert found.opened == [opened], "the first address that may be asked"
    assert found.closed == 1


async def test_an_address_that_takes_no_connection_is_followed_by_the_next(net: Callable[..., Net]) -> None:
    found = net({"receiver.example": ["8.8.8.8", "8.8.4.4", "1.1.1.1"]}, "8.8.8.8")
    await reach(target("https://receiver.example/"), seconds=5)
    assert [address for address, *_ in found.opened] == ["8.8.8.8", "8.8.4.4"]


@pytest.mark.parametrize("addresses", [["8.8.8.8", "8.8.4.4"], []])
async def test_a_name_none_of_whose_addresses_takes_a_connection_is_away(
    addresses: list[str], net: Callable[..., Net]
) -> None:
    found = net({"receiver.example": addresses}, *addresses)
    with pytest.raises(Unavailable, match=r"receiver\.example cannot be reached"):
        await reach(target("https://receiver.example/"), seconds=5)
    assert [address for address, *_ in found.opened] == addresses


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "https://[fd00::1]/", "https://receiver.example/"])
async def test_what_may_not_be_asked_is_told_as_wrong_and_is_not_asked(
    url: str, net: Callable[..., Net]
) -> None:
    found = net({"receiver.example": ["10.0.0.4"]})
    with pytest.raises(Misconfigured, match="WEBHOOK_PRIVATE=true"):
        await reach(target(url), seconds=5)
    assert found.opened == []
