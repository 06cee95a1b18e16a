"""The operations page is one document without data: what it shows comes from calls that need the admin key.

The page is open, since a browser cannot send a key when it opens a page. Its policy lets the browser run and load
nothing but what is in the document itself, named by digests, and lets it ask nobody but this service. The files beside
this module are what an editor and a browser know; they are put together once, at the first request.
"""

import base64
import functools
import hashlib
from pathlib import Path

from cosmos_outbox.http.documents import kept
from cosmos_outbox.http.message import Answer, Request

_FOLDER = Path(__file__).parent
_STYLE, _SCRIPT = "/* style.css */", "/* script */"
"""The marks in index.html that the other files replace."""

SCRIPTS = ("dom", "service", "work", "events", "stuck", "views", "main")
"""The parts of the one script, in their order: each uses what stands before it."""


@functools.cache
def page() -> tuple[bytes, str]:
    """The document, put together, and the policy under which a browser shows it."""
    html, style = ((_FOLDER / name).read_text("utf-8") for name in ("index.html", "style.css"))
    script = "\n".join((_FOLDER / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    assert html.count(_STYLE) == html.count(_SCRIPT) == 1, "index.html has one place for each"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; connect-src 'self'; "
        "img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return html.replace(_STYLE, style).replace(_SCRIPT, script).encode(), policy


def shown(req: Request) -> Answer:
    """200 with the page, or 304 when the browser has this version."""
    html, policy = page()
    powers = {
        "X-Content-Type-Options": "nosniff", "Permissions-Policy": "camera=(), geolocation=(), microphone=()"
    }  # fmt: skip
    return kept(req, html, "text/html", policy).with_headers(powers)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
