"""The Service Bus SDK's errors become ours in this one module: "this message never" or "not now".

Only the size of a message is final. An operator can repair everything else, such as a full topic, a missing topic or a
missing role, while the events wait in the store; to treat such an error as final would lose events. After an error that
is not listed, the events wait.
"""

import asyncio
from enum import Enum

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus import exceptions as sdk

SDK_ERRORS = (AzureError, asyncio.TimeoutError, OSError, ValueError)
"""What a call of the SDK can raise; a ValueError says that the client was closed during the call."""

NO_ANSWER = (sdk.OperationTimeoutError, asyncio.TimeoutError)
"""Those of them that say that Service Bus was silent for as long as a call may take."""


class Verdict(Enum):
    """The meaning of a failed send for its events."""

    TOO_LARGE = "the message is larger than the topic takes"
    WAIT = "send it again later"


VERDICTS: dict[type[BaseException], tuple[Verdict, str]] = {
    sdk.MessageSizeExceededError: (Verdict.TOO_LARGE, ""),
    sdk.ServiceBusConnectionError: (Verdict.WAIT, "Service Bus cannot be reached"),
    sdk.ServiceBusCommunicationError: (Verdict.WAIT, "Service Bus cannot be reached"),
    sdk.OperationTimeoutError: (Verdict.WAIT, "Service Bus did not answer in time"),
    sdk.ServiceBusServerBusyError: (Verdict.WAIT, "Service Bus is busy"),
    sdk.ServiceBusQuotaExceededError: (Verdict.WAIT, "the topic is full, or has too many connections"),
    sdk.ServiceBusAuthenticationError: (Verdict.WAIT, "Service Bus refuses the key or token in SERVICEBUS"),
    sdk.ServiceBusAuthorizationError: (
        Verdict.WAIT,
        "the identity needs the role Azure Service Bus Data Sender",
    ),
    sdk.MessagingEntityNotFoundError: (Verdict.WAIT, "the topic in SERVICEBUS_TOPIC does not exist"),
    sdk.MessagingEntityDisabledError: (Verdict.WAIT, "the topic is disabled"),
    ClientAuthenticationError: (Verdict.WAIT, "no token for Service Bus could be obtained"),
    # Only receivers and the management API raise these errors: if a send meets one, the events wait.
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
"""The nearest class of an error decides. A test compares this table with the SDK's own list of errors."""


def verdict(error: BaseException) -> tuple[Verdict, str]:
    """The meaning of an error out of ``SDK_ERRORS``, and the reason for an operator to read."""
    for kind in type(error).__mro__:
        if kind in VERDICTS:
            found, reason = VERDICTS[kind]
            return found, f"{reason} ({type(error).__name__})"
    return Verdict.WAIT, f"Service Bus cannot be used ({type(error).__name__})"
