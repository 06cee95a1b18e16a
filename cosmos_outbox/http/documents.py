"""Serves an API's documentation: its OpenAPI document, a page to try it, and a page for each kind of problem.

None of it contains data, and a browser or a code generator cannot send a key when it opens an address: so all of it
needs no key, like the operations page. The page is Swagger UI, from the package of the extra ``docs``. Its content
security policy allows only these files and requests to this service; a key that is entered stays in the page's
memory.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cosmos_outbox.http import problems
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.http.calls import Call
from cosmos_outbox.http.message import Answer, Handler, Request
from cosmos_outbox.http.problems import ProblemKind
from cosmos_outbox.http.responses import problem, unless_known
from cosmos_outbox.settings.errors import EXTRAS

ROUTES = ("openapi.json", "docs", "docs/{file}", "problems/{kind}")
"""The paths that the document does not describe."""

_HERE = Path(__file__).parent
_ASSETS = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)

_answering = Answering(log_every_seconds=60)


def document_calls(
    document: Callable[[str], Mapping[str, Any]], kinds: Callable[[], Mapping[str, ProblemKind]]
) -> Iterator[Call]:
    """Yields the calls; ``document(base)`` returns the API's document, and is called at the first request."""

    @functools.lru_cache(maxsize=8)  # a program mounts an API at few base paths
    def made(base: str) -> bytes:
        return json.dumps(document(base)).encode()

    async def openapi(req: Request) -> Answer:
        return kept(req, made(req.base), "application/json")

    yield _call("get_openapi", "openapi.json", openapi, "the document of this API, OpenAPI 3.1")

    async def docs(req: Request) -> Answer:
        path = urlsplit(req.url).path
        if path.endswith("/"):  # the Functions host accepts it, and it breaks relative addresses
            return Answer(308, headers={"Location": path.rstrip("/"), "Cache-Control": "no-store"})
        if _folder() is None:
            package = EXTRAS["docs"][_PACKAGE]
            return problem(
                404,
                "Not installed",
                f"This page needs {package}: install cosmos-outbox[docs]. openapi.json is beside it.",
            )
        return kept(req, _asset(_HERE / "docs.html"), "text/html")

    yield _call("get_docs", "docs", docs, "a page to read and try this API")

    async def docs_file(req: Request) -> Answer:
        name, folder = req.route["file"], _folder()
        if name == "start.js":
            return kept(req, _asset(_HERE / "docs.js"), "text/javascript")
        if folder is None or name not in _ASSETS:
            return problem(404, "Not found", "The page has no such file.")
        return kept(req, _asset(folder / name), _ASSETS[name])

    yield _call("get_docs_file", "docs/{file}", docs_file, "a file of that page")

    yield problem_call(kinds)


def problem_call(kinds: Callable[[], Mapping[str, ProblemKind]]) -> Call:
    """Returns the call that serves the pages to which the ``type`` of a problem links."""

    async def explain(req: Request) -> Answer:
        if kind := kinds().get(req.route["kind"]):
            return problems.page(kind)
        return problem(404, "Not found", "There is no such kind of problem.")

    return _call("get_problem", f"{problems.PATH}/{{kind}}", explain, "what a kind of problem means")


def _call(name: str, route: str, handler: Handler, summary: str) -> Call:
    honours = ("If-None-Match",)
    return Call(name, "GET", route, _answering.accepting(*honours)(handler), summary, honours)


def kept(req: Request, body: bytes, media_type: str, policy: str = _POLICY) -> Answer:
    """Returns 200 with a body that caches may store but must revalidate; 304 if the caller has this version."""
    headers = {
        "ETag": f'W/"{hashlib.sha256(body).hexdigest()[:32]}"',
        "Cache-Control": "no-cache",
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    return unless_known(req, Answer(200, body, headers, media_type))


[_PACKAGE] = EXTRAS["docs"]


def _folder() -> Path | None:
    """Finds the files of Swagger UI without importing their package, which is for another framework."""
    found = find_spec(_PACKAGE)
    places = found.submodule_search_locations if found else None
    return Path(places[0]) / "resources" if places else None


@functools.cache
def _asset(path: Path) -> bytes:
    return path.read_bytes()
