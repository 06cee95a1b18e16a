"""What is read and is large goes as gzip to who takes it, over every edge; versions and conditions stay as they are."""

import gzip

import pytest

from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import LEAST_BYTES, packed, takes_gzip

LARGE = b"a" * LEAST_BYTES


def asking(accepted: str | None = "gzip", method: str = "GET") -> Request:
    return Request(method, "http://x/y", {} if accepted is None else {"Accept-Encoding": accepted})


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        (None, False),
        ("", False),
        ("gzip", True),
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, GZIP;q=0.8, *;q=0.1", True),
        ("*", True),
        ("*;q=0", False),
        ("*, gzip;q=0", False),
        ("deflate, br", False),
        ("identity, gzip;q=0.5", False),
        ("identity, gzip", True),
        ("identity;q=0.5, gzip", True),
        ("identity;q=0, gzip;q=0.001", True),
        ("gzip;q=0.000", False),
        ("gzip;q=two", False),
        ("gzip;level=9", False),
        ("xgzip", False),
    ],
)
def test_a_caller_takes_what_its_weights_say(accepted: str | None, takes: bool) -> None:
    assert takes_gzip(asking(accepted)) is takes


@pytest.mark.parametrize(
    ("method", "answer", "is_packed", "varies"),
    [
        ("GET", Answer(200, LARGE, media_type="application/json"), True, "Accept-Encoding"),
        ("HEAD", Answer(200, LARGE, media_type="application/problem+json"), True, "Accept-Encoding"),
        ("GET", Answer(404, LARGE, media_type="text/html"), True, "Accept-Encoding"),
        ("GET", Answer(200, LARGE, {"ETag": 'W/"1"'}), True, "Accept-Encoding"),
        ("GET", Answer(200, LARGE, {"vary": "Origin"}), True, "Origin, Accept-Encoding"),
        ("GET", Answer(200, LARGE[1:]), False, "Accept-Encoding"),
        ("GET", Answer(304, b"", {"ETag": 'W/"1"'}), False, "Accept-Encoding"),
        ("GET", Answer(200, LARGE, media_type="image/png"), False, "Accept-Encoding"),
        ("GET", Answer(200, LARGE, {"ETag": '"1"'}), False, None),
        ("GET", Answer(304, b"", {"ETag": '"1"'}), False, None),
        ("GET", Answer(200, LARGE, {"content-encoding": "br"}), False, None),
    ],
)
def test_what_is_large_and_has_no_strong_version_is_packed(
    method: str, answer: Answer, is_packed: bool, varies: str | None
) -> None:
    given = packed(asking(method=method), answer)
    assert (given.headers.get("Content-Encoding") == "gzip") is is_packed
    assert given.headers.get("Vary") == varies
    assert (gzip.decompress(given.body) if is_packed else given.body) == answer.body
    assert len(given.body) < len(answer.body) or not is_packed
    plain = packed(asking(None, method), answer)
    assert (plain.body, plain.headers.get("Vary")) == (answer.body, varies)


@pytest.mark.parametrize(
    ("site", "cookie", "is_packed"),
    [
        ("cross-site", True, False),
        ("cross-site", False, True),
        ("same-origin", True, True),
        (None, True, True),
    ],
)
def test_a_cross_site_request_with_a_cookie_is_not_compressed(
    site: str | None, cookie: bool, is_packed: bool
) -> None:
    sent = {
        "accept-encoding": "gzip",
        **({"sec-fetch-site": site} if site else {}),
        **({"cookie": "a=b"} if cookie else {}),
    }
    given = packed(Request("GET", "http://x/y", sent), Answer(200, LARGE))
    assert ("Content-Encoding" in given.headers) is is_packed
    assert given.headers["Vary"] == "Accept-Encoding"
