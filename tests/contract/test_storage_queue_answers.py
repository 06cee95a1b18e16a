"""What a storage account answers to a send is distinguished: this event never, or all events later, and why."""

import asyncio
import socket
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import pytest

from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.publisher import CloudEvents, Outcome, Refused, Unknown
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.errors import CannotCheck, Denied, UnusableConnection
from cosmos_outbox.storagequeue.client import look, messages_in, queue_service
from cosmos_outbox.storagequeue.publisher import StorageQueuePublisher
from cosmos_outbox.storagequeue.receiver import QueueReceiver
from cosmos_outbox.telemetry.liveness import SlotHealth
from devstack.testing import eventually
from tests.support.publishing import event, publish
from tests.support.serving import serving

TAKEN = (
    b"<?xml version='1.0'?><QueueMessagesList><QueueMessage><MessageId>1</MessageId>"
    b"<InsertionTime>Sun, 01 Mar 2026 12:00:00 GMT</InsertionTime>"
    b"<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>r</PopReceipt>"
    b"<TimeNextVisible>Sun, 01 Mar 2026 12:00:00 GMT</TimeNextVisible></QueueMessage></QueueMessagesList>"
)
"""What the service answers when the queue has the message."""


class Answering(BaseHTTPRequestHandler):
    """Answers each request alike."""

    status: ClassVar[int]
    code: ClassVar[str]
    seconds: ClassVar[float] = 0.0
    sent: ClassVar[list[str]]
    missing: ClassVar[str] = ""
    """A queue that is not there, whatever the others answer."""
    body: ClassVar[bytes | None] = None
    """In the place of what the service says."""
    count: ClassVar[int] = 0
    """So many messages are there."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        queue = self.path.partition("?")[0].split("/")[2]
        self.sent.append(queue)
        status, code = (404, "QueueNotFound") if queue == self.missing else (self.status, self.code)
        body = None if queue == self.missing else self.body
        if body is None:
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        if self.body is None:
            self.send_header("x-ms-error-code", code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-ms-approximate-messages-count", str(self.count))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        pass


def answering(status: int, code: str, missing: str = "", count: int = 0) -> type[Answering]:
    text = {"status": status, "code": code, "missing": missing, "count": count, "sent": []}
    return type("Kind", (Answering,), text)


async def outcomes(address: str, *groups: int, queues: tuple[str, ...] = ("q",)) -> list[Outcome]:
    """Of aggregates with so many events each."""
    account = Connection(
        connection_string=f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AA==;QueueEndpoint={address}/a;"
    )
    async with queue_service(account, None) as client:
        publisher = StorageQueuePublisher(client, queues, service=CloudEvents("/t"), encoded=True, senders=1)
        events = [[event(f"a{n}", 1 + each) for each in range(count)] for n, count in enumerate(groups)]
        return [*await publish(publisher, *events)]


@pytest.mark.parametrize(
    ("status", "code", "why"),
    [
        (404, "QueueNotFound", FailureReason.BROKER_REFUSES),
        (403, "AuthorizationPermissionMismatch", FailureReason.BROKER_REFUSES),
        (403, "AuthenticationFailed", FailureReason.BROKER_REFUSES),
        (409, "QueueBeingDeleted", FailureReason.BROKER_REFUSES),
        (409, "QueueDisabled", FailureReason.BROKER_REFUSES),
        (400, "InvalidResourceName", FailureReason.BROKER_REFUSES),
        (400, "OutOfRangeQueryParameterValue", FailureReason.BROKER_REFUSES),
        (503, "ServerBusy", FailureReason.BROKER_THROTTLES),
        (500, "OperationTimedOut", FailureReason.BROKER_AWAY),
        (500, "InternalError", FailureReason.BROKER_AWAY),
    ],
)
async def test_what_is_not_the_events_fault_makes_all_of_the_page_wait(
    status: int, code: str, why: FailureReason
) -> None:
    kind = answering(status, code)
    with serving(kind) as address:
        first, second = await outcomes(address, 2, 1)
    for outcome in (first, second):
        assert isinstance(outcome, Unknown)
        assert (outcome.accepted, outcome.why) == (0, why)
        assert code in outcome.reason
    assert len(kind.sent) <= 2, "the first event, and its one repetition, and nothing behind it"


@pytest.mark.parametrize(
    ("status", "code"), [(413, "RequestBodyTooLarge"), (400, "MessageTooLarge"), (400, "InvalidXmlDocument")]
)
async def test_an_event_that_is_never_taken_holds_up_no_other_aggregate(status: int, code: str) -> None:
    kind = answering(status, code)
    with serving(kind) as address:
        first, second = await outcomes(address, 2, 1)
    for outcome in (first, second):
        assert isinstance(outcome, Refused)
        assert (outcome.accepted, outcome.shown_by_event) == (0, False)
    assert len(kind.sent) == 2, "one of each aggregate"


async def test_an_answer_that_does_not_come_in_time_leaves_the_event_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        account = Connection(
            connection_string="DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AA==;"
            f"QueueEndpoint=http://127.0.0.1:{silent.getsockname()[1]}/a;"
        )
        async with queue_service(account, None) as client:
            publisher = StorageQueuePublisher(
                client, ["q"], service=CloudEvents("/t"), encoded=True, senders=6
            )
            [outcome] = await publish(publisher, [event("a", 1), event("a", 2)], within=0.5)
    assert isinstance(outcome, Unknown)
    assert (outcome.accepted, outcome.why) == (0, FailureReason.TOO_SLOW)


@pytest.mark.parametrize("status", [400, 201])
async def test_an_event_is_accepted_only_when_each_queue_has_it(status: int) -> None:
    """What may come right by itself counts before what never does: else the event would be parked."""
    kind = answering(status, "MessageTooLarge", missing="missing")
    kind.body = TAKEN if status == 201 else None
    with serving(kind) as address:
        [outcome] = await outcomes(address, 1, queues=("there", "missing"))
    assert isinstance(outcome, Unknown)
    assert "the queue missing (STORAGEQUEUE_QUEUES) does not exist" in outcome.reason
    assert {*kind.sent} == {"there", "missing"}


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (201, b"", "answers what no storage account does"),
        (201, b"<QueueMess", "answers with an error (201 "),
        (403, "gesperrt für Sie".encode("latin-1"), "answers what no storage account does"),
    ],
)
async def test_what_no_storage_account_answers_makes_events_and_messages_wait(
    status: int, body: bytes, text: str
) -> None:
    """A proxy says it, or half of an answer arrives: the SDK raises what is no error of its own."""
    kind = type("Kind", (Answering,), {"status": status, "code": "", "sent": [], "body": body})
    with serving(kind) as address:
        [outcome] = await outcomes(address, 1)
        assert isinstance(outcome, Unknown)
        assert f"the queue q (STORAGEQUEUE_QUEUES) {text}" in outcome.reason
        account = Connection(
            connection_string=f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AA==;QueueEndpoint={address}/a;"
        )
        async with queue_service(account, None) as client:
            stop, health = asyncio.Event(), SlotHealth()
            queue, poison = client.get_queue_client("q"), client.get_queue_client("q-poison")
            serves = asyncio.create_task(QueueReceiver(queue, poison).serve(_nobody, stop, health, slots=2))
            await eventually(lambda: health.waiting_for or serves.done())
            stop.set()
            await serves
    assert "the queue q" in str(health.waiting_for)


# -- the look at queues that a check of a deployment takes


def account_at(address: str) -> Connection:
    return Connection(
        connection_string=f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=AA==;QueueEndpoint={address}/a;"
    )


@pytest.mark.parametrize("count", [0, 7])
async def test_a_queues_number_of_messages_and_its_existence_are_reported(count: int) -> None:
    with serving(answering(200, "", missing="missing", count=count)) as address:
        assert await messages_in(account_at(address), None, "there", seconds=60) == count
        assert await messages_in(account_at(address), None, "missing", seconds=60) is None


async def test_a_look_at_all_queues_names_the_one_that_is_missing() -> None:
    with serving(answering(200, "", missing="missing")) as address:
        assert await look(account_at(address), None, ["one", "two"], seconds=60) > 0
        with pytest.raises(CannotCheck, match="has no queue missing: create it as the deployment does"):
            await look(account_at(address), None, ["there", "missing"], seconds=60)


@pytest.mark.parametrize(
    ("status", "code", "error", "text"),
    [
        (403, "AuthorizationPermissionMismatch", Denied, "^no$"),
        (409, "QueueDisabled", Denied, "^no$"),
        (403, "AuthenticationFailed", CannotCheck, "it cannot be used: give the identity its role"),
        (401, "NoAuthenticationInformation", CannotCheck, "it cannot be used: give the identity its role"),
        (501, "NotImplemented", CannotCheck, r"it answers with an error \(501 NotImplemented\)"),
    ],
)
async def test_a_denied_check_is_distinguished_from_one_without_an_answer(
    status: int, code: str, error: type[Exception], text: str
) -> None:
    with serving(answering(status, code)) as address:
        with pytest.raises(error, match=text) as raised:
            await messages_in(account_at(address), None, "there", seconds=60)
        assert type(raised.value) is error


async def test_a_look_ends_in_time_and_says_what_is_wrong_with_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = account_at(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(CannotCheck, match="it did not answer in time"):
            await messages_in(there, None, "there", seconds=0.2)
    with pytest.raises(UnusableConnection):
        await messages_in(Connection(connection_string="AccountName=a"), None, "there", seconds=1)


async def _nobody(_: Delivery) -> None:
    raise AssertionError("there was no message")
