"""Defines the kinds of problems; each has one stable name (in ``type``), one title and one page.

``type`` is a path below the API's base path, such as ``/api/problems/not-found``: it leads to the page wherever the
API is mounted (RFC 9457, 3.1.1).
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from http import HTTPStatus

from cosmos_outbox.http.message import Answer, base
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.errors import InfraError

PATH = "problems"
"""The parent path of the problem pages, below the API's root."""

UNKNOWN_PATH = "Unknown path"

_MEANINGS = {
    "Unsupported media type": "The body is of a kind that the call does not take. The header Accept, Accept-Patch or "
    "Accept-Encoding says what it takes.",
    "Content too large": "The body is over the limit, or no transaction can hold the change. Send less at a time.",
    "Invalid request": "The request breaks a rule. Each of errors names a field, the reason, and a code that stays the "
    "same when the words change. Correct them and send the request again.",
    "Not found": "What the path names is not there: it never was, or it was deleted.",
    UNKNOWN_PATH: "The service has nothing at this path, whatever it is asked for. Correct the address.",
    "Method not allowed": "The path takes other methods: the header Allow names them.",
    "Conflict": "What was asked for does not fit how things are now. Read again, and decide anew.",
    "Already exists": "What was to be created is there. Read it.",
    "Concurrent change": "Other writers changed it each time when this change was tried. Send the request again.",
    "Refused before": "The request with this Idempotency-Key was refused when it came first, and that stays its "
    "answer. Read again, and send a new request with a new key.",
    "Precondition failed": "It is at another version than the one that was asked for. Read again, and decide anew.",
    "Idempotency key reused": "The key came before, with another request. Send a new request with a new key.",
    "Gone": "The key was used, and what it created was deleted since.",
    "Too many requests": "The store asks to slow down, and nothing was stored. Send it again after Retry-After.",
    "Service unavailable": "The store cannot be used. The change may be stored all the same. Send the request again "
    "after Retry-After, with the same Idempotency-Key.",
    "Service overloaded": "Events wait for too long, so the service takes no changes. Nothing was stored. Send the "
    "request again after Retry-After.",
    "Service misconfigured": "A setting of the service is wrong. Its log says what to change.",
    "Internal error": "The service failed, which is a bug. The request may have had an effect.",
}
"""The meanings of the problems that any service may return, by title."""


@dataclass(frozen=True)
class ProblemKind:
    """A kind of problem, as its page describes it."""

    title: str
    status: int | None
    """None: it occurs with several."""
    meaning: str
    """The meaning of the problem, and the remedy."""

    @property
    def name(self) -> str:
        """The last part of ``type``."""
        return _name(self.title)


def type_of(title: str) -> str:
    """The ``type`` of problems with this title."""
    return f"{base()}/{PATH}/{_name(title)}"


def title_of(error: type[Exception]) -> str:
    """Returns the title of an error that a service declares: its name in words."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", error.__name__)
    return words.capitalize()


def kinds(status_of: Sequence[tuple[type[Exception], int, str]]) -> Mapping[str, ProblemKind]:
    """Returns, by name, the kinds of these errors and of the problems that have no error class."""
    without = (("Method not allowed", 405), ("Internal error", 500), (UNKNOWN_PATH, 404))
    found = [ProblemKind(title, status, _MEANINGS[title]) for title, status in without]
    for error, status, title in status_of:
        meaning = _MEANINGS.get(title) or (error.__doc__ or title).partition("\n\n")[0].replace("``", "")
        of = None if title == "Refused before" else status
        found.append(ProblemKind(title, of, " ".join(meaning.split())))
    return {each.name: each for each in reversed(found)}  # of two errors with one title the first wins


def page(kind: ProblemKind) -> Answer:
    """Returns the HTML page that explains the kind."""
    text = "The status of the first answer"
    if kind.status:
        text = f"{kind.status} {HTTPStatus(kind.status).phrase}"
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta name="color-scheme" content="light dark">'
        f"<title>{escape(kind.title)}</title><main><h1>{escape(kind.title)}</h1><p>{text}</p>"
        f"<p>{escape(kind.meaning)}</p></main></html>\n"
    )
    headers = {"Cache-Control": "max-age=3600", "Content-Security-Policy": "default-src 'none'"}
    return Answer(200, html.encode(), headers, "text/html")


def _name(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower())


LONGEST_NAME = 100
LONGEST_REASON = 300
"""In characters: the limits of one error's name and reason in a response."""


@dataclass(frozen=True)
class FieldError:
    """One wrong field of a request."""

    field: str
    """A path such as ``name.firstName``, the name of a header or query parameter, or ``body``."""
    reason: str
    """The rule for the field, for people to read."""
    code: str = "invalid"
    """The broken rule, for programs: it stays the same when the text changes."""

    def described(self) -> "FieldError":
        """Returns a copy truncated for a response: a caller may send a name as long as a body."""
        return FieldError(_cut(self.field, LONGEST_NAME), _cut(self.reason, LONGEST_REASON), self.code)


class RequestError(InfraError):
    """Base of every error of a wrong request."""


MOST_ERRORS = 100
"""The maximum number of wrong fields in a response: a small body may have thousands of them."""
_IN_THE_TEXT = 10
"""The maximum number of errors in the exception's text; ``errors`` has all of them."""


class InvalidRequest(RequestError):
    """The request breaks a rule; :attr:`errors` names every field that is wrong, up to ``MOST_ERRORS``."""

    def __init__(self, *errors: FieldError) -> None:
        self.errors = errors[:MOST_ERRORS]
        text = [
            f"{each.field}: {each.reason}" for each in (error.described() for error in errors[:_IN_THE_TEXT])
        ]
        more = [f"and {len(errors) - _IN_THE_TEXT} more"] if len(errors) > _IN_THE_TEXT else []
        super().__init__("; ".join(text + more))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class UnsupportedMediaType(InvalidRequest):
    """The body's type is not supported by this call; :attr:`accepted` is the header that lists the supported ones."""

    def __init__(self, *errors: FieldError, accepted: Mapping[str, str]) -> None:
        super().__init__(*errors)
        self.accepted = accepted


class RequestTooLarge(InvalidRequest):
    """The body is over the limit."""
