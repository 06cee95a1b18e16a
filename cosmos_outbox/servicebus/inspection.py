"""Reads the deployed topic and subscription, and changes nothing.

Reading an entity's properties needs the right to manage them: the claim Manage of a key, or the role Azure Service Bus
Data Owner (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas#rights-required-for-service-bus-operations).

The management API of a real namespace is called over TLS; the management API of an emulator without TLS.

``UseDevelopmentEmulator=true`` switches TLS off only for the AMQP side of azure-servicebus 7.15. The SDK's management
requests always go to ``https://``, but emulators serve them without TLS, on a port of their own
(https://learn.microsoft.com/azure/service-bus-messaging/overview-emulator).
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import timedelta
from typing import Any, Self

from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    SessionCannotBeLockedError,
)
from azure.servicebus.management import (
    QueueProperties,
    SubscriptionProperties,
    TopicProperties,
    TrueRuleFilter,
)

from cosmos_outbox.kernel.clock import monotonic, new_id
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.servicebus.client import in_time, receiver_of, servicebus_client
from cosmos_outbox.servicebus.errors import NAMED_IN_SETTINGS, SDK_ERRORS, is_missing, missing
from cosmos_outbox.settings.connections import Connection, Credential
from cosmos_outbox.settings.errors import CannotCheck, Denied, UnusableConnection, first_line

_ENDPOINT = re.compile(r"(?P<host>Endpoint=sb://[^:/;]+)(:\d+)?/?", re.IGNORECASE)
_RETRIES = 1


class _PlainHttp(AioHttpTransport):  # type: ignore[misc]  # azure.core exports the class without its type
    """Sends ``https://`` requests as ``http://``: an emulator's key is public, so no secret leaks."""

    async def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **options)


def administration_client(
    connection: Connection, credential: Credential | None, emulator_port: int
) -> ServiceBusAdministrationClient:
    """Returns a new client; the caller closes it. Raises ValueError for an incomplete connection string."""
    text = connection.connection_string
    if text is None:
        assert credential is not None
        return ServiceBusAdministrationClient(connection.address, credential, retry_total=_RETRIES)
    if "usedevelopmentemulator=true" not in text.lower():
        return ServiceBusAdministrationClient.from_connection_string(text, retry_total=_RETRIES)
    return ServiceBusAdministrationClient.from_connection_string(
        _ENDPOINT.sub(rf"\g<host>:{emulator_port}", text), transport=_PlainHttp(), retry_total=_RETRIES
    )


DEADLINE_SECONDS = 15.0
"""The maximum duration of one call, with its retries and a sign-in."""

_NO_NUMBER = 2**47
"""A well-formed sequence number that no message gets: the upper 16 bits are a partition
(https://learn.microsoft.com/azure/service-bus-messaging/message-sequencing)."""

_FOREVER = timedelta(days=3650)
"""A longer duration means "never": the service sends .NET's longest TimeSpan, some 29 000 years."""


@dataclass(frozen=True)
class TopicState:
    """A topic as it is deployed."""

    active: bool
    detects_duplicates: bool
    duplicate_window: timedelta
    partitioned: bool
    deleted_when_idle_for: timedelta | None


@dataclass(frozen=True)
class SubscriptionState:
    """A subscription as it is deployed."""

    active: bool
    has_sessions: bool
    max_delivery_count: int
    dead_letters_expired: bool
    forwards_to: str | None
    deleted_when_idle_for: timedelta | None
    takes_all: bool = True
    """False: its rules filter messages out."""


class ServiceBusInspection(AbstractAsyncContextManager["ServiceBusInspection"]):
    """Reads one namespace, as an async context manager. The constructor raises UnusableConnection."""

    def __init__(self, connection: Connection, credential: Credential | None, *, emulator_port: int) -> None:
        self._connection = connection
        self._credential = credential
        with _reported():
            self._admin = administration_client(connection, credential, emulator_port)

    async def __aenter__(self) -> Self:
        await self._admin.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.close()

    async def topic(self, name: str) -> TopicState | None:
        """Returns the topic; None if it does not exist. Raises Denied, CannotCheck."""
        found = await _read(self._admin.get_topic, name)
        return found and _topic(found)

    async def subscription(self, topic: str, name: str) -> SubscriptionState | None:
        """Returns the subscription; None if it does not exist. Raises Denied, CannotCheck."""

        async def read_filters() -> list[Any]:
            return [each.filter async for each in self._admin.list_rules(topic, name)]

        if (found := await _read(self._admin.get_subscription, topic, name)) is None:
            return None
        filters = await _read(read_filters) or []
        return _subscription(found, takes_all=any(isinstance(each, TrueRuleFilter) for each in filters))

    async def queue(self, name: str) -> tuple[TopicState, SubscriptionState] | None:
        """Returns a queue as topic and subscription; None if it does not exist. Raises Denied, CannotCheck."""
        found = await _read(self._admin.get_queue, name)
        return found and (_topic(found), _subscription(found, takes_all=True))

    async def waiting(self, topic: str, subscription: str, *, is_queue: bool) -> int | None:
        """Returns the number of messages that wait in a subscription, dead letters too; None if it does not exist.

        Raises Denied, CannotCheck.
        """
        if is_queue:
            found = await _read(self._admin.get_queue_runtime_properties, topic)
        else:
            found = await _read(self._admin.get_subscription_runtime_properties, topic, subscription)
        return found and int(found.active_message_count or 0) + int(found.dead_letter_message_count or 0)

    async def try_sending(self, topic: str, *, is_queue: bool) -> None:
        """See :func:`try_sending`."""
        await try_sending(
            self._connection, self._credential, topic, seconds=DEADLINE_SECONDS, is_queue=is_queue
        )

    async def try_receiving(self, topic: str, subscription: str, *, is_queue: bool) -> None:
        """Opens a session that no other client uses, and receives nothing. Raises Denied, CannotCheck."""
        of_it = f"queue {topic}" if is_queue else f"subscription {subscription} of topic {topic}"
        with _reported(entity=of_it):
            async with (
                asyncio.timeout(DEADLINE_SECONDS),
                servicebus_client(self._connection, self._credential, retries=1) as client,
                receiver_of(
                    client, topic, subscription, is_queue=is_queue, session_id=f"preflight-{new_id()}"
                ),
            ):
                pass


async def _read(call: Callable[..., Awaitable[Any]], *names: str) -> Any:
    """Returns what the call finds; None: it does not exist. Raises Denied, CannotCheck."""
    with _reported():
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await call(*names)
        except HttpResponseError as error:
            if error.status_code == 404 or isinstance(error, ResourceNotFoundError):
                return None
            raise


def _topic(found: TopicProperties | QueueProperties) -> TopicState:
    return TopicState(
        active=_is_active(found),
        detects_duplicates=bool(found.requires_duplicate_detection),
        duplicate_window=_duration(found.duplicate_detection_history_time_window) or timedelta(),
        partitioned=bool(found.enable_partitioning),
        deleted_when_idle_for=_duration(found.auto_delete_on_idle),
    )


def _subscription(found: SubscriptionProperties | QueueProperties, *, takes_all: bool) -> SubscriptionState:
    return SubscriptionState(
        active=_is_active(found),
        has_sessions=bool(found.requires_session),
        max_delivery_count=int(found.max_delivery_count or 0),
        dead_letters_expired=bool(found.dead_lettering_on_message_expiration),
        forwards_to=found.forward_to or None,
        deleted_when_idle_for=_duration(found.auto_delete_on_idle),
        takes_all=takes_all,
    )


async def try_sending(
    connection: Connection,
    credential: Credential | None,
    topic: str,
    *,
    seconds: float,
    is_queue: bool,
) -> float:
    """Opens a sender, as the relay does, and sends nothing. Returns the seconds of one round trip over its connection.

    Raises Denied, CannotCheck; within ``seconds``.
    """

    async def open_sender() -> float:
        async with (
            servicebus_client(connection, credential, retries=1) as client,
            client.get_topic_sender(topic) as sender,
        ):
            await _ask(sender)  # the first call opens the management link
            began = monotonic()
            await _ask(sender)
            return monotonic() - began

    with _reported(seconds, f"{'queue' if is_queue else 'topic'} {topic}"):
        return await in_time(open_sender(), monotonic() + seconds)


async def _ask(sender: ServiceBusSender) -> None:
    """Sends a request without effect: it cancels a message that was never scheduled."""
    with contextlib.suppress(MessageNotFoundError):
        await sender.cancel_scheduled_messages(_NO_NUMBER)


@contextmanager
def _reported(seconds: float | None = None, entity: str = NAMED_IN_SETTINGS) -> Iterator[None]:
    try:
        yield
    except (
        MessagingEntityNotFoundError,
        ServiceBusAuthenticationError,
        ServiceBusAuthorizationError,
    ) as error:
        if is_missing(error):
            raise CannotCheck(missing(entity, type(error).__name__)) from error
        raise Denied(first_line(error)) from error
    except (OperationTimeoutError, SessionCannotBeLockedError) as error:
        raise CannotCheck(f"does not answer in time ({type(error).__name__})") from error
    except HttpResponseError as error:
        if error.status_code in (401, 403):
            raise Denied(first_line(error)) from error
        if isinstance(error, ClientAuthenticationError):
            raise CannotCheck(f"cannot be asked, because signing in failed: {first_line(error)}") from error
        raise CannotCheck(f"answers with an error ({error.status_code or first_line(error)})") from error
    except ValueError as error:  # the SDK raises it for an incomplete connection string
        raise UnusableConnection from error
    except TimeoutError as error:
        raise CannotCheck(f"does not answer within {seconds or DEADLINE_SECONDS:g} s") from error
    except SDK_ERRORS as error:
        raise CannotCheck(f"cannot be reached ({type(error).__name__})") from error


def _is_active(entity: Any) -> bool:
    return str(getattr(entity.status, "value", entity.status) or "Active").lower() == "active"


def _duration(value: timedelta | str | None) -> timedelta | None:
    """Returns the duration; None for "never", and if the service returns none."""
    assert not isinstance(value, str), "the SDK reads durations as timedelta; strings are for writing"
    return value if value is not None and value < _FOREVER else None
