"""What is told of a topic, a subscription or a queue as it is deployed, and of a namespace that does not say it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    SessionCannotBeLockedError,
)
from azure.servicebus.management import EntityStatus, SqlRuleFilter, TrueRuleFilter

from cosmos_outbox.servicebus.inspection import (
    ServiceBusInspection,
    SubscriptionState,
    TopicState,
    try_sending,
)
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.inspection import CannotCheck, Denied, UnusableConnection
from tests.support.virtual_time import in_virtual_time

CONNECTION = Connection(
    "Endpoint=sb://orders.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=k"
)
NEVER = timedelta(days=10_675_199)
"""As the service writes it."""

CALLS: dict[str, Callable[[ServiceBusInspection], Awaitable[Any]]] = {
    "get_topic": lambda inspection: inspection.topic("t"),
    "get_subscription": lambda inspection: inspection.subscription("t", "s"),
    "get_queue": lambda inspection: inspection.queue("q"),
}


def inspecting() -> ServiceBusInspection:
    return ServiceBusInspection(CONNECTION, None, emulator_port=5300)


def entity(**more: Any) -> SimpleNamespace:
    """As the SDK gives what is deployed."""
    usual = {
        "status": EntityStatus.ACTIVE, "requires_duplicate_detection": True, "enable_partitioning": False,
        "duplicate_detection_history_time_window": timedelta(minutes=10), "auto_delete_on_idle": NEVER,
        "requires_session": True, "max_delivery_count": 10, "forward_to": "",
        "dead_lettering_on_message_expiration": True,
    }  # fmt: skip
    return SimpleNamespace(**{**usual, **more})


def answering(monkeypatch: pytest.MonkeyPatch, call: str, answer: object) -> None:
    async def answered(*_: object, **__: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ServiceBusAdministrationClient, call, answered)


def with_rules(monkeypatch: pytest.MonkeyPatch, *filters: object) -> None:
    async def listed(*_: object) -> Any:
        for each in filters:
            yield SimpleNamespace(filter=each)

    monkeypatch.setattr(ServiceBusAdministrationClient, "list_rules", listed)


@pytest.mark.parametrize(
    ("deployed", "told"),
    [
        ({}, {}),
        ({"status": EntityStatus.DISABLED}, {"active": False}),
        ({"status": None}, {}),
        ({"requires_duplicate_detection": None}, {"detects_duplicates": False}),
        ({"duplicate_detection_history_time_window": None}, {"duplicate_window": timedelta()}),
        ({"enable_partitioning": True}, {"partitioned": True}),
        ({"auto_delete_on_idle": None}, {}),
        ({"auto_delete_on_idle": timedelta(days=3650)}, {}),  # ten years are as good as never
        ({"auto_delete_on_idle": timedelta(days=7)}, {"deleted_when_idle_for": timedelta(days=7)}),
    ],
)
async def test_a_topic_is_told_as_it_is_deployed_and_so_is_a_queue(
    monkeypatch: pytest.MonkeyPatch, deployed: dict[str, Any], told: dict[str, Any]
) -> None:
    expected = TopicState(
        **{
            "active": True, "detects_duplicates": True, "duplicate_window": timedelta(minutes=10),
            "partitioned": False, "deleted_when_idle_for": None, **told,
        }
    )  # fmt: skip
    answering(monkeypatch, "get_topic", entity(**deployed))
    answering(monkeypatch, "get_queue", entity(**deployed))
    async with inspecting() as inspection:
        assert await inspection.topic("t") == expected
        found = await inspection.queue("q")
    assert found is not None
    assert found[0] == expected


@pytest.mark.parametrize(
    ("deployed", "told"),
    [
        ({}, {}),
        ({"status": "ReceiveDisabled"}, {"active": False}),
        ({"requires_session": False}, {"has_sessions": False}),
        ({"max_delivery_count": 3}, {"max_delivery_count": 3}),
        ({"dead_lettering_on_message_expiration": False}, {"dead_letters_expired": False}),
        ({"forward_to": "other"}, {"forwards_to": "other"}),
        ({"auto_delete_on_idle": timedelta(days=7)}, {"deleted_when_idle_for": timedelta(days=7)}),
    ],
)
async def test_a_subscription_is_told_as_it_is_deployed_and_so_is_a_queue_whose_messages_no_rule_chooses(
    monkeypatch: pytest.MonkeyPatch, deployed: dict[str, Any], told: dict[str, Any]
) -> None:
    expected = SubscriptionState(
        **{
            "active": True, "has_sessions": True, "max_delivery_count": 10, "dead_letters_expired": True,
            "forwards_to": None, "deleted_when_idle_for": None, "takes_all": True, **told,
        }
    )  # fmt: skip
    with_rules(monkeypatch, SqlRuleFilter("1=0"), TrueRuleFilter())
    answering(monkeypatch, "get_subscription", entity(**deployed))
    answering(monkeypatch, "get_queue", entity(**deployed))
    async with inspecting() as inspection:
        assert await inspection.subscription("t", "s") == expected
        found = await inspection.queue("q")
    assert found is not None
    assert found[1] == expected


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    error = ResourceNotFoundError("no such entity")
    error.status_code = 404
    answering(monkeypatch, call, error)
    async with inspecting() as inspection:
        assert await CALLS[call](inspection) is None


def http(kind: type[HttpResponseError], status: int | None) -> HttpResponseError:
    error = kind("said so\nand more")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (http(HttpResponseError, 401), Denied, "^said so$"),
        (http(HttpResponseError, 403), Denied, "^said so$"),
        (http(ClientAuthenticationError, None), CannotCheck, "signing in failed: said so$"),
        (http(HttpResponseError, 503), CannotCheck, r"answers with an error \(503\)"),
        (http(HttpResponseError, None), CannotCheck, r"answers with an error \(said so\)"),
        (AzureError("no way"), CannotCheck, r"cannot be reached \(AzureError\)"),
        (ConnectionResetError(), CannotCheck, r"cannot be reached \(ConnectionResetError\)"),
        (TimeoutError(), CannotCheck, "does not answer within 15 s"),
    ],
)
@pytest.mark.parametrize("call", CALLS)
async def test_a_namespace_that_does_not_say_it_is_told_by_what_it_did(
    monkeypatch: pytest.MonkeyPatch, call: str, error: Exception, kind: type[Exception], message: str
) -> None:
    answering(monkeypatch, call, error)
    async with inspecting() as inspection:
        with pytest.raises(kind, match=message):
            await CALLS[call](inspection)


def test_a_connection_string_without_its_parts_is_told() -> None:
    with pytest.raises(UnusableConnection):
        ServiceBusInspection(Connection("SharedAccessKeyName=n"), None, emulator_port=5300)


async def test_nothing_stays_open_behind_an_inspection(monkeypatch: pytest.MonkeyPatch) -> None:
    did = list[str]()
    for name in ("__aenter__", "close"):

        async def noted(_: object, name: str = name) -> None:
            did.append(name)

        monkeypatch.setattr(ServiceBusAdministrationClient, name, noted)
    async with inspecting():
        assert did == ["__aenter__"]
    assert did == ["__aenter__", "close"]


@dataclass
class Client:
    """A client of Service Bus whose links open in a second, or fail with an error; a round trip takes 0.2."""

    error: Exception | None = None
    opened: list[tuple[str, ...]] = field(default_factory=list)
    first: bool = True

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    @asynccontextmanager
    async def _link(self, *names: str, session_id: str = "") -> Any:
        await asyncio.sleep(1)
        if self.error is not None:
            raise self.error
        self.opened.append((*names, session_id.partition("-")[0]))
        yield self

    get_topic_sender = get_subscription_receiver = _link

    def get_queue_receiver(self, name: str, **options: str) -> Any:
        return self._link("queue", name, **options)

    async def cancel_scheduled_messages(self, _number: int) -> None:
        await asyncio.sleep(1 if self.first else 0.2)
        self.first = False
        raise MessageNotFoundError


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr("cosmos_outbox.servicebus.inspection.servicebus_client", lambda *_, **__: made)
    return made


def test_a_round_trip_to_the_topic_is_measured_over_an_open_link(client: Client) -> None:
    async def story() -> None:
        await asyncio.sleep(100)
        assert await try_sending(CONNECTION, None, "t", seconds=5) == pytest.approx(0.2)
        assert client.opened == [("t", "")]
        with pytest.raises(CannotCheck, match=r"does not answer within 1\.1 s"):
            await try_sending(CONNECTION, None, "t", seconds=1.1)

    in_virtual_time(story())


MISSING = r"(topic t|subscription s of topic t|queue q) does not exist: create it"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ServiceBusAuthenticationError(message="wrong key\nmore"), Denied, "^wrong key$"),
        (ServiceBusAuthorizationError(message="no role\nmore"), Denied, "^no role$"),
        (OperationTimeoutError(), CannotCheck, r"does not answer in time \(OperationTimeoutError\)"),
        (SessionCannotBeLockedError(), CannotCheck, "does not answer in time"),
        (MessagingEntityNotFoundError(), CannotCheck, MISSING),
        (None, None, ""),
    ],
)
def test_sending_and_receiving_are_tried_and_a_refusal_is_told(
    client: Client, error: Exception | None, kind: type[Exception] | None, message: str
) -> None:
    client.error = error

    async def story() -> None:
        inspection = inspecting()
        tries: list[Callable[[], Awaitable[None]]] = [
            lambda: inspection.try_sending("t"),
            lambda: inspection.try_sending("q", is_queue=True),
            lambda: inspection.try_receiving("t", "s"),
            lambda: inspection.try_receiving("q", "s", is_queue=True),
        ]
        for tried in tries:
            if kind is None:
                await tried()
            else:
                with pytest.raises(kind, match=message):
                    await tried()
        opened = [("t", ""), ("q", ""), ("t", "s", "preflight"), ("queue", "q", "preflight")]
        assert client.opened == ([] if error else opened)

    in_virtual_time(story())
