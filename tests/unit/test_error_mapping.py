"""Each error of the SDKs has a meaning here; a new error of an SDK fails a test until somebody gives it a meaning."""

import inspect

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from azure.cosmos import exceptions as cosmos
from azure.servicebus import exceptions as servicebus
from azure.servicebus._pyamqp.error import AMQPLinkError, ErrorCondition, MessageException, MessageSendFailed

from cosmos_outbox.cosmos.store.client import Attempts
from cosmos_outbox.cosmos.store.errors import Failure, Kind, classify
from cosmos_outbox.outbox.errors import FailureReason, Throttled, Unavailable
from cosmos_outbox.servicebus.errors import (
    HINDRANCES,
    SDK_ERRORS,
    VERDICTS,
    Verdict,
    error_type,
    is_answer,
    verdict,
)
from cosmos_outbox.settings.errors import Misconfigured


class Response:
    """As much of a response as the SDK's errors read."""

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers
        self.status_code = 0
        self.reason = ""

    def text(self) -> str:
        return ""


def http_error(status: int, **headers: str) -> cosmos.CosmosHttpResponseError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return cosmos.CosmosHttpResponseError(
        status_code=status, message="m", response=Response(named) if named else None
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (http_error(400), Kind.INVALID),
        (http_error(401), Kind.DENIED),
        (http_error(403), Kind.DENIED),
        (http_error(403, x_ms_substatus="3"), Kind.PASSING),
        (http_error(403, x_ms_substatus="1008"), Kind.PASSING),
        (http_error(403, x_ms_substatus="1014"), Kind.DENIED),
        (cosmos.CosmosResourceNotFoundError(status_code=404, message="m"), Kind.MISSING),
        (http_error(404, x_ms_substatus="1002"), Kind.BEHIND),
        (http_error(404, x_ms_substatus="1003"), Kind.NO_CONTAINER),
        (http_error(408), Kind.PASSING),
        (cosmos.CosmosResourceExistsError(status_code=409, message="m"), Kind.CONFLICT),
        (http_error(410, x_ms_substatus="1002"), Kind.PASSING),
        (cosmos.CosmosAccessConditionFailedError(status_code=412, message="m"), Kind.STALE),
        (http_error(413), Kind.TOO_LARGE),
        (http_error(429), Kind.THROTTLED),
        (http_error(449), Kind.PASSING),
        (http_error(500), Kind.PASSING),
        (http_error(503), Kind.PASSING),
        (http_error(599), Kind.PASSING),
        (cosmos.CosmosBatchOperationError(0, {}, 409, "m", []), Kind.CONFLICT),
        (cosmos.CosmosBatchOperationError(0, {}, 412, "m", []), Kind.STALE),
        (cosmos.CosmosBatchOperationError(0, {}, 404, "m", []), Kind.MISSING),
        (cosmos.CosmosBatchOperationError(0, {}, 400, "m", []), Kind.INVALID),
        (cosmos.CosmosBatchOperationError(0, {}, 449, "m", []), Kind.PASSING),
        (cosmos.CosmosClientTimeoutError(), Kind.PASSING),
        (ServiceRequestError("no connection"), Kind.PASSING),
        (ServiceResponseError("answer lost"), Kind.PASSING),
        (ClientAuthenticationError("no token"), Kind.DENIED),
        (TimeoutError(), Kind.PASSING),
        (ConnectionResetError(), Kind.PASSING),
    ],
)
def test_cosmos(error: Exception, kind: Kind) -> None:
    assert classify(error).kind is kind


@pytest.mark.parametrize(("reported", "seconds"), [("250", 0.25), (None, 1.0), ("soon", 1.0)])
def test_without_a_readable_time_a_throttled_client_waits_a_second(
    reported: str | None, seconds: float
) -> None:
    headers = {} if reported is None else {"x_ms_retry_after_ms": reported}
    error = classify(http_error(429, **headers)).error()
    assert isinstance(error, Throttled)
    assert error.retry_after_seconds == seconds


def test_what_was_answered_is_reported_and_that_nothing_was() -> None:
    answered = classify(http_error(503))
    assert (answered.status, answered.detail) == (503, "CosmosHttpResponseError 503/0")
    for error in (cosmos.CosmosHttpResponseError(message="m"), TimeoutError()):
        assert classify(error).status == 0


@pytest.mark.parametrize(
    ("status", "kind", "names"),
    [
        (403, Unavailable, "Data Contributor"),
        (403, Unavailable, "20 GB"),
        (400, Misconfigured, "400"),
        (413, Misconfigured, "preflight"),
        (503, Unavailable, "later"),
    ],
)
def test_cosmos_failures_say_what_to_do(status: int, kind: type[Exception], names: str) -> None:
    error = classify(http_error(status)).error()
    assert isinstance(error, kind)
    assert names in str(error)


def test_no_cosmos_error_class_is_unknown() -> None:
    """A new one: decide in ``cosmos_outbox/cosmos/store/errors.py`` what it means for a write, then list it here."""
    assert {
        name
        for name, kind in inspect.getmembers(cosmos, inspect.isclass)
        if kind.__module__ == cosmos.__name__
    } == {
        "CosmosAccessConditionFailedError",
        "CosmosBatchOperationError",
        "CosmosClientTimeoutError",
        "CosmosHttpResponseError",
        "CosmosResourceExistsError",
        "CosmosResourceNotFoundError",
        "_InternalCosmosException",
    }


SERVICEBUS_ERRORS = [
    kind
    for _, kind in inspect.getmembers(servicebus, inspect.isclass)
    if issubclass(kind, Exception) and kind.__module__ == servicebus.__name__
]


def test_no_servicebus_error_class_is_unknown() -> None:
    assert set(SERVICEBUS_ERRORS) <= set(VERDICTS)


@pytest.mark.parametrize("kind", SERVICEBUS_ERRORS)
def test_only_the_size_of_a_message_is_final(kind: type[Exception]) -> None:
    wants_message = kind in (
        servicebus.ServiceBusError,
        servicebus.AutoLockRenewFailed,
        servicebus.AutoLockRenewTimeout,
    )
    error = kind("m") if wants_message else kind()
    found, reason = verdict(error)
    assert (found is Verdict.NEVER) == (kind is servicebus.MessageSizeExceededError)
    assert kind.__name__ in reason
    assert isinstance(error, SDK_ERRORS)


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionResetError(), ValueError("shut down"), ClientAuthenticationError()]
)
def test_errors_from_below_wait(error: Exception) -> None:
    assert verdict(error)[0] in (Verdict.WAIT, Verdict.MEND)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (servicebus.ServiceBusServerBusyError(), "broker_throttles"),
        (servicebus.ServiceBusQuotaExceededError(), "broker_refuses"),
        (servicebus.MessagingEntityNotFoundError(), "broker_refuses"),
        (servicebus.MessagingEntityDisabledError(), "broker_refuses"),
        (servicebus.ServiceBusAuthorizationError(), "broker_refuses"),
        (ClientAuthenticationError(), "broker_refuses"),
        (servicebus.ServiceBusConnectionError(), "broker_away"),
        (servicebus.OperationTimeoutError(), "broker_away"),
        (ConnectionResetError(), "broker_away"),
    ],
)
def test_what_holds_events_up_is_reported_by_its_kind(error: Exception, why: str) -> None:
    assert HINDRANCES.get(verdict(error)[0], FailureReason.BROKER_AWAY) == why


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (b"amqp:not-allowed", Verdict.NOT_TOGETHER),
        (ErrorCondition.NotAllowed, Verdict.NOT_TOGETHER),
        (b"com.microsoft:argument-error", Verdict.NEVER),
        (b"amqp:internal-error", Verdict.WAIT),
        (b"com.microsoft:new-in-some-year", Verdict.WAIT),
    ],
)
def test_an_answer_without_an_error_class_is_known_by_its_condition(
    condition: bytes, expected: Verdict
) -> None:
    answer = MessageException(condition, description="no")
    error = servicebus.ServiceBusError("no", error=answer, condition=condition)
    assert verdict(error)[0] is expected


class Denied(Exception):
    """As the service answers a token for an entity that does not exist, or may not be used."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (servicebus.MessagingEntityNotFoundError(), True),
        (servicebus.ServiceBusAuthenticationError(error=Denied(404)), True),
        (servicebus.ServiceBusAuthenticationError(error=Denied(401)), False),
        (servicebus.ServiceBusAuthenticationError(), False),
    ],
)
def test_what_does_not_exist_is_named_with_what_to_do(error: Exception, *, missing: bool) -> None:
    kind, reason = verdict(error, "topic events (SERVICEBUS_TOPIC)")
    assert kind is Verdict.MEND
    create = "topic events (SERVICEBUS_TOPIC) does not exist: create it as the deployment does"
    assert reason.startswith(create) is missing
    assert error_type(error) == type(MISSING if missing else error).__name__


MISSING = servicebus.MessagingEntityNotFoundError()
BUSY, FULL = b"com.microsoft:server-busy", ErrorCondition.ResourceLimitExceeded


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (servicebus.ServiceBusServerBusyError(error=MessageException(BUSY)), True),
        (servicebus.ServiceBusQuotaExceededError(error=MessageSendFailed(FULL)), True),
        (servicebus.ServiceBusError("no", error=MessageSendFailed(ErrorCondition.NotAllowed)), True),
        (servicebus.ServiceBusQuotaExceededError(error=AMQPLinkError(FULL)), False),
        (servicebus.ServiceBusConnectionError(error=MessageSendFailed(ErrorCondition.UnknownError)), False),
        (servicebus.OperationTimeoutError(error=MessageException(b"com.microsoft:timeout")), False),
        (servicebus.OperationTimeoutError(), False),
        (servicebus.MessageSizeExceededError(), False),
        (TimeoutError(), False),
        (ValueError(), False),
    ],
)
def test_an_answer_to_a_send_is_distinguished_from_the_end_of_its_link(
    error: Exception, *, expected: bool
) -> None:
    assert is_answer(error) is expected


@pytest.mark.parametrize(
    ("attempts", "failure", "kind", "lost"),
    [
        (Attempts(throttled=True), Failure(Kind.PASSING, "late"), Kind.THROTTLED, False),
        (Attempts(throttled=True, answer_lost=True), Failure(Kind.PASSING, "late"), Kind.PASSING, True),
        (Attempts(throttled=True, succeeded=True), Failure(Kind.PASSING, "late"), Kind.PASSING, True),
        (Attempts(), Failure(Kind.PASSING, "late"), Kind.PASSING, False),
        (Attempts(), Failure(Kind.STALE, "412", status=412), Kind.STALE, False),
        (Attempts(), Failure(Kind.CONFLICT, "409"), Kind.CONFLICT, False),
        (Attempts(answer_lost=True), Failure(Kind.CONFLICT, "409", status=409), Kind.CONFLICT, True),
        (Attempts(), Failure(Kind.PASSING, "503", status=503), Kind.PASSING, True),
        (Attempts(), Failure(Kind.PASSING, "449", status=449), Kind.PASSING, False),
    ],
)
def test_whether_a_failed_batch_may_be_stored_is_reported(
    attempts: Attempts, failure: Failure, kind: Kind, *, lost: bool
) -> None:
    found = attempts.outcome(failure)
    assert (found.kind, found.answer_lost) == (kind, lost)
