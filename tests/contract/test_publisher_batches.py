"""A page leaves in few batches, and whatever happens to one of them, no aggregate loses its order or its events."""

import asyncio
import gc
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache

import pytest
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, CloudEvents, Refused, Unknown
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.servicebus.errors import IMPOSSIBLE
from cosmos_outbox.servicebus.message import exact_size, message_from_event
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.settings.connections import Connection
from devstack.administration import administration_client
from devstack.testing import Service, eventually, running
from tests.support.azure import Topic, servicebus_connection
from tests.support.publishing import event, publish

pytestmark = pytest.mark.own_stack

EVERYTHING = "everything"
"""A subscription without sessions, so that one look shows all that arrived, in its order."""

LARGE = "x" * 300_000
"""Makes an event larger than a message of the Standard tier."""


class Bench:
    """A publisher to a topic of its own, on a server that can be made to fail."""

    def __init__(self, service: Service, topic: Topic, client: ServiceBusClient) -> None:
        self.service, self.topic, self.client = service, topic, client
        self.publisher = self.new_publisher()
        self.opened: list[ServiceBusSender] = []
        """The senders that were made, in their order."""
        make = client.get_topic_sender

        def counted(name: str) -> ServiceBusSender:
            self.opened.append(make(name))
            return self.opened[-1]

        client.get_topic_sender = counted  # type: ignore[method-assign,assignment]

    def new_publisher(self, *, partitioned: bool = False, senders: int = 6) -> ServiceBusPublisher:
        return ServiceBusPublisher(
            self.client,
            self.topic.name,
            service=CloudEvents("/test"),
            partitioned=partitioned,
            senders=senders,
        )

    async def transfers(self) -> int:
        return (await self.service.faults.traffic())["transfers"]

    async def limit_to(self, kilobytes: int) -> None:
        async with administration_client(self.service.admin_connection_string) as admin:
            properties = await admin.get_topic(self.topic.name)
            properties.max_message_size_in_kilobytes = kilobytes
            await admin.update_topic(properties)

    async def received(self) -> dict[str, list[int]]:
        """The sequences that a subscriber gets, contact by contact."""
        got: dict[str, list[int]] = {}
        async with (
            servicebus_client(Connection(self.service.connection_string), None) as client,
            client.get_subscription_receiver(self.topic.name, EVERYTHING) as receiver,
        ):
            while messages := await receiver.peek_messages(
                250, sequence_number=1 + sum(len(sequences) for sequences in got.values())
            ):
                for message in messages:
                    contact, _, sequence = str(message.message_id).rpartition("-")
                    got.setdefault(contact, []).append(int(sequence))
        return got


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(Service("servicebus", tmp_path_factory.mktemp("faulty") / "data", "--faults")) as service:
        yield service


@cache
def _trusted() -> ssl.SSLContext:
    """Read once: the SDK would do it for each connection."""
    return ssl.create_default_context()


sockets_left_open = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""azure-servicebus leaves its socket to the garbage collector when the server drops the connection."""


@asynccontextmanager
async def a_bench(service: Service, retries: int = 0) -> AsyncIterator[Bench]:
    topic = Topic(service)
    await topic.create()
    async with administration_client(service.admin_connection_string) as admin:
        await admin.create_subscription(topic.name, EVERYTHING)
    connection = servicebus_connection(service)
    async with ServiceBusClient.from_connection_string(
        connection, retry_total=retries, retry_backoff_factor=0.01, ssl_context=_trusted()
    ) as client:
        bench = Bench(service, topic, client)
        yield bench
        await service.faults.clear()
        await bench.publisher.close()
    await topic.delete()
    gc.collect()  # what the SDK left open ends with the test that may leave it open


@pytest.fixture
async def bench(faulty: Service) -> AsyncIterator[Bench]:
    async with a_bench(faulty) as made:
        yield made


async def test_a_page_of_a_hundred_contacts_is_one_send(bench: Bench) -> None:
    before = await bench.transfers()
    page = [[event(f"a{number}", 1)] for number in range(100)]

    assert await publish(bench.publisher, *page) == [Accepted()] * 100

    assert await bench.transfers() - before == 1
    assert len(bench.opened) == 1
    assert await bench.received() == {f"a{number}": [1] for number in range(100)}


async def test_a_page_is_as_many_sends_as_its_bytes_need(bench: Bench) -> None:
    """A hundred events of 10 KB: 256 KB hold 24 of them."""
    before = await bench.transfers()
    page = [[event(f"a{number}", sequence, "x" * 10_000) for sequence in (1, 2)] for number in range(50)]

    assert await publish(bench.publisher, *page) == [Accepted()] * 50

    assert await bench.transfers() - before == 5
    assert 2 <= len(bench.opened) <= 5


async def test_no_more_batches_are_under_way_than_there_may_be_senders(bench: Bench) -> None:
    two = bench.new_publisher(senders=2)
    page = [[event(f"a{number}", 1, "x" * 200_000)] for number in range(8)]
    assert await publish(two, *page) == [Accepted()] * 8
    assert len(bench.opened) == 2
    await two.close()


async def test_a_topic_that_refuses_to_mix_gets_each_session_by_itself(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.service.faults.add("refuse-mixed", count=None)
    promised = bench.publisher.guarantees
    before = await bench.transfers()

    with caplog.at_level(logging.WARNING):
        for first in (1, 3):
            page = [[event(name, first), event(name, first + 1)] for name in ("a", "b", "c")]
            assert await publish(bench.publisher, *page) == [Accepted()] * 3

    assert await bench.transfers() - before == 7  # one refused, then each page in three
    assert bench.publisher.refused_mixes == 1
    assert (promised.mixes_aggregates, bench.publisher.guarantees.mixes_aggregates) == (True, False)
    assert [record.levelname for record in caplog.records if "several sessions" in record.message] == [
        "WARNING"
    ]
    assert await bench.received() == {name: [1, 2, 3, 4] for name in "abc"}


async def test_a_mixed_batch_refused_midway_in_a_page_loses_and_repeats_nothing(bench: Bench) -> None:
    page = [[event(f"a{number}", n, "x" * 20_000) for n in (1, 2, 3)] for number in range(12)]
    await bench.service.faults.add("refuse-mixed", count=1)

    assert await publish(bench.publisher, *page) == [Accepted()] * 12

    assert bench.publisher.refused_mixes == 1
    assert await bench.received() == {f"a{number}": [1, 2, 3] for number in range(12)}


async def test_on_a_partitioned_topic_messages_fly_one_by_one(bench: Bench) -> None:
    single = bench.new_publisher(partitioned=True)
    before = await bench.transfers()
    assert await publish(single, [event("a", 1), event("a", 2)], [event("b", 1)]) == [Accepted()] * 2
    assert await bench.transfers() - before == 3
    assert not single.guarantees.mixes_aggregates
    await single.close()


def page_with_a_bad_event(bad: OutboxEvent) -> list[list[OutboxEvent]]:
    """The bad event is its contact's second one; two more are behind it."""
    return [
        [event("a", 1), event("a", 2)],
        [event("b", 1), bad, event("b", 3), event("b", 4)],
        [event("c", 1), event("c", 2)],
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event("b", 2, LARGE), "the message is larger than the topic takes"),
        # Service Bus answers such a property with an error that reads as if it would pass: it would wait for ever.
        (
            replace(event("b", 2), correlation_id="x" * 40_000),
            "a property of the message is larger than 32 KB",
        ),
        (
            replace(event("b", 2), action="Changed \ud800"),
            f"{IMPOSSIBLE} (UnicodeEncodeError)",
        ),  # a lone surrogate has no form in AMQP
    ],
    ids=["too large", "a property", "no form"],
)
async def test_an_event_that_cannot_be_sent_stops_its_own_contact_alone(
    bench: Bench, bad: OutboxEvent, reason: str
) -> None:
    before = await bench.transfers()
    outcomes = await publish(bench.publisher, *page_with_a_bad_event(bad))

    assert outcomes == [Accepted(), Refused(1, reason), Accepted()]
    assert await bench.transfers() - before == 1, "it was measured, not tried"
    assert await bench.received() == {"a": [1, 2], "b": [1], "c": [1, 2]}


async def test_a_refused_batch_is_halved_until_the_message_is_found(bench: Bench) -> None:
    """The topic's limit was lowered while the link is open: only the service can know."""
    await bench.limit_to(1024)
    await publish(bench.publisher, [event("z", 1)])
    await bench.limit_to(256)

    outcomes = await publish(bench.publisher, *page_with_a_bad_event(event("b", 2, LARGE)))

    assert [type(outcome) for outcome in outcomes] == [Accepted, Refused, Accepted]
    assert isinstance(outcomes[1], Refused)
    assert outcomes[1].accepted == 1
    assert await bench.received() == {"z": [1], "a": [1, 2], "b": [1], "c": [1, 2]}


async def test_a_message_above_the_batch_limit_is_sent_alone_and_in_order(bench: Bench) -> None:
    """Premium: 1 MB a batch, more for a single message."""
    await bench.limit_to(3 * 1024)
    before = await bench.transfers()
    group = [event("a", 1), event("a", 2, "x" * 1_500_000), event("a", 3)]

    assert await publish(bench.publisher, group, [event("b", 1)]) == [Accepted()] * 2

    assert await bench.transfers() - before == 3
    assert await bench.received() == {"a": [1, 2, 3], "b": [1]}


@pytest.mark.long
async def test_a_message_is_refused_only_when_a_new_link_has_the_same_limit(bench: Bench) -> None:
    """The topic's limit was raised while the links are open, which keep the limit of their opening."""
    large = event("a", 1, "x" * 2_000_000)
    assert isinstance((await publish(bench.publisher, [large], [event("b", 1)]))[0], Refused)
    await bench.limit_to(3 * 1024)
    assert await publish(bench.publisher, [large], [event("b", 2)]) == [Accepted(), Accepted()]
    assert await bench.received() == {"a": [1], "b": [1, 2]}


@pytest.mark.long
async def test_a_message_above_the_links_limit_is_refused_unsent_after_one_check(bench: Bench) -> None:
    await bench.limit_to(3 * 1024)
    assert await publish(bench.publisher, [event("b", 1)]) == [Accepted()]
    before = await bench.transfers()
    outcomes = await publish(
        bench.publisher, [event("a", 1), event("a", 2, "x" * 3_200_000)], [event("b", 2)]
    )
    assert outcomes == [Refused(1, "the message is larger than the topic takes"), Accepted()]
    assert await publish(bench.publisher, [event("b", 3)]) == [Accepted()]
    assert await bench.transfers() - before == 2
    assert len(bench.opened) == 2, "the link whose limit is used, and the one that was asked before"


async def test_a_message_of_exactly_the_limit_is_sent_and_one_byte_more_is_not(bench: Bench) -> None:
    def size_of(characters: int) -> int:
        large = event("a", 1, "x" * characters)
        return exact_size(message_from_event(large, service=CloudEvents("/test"), partitioned=False))

    most = 256 * 1024 - (size_of(200_000) - 200_000)
    assert size_of(most) == 256 * 1024
    await publish(bench.publisher, [event("z", 1)])
    before = await bench.transfers()
    [outcome] = await publish(bench.publisher, [event("a", 1, "x" * (most + 1))])
    assert (type(outcome), await bench.transfers() - before) == (Refused, 0)
    assert await publish(bench.publisher, [event("a", 1, "x" * most)]) == [Accepted()]
    assert await bench.transfers() - before == 1


@sockets_left_open
async def test_a_lost_answer_and_a_throttle_leave_every_event_once_and_in_order(bench: Bench) -> None:
    page = [[event(name, n) for n in (1, 2, 3)] for name in ("a", "b")]
    await bench.service.faults.add("drop-after-commit")
    await bench.service.faults.add("throttle", count=1)

    first = await publish(bench.publisher, *page)
    second = await publish(bench.publisher, *page)
    third = await publish(bench.publisher, *page)

    assert [[type(outcome) for outcome in outcomes] for outcomes in (first, second, third)] == [
        [Unknown] * 2, [Unknown] * 2, [Accepted] * 2,
    ]  # fmt: skip
    assert [outcome.accepted for outcome in first if isinstance(outcome, Unknown)] == [0, 0]
    assert await bench.received() == {"a": [1, 2, 3], "b": [1, 2, 3]}


@sockets_left_open
async def test_a_throttled_sdk_retry_of_a_lost_send_does_not_mean_unsent(faulty: Service) -> None:
    async with a_bench(faulty, retries=1) as bench:
        await faulty.faults.add("drop-after-commit")
        await faulty.faults.add("throttle", count=20)
        outcomes = await publish(bench.publisher, [event("a", 1), event("a", 2)], [event("b", 1)])
        assert [type(outcome) for outcome in outcomes] == [Unknown] * 2
        assert await bench.received() == {"a": [1, 2], "b": [1]}

        await faulty.faults.clear()
        again = await publish(bench.publisher, [event("a", n) for n in (1, 2, 3)], [event("b", 1)])
        assert again == [Accepted()] * 2
        assert await bench.received() == {"a": [1, 2, 3], "b": [1]}


async def test_a_timed_out_sender_is_closed_and_its_batch_unknown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(bench.publisher, [event("z", 1)])
    monkeypatch.setattr("cosmos_outbox.servicebus.senders.SEND_TIMEOUT_SECONDS", 0.2)
    await bench.service.faults.add("slow", seconds=30)
    page = [[event("a", 1), event("a", 2)], [event("b", 1)]]

    outcomes = await publish(bench.publisher, *page)

    assert [type(outcome) for outcome in outcomes] == [Unknown] * 2
    [sender] = bench.opened
    with pytest.raises(ValueError, match="shutdown"):
        await sender.create_message_batch()
    monkeypatch.undo()
    assert await publish(bench.publisher, [*page[0], event("a", 3)], page[1]) == [Accepted()] * 2
    assert len(bench.opened) == 2
    assert await bench.received() == {"z": [1], "a": [1, 2, 3], "b": [1]}


async def three_idle(bench: Bench) -> None:
    """Three connections that were used and are open."""
    page = [[event(f"z{number}", 1, "x" * 200_000)] for number in range(3)]
    assert await publish(bench.publisher, *page) == [Accepted()] * 3
    await eventually(lambda: len(bench.publisher._senders._idle) == 3)


@pytest.mark.long
async def test_after_one_send_without_an_answer_no_idle_connection_is_tried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall has dropped all that was idle: tried one by one, each would take the whole timeout to fail."""
    await three_idle(bench)
    monkeypatch.setattr("cosmos_outbox.servicebus.senders.SEND_TIMEOUT_SECONDS", 0.5)
    dead = list(bench.opened)

    async def silent(self: ServiceBusSender, *arguments: object, **options: object) -> None:
        if self in dead:
            await asyncio.Event().wait()
        await send(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    send = ServiceBusSender.send_messages
    monkeypatch.setattr(ServiceBusSender, "send_messages", silent)
    # The caller's time is over before the send's.
    [outcome] = await publish(bench.publisher, [event("a", 1)], within=0.2)
    assert isinstance(outcome, Unknown)

    monkeypatch.setattr("cosmos_outbox.servicebus.senders.SEND_TIMEOUT_SECONDS", 20.0)
    assert await publish(bench.publisher, [event("a", 1)]) == [Accepted()]
    assert len(bench.opened) == 4
    for sender in dead:
        with pytest.raises(ValueError, match="shutdown"):
            await sender.create_message_batch()


async def test_a_refusal_is_an_answer_and_closes_no_connection(bench: Bench) -> None:
    await three_idle(bench)
    await bench.service.faults.add("throttle", count=None)
    for _ in range(3):
        [outcome] = await publish(bench.publisher, [event("a", 1)])
        assert isinstance(outcome, Unknown)
    await bench.service.faults.clear()
    assert await publish(bench.publisher, [event("a", 1)]) == [Accepted()]
    assert len(bench.opened) == 3
    assert (await bench.received())["a"] == [1]


@pytest.mark.long
async def test_the_first_page_after_the_service_closed_idle_links_gets_through(faulty: Service) -> None:
    """Service Bus detaches a link after ten minutes without a message; each sender's has to be opened anew."""
    async with a_bench(faulty, retries=3) as bench:
        for sequence in (1, 2):
            page = [[event(f"a{number}", sequence, "x" * 200_000)] for number in range(3)]
            assert await publish(bench.publisher, *page) == [Accepted()] * 3
            await bench.service.faults.add("detach", condition="amqp:link:detach-forced")

        assert len(bench.opened) == 3
        assert await bench.received() == {f"a{number}": [1, 2] for number in range(3)}


async def test_a_cancelled_page_leaves_nothing_running_and_can_be_sent_again(bench: Bench) -> None:
    """One batch is under way, another waits for its turn."""
    one = bench.new_publisher(senders=1)
    await publish(one, [event("z", 1)])
    before, tasks = await bench.transfers(), asyncio.all_tasks()
    await bench.service.faults.add("slow", seconds=30)
    page = [[event(f"a{number}", n, "x" * 20_000) for n in (1, 2)] for number in range(10)]
    sending = asyncio.create_task(publish(one, *page))

    async def under_way() -> bool:
        return await bench.transfers() > before

    await eventually(under_way)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending

    assert asyncio.all_tasks() <= tasks
    assert await publish(one, *page) == [Accepted()] * 10
    assert await bench.received() == {"z": [1]} | {f"a{number}": [1, 2] for number in range(10)}
    await one.close()


async def test_when_the_topic_is_away_the_rest_of_the_page_is_not_tried(bench: Bench) -> None:
    """Else a page of many batches takes minutes to fail, and the operator hears of the outage as late as that."""
    senders = 2
    publisher = bench.new_publisher(senders=senders)
    large = "x" * 200_000
    await publish(publisher, *([event(f"z{number}", 1, large)] for number in range(senders)))
    # A link that is being opened may be ready before the first refusal is there, or after it.
    await eventually(lambda: len(publisher._senders._idle) == senders)
    before = await bench.transfers()
    await bench.service.faults.add("throttle", count=None)
    page = [[event(f"a{number}", 1, large)] for number in range(20)]

    outcomes = await publish(publisher, *page)

    assert {type(outcome) for outcome in outcomes} == {Unknown}
    assert {outcome.reason for outcome in outcomes if isinstance(outcome, Unknown)} == {
        "Service Bus is busy (ServiceBusServerBusyError)"
    }
    assert await bench.transfers() - before == senders, "one of each sender"
    await bench.service.faults.clear()
    await publisher.close()


async def test_numbers_beyond_32_bits_arrive(bench: Bench) -> None:
    """The SDK encodes an int of Python in 32 bits, and raises for a larger one as it does when it was closed."""
    large = [replace(event("a", 1), sequence=n, id=f"a-{n}", schema_version=2**53) for n in (2**31, 2**53)]
    assert await publish(bench.publisher, large, [event("b", 1)]) == [Accepted(), Accepted()]
    assert await bench.received() == {"a": [2**31, 2**53], "b": [1]}


async def test_what_one_message_makes_the_sdk_raise_stops_its_own_contact_alone(
    faulty: Service,
) -> None:
    """In a batch and sent alone; with the SDK's own repetitions, which would take it for a state of the topic."""
    async with a_bench(faulty, retries=3) as bench:
        publisher = bench.new_publisher()
        outcomes = await publish(publisher, *page_with_a_bad_event(replace(event("b", 2), sequence=2**70)))
        assert outcomes == [Accepted(), Refused(1, IMPOSSIBLE), Accepted()]
        assert isinstance(outcomes[1], Refused)
        assert outcomes[1].shown_by_event
        assert await bench.received() == {"a": [1, 2], "b": [1], "c": [1, 2]}
        assert await publish(publisher, [replace(event("d", 1), sequence=2**70)]) == [Refused(0, IMPOSSIBLE)]
        await publisher.close()


async def test_a_client_that_was_closed_is_no_fault_of_a_message(bench: Bench) -> None:
    """The SDK says both with a ValueError."""
    await publish(bench.publisher, [event("a", 1)])
    await bench.opened[0].close()
    outcomes = await publish(bench.publisher, [event("a", 2)], [event("b", 1)])
    assert {type(outcome) for outcome in outcomes} == {Unknown}
    assert {outcome.reason for outcome in outcomes if isinstance(outcome, Unknown)} == {
        "the client was closed (ValueError)"
    }
