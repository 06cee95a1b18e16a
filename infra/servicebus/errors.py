"""The one edge where the Service Bus SDK's errors become ours: "this message never" or "not now".

Only the size of a message is final. Everything else, a full topic, a missing one or a missing role too, can be mended
by an operator while the events wait in the store; treating it as final would lose them. What is not listed waits.
"""

import asyncio
from enum import Enum

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus import exceptions as sdk

SDK_ERRORS = (AzureError, asyncio.TimeoutError, OSError, ValueError)
"""What a call of the SDK can raise; a ValueError among it says that the client was closed under the call's feet."""

NO_ANSWER = (sdk.OperationTimeoutError, asyncio.TimeoutError)
"""Those of them that say that Service Bus was silent for as long as a call may take."""


class Verdict(Enum):
    """What a failed send means for the events in it."""

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
    ClientAuthenticationError: (Verdict.WAIT, "no token could be had for Service Bus"),
    # What only receivers and the management API raise: should a sender ever meet one, the events wait.
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
"""The nearest class of an error decides. A test compares this with the SDK's own list of errors."""


def verdict(error: BaseException) -> tuple[Verdict, str]:
    """What an error out of ``SDK_ERRORS`` means, and what an operator should know."""
    for kind in type(error).__mro__:
        if kind in VERDICTS:
            found, reason = VERDICTS[kind]
            return found, f"{reason} ({type(error).__name__})"
    return Verdict.WAIT, f"Service Bus cannot be used ({type(error).__name__})"
