"""A client sends each attempt once, and writes down as unknown an attempt that may have been served."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path

import pytest

from cosmos_outbox.testing.judging.history import History
from devstack.functions.rewriting import rewritten
from tests.support import once
from tests.torture.clients import Client, Directory
from tests.torture.contacts import value_of
from tests.torture.journal import Journal, Reader

CONTACT = "11111111-1111-4111-8111-111111111111"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: 1\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nETag: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@dataclass
class Server:
    """Takes each request whole, answers it as told, and drops the connection."""

    answer: bytes
    url: str = ""
    taken: list[str] = field(default_factory=list)
    """The correlation ids, and the request lines where there are none."""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        await reader.readexactly(int(headers["content-length"]))
        self.taken.append(headers.get("x-correlation-id", first))
        writer.write(self.answer)
        writer.close()


@asynccontextmanager
async def server(answer: bytes = b"") -> AsyncIterator[Server]:
    taking = Server(answer)
    async with await asyncio.start_server(taking.take, "127.0.0.1", 0) as listening:
        taking.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield taking


@pytest.fixture
def client_of(tmp_path: Path) -> Callable[[str], Client]:
    def client(url: str) -> Client:
        return Client(
            "c", [url], Journal(tmp_path / "log"), random.Random(1), Directory(), asyncio.Event(), (0, 0)
        )

    return client


def history(folder: Path) -> History:
    found = History()
    found.add(Reader(folder / "log").new())
    return found


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST", "PATCH"])
@pytest.mark.parametrize("answer", [b"", WHOLE[:10], WHOLE[:-1], CHUNKED[:-5], b"nonsense\r\n\r\n"])
async def test_a_request_whose_answer_is_lost_is_sent_once(method: str, answer: bytes) -> None:
    async with server(answer) as taking:
        with pytest.raises(once.NoAnswer):
            await once.send(method, f"{taking.url}/x", body={"a": 1}, within=5)
    assert taking.taken == [f"{method} /x HTTP/1.1"]


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED])
async def test_a_whole_answer_is_read(answer: bytes) -> None:
    async with server(answer) as taking:
        found = await once.send("GET", f"{taking.url}/x", parameters={"a": "b c"}, within=5)
    assert (found.status, found.headers["etag"], found.json()) == (200, "1", {})
    assert taking.taken == ["GET /x?a=b+c HTTP/1.1"]


async def test_a_server_that_never_answers_may_have_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(once.NoAnswer):
        await once.send("GET", f"http://127.0.0.1:{silent.getsockname()[1]}/", within=0.2)


async def test_each_attempt_of_a_deletion_arrives_once_and_is_written_down_as_unknown(
    client_of: Callable[[str], Client], tmp_path: Path
) -> None:
    async with server() as taking:
        assert not await client_of(taking.url).delete(CONTACT)
    found = history(tmp_path)
    assert taking.taken == list(found.attempts) == ["c-0.1", "c-0.2"]
    assert [answer.outcome for answer in found.answers.values()] == ["unknown", "unknown"]


async def test_a_creation_with_a_key_that_is_refused_is_not_repeated_for_ever(
    client_of: Callable[[str], Client], tmp_path: Path
) -> None:
    async with server(b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n") as taking:
        await client_of(taking.url)._create_once()
    found = history(tmp_path)
    assert {answer.status for answer in found.answers.values()} == {409}
    assert len(taking.taken) == len(found.attempts) <= 2


async def test_a_patch_is_not_asked_for_again(client_of: Callable[[str], Client], tmp_path: Path) -> None:
    async with server() as taking:
        assert (await client_of(taking.url).patch(CONTACT)).outcome == "unknown"
    assert taking.taken == list(history(tmp_path).attempts) == ["c-0.1"]


async def test_an_attempt_that_could_not_connect_was_refused(
    client_of: Callable[[str], Client], tmp_path: Path
) -> None:
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        answer = await client_of(f"http://127.0.0.1:{bound.getsockname()[1]}").patch(CONTACT)
    assert (answer.outcome, answer.status) == ("refused", None)


def test_every_description_is_one_that_the_host_writes_anew_and_no_two_are_alike() -> None:
    texts = [value_of(f"c{client}-{number}", "description") for client in range(6) for number in range(500)]
    assert len(set(texts)) == len(texts)
    assert [text for text in texts if rewritten(text, UTC) == text] == []
