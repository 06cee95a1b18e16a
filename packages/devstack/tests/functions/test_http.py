"""HTTP in, HTTP out, over a socket; the answers are those of the real host."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from devstack.testing import Service, eventually
from functions.support import host, make_host

GUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with host(tmp_path_factory.mktemp("functions"), "http") as service:
        yield service


@pytest.fixture
async def http(app: Service) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(app.address) as session:
        yield session


async def described(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    assert answer.status == 200
    described: dict[str, Any] = await answer.json()
    return described


async def test_a_function_sees_the_request(http: aiohttp.ClientSession, app: Service) -> None:
    async with http.patch("api/echo/a%20b?x=1&X=2&x=&y=&z", data=b"{}") as answer:
        seen = await described(answer)

    assert seen["method"] == "PATCH"
    assert seen["route"] == {"name": "a b"}
    assert seen["query"] == {"x": "1,2"}, "values that are empty are not handed on"
    assert seen["url"] == f"{app.address}api/echo/a%20b?x=1&X=2&x=&y=&z", "the whole query is here"
    assert seen["body"] == "{}"
    assert seen["function"] == "echo"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_a_function_without_methods_takes_them_all(http: aiohttp.ClientSession, method: str) -> None:
    async with http.request(method, "api/echo/a") as answer:
        assert (await described(answer))["method"] == method


async def test_the_trace_of_the_caller_goes_on(http: aiohttp.ClientSession) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with http.get("api/echo/a", headers={"traceparent": parent}) as answer:
        trace = (await described(answer))["trace"]

    assert trace.startswith("00-4bf92f3577b34da6a3ce929d0e0e4736-")
    assert trace != parent


@pytest.mark.parametrize("parent", ["", "nonsense", "00-1-2-3"])
async def test_without_a_valid_trace_a_new_one_begins(http: aiohttp.ClientSession, parent: str) -> None:
    async with http.get("api/echo/a", headers={"traceparent": parent}) as answer:
        trace = (await described(answer))["trace"]

    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", trace)


async def test_a_coroutine_runs_on_the_loop_and_a_plain_function_in_a_thread(
    http: aiohttp.ClientSession,
) -> None:
    async with http.get("api/echo/a") as on_loop, http.post("api/in_thread") as in_thread:
        assert (await described(on_loop))["thread"] == "MainThread"
        assert (await described(in_thread))["thread"] != "MainThread"


async def test_a_plain_function_does_not_hold_up_the_others(http: aiohttp.ClientSession) -> None:
    slow = asyncio.create_task(http.get("api/slow/3"))
    async with http.get("api/echo/a") as answer:
        await described(answer)
    assert not slow.done()
    async with await slow as answer:
        assert await answer.text() == "done"


async def test_a_constraint_decides_between_functions(http: aiohttp.ClientSession) -> None:
    async with http.get(f"api/by_id/{GUID}") as one, http.get("api/by_id/a/b") as other:
        assert (await described(one))["route"] == {"id": GUID}
        assert (await described(other))["route"] == {"rest": "a/b"}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "api/missing"), ("GET", "echo/a"), ("GET", "api/in_thread")]
)
async def test_unknown_paths_and_methods_are_404_without_a_body(
    http: aiohttp.ClientSession, method: str, path: str
) -> None:
    async with http.request(method, path) as answer:
        assert answer.status == 404
        assert await answer.read() == b""


@pytest.mark.parametrize("path", ["api/raises", "api/returns_nothing"])
async def test_a_function_that_fails_is_500_without_a_body_and_logged(
    http: aiohttp.ClientSession, app: Service, path: str
) -> None:
    async with http.get(path) as answer:
        assert answer.status == 500
        assert await answer.read() == b""

    log = app.log.read_text()
    assert re.search(
        rf"\d\d:\d\d:\d\d\.\d{{3}} {path.removeprefix('api/')}  error: failed: GET /{path}\n", log
    )


async def test_the_mistake_itself_is_in_the_log(http: aiohttp.ClientSession, app: Service) -> None:
    async with http.get("api/raises"):
        pass

    assert "ValueError: the function's own mistake" in app.log.read_text()


async def test_what_a_function_logs_is_one_line_under_its_name(
    http: aiohttp.ClientSession, app: Service
) -> None:
    async with http.get("api/echo/a"):
        pass

    assert re.search(r"^\d\d:\d\d:\d\d\.\d{3} echo  echoing$", app.log.read_text(), re.MULTILINE)


async def test_a_text_is_a_response(http: aiohttp.ClientSession) -> None:
    async with http.get("api/returns_text") as answer:
        assert (answer.status, await answer.text()) == (200, "plain")
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_headers_cookies_status_and_bytes_of_a_response(http: aiohttp.ClientSession) -> None:
    async with http.get("api/cookies") as answer:
        assert (answer.status, await answer.read()) == (202, b"\x00\x01")
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["X-Other"] == "value"
        assert answer.headers.getall("Set-Cookie") == ["a=1; Path=/", "b=2; HttpOnly"]


async def megabytes(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield bytes(1024 * 1024)


async def refused_at_once(service: Service, length: int) -> None:
    """The answer to a body of which nothing is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(f"POST /api/in_thread HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    writer.close()
    await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"Content-Length: 0\r\n" in head


async def test_a_body_over_100_mb_is_refused(app: Service) -> None:
    await refused_at_once(app, 100 * 1024 * 1024 + 1)


async def test_a_body_over_the_setting_is_refused_before_it_has_come(tmp_path: Path) -> None:
    with host(tmp_path, "http", {"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "1000"}) as service:
        async with (
            aiohttp.ClientSession(service.address) as session,
            session.post("api/in_thread", data=b"x" * 1000) as answer,
        ):
            assert (await described(answer))["body"] == "x" * 1000
        await refused_at_once(service, 1001)


HSTS = {"AzureFunctionsJobHost__extensions__http__hsts__isEnabled": "true"}


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({"Host": "app.example", "X-Forwarded-Proto": "https"}, "max-age=31536000"),
        ({"Host": "app.example:443", "X-Forwarded-Proto": "https"}, "max-age=31536000"),
        ({"Host": "app.example"}, None),
        ({"Host": "localhost:7071", "X-Forwarded-Proto": "https"}, None),
    ],
)
async def test_hsts_is_sent_over_tls_alone_and_not_by_a_local_host(
    tmp_path: Path, headers: dict[str, str], sent: str | None
) -> None:
    days = {"AzureFunctionsJobHost__extensions__http__hsts__maxAge": "365"}
    with host(tmp_path, "http", HSTS | days) as service:
        async with aiohttp.ClientSession(service.address) as session:
            for path in ("api/echo/a", "api/nothing"):
                async with session.get(path, headers=headers) as answer:
                    assert answer.headers.get("Strict-Transport-Security") == sent


async def test_the_url_has_the_scheme_that_the_caller_used(http: aiohttp.ClientSession) -> None:
    async with http.get("api/echo/a", headers={"Host": "h", "X-Forwarded-Proto": "https"}) as answer:
        assert (await described(answer))["url"] == "https://h/api/echo/a"


async def test_a_packed_body_reaches_the_function_as_it_is(http: aiohttp.ClientSession) -> None:
    async with http.post("api/echo/a", data=b"no gzip", headers={"Content-Encoding": "gzip"}) as answer:
        assert (await described(answer))["body"] == "no gzip"


async def test_a_chunked_body_does_not_reach_the_function(http: aiohttp.ClientSession) -> None:
    async with http.post("api/in_thread", data=megabytes(2)) as answer:
        assert (await described(answer))["body"] == ""


async def raw_status(app: Service, target: str) -> tuple[int, bytes]:
    """The answer to a target that no client would send like this."""
    reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    "target", ["//api/echo/a", "/api//echo/a", "/api/echo//", "/api/by_id//", "/api//", "//"]
)
async def test_double_slashes_are_404_without_a_body(app: Service, target: str) -> None:
    assert await raw_status(app, target) == (404, b"")


@pytest.mark.parametrize(
    ("target", "function", "route"),
    [
        ("/api/by_id/a//", "zz_rest", {"rest": "a//"}),
        ("/api/by_id/a/./b", "zz_rest", {"rest": "a/b"}),
        ("/api/by_id/a/%2E%2e/b/.", "zz_rest", {"rest": "b/"}),
        ("/api/echo/x/../y", "echo", {"name": "y"}),
        ("/api/named_by_its_function", "named_by_its_function", {}),
    ],
)
async def test_odd_paths_reach(app: Service, target: str, function: str, route: dict[str, str]) -> None:
    status, body = await raw_status(app, target)

    assert status == 200
    assert json.loads(body)["function"] == function
    assert json.loads(body)["route"] == route


async def test_the_url_has_the_path_after_its_dots_were_resolved(app: Service) -> None:
    _, body = await raw_status(app, "/api/echo/x/../a%20b?next=..%2F")

    assert json.loads(body)["url"] == "http://localhost/api/echo/a%20b?next=..%2F"


async def test_the_address_itself_answers(http: aiohttp.ClientSession) -> None:
    async with http.get("/") as answer:
        assert answer.status == 200


async def test_at_the_end_a_running_function_may_finish(tmp_path: Path) -> None:
    with host(tmp_path, "http") as service:
        async with aiohttp.ClientSession(service.address) as session:
            running = asyncio.create_task(session.get("api/slow/1"))
            await eventually(lambda: "slow has begun" in service.log.read_text())
            assert await asyncio.to_thread(service.terminate) == 0
            async with await running as answer:
                assert await answer.text() == "done"


async def test_at_the_end_a_function_that_hangs_is_cut_off(tmp_path: Path) -> None:
    service = make_host(tmp_path, "http", None, "--drain-seconds=0.3").start()
    async with aiohttp.ClientSession(service.address) as session:
        hanging = asyncio.create_task(session.get("api/slow/60"))
        await eventually(lambda: "slow has begun" in service.log.read_text())
        begun = time.monotonic()
        assert await asyncio.to_thread(service.terminate) == 0
        assert time.monotonic() - begun < 30, "it would go on for a minute"
        with pytest.raises(aiohttp.ClientError):
            await hanging
    assert "cut off" in service.log.read_text()


async def test_a_line_break_in_a_path_is_a_value_and_no_line_of_the_log(
    http: aiohttp.ClientSession, app: Service
) -> None:
    async with http.get(URL(f"{app.address}api/echo/a%0Ab", encoded=True)) as answer:
        assert (await described(answer))["route"] == {"name": "a\nb"}
    async with http.get(
        URL(f"{app.address}api/raises/a%0A12:00:00.000%20host%20forged", encoded=True)
    ) as answer:
        assert answer.status == 500
    assert "failed: GET /api/raises/a%0A12:00:00.000%20host%20forged" in app.log.read_text()


async def test_trace_is_a_method_like_others(http: aiohttp.ClientSession) -> None:
    async with http.request("TRACE", "api/echo/a") as answer:
        assert (await described(answer))["method"] == "TRACE"
