"""Turns every error into a problem document; no caller gets a stack trace."""

import functools
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from cosmos_outbox.http import problems, request
from cosmos_outbox.http.message import READING, Answer, Handler, Headers, Request, below
from cosmos_outbox.http.problems import (
    FieldError,
    InvalidRequest,
    ProblemKind,
    RequestTooLarge,
    UnsupportedMediaType,
)
from cosmos_outbox.http.responses import packed, problem
from cosmos_outbox.inbox import errors as of_inbox
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.loops import own_failures
from cosmos_outbox.outbox import errors as of_outbox
from cosmos_outbox.settings.errors import Misconfigured, Overloaded
from cosmos_outbox.telemetry.correlation import correlated

StatusOf = Sequence[tuple[type[Exception], int, str]]
"""Errors with the status and title of their responses. The first match wins, so a class precedes its base."""

_WRONG = (InvalidRequest, of_outbox.UnknownContinuation, of_outbox.Unpublishable)
_NOT_THERE = (of_outbox.AggregateNotFound, of_outbox.NotStuck)
_NOT_NOW = (
    *(of_outbox.NotInTheWay, of_outbox.BeingReplayed, of_outbox.StillUnsendable),
    *(of_inbox.NotApplied, of_inbox.OutOfOrder, of_inbox.RecordChanged),
)
_AWAY = (of_outbox.Unavailable, of_outbox.NotDelivered, of_inbox.StoreUnavailable, of_inbox.ConcurrentUpdate)

STATUS_OF: StatusOf = [
    (UnsupportedMediaType, 415, "Unsupported media type"),
    (RequestTooLarge, 413, "Content too large"),
    (of_outbox.ChangeTooLarge, 413, "Content too large"),
    *((kind, 400, "Invalid request") for kind in _WRONG),
    *((kind, 404, "Not found") for kind in _NOT_THERE),
    *((kind, 409, "Conflict") for kind in _NOT_NOW),
    (of_outbox.PreconditionFailed, 412, "Precondition failed"),
    (of_outbox.AlreadyExists, 409, "Already exists"),
    (of_outbox.ConcurrentChange, 409, "Concurrent change"),
    (of_outbox.IdempotencyKeyReused, 422, "Idempotency key reused"),
    (of_outbox.AnswerErased, 410, "Gone"),
    (of_outbox.RefusedBefore, 409, "Refused before"),
    (of_outbox.Throttled, 429, "Too many requests"),
    *((kind, 503, "Service unavailable") for kind in _AWAY),
    (Overloaded, 503, "Service overloaded"),
    (Misconfigured, 500, "Service misconfigured"),
]
"""The errors of every service; a service adds its own errors with :class:`Answering`."""

RETRYABLE = (429, 503)
"""The statuses whose responses carry ``Retry-After``, rounded up."""

DEFAULT_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Access-Control-Expose-Headers": "ETag, Last-Modified, Location, Written, Retry-After, Idempotency-Replayed, "
    f"{request.CORRELATION_HEADER}, Allow, Accept, Accept-Patch, Accept-Encoding",
}
"""Default headers of every response. A cache may store any response that does not forbid it, even a 404. Once the
platform allows another origin (CORS), its pages can read only these headers and the CORS-safelisted ones.
"""

_log = logging.getLogger(__name__)


def status_of(errors: Mapping[type[Exception], int]) -> StatusOf:
    """Orders errors that are declared with only a status, each class before its base.

    The title is the error's name in words; its problem page shows its docstring.
    """
    ordered = sorted(errors.items(), key=lambda each: -len(each[0].__mro__))
    return [(kind, status, problems.title_of(kind)) for kind, status in ordered]


def kinds_of(errors: Iterable[Mapping[type[Exception], int]]) -> Mapping[str, ProblemKind]:
    """Returns, by name, the kinds of problems of calls that declare these errors, with the common ones."""
    return problems.kinds([*(each for own in errors for each in status_of(own)), *STATUS_OF])


class Answering:
    """A decorator for request handlers: turns an error that the handler raises into a response with its status.

    ``own`` lists the errors of one service, each with the status and title of its response; they precede the common
    ones. ``check_load`` is called before each change, and raises Overloaded while the service accepts none.
    ``log_every_seconds`` is for calls without a key: an error of one kind is logged at most once in this time, so
    that an anonymous caller cannot flood the log.
    """

    def __init__(
        self,
        own: StatusOf = (),
        *,
        check_load: Callable[[], None] | None = None,
        log_every_seconds: float = 0.0,
    ) -> None:
        self._status_of: StatusOf = [*own, *STATUS_OF]
        self._check_load = check_load
        self._log_every_seconds = log_every_seconds
        self._logged_at: dict[type[Exception], float] = {}

    def __call__(self, handler: Handler) -> Handler:
        """Wraps a handler that supports no header of ``HONOURED``: neither conditions nor an idempotency key."""
        return self.accepting()(handler)

    def accepting(self, *headers: str) -> Callable[[Handler], Handler]:
        """As the decorator itself, for a handler that supports these headers of ``HONOURED``."""
        return functools.partial(self._answered, headers)

    def _answered(self, honoured: Sequence[str], handler: Handler) -> Handler:
        @functools.wraps(handler)
        async def answer_call(req: Request) -> Answer:
            correlation_id = request.correlation_id(req)
            with correlated(correlation_id), below(req.base):
                try:
                    request.refuse_unless(honoured, req)
                    if self._check_load is not None and req.method not in READING:
                        self._check_load()
                    with own_failures():
                        answer = await handler(req)
                except Exception as error:  # noqa: BLE001 - the edge: the caller gets a response to any error
                    answer = self.answer(error)
            defaults = Headers(DEFAULT_HEADERS, answer.headers)
            given = answer.with_headers({**defaults, request.CORRELATION_HEADER: correlation_id})
            return packed(req, given) if req.method in READING else given

        return answer_call

    def answer(self, error: Exception) -> Answer:
        """Returns the response to a request that ended with this error."""
        for kind, status, title in self._status_of:
            if isinstance(error, kind):
                # The load shedder logs an overload once; here it would be logged with each refusal.
                if status >= 500 and not isinstance(error, Overloaded):
                    self._report(error, "answered %d: %s", status, error)
                return _problem(error, status, title)
        text = "a request failed with an unexpected error, which is a bug: report the traceback"
        self._report(error, text, exc_info=error)
        return problem(500, "Internal error", "The service failed. The request may have had an effect.")

    def refusal_status(self, error: Exception) -> int | None:
        """Returns the status of an aggregate's refusal; None: the error is no refusal, but a bug."""
        found = next((status for kind, status, _ in self._status_of if isinstance(error, kind)), 500)
        return found if found < 500 else None

    def _report(
        self, error: Exception, text: str, *values: object, exc_info: Exception | None = None
    ) -> None:
        now, kind = monotonic(), type(error)
        logged_at = self._logged_at.get(kind)
        if logged_at is None or now - logged_at >= self._log_every_seconds:
            self._logged_at[kind] = now
            _log.error(text, *values, exc_info=exc_info)


def _problem(error: Exception, status: int, title: str) -> Answer:
    if isinstance(error, of_outbox.RefusedBefore):
        return problem(error.status, title, str(error))
    if isinstance(error, Misconfigured):
        return problem(status, title, "The service is not set up correctly; its log says what to change.")
    return problem(status, title, str(error), errors=_fields(error), headers=_headers(error, status))


def _fields(error: Exception) -> Sequence[FieldError]:
    if isinstance(error, InvalidRequest):
        return error.errors
    if isinstance(error, of_outbox.UnknownContinuation):
        return [FieldError("continuationToken", str(error), "unknown_token")]
    if isinstance(field := getattr(error, "field", None), str):  # a service's own error, about one field
        return [FieldError(field, str(error), problems.title_of(type(error)).lower().replace(" ", "_"))]
    return ()


def _headers(error: Exception, status: int) -> Mapping[str, str]:
    if isinstance(error, UnsupportedMediaType):
        return error.accepted
    seconds = getattr(error, "retry_after_seconds", 1.0 if status in RETRYABLE else None)
    return {} if seconds is None else {"Retry-After": str(max(1, math.ceil(seconds)))}
