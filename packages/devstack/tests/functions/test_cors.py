"""Pages of other origins are answered as ASP.NET Core's middleware answers them, which is in front of the real host."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from devstack.functions.cors import Cors
from devstack.local_settings import HostSection, read_host
from devstack.service import CannotStart
from functions.support import host

PAGE, OTHER = "https://page.example", "https://other.example"
ASKS = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "PATCH",
    "Access-Control-Request-Headers": "content-type, if-match",
}


@asynccontextmanager
async def listening(folder: Path, *arguments: str) -> AsyncIterator[aiohttp.ClientSession]:
    with host(folder, "http", None, *arguments) as service:
        async with aiohttp.ClientSession(service.address) as session:
            yield session


def cors_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in headers.items() if name.startswith("Access-Control") or name == "Vary"
    }


async def test_another_origin_may_call_only_if_the_host_allows_it(tmp_path: Path) -> None:
    async with listening(tmp_path) as http:
        async with http.options("api/echo/a", headers=ASKS) as answer:
            assert (answer.status, cors_headers(answer.headers)) == (200, {}), "the function takes it"
        async with http.get("api/echo/a", headers={"Origin": PAGE}) as answer:
            assert cors_headers(answer.headers) == {}


async def test_a_preflight_is_answered_before_any_function(tmp_path: Path) -> None:
    async with listening(tmp_path, f"--cors={PAGE}") as http:
        for path in ("api/echo/a", "api/nothing/there"):
            async with http.options(path, headers=ASKS) as answer:
                assert (answer.status, await answer.read()) == (204, b"")
                assert cors_headers(answer.headers) == {
                    "Access-Control-Allow-Origin": PAGE,
                    "Access-Control-Allow-Methods": "PATCH",
                    "Access-Control-Allow-Headers": "content-type,if-match",
                }
        async with http.options("api/echo/a", headers=ASKS | {"Origin": OTHER}) as answer:
            assert (answer.status, cors_headers(answer.headers)) == (204, {})
        plain = {"Origin": PAGE}
        async with http.options("api/echo/a", headers=plain) as answer:
            assert (await answer.json())["method"] == "OPTIONS", "this one asks for nothing"
            assert cors_headers(answer.headers) == {"Access-Control-Allow-Origin": PAGE}


async def test_an_answer_says_who_may_read_it(tmp_path: Path) -> None:
    async with listening(tmp_path, f"--cors={PAGE},{OTHER.upper()}", "--cors-credentials") as http:
        for path, status in (("api/echo/a", 200), ("api/nothing", 404), ("api/raises", 500)):
            async with http.get(path, headers={"Origin": OTHER}) as answer:
                assert answer.status == status
                assert cors_headers(answer.headers) == {
                    "Access-Control-Allow-Origin": OTHER,
                    "Access-Control-Allow-Credentials": "true",
                    "Vary": "Origin",
                }
        for headers in ({}, {"Origin": "https://third.example"}, {"Origin": PAGE + "/"}):
            async with http.get("api/echo/a", headers=headers) as answer:
                assert cors_headers(answer.headers) == {}


async def test_any_origin(tmp_path: Path) -> None:
    async with (
        listening(tmp_path, "--cors=*") as http,
        http.get("api/echo/a", headers={"Origin": "null"}) as answer,
    ):
        assert cors_headers(answer.headers) == {"Access-Control-Allow-Origin": "*"}


def test_the_settings_file_configures_the_host_as_func_start(tmp_path: Path) -> None:
    file = tmp_path / "local.settings.json"

    def written(content: object) -> HostSection:
        file.write_text(json.dumps({"Values": {}} | {"Host": content}))
        return read_host(file)

    assert read_host(None) == HostSection()
    assert written({"LocalHttpPort": 7071}) == HostSection()
    assert written({"CORS": "*", "CORSCredentials": False}) == HostSection("*")
    assert written({"CORS": PAGE, "CORSCredentials": "True"}) == HostSection(PAGE, cors_credentials=True)
    file.write_text('{ // as the func tool allows it\n "Host": {"CORS": "http://*" /* all */}}')
    assert read_host(file) == HostSection("http://*")
    wrongs: list[object] = [[], {"CORS": [PAGE]}, {"CORSCredentials": "yes"}]
    for wrong in wrongs:
        with pytest.raises(CannotStart, match="CORS"):
            written(wrong)


def test_any_origin_with_credentials_is_refused() -> None:
    with pytest.raises(CannotStart, match="list the origins"):
        Cors.parsed("*", credentials=True)
    assert Cors.parsed("", credentials=True) is None
