"""Classifies the Service Bus SDK's errors: "this message never", "not in one batch" or "not now".

Only a fault of the message itself is final: its size, or a value that the service does not accept. An operator can
repair everything else, such as a full or missing topic or a missing role, while the events wait in the store; treating
such an error as final would lose events. After an error that is not listed, the events wait.
"""

import asyncio
from enum import Enum

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus import exceptions as sdk
from azure.servicebus._pyamqp.error import MessageException  # a test pins when it is raised

from cosmos_outbox.outbox.errors import FailureReason

SDK_ERRORS = (AzureError, asyncio.TimeoutError, OSError, ValueError)
"""The errors that a call of the SDK can raise. A ValueError means that the client was closed during the call, if all
messages of the call can be encoded (:func:`cosmos_outbox.servicebus.message.is_encodable`)."""


class Verdict(Enum):
    """The consequence of a failed send for its events."""

    NEVER = "the topic will never take one of these messages"
    NO_MESSAGE = "the SDK cannot encode one of these messages"
    NOT_TOGETHER = "the topic does not take these messages in one batch"
    WAIT = "send them again later"
    BUSY = "send them again later: there were too many"
    MEND = "send them again when somebody has corrected the topic or the settings"


TOO_LARGE = "the message is larger than the topic takes"

IMPOSSIBLE = "the SDK cannot make a message of it: see the limits of Service Bus"

_NOT_FOUND = 404
"""The status of the service's response to a token for an entity that does not exist."""

_OUTCOME_UNKNOWN = (sdk.ServiceBusConnectionError, sdk.OperationTimeoutError)

VERDICTS: dict[type[BaseException], tuple[Verdict, str]] = {
    sdk.MessageSizeExceededError: (Verdict.NEVER, TOO_LARGE),
    sdk.ServiceBusConnectionError: (Verdict.WAIT, "Service Bus cannot be reached"),
    sdk.ServiceBusCommunicationError: (Verdict.WAIT, "Service Bus cannot be reached"),
    sdk.OperationTimeoutError: (Verdict.WAIT, "Service Bus did not answer in time"),
    sdk.ServiceBusServerBusyError: (Verdict.BUSY, "Service Bus is busy"),
    sdk.ServiceBusQuotaExceededError: (Verdict.MEND, "the topic is full, or has too many connections"),
    sdk.ServiceBusAuthenticationError: (Verdict.MEND, "Service Bus refuses the key or token in SERVICEBUS"),
    sdk.ServiceBusAuthorizationError: (
        Verdict.MEND,
        "the identity needs the role Azure Service Bus Data Sender",
    ),
    sdk.MessagingEntityNotFoundError: (Verdict.MEND, "does not exist"),
    sdk.MessagingEntityDisabledError: (Verdict.MEND, "the topic is disabled"),
    ClientAuthenticationError: (Verdict.MEND, "no token for Service Bus could be obtained"),
    # Only receivers and the management API raise these errors; if a send does, the events wait.
    sdk.MessagingEntityAlreadyExistsError: (Verdict.WAIT, "unexpected answer"),
    sdk.MessageLockLostError: (Verdict.WAIT, "unexpected answer"),
    sdk.MessageNotFoundError: (Verdict.WAIT, "unexpected answer"),
    sdk.SessionLockLostError: (Verdict.WAIT, "unexpected answer"),
    sdk.SessionCannotBeLockedError: (Verdict.WAIT, "unexpected answer"),
    sdk.AutoLockRenewFailed: (Verdict.WAIT, "unexpected answer"),
    sdk.AutoLockRenewTimeout: (Verdict.WAIT, "unexpected answer"),
    sdk.MessageAlreadySettled: (Verdict.WAIT, "unexpected answer"),
    sdk.ServiceBusError: (Verdict.WAIT, "Service Bus failed"),
    TimeoutError: (Verdict.WAIT, "Service Bus did not answer in time"),
    ValueError: (Verdict.WAIT, "the client was closed"),
}
"""The most derived class of an error wins. A test compares this table with the SDK's own list of errors."""


HINDRANCES = {Verdict.BUSY: FailureReason.BROKER_THROTTLES, Verdict.MEND: FailureReason.BROKER_REFUSES}
"""The reason for a delay of events, for verdicts that do not mean that the broker is unavailable."""

CONDITIONS: dict[bytes, tuple[Verdict, str]] = {
    b"amqp:not-allowed": (
        Verdict.NOT_TOGETHER,
        "the topic refuses the batch: if the topic is partitioned, set SERVICEBUS_TOPIC_PARTITIONED=true",
    ),
    b"com.microsoft:argument-error": (
        Verdict.NEVER,
        "a value in the message is outside the limits of Service Bus",
    ),
}
"""The verdicts on AMQP conditions for which the SDK has no error class."""


NAMED_IN_SETTINGS = "the topic in SERVICEBUS_TOPIC, or the subscription in SERVICEBUS_SUBSCRIPTION,"


def verdict(error: BaseException, entity: str = NAMED_IN_SETTINGS) -> tuple[Verdict, str]:
    """Returns the verdict on an error of ``SDK_ERRORS``, and the reason for an operator to read.

    ``entity``: the topic, queue or subscription in words, with its name.
    """
    if is_missing(error):
        return Verdict.MEND, missing(entity, type(error).__name__)
    if type(error) is sdk.ServiceBusError and (answer := _condition(error)) in CONDITIONS:
        return CONDITIONS[answer]
    for kind in type(error).__mro__:
        if kind in VERDICTS:
            found, reason = VERDICTS[kind]
            return found, f"{reason} ({type(error).__name__})"
    return Verdict.WAIT, f"Service Bus cannot be used ({type(error).__name__})"


def is_missing(error: BaseException) -> bool:
    """Whether the topic or subscription does not exist: the SDK reports some cases as authentication errors."""
    if isinstance(error, sdk.MessagingEntityNotFoundError):
        return True
    if not isinstance(error, sdk.ServiceBusAuthenticationError):
        return False
    return getattr(error.inner_exception, "status_code", None) == _NOT_FOUND


def missing(entity: str, detail: str) -> str:
    """Returns the reason and the remedy, for an operator to read."""
    return f"{entity} does not exist: create it as the deployment does, or correct the name in the settings ({detail})"


def is_answer(error: BaseException) -> bool:
    """Whether a send failed because the topic refused it, so that connection and link remain usable."""
    if not isinstance(error, sdk.ServiceBusError) or isinstance(error, _OUTCOME_UNKNOWN):
        return False
    # Only an error about the message itself is one: when a link or a connection ends, the SDK raises other classes.
    return isinstance(error.inner_exception, MessageException)


def error_type(error: BaseException) -> str:
    """Returns the error's name for a metric: one of the few in the tables above."""
    if type(error) is sdk.ServiceBusError and (answer := _condition(error)) in CONDITIONS:
        return answer.decode()
    if is_missing(error):
        return sdk.MessagingEntityNotFoundError.__name__
    return next((kind.__name__ for kind in type(error).__mro__ if kind in VERDICTS), "other")


def _condition(error: sdk.ServiceBusError) -> bytes:
    """Returns the AMQP condition of the service's response; empty if there was none."""
    # Either bytes, or a member of an enumeration of the SDK whose members are bytes.
    return bytes(getattr(error.inner_exception, "condition", b""))
