"""With ``--keys`` a call needs the key that its function asks for, as in Azure; without, none is asked for."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from devstack.functions.keys import Keys, read_keys
from devstack.service import CannotStart
from devstack.testing import Service
from functions.support import host

MASTER, HOST = "the-master-key", "the-hosts-key"
GIVEN = {
    "DEVSTACK_MASTER_KEY": MASTER,
    "DEVSTACK_FUNCTION_KEY": HOST,
    "AzureWebJobs.other.Disabled": "true",
}
WRONG = "none-of-them"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with host(tmp_path_factory.mktemp("keys"), "guarded", GIVEN, "--keys") as service:
        yield service


@pytest.fixture
async def http(app: Service) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(app.address) as session:
        yield session


def own_key(app: Service, function: str) -> str:
    return str(json.loads((app.folder / "keys.json").read_text())["functions"][function])


async def status(http: aiohttp.ClientSession, path: str, key: str | None = None) -> int:
    headers = {} if key is None else {"x-functions-key": key}
    async with http.get(f"api/{path}", headers=headers) as answer:
        if answer.status == 401:
            assert await answer.read() == b""
        return answer.status


async def test_each_level_takes_its_keys_and_no_others(http: aiohttp.ClientSession, app: Service) -> None:
    own = own_key(app, "guarded")
    taken = {
        path: [await status(http, path, key) for key in (None, "", WRONG, own, HOST, MASTER)]
        for path in ("open", "guarded", "administrative")
    }
    assert taken == {
        "open": [200, 200, 200, 200, 200, 200],
        "guarded": [401, 401, 401, 200, 200, 200],
        "administrative": [401, 401, 401, 401, 401, 200],
    }


async def test_a_functions_own_key_opens_no_other_function(http: aiohttp.ClientSession, app: Service) -> None:
    assert await status(http, "guarded", own_key(app, "administrative")) == 401


async def test_the_key_may_stand_in_the_query_and_the_header_goes_first(http: aiohttp.ClientSession) -> None:
    async with http.get(f"api/guarded?code={HOST}") as answer:
        assert (answer.status, await answer.text()) == (200, f"None {HOST}")
    assert await status(http, f"guarded?CODE={MASTER}") == 200
    assert await status(http, f"guarded?code={MASTER}", WRONG) == 401
    assert await status(http, f"guarded?code={WRONG}", HOST) == 200


async def test_what_is_not_there_is_404_with_any_key(http: aiohttp.ClientSession) -> None:
    assert [await status(http, "nothing", key) for key in (None, MASTER)] == [404, 404]


async def test_bytes_that_are_no_text_are_no_key(app: Service) -> None:
    host_and_port = app.address.removeprefix("http://").rstrip("/")
    reader, writer = await asyncio.open_connection(*host_and_port.split(":"))
    lines = (f"GET /api/guarded HTTP/1.1\r\nHost: {host_and_port}\r\nx-functions-key: ", "\r\n\r\n")
    writer.write(lines[0].encode() + b"\xff" + lines[1].encode())
    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()
    await writer.wait_closed()


async def test_a_disabled_function_runs_for_the_master_key_alone(http: aiohttp.ClientSession) -> None:
    assert [await status(http, "other", key) for key in (None, HOST, MASTER)] == [401, 404, 200]


async def test_without_the_option_nobody_is_asked(tmp_path: Path) -> None:
    with host(tmp_path, "guarded", GIVEN) as service:
        async with aiohttp.ClientSession(service.address) as http:
            assert await status(http, "administrative") == 200
            assert await status(http, "other", MASTER) == 404
        assert not (service.folder / "keys.json").exists()


def test_keys_are_made_once_and_kept_for_this_user_alone(tmp_path: Path) -> None:
    made = read_keys(tmp_path, ["a", "b"], {})
    assert len({made.master, made.host, *made.functions.values()}) == 4
    assert min(map(len, (made.master, made.host))) >= 32
    assert read_keys(tmp_path, ["a", "b"], {}) == made
    more = read_keys(tmp_path, ["a", "b", "c"], {"DEVSTACK_MASTER_KEY": MASTER})
    assert (more.master, more.host, more.functions["a"]) == (MASTER, made.host, made.functions["a"])
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "{}", '{"master": "m", "default": "d", "functions": 3}'])
def test_an_unusable_keys_file_is_refused_with_what_to_do(tmp_path: Path, content: str) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(CannotStart, match=r"keys\.json cannot be read; delete it"):
        read_keys(tmp_path, ["a"], {})


def test_keys_are_not_in_a_trace(tmp_path: Path) -> None:
    assert MASTER not in repr(Keys(MASTER, HOST, {"a": "b"}))
