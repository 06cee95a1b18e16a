"""What is read and is large goes as gzip where its caller takes that, and each version has one ETag all the same.

A strong ETag names the very bytes, of which each coding has others (RFC 9110, 8.8.3), and a change names that ETag in
``If-Match``: so what has one goes as it is; it is one resource, and small. A weak one, or none, fits every coding.

Why not the platform: ``docs/internals/decisions/0028``.
"""

import gzip
import re
from dataclasses import replace

from cosmos_outbox.http.message import Answer, Request

LEAST_BYTES = 1_400
"""Less fits one packet as it is."""

_LEVEL = 3
"""A page of 50 entries shrinks to less than a fifth in 0.1 ms; level 6 saves a tenth more, for almost twice that."""
_TEXT = re.compile(r"text/.*|application/(.*\+)?(json|xml)")
_WEIGHT = re.compile(r"\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE)


def packed(request: Request, answer: Answer) -> Answer:
    """The answer to who reads, as the caller takes it; HEAD and a 304 tell the same as GET."""
    headers = answer.headers
    is_strong = not headers.get("ETag", "W/").startswith("W/")
    if is_strong or "Content-Encoding" in headers:
        return answer
    varying = ", ".join(filter(None, (headers.get("Vary"), "Accept-Encoding")))
    told = answer.with_headers({"Vary": varying})
    if len(answer.body) < LEAST_BYTES or not _TEXT.fullmatch(answer.media_type):
        return told
    if not takes_gzip(request) or _is_lured(request):
        return told
    body = gzip.compress(answer.body, _LEVEL, mtime=0)
    return replace(told.with_headers({"Content-Encoding": "gzip"}), body=body)


def takes_gzip(request: Request) -> bool:
    """Whether the caller asks for gzip, and not rather for what is not packed (RFC 9110, 12.5.3)."""
    weights = dict(_weighed(each) for each in request.headers.get("Accept-Encoding", "").split(","))
    weight = weights.get("gzip", weights.get("*", 0.0))
    return weight > 0 and weight >= weights.get("identity", 0.0)


def _is_lured(request: Request) -> bool:
    """Whether a page of another site makes a browser ask that signs in by cookie.

    The page gets no answer, but may choose a part of it (``nextLink``): to who sees the length of what is packed, that
    tells letters of the rest, guess by guess (BREACH).
    """
    return "Cookie" in request.headers and request.headers.get("Sec-Fetch-Site") == "cross-site"


def _weighed(element: str) -> tuple[str, float]:
    """A coding and its weight; 0 for one that cannot be read."""
    coding, semicolon, rest = element.partition(";")
    found = _WEIGHT.fullmatch(rest)
    return coding.strip().lower(), float(found[1]) if found else 0.0 if semicolon else 1.0
