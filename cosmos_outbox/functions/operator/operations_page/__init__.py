"""The operations page is one document without data: what it shows comes from calls that need the admin key.

The page is open, since a browser cannot send a key when it opens a page. Its policy lets the browser run and load
nothing but what is in the document itself, told by digests, and lets it ask nobody but this service. The files beside
this module are what an editor and a browser know; they are put together once, at the first request.
"""

import base64
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.responses import unless_known

_FOLDER = Path(__file__).parent
_STYLE, _SCRIPT = "/* style.css */", "/* script */"
"""Where index.html wants the other files."""

SCRIPTS = ("dom", "service", "rates", "work", "list", "events", "lists", "subscribers", "views", "main")
"""The parts of the one script, in their order: each uses what stands before it."""


@dataclass(frozen=True)
class PageDocument:
    """The document, its version and the policy under which a browser shows it."""

    html: str
    etag: str
    policy: str


@functools.cache
def page() -> PageDocument:
    """The document, put together."""
    html, style = ((_FOLDER / name).read_text("utf-8") for name in ("index.html", "style.css"))
    script = "\n".join((_FOLDER / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    assert html.count(_STYLE) == html.count(_SCRIPT) == 1, "index.html has one place for each"
    html = html.replace(_STYLE, style).replace(_SCRIPT, script)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "connect-src 'self'",
            "img-src data:",
            "form-action 'none'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return PageDocument(html, f'W/"{hashlib.sha256(html.encode()).hexdigest()[:32]}"', policy)


def shown(req: Request) -> Answer:
    """200 with the page, or 304 when the browser has this version."""
    found = page()
    headers = {
        "ETag": found.etag,
        "Cache-Control": "no-cache",
        "Content-Security-Policy": found.policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    }
    return unless_known(req, Answer(200, found.html.encode(), headers, "text/html"))


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
