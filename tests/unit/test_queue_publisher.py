"""What is sent to Storage queues, in virtual time: whole, for ever, in time, and a larger event's data before it."""

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from azure.core.exceptions import ClientAuthenticationError

from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.publisher import Accepted, Guarantees, Outcome, Refused, Unknown
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.storagequeue.claims import ClaimEraser, ClaimReader
from cosmos_outbox.storagequeue.client import claim_container, queue_service
from cosmos_outbox.storagequeue.message import MessageForm, arrived
from cosmos_outbox.storagequeue.publisher import StorageQueuePublisher
from cosmos_outbox.testing.simulation.http import StoreResponse
from cosmos_outbox.testing.simulation.storage_rest import failure
from tests.support.publishing import event, publish
from tests.support.storage_account import Account, Asked, Befalls, with_account
from tests.support.telemetry import recording

pytestmark = pytest.mark.filterwarnings(  # the clock is put into all of the SDK
    "ignore:azure.cosmos.errors module:DeprecationWarning"
)

SERVICE = CloudEvents("/test")
LARGEST = 65_536


async def sent(
    account: Account,
    *groups: list[OutboxEvent],
    claims: bool = False,
    encoded: bool = False,
    senders: int = 6,
    within: float = 60.0,
) -> list[Outcome]:
    async with account.clients() as (queues, container):
        publisher = StorageQueuePublisher(
            queues, ["mails", "board"], service=SERVICE, encoded=encoded, senders=senders,
            claims=container if claims else None,
        )  # fmt: skip
        return [*await publish(publisher, *groups, within=within)]


def answering(status: int, code: str, what: str) -> Befalls:
    """Whatever is asked of these."""

    async def befalls(asked: Asked) -> StoreResponse | None:
        return failure(status, code) if asked.what == what else None

    return befalls


def ids(account: Account, queue: str) -> list[str]:
    return [json.loads(each.text)["id"] for each in account.held(queue)]


def test_each_queue_has_each_event_in_its_order_and_for_ever() -> None:
    async def story(account: Account) -> None:
        groups = [[event(name, n) for n in (1, 2, 3)] for name in ("a", "b")]
        assert await sent(account, *groups) == [Accepted(), Accepted()]
        for queue in ("mails", "board"):
            found = ids(account, queue)
            assert [each for each in found if each[0] == "a"] == ["a-1", "a-2", "a-3"]
            assert [each for each in found if each[0] == "b"] == ["b-1", "b-2", "b-3"]
            assert {each.until for each in account.held(queue)} == {float("inf")}

    with_account(story)


def test_so_many_events_are_under_way_at_once_and_no_more() -> None:
    async def story(account: Account) -> None:
        under_way = most = 0

        async def befalls(_: Asked) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.1)
            under_way -= 1

        account.befalls = befalls
        await sent(account, *([event(f"c{n}", 1)] for n in range(10)), senders=3)
        assert most == 3 * 2, "each to two queues"

    with_account(story)


def test_a_failed_call_is_repeated_once_and_soon() -> None:
    async def story(account: Account) -> None:
        left = 1

        async def befalls(_: Asked) -> StoreResponse | None:
            nonlocal left
            left -= 1
            return failure(500, "InternalError") if left >= 0 else None

        account.befalls = befalls
        assert await sent(account, [event("a", 1)]) == [Accepted()]
        assert asyncio.get_running_loop().time() < 5
        assert (len(ids(account, "mails")), len(account.asked)) == (1, 3)

    with_account(story)


def test_what_is_not_taken_in_time_is_unknown_when_the_time_is_over() -> None:
    async def story(account: Account) -> None:
        async def befalls(_: Asked) -> None:
            await asyncio.sleep(1000)

        account.befalls = befalls
        await asyncio.sleep(100)
        [outcome] = await sent(account, [event("a", 1), event("a", 2)], within=5)
        assert isinstance(outcome, Unknown)
        assert (outcome.accepted, outcome.why) == (0, Hindrance.TOO_SLOW)
        assert asyncio.get_running_loop().time() == pytest.approx(105)

    with_account(story)


@pytest.mark.parametrize("large", [False, True])
def test_without_time_nothing_is_sent(large: bool) -> None:
    async def story(account: Account) -> None:
        first = so_large(LARGEST + 1) if large else event("a", 1)
        [outcome] = await sent(account, [first], claims=True, within=0)
        assert isinstance(outcome, Unknown)
        assert outcome.why == Hindrance.TOO_SLOW
        assert account.asked == []

    with_account(story)


def test_an_event_of_which_no_message_can_be_made_is_refused_alone() -> None:
    async def story(account: Account) -> None:
        broken = replace(event("a", 2), data={"text": object()})
        first, second = await sent(account, [event("a", 1), broken, event("a", 3)], [event("b", 1)])
        assert isinstance(first, Refused)
        assert (first.accepted, first.shown_by_event) == (1, True)
        assert "no message can be made of it" in first.reason
        assert second == Accepted()
        assert sorted(ids(account, "mails")) == ["a-1", "b-1"]

    with_account(story)


def so_large(characters: int) -> OutboxEvent:
    """Its message has so many."""

    def made(text: str) -> OutboxEvent:
        return event("a", 1, text)

    form = MessageForm(SERVICE, encoded=False)
    return made("x" * (characters - len(form.text(made("")))))


@pytest.mark.parametrize("claims", [False, True])
def test_a_message_of_64_kib_is_sent_as_it_is(claims: bool) -> None:
    async def story(account: Account) -> None:
        assert await sent(account, [so_large(LARGEST)], claims=claims) == [Accepted()]
        [held] = account.held("mails")
        assert (len(held.text), account.there.blobs) == (LARGEST, {})

    with_account(story)


def test_a_larger_event_is_refused_without_claims_and_lies_in_one_where_there_are_some() -> None:
    async def story(account: Account) -> None:
        larger = so_large(LARGEST + 1)
        [outcome] = await sent(account, [larger, event("a", 2)])
        assert isinstance(outcome, Refused)
        assert (outcome.accepted, outcome.shown_by_event) == (0, True)
        assert "set STORAGEQUEUE_CLAIMS" in outcome.reason
        assert account.asked == []

        assert await sent(account, [larger, event("a", 2)], claims=True) == [Accepted()]
        assert [each.what for each in account.asked[:2]] == ["blob", "messages"], "the data first"
        [(name, body)] = account.there.blobs.items()
        claimed, small = (json.loads(each.text) for each in account.held("mails"))
        assert name == f"event-claims/{claimed['dataref']}"
        assert ("data" in claimed, "dataref" in small) == (False, False)
        assert json.loads(body) == larger.data

        assert await sent(account, [larger], claims=True) == [Accepted()], "the blob is there already"

    with_account(story)


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (404, "ContainerNotFound", "does not exist: create it as the deployment does"),
        (413, "RequestBodyTooLarge", "larger"),
    ],
)
def test_a_claim_that_cannot_be_stored_makes_the_event_wait_and_is_not_its_fault(
    status: int, code: str, told: str
) -> None:
    async def story(account: Account) -> None:
        account.befalls = answering(status, code, "blob")
        [outcome] = await sent(account, [so_large(LARGEST + 1), event("a", 2)], claims=True)
        assert isinstance(outcome, Unknown)
        assert (outcome.accepted, outcome.why) == (0, Hindrance.BROKER_REFUSES)
        assert told in outcome.reason
        assert account.held("mails") == []
        if status == 404:
            assert "the blob container event-claims (STORAGEQUEUE_CLAIM_CONTAINER)" in outcome.reason

    with_account(story)


@pytest.mark.parametrize(("claims", "largest"), [(False, LARGEST), (True, None)])
def test_a_queue_promises_neither_order_nor_that_duplicates_are_dropped(
    claims: bool, largest: int | None
) -> None:
    async def story(account: Account) -> Guarantees:
        async with account.clients() as (queues, container):
            return StorageQueuePublisher(
                queues, ["mails"], service=SERVICE, encoded=False, senders=1,
                claims=container if claims else None,
            ).guarantees  # fmt: skip

    assert with_account(story) == Guarantees(
        ordered=False, deduplicates=False, mixes_aggregates=False, largest_message_bytes=largest
    )


class NoToken:
    """A credential that cannot sign in."""

    async def get_token(self, *_: str, **__: Any) -> Any:
        raise ClientAuthenticationError("az login was not run")

    async def close(self) -> None:
        """Nothing is open."""


def test_when_a_queue_is_away_nothing_behind_is_tried() -> None:
    async def story(account: Account) -> None:
        account.befalls = answering(404, "QueueNotFound", "messages")
        outcomes = await sent(account, *([event(f"c{n}", 1), event(f"c{n}", 2)] for n in range(5)), senders=1)
        assert [type(each) for each in outcomes] == [Unknown] * 5
        assert len(account.asked) == 2, "one event, to two queues"

    with_account(story)


def test_sends_are_counted_for_each_queue_and_failed_ones_with_the_reason() -> None:
    async def story(account: Account) -> None:
        async def befalls(asked: Asked) -> StoreResponse | None:
            return failure(404, "QueueNotFound") if asked.name == "board" else None

        account.befalls = befalls
        await sent(account, [event("a", 1)])

    with recording() as recorded:
        with_account(story)
        counted = recorded.points("messaging.client.sent.messages")
    to = {"messaging.system": "storagequeue", "messaging.operation.name": "send"}
    assert sorted(counted, key=lambda each: str(each[0]["messaging.destination.name"])) == [
        (to | {"messaging.destination.name": "board", "error.type": "QueueNotFound"}, 1),
        (to | {"messaging.destination.name": "mails"}, 1),
    ]


def test_without_a_token_events_and_claims_wait_and_it_is_told() -> None:
    async def story(account: Account) -> None:
        nobody = cast(Any, NoToken())
        async with (
            queue_service(
                Connection(address="https://x.queue.storage.invalid"), nobody, account.http
            ) as queues,
            claim_container(
                Connection(address="https://x.blob.storage.invalid"), nobody, "event-claims", account.http
            ) as claims,
        ):
            publisher = StorageQueuePublisher(queues, ["mails"], service=SERVICE, encoded=True, senders=1)
            [outcome] = await publish(publisher, [event("a", 1)])
            assert isinstance(outcome, Unknown)
            assert outcome.why == Hindrance.BROKER_REFUSES
            assert outcome.reason == (
                "no token for the queue mails (STORAGEQUEUE_QUEUES) could be obtained (ClientAuthenticationError)"
            )
            with pytest.raises(StoreAway, match="no token for the blob container event-claims"):
                await ClaimReader(claims).complete(arrived(claimed("a"), "m", "s"))
        assert account.asked == []

    with_account(story)


@pytest.mark.parametrize(
    ("error", "why", "told"),
    [
        (ConnectionResetError(), Hindrance.BROKER_AWAY, "cannot be reached (ConnectionResetError)"),
        (failure(408, "RequestTimeout"), Hindrance.BROKER_AWAY, "answers with an error (408 RequestTimeout)"),
        (failure(429, "TooManyRequests"), Hindrance.BROKER_THROTTLES, "is busy (429 TooManyRequests)"),
    ],
)
def test_what_keeps_events_waiting_is_told(
    error: Exception | StoreResponse, why: Hindrance, told: str
) -> None:
    async def story(account: Account) -> None:
        async def befalls(_: Asked) -> StoreResponse:
            if isinstance(error, Exception):
                raise error
            return error

        account.befalls = befalls
        [outcome] = await sent(account, [event("a", 1)])
        assert isinstance(outcome, Unknown)
        assert (outcome.why, told in outcome.reason) == (why, True), outcome.reason

    with_account(story)


# -- what was claimed


def claimed(contact: str) -> str:
    """A message whose data lies in a blob."""
    return json.dumps(
        {"specversion": "1.0", "id": f"{contact}-1", "aggregatetype": "contact", "dataref": blob_of(contact)}
    )


def blob_of(contact: str) -> str:
    return f"{'0' * 32}/{contact}.json"


async def read(account: Account) -> tuple[bytes, dict[str, Any]]:
    async with account.clients() as (_, claims):
        delivery = await ClaimReader(claims).complete(arrived(claimed("a"), "m", "s"))
        return delivery.body, {**delivery.properties}


def test_data_is_read_from_its_claim_and_what_is_gone_for_ever_is_told_as_such() -> None:
    async def story(account: Account) -> None:
        name = f"event-claims/{blob_of('a')}"
        account.there.blobs[name] = b'{"id":"a-1"}'
        assert await read(account) == (b'{"id":"a-1"}', {"aggregateType": "contact"})
        account.there.blobs[name] = b""
        assert await read(account) == (
            b"",
            {"aggregateType": "contact", "unreadable": f"its data, the blob {blob_of('a')}, was erased"},
        )
        del account.there.blobs[name]
        assert await read(account) == (
            b"",
            {"aggregateType": "contact", "unreadable": f"its data, the blob {blob_of('a')}, is gone"},
        )

    with_account(story)


@pytest.mark.parametrize(
    ("status", "code"), [(404, "ContainerNotFound"), (403, "AuthorizationFailure"), (500, "InternalError")]
)
def test_a_container_that_cannot_be_read_makes_messages_and_erasing_wait(status: int, code: str) -> None:
    """What is not there as a whole may be there tomorrow: no message is given up for it."""
    where = rf"the blob container event-claims \(STORAGEQUEUE_CLAIM_CONTAINER\) .*\({status} {code}\)"

    async def story(account: Account) -> None:
        account.befalls = answering(status, code, "blob")
        with pytest.raises(StoreAway, match=where):
            await read(account)
        async with account.clients() as (_, claims):
            with pytest.raises(Unavailable, match=where):
                await ClaimEraser(claims).empty([blob_of("a")], living=(), kept=())

    with_account(story)


def test_an_erasing_waits_for_an_answer_for_half_a_minute() -> None:
    async def story(account: Account) -> None:
        async def befalls(_: Asked) -> None:
            await asyncio.sleep(1000)

        account.befalls = befalls
        async with account.clients() as (_, claims):
            with pytest.raises(Unavailable, match="did not answer in time"):
                await ClaimEraser(claims).of(AggregateKey("contact", "a"))
            with pytest.raises(Unavailable, match="did not answer in time"):
                await ClaimEraser(claims).empty([blob_of("a")], living=(), kept=())
        assert asyncio.get_running_loop().time() == pytest.approx(60)

    with_account(story)


def test_a_message_in_base64_is_the_same_message() -> None:
    async def story(account: Account) -> None:
        await sent(account, [event("a", 1, "ü<&>")])
        await sent(account, [event("a", 1, "ü<&>")], encoded=True)
        plain, encoded = (each.text for each in account.held("mails"))
        assert not {"<", ">", "&", "ü"} & {*plain}, "XML would have to change it"
        assert json.loads(base64.b64decode(encoded)) == json.loads(plain)
        assert arrived(plain, "1", "s").delivery == arrived(encoded, "2", "s").delivery
        assert arrived(f"  {plain}", "1", "s").delivery == arrived(encoded, "2", "s").delivery

    with_account(story)
