"""The page runs nothing but its own script, loads nothing, and is part of what is deployed."""

import base64
import fnmatch
import hashlib
import re

from cosmos_outbox.functions import operators
from cosmos_outbox.http.message import Answer, Request
from tests.support.paths import ROOT

FOLDER = ROOT / "cosmos_outbox" / "functions" / "page"


def answer(**headers: str) -> Answer:
    request = Request("GET", "/api/operations", headers)
    return operators.show_page(request)


def policy() -> dict[str, list[str]]:
    directives = answer().headers["Content-Security-Policy"].split("; ")
    return {name: values for name, *values in map(str.split, directives)}


def inside(tag: str) -> str:
    [found] = re.findall(f'<{tag}(?: type="module")?>(.*?)</{tag}>', answer().body.decode(), re.DOTALL)
    return str(found)


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_pages_own_script_style_and_service_only() -> None:
    allowed = policy()
    assert allowed["default-src"] == ["'none'"]
    assert allowed["script-src"] == [digest(inside("script"))]
    assert allowed["style-src"] == [digest(inside("style"))]
    assert allowed["connect-src"] == ["'self'"]
    assert allowed["frame-ancestors"] == allowed["base-uri"] == allowed["form-action"] == ["'none'"]


def test_the_other_headers_keep_the_page_to_itself() -> None:
    headers = answer().headers
    assert answer().media_type == "text/html"
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert headers["Cache-Control"] == "no-cache"


def test_a_browser_that_has_the_page_gets_no_second_copy() -> None:
    etag = answer().headers["ETag"]
    again = answer(**{"If-None-Match": etag})
    assert (again.status, again.body) == (304, b"")
    assert again.headers["Content-Security-Policy"] == answer().headers["Content-Security-Policy"]


def test_the_page_names_no_other_host_and_holds_no_data_of_the_service() -> None:
    text = answer().body.decode()
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not re.search("contact", text, re.IGNORECASE), "the page is that of every service"


def test_text_of_the_server_cannot_become_markup() -> None:
    script = inside("script")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert way not in script


def test_every_part_of_the_script_is_in_the_page() -> None:
    assert {f"{name}.js" for name in operators.SCRIPTS} == {file.name for file in FOLDER.glob("*.js")}


def test_the_page_is_deployed() -> None:
    ignored = [line.strip("/") for line in (ROOT / ".funcignore").read_text().split()]
    for file in FOLDER.iterdir():
        parts = file.relative_to(ROOT).parts
        if file.is_file():
            assert not any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in ignored)
