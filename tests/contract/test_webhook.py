"""A webhook's receiver gets each aggregate's events in order, whatever it answers; nobody else gets them."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, CloudEvents, Failing, Outcome, Refused, Unknown
from cosmos_outbox.settings.transports import Webhook
from cosmos_outbox.webhook import answers
from cosmos_outbox.webhook import publisher as webhook_publisher
from cosmos_outbox.webhook.answers import ATTEMPTS
from cosmos_outbox.webhook.publisher import FAILING_ALIKE, WebhookPublisher
from cosmos_outbox.webhook.session import Unasked
from devstack.testing import eventually
from tests.support.certificates import self_signed, served_with
from tests.support.publishing import event, publish
from tests.support.receiver import OK, OTHER_SECRET, SECRET, Answer, Got, Receiver, receiving, says


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_publisher, "FIRST_PAUSE_SECONDS", 0.01)


ODD_IDS = ["a\nb", "x\x00y", "ä", " a", "é%20", 'q"']


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as one:
        yield one


@asynccontextmanager
async def publishing(
    target: Webhook, resolver: AbstractResolver | None = None
) -> AsyncIterator[WebhookPublisher]:
    publisher = WebhookPublisher(
        target, service=CloudEvents("/test", "https://schemas.example.com"), resolver=resolver
    )
    try:
        yield publisher
    finally:
        await publisher.close()


async def test_events_arrive_in_order_one_at_a_time_and_aggregates_side_by_side(receiver: Receiver) -> None:
    under_way: dict[str, int] = {}
    all_four = asyncio.Barrier(4)

    def slow(got: Got) -> Answer:
        async def answer(got: Got, writer: asyncio.StreamWriter) -> None:
            contact = got.id.partition("-")[0]
            under_way[contact] = under_way.get(contact, 0) + 1
            assert under_way[contact] == 1
            await all_four.wait()
            under_way[contact] -= 1
            await OK(got, writer)

        return answer

    receiver.answer = slow
    groups = [[event(contact, sequence) for sequence in range(1, 6)] for contact in "abcd"]
    async with publishing(receiver.target()) as publisher:
        assert await publish(publisher, *groups) == [Accepted()] * 4
    for contact in "abcd":
        assert [each for each in receiver.ids() if each.startswith(contact)] == [
            f"{contact}-{sequence}" for sequence in range(1, 6)
        ]
    assert receiver.most_under_way == 4


async def test_no_more_requests_at_once_than_the_target_takes(receiver: Receiver) -> None:
    async with publishing(receiver.target(concurrency=2)) as publisher:
        await publish(publisher, *([event(f"c{number}", 1)] for number in range(20)))
    assert len(receiver.got) == 20
    assert receiver.most_under_way <= 2
    assert receiver.connections <= 2


async def test_a_structured_request_is_a_cloud_event_signed_with_every_secret(receiver: Receiver) -> None:
    sent = replace(event("a", 1, "Jürgen"), schema_version=2, traceparent="00-11-22-01")
    async with publishing(receiver.target(secrets=[OTHER_SECRET, SECRET])) as publisher:
        await publish(publisher, [sent])
    [got] = receiver.got
    assert got.headers["content-type"] == "application/cloudevents+json"
    assert json.loads(got.body) == {
        "specversion": "1.0", "id": "a-1", "source": "/test", "type": "Changed", "subject": "a",
        "time": "2026-03-01T12:00:00+00:00", "aggregatetype": "contact", "sequence": 1, "traceparent": "00-11-22-01",
        "schemaversion": 2, "correlationid": "c",
        "dataschema": "https://schemas.example.com/Changed.v2.json", "datacontenttype": "application/json",
        "data": {"sequence": 1, "text": "Jürgen"},
    }  # fmt: skip
    for secret in (SECRET, OTHER_SECRET):
        Verifier(secret).verify(got.body, got.headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(got.body + b" ", got.headers)


@pytest.mark.parametrize("status", [400, 422])
async def test_an_answer_about_the_event_parks_its_aggregate_alone(receiver: Receiver, status: int) -> None:
    said = b'{"title": "jane@example.com is too odd"}'
    receiver.answer = lambda got: says(status, body=said) if got.id == "a-2" else OK
    async with publishing(receiver.target()) as publisher:
        [of_a, of_b] = await publish(
            publisher, [event("a", 1), event("a", 2, "the secret"), event("a", 3)], [event("b", 1)]
        )
    assert of_a == Refused(1, f"the receiver answers {status}"), (
        "and nothing of its words, which may be personal"
    )
    assert of_b == Accepted()
    assert "a-3" not in receiver.ids()


async def test_a_refusal_whose_words_break_off_is_one_all_the_same(receiver: Receiver) -> None:
    async def breaks_off(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 422 No\r\nContent-Length: 100\r\n\r\nthe text is")
        writer.close()

    receiver.answer = lambda _: breaks_off
    async with publishing(receiver.target()) as publisher:
        [outcome] = await publish(publisher, [event("a", 1)])
    assert outcome == Refused(0, "the receiver answers 422")
    assert len(receiver.got) == 1


async def test_a_trace_that_no_header_can_hold_is_in_the_body_alone(receiver: Receiver) -> None:
    traces = {"a": "00-1", "b": "00-11\r\nx-other: 1", "c": "00-11\x00", "d": "ä"}
    events = [[replace(event(name, 1), traceparent=text, tracestate="a=1")] for name, text in traces.items()]
    async with publishing(receiver.target()) as publisher:
        assert await publish(publisher, *events) == [Accepted()] * 4
    headers = {got.id: got.headers for got in receiver.got}
    assert (headers["a-1"]["traceparent"], headers["a-1"]["tracestate"]) == ("00-1", "a=1")
    for name in "bcd":
        assert {"traceparent", "x-other"}.isdisjoint(headers[f"{name}-1"])


async def test_a_receiver_whose_certificate_nobody_trusts_gets_nothing(tmp_path: Path) -> None:
    receiver = Receiver()
    server = await asyncio.start_server(
        receiver.serve, "127.0.0.1", 0, ssl=served_with(self_signed(tmp_path))
    )
    receiver.url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
    async with publishing(receiver.target()) as publisher:
        [outcome] = await publish(publisher, [event("a", 1)])
    server.close()
    await server.wait_closed()
    assert isinstance(outcome, Unknown)
    assert "certificate is not trusted" in outcome.reason
    assert receiver.got == []


@pytest.mark.parametrize("status", [307, 401, 410])
async def test_an_answer_about_the_target_stops_all_and_parks_nothing(
    receiver: Receiver, status: int
) -> None:
    receiver.answer = lambda _: says(status, "Location: http://127.0.0.1:1/elsewhere")
    groups = [[event(f"c{number}", 1)] for number in range(20)]
    async with publishing(receiver.target(concurrency=1)) as publisher:
        outcomes = await publish(publisher, *groups)
        assert len(receiver.got) == 1
        again = await publish(publisher, *groups)
        for outcome in (*outcomes, *again):
            assert isinstance(outcome, Unknown)
            assert outcome.why is FailureReason.BROKER_REFUSES
            assert str(status) in outcome.reason
        receiver.answer = lambda _: OK
        assert await until_accepted(publisher, groups) == [Accepted()] * 20


async def until_accepted(
    publisher: WebhookPublisher, groups: Sequence[Sequence[OutboxEvent]]
) -> Sequence[object]:
    """As the relay does: the page comes again until it is sent."""
    async with asyncio.timeout(20):
        while True:
            outcomes = await publish(publisher, *groups)
            if all(isinstance(each, Accepted) for each in outcomes):
                return outcomes
            await asyncio.sleep(0.01)


async def test_a_stopped_target_is_asked_by_one_request_at_a_time(receiver: Receiver) -> None:
    receiver.answer = lambda _: says(401)
    groups = [[event(f"c{number}", 1)] for number in range(6)]
    async with publishing(receiver.target(concurrency=3)) as publisher:
        await publish(publisher, *groups)
        at_once = len(receiver.got)
        assert at_once <= 3
        async with asyncio.timeout(20):
            while len(receiver.got) < at_once + 3:
                await publish(publisher, *groups)
                await asyncio.sleep(0.005)
    assert len({*receiver.ids()[at_once:]}) == 3, (
        "each by another event: what is wrong with one says nothing of it"
    )


async def test_an_event_refused_among_accepted_ones_is_failing_in_the_end(receiver: Receiver) -> None:
    """A firewall before the receiver does not like its words, and says 403, as for a wrong secret."""
    receiver.answer = lambda got: says(403) if got.id == "a-2" else OK
    groups = {name: [event(name, number) for number in range(1, 4)] for name in "abcdef"}
    left, failing = dict(groups), list[Failing]()
    async with publishing(receiver.target(concurrency=2)) as publisher, asyncio.timeout(20):
        while left:
            outcomes = await publish(publisher, *left.values())
            for name, outcome in zip(list(left), outcomes, strict=True):
                left[name] = left[name][0 if isinstance(outcome, Accepted) else outcome.accepted :]
                if isinstance(outcome, Accepted | Failing):
                    del left[name]
                if isinstance(outcome, Failing):
                    failing.append(outcome)
            for name in "xyz":  # others come, from other leases
                await publish(publisher, [event(name, 1)])
            await asyncio.sleep(0.01)
    assert [each.reason for each in failing] == ["the receiver answers 403"]
    assert "a-3" not in receiver.ids()


async def test_an_only_event_that_is_refused_is_failing_in_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answer = lambda _: says(403)
    async with publishing(receiver.target()) as publisher:
        assert isinstance((await publish(publisher, [event("a", 1)]))[0], Unknown)
        monkeypatch.setattr(answers, "ALONE_SECONDS", 0.1)

        async def is_logged() -> bool:
            return isinstance((await publish(publisher, [event("a", 1)]))[0], Failing)

        await eventually(is_logged)


async def closes(_: Got, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def garbage(_: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\xffSSH-2.0 what?\r\n\r\n")
    writer.close()


async def endless_head(_: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: " + b"y" * 1_000 + b"\r\n")
        await writer.drain()


async def silent(_: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("stray", [204, 400])
async def test_an_answer_that_nobody_asked_for_is_no_events_answer(receiver: Receiver, stray: int) -> None:
    """Who answers without reading the body may answer the body, too: the next event would be lost, or parked."""
    came = asyncio.Event()

    async def answers_twice(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 204 X\r\n\r\n")
        await writer.drain()
        await came.wait()
        writer.write(f"HTTP/1.1 {stray} X\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    receiver.answer = lambda got: answers_twice if got.id == "a-1" else OK
    async with publishing(receiver.target(concurrency=1)) as publisher:
        assert await publish(publisher, [event("a", 1)]) == [Accepted()]
        came.set()
        await eventually(lambda: receiver.under_way == 0)
        assert await publish(publisher, [event("a", 2)]) == [Accepted()]
    assert receiver.ids() == ["a-1", "a-2"], "also on the connection that is new"
    assert receiver.connections == 2


async def test_who_answers_before_he_is_asked_gets_few_connections(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new connection may have such an answer; no session of ours asks him for as long as a request may take."""
    asked = 0

    async def refuses(self: object, conn: object) -> None:
        nonlocal asked
        asked += 1
        raise Unasked

    monkeypatch.setattr("cosmos_outbox.webhook.session._Request.send", refuses)
    async with publishing(receiver.target(concurrency=2)) as publisher:
        [outcome] = await publish(publisher, [event("a", 1)])
    assert isinstance(outcome, Failing)
    assert asked == ATTEMPTS * 3
    assert receiver.ids() == []


@pytest.mark.parametrize(
    "answer",
    [says(503, "Retry-After: 0"), says(409), closes, garbage, endless_head],
    ids=["503", "409", "closes", "garbage", "endless head"],
)  # fmt: skip
async def test_an_aggregate_that_keeps_failing_is_reported_and_delays_no_other(
    receiver: Receiver, answer: Answer
) -> None:
    receiver.answer = lambda got: answer if got.id == "a-2" else OK
    async with publishing(receiver.target()) as publisher:
        [of_a, of_b] = await publish(
            publisher, [event("a", 1), event("a", 2), event("a", 3)], [event("b", 1)]
        )
        assert isinstance(of_a, Failing)
        assert of_a.accepted == 1
        assert of_b == Accepted()
        assert receiver.ids().count("a-2") == ATTEMPTS
        assert "a-3" not in receiver.ids()
        receiver.answer = lambda _: OK
        assert await publish(publisher, [event("a", 2), event("a", 3)]) == [Accepted()]
    assert receiver.ids()[-2:] == ["a-2", "a-3"]


async def test_a_receiver_that_never_answers_is_left_alone_after_its_time(receiver: Receiver) -> None:
    receiver.answer = lambda _: silent
    async with publishing(receiver.target(request_seconds=1)) as publisher:
        [outcome] = await publish(publisher, [event("a", 1), event("a", 2)], within=3)
    assert isinstance(outcome, Unknown)
    assert outcome.accepted == 0
    assert set(receiver.ids()) == {"a-1"}


@pytest.mark.parametrize(
    "answer", [says(503, "Retry-After: 3600"), silent], ids=["asks for an hour", "silent"]
)
async def test_an_event_without_three_tries_in_a_page_is_failing_in_the_end(
    receiver: Receiver, answer: Answer
) -> None:
    """The feed brings the page again and again: without an end to that its partition would stand still."""
    receiver.answer = lambda got: answer if got.id == "a-1" else OK
    async with publishing(receiver.target(request_seconds=1)) as publisher:
        for _ in range(ATTEMPTS):
            [of_a, of_b] = await publish(publisher, [event("a", 1)], [event("b", 1)], within=1.3)
            assert of_b == Accepted()
        assert isinstance(of_a, Failing)
        [of_a] = await publish(publisher, [event("a", 1)], within=1.3)
        assert isinstance(of_a, Unknown), "who tries it later tries it as often again"
    assert receiver.ids().count("a-1") >= ATTEMPTS + 1


async def test_an_event_cut_off_at_the_end_of_each_page_is_failing_in_the_end(receiver: Receiver) -> None:
    """Its receiver may take longer than all that a page has."""
    receiver.answer = lambda got: silent if got.id == "a-1" else OK
    async with publishing(receiver.target(request_seconds=5)) as publisher:
        for page in range(1, ATTEMPTS + 1):
            [of_a, of_b] = await publish(publisher, [event("a", 1)], [event("b", page)], within=0.3)
            assert of_b == Accepted()
            assert isinstance(of_a, Failing if page == ATTEMPTS else Unknown)
            assert "in time" in of_a.reason or page < ATTEMPTS


async def test_a_receiver_that_never_reads_holds_a_request_for_its_time_alone() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as deaf:
        target = Receiver(url=f"http://127.0.0.1:{deaf.getsockname()[1]}/").target(request_seconds=1)
        async with publishing(target) as publisher:
            [outcome] = await publish(publisher, [event("a", 1, "x" * 8_000_000)], within=3)
    assert isinstance(outcome, Unknown)


async def test_an_endless_body_is_not_read(receiver: Receiver) -> None:
    async def endless(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"400\r\n" + b"z" * 1_024 + b"\r\n")
            await writer.drain()

    async def endless_refusal(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"400\r\n" + b"z" * 1_024 + b"\r\n")
            await writer.drain()

    receiver.answer = lambda got: endless_refusal if got.id.startswith("b") else endless
    async with publishing(receiver.target(request_seconds=60)) as publisher:
        [of_a, of_b] = await publish(publisher, [event("a", 1), event("a", 2)], [event("b", 1)])
    assert of_a == Accepted()
    assert of_b == Refused(0, "the receiver answers 422")


@pytest.mark.long
async def test_a_tenant_over_its_limit_for_long_is_failing_in_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answer = lambda got: says(429, "Retry-After: 0") if got.id.startswith("a-") else OK

    async def outcome_of_a(publisher: WebhookPublisher) -> Outcome:
        [of_a] = await publish(publisher, [event("a", 1)], within=0.3)
        assert await publish(publisher, [event("b", 1)]) == [Accepted()], "it waits for the pause that a got"
        return of_a

    async with publishing(receiver.target(concurrency=2)) as publisher:
        for _ in range(2 * ATTEMPTS):
            assert isinstance(await outcome_of_a(publisher), Unknown), "the limit may be the target's"
        monkeypatch.setattr(answers, "BUSY_SECONDS", 0.1)
        assert await outcome_of_a(publisher) == Failing(0, "the receiver answers 429")


async def test_a_target_whose_limit_is_used_up_for_long_is_waited_for(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answer = lambda _: says(429, "Retry-After: 0")
    monkeypatch.setattr(answers, "BUSY_SECONDS", 0.0)
    async with publishing(receiver.target(concurrency=2)) as publisher:
        for _ in range(2 * ATTEMPTS):
            outcomes = await publish(publisher, [event("a", 1)], [event("b", 1)], within=0.1)
            assert [type(each) for each in outcomes] == [Unknown, Unknown]


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_pause_that_is_asked_for_is_kept_by_all_requests(receiver: Receiver, form: str) -> None:
    asked: list[float] = []

    def busy_once(got: Got) -> Answer:
        if asked:
            return OK
        asked.append(time.monotonic())
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        return says(429, f"Retry-After: {'1' if form == 'seconds' else date}")

    receiver.answer = busy_once
    async with publishing(receiver.target(concurrency=1)) as publisher:
        outcomes = await publish(publisher, *([event(f"c{number}", 1)] for number in range(3)))
    assert outcomes == [Accepted()] * 3
    assert time.monotonic() - asked[0] >= 0.9
    assert sorted(receiver.ids()) == sorted(["c0-1", "c1-1", "c2-1", receiver.got[0].id])


async def test_a_pause_beyond_the_pages_time_makes_the_page_wait(receiver: Receiver) -> None:
    receiver.answer = lambda _: says(429, "Retry-After: 99999999")
    async with publishing(receiver.target(concurrency=1)) as publisher:
        outcomes = await publish(publisher, [event("a", 1)], [event("b", 1)])
    assert [type(each) for each in outcomes] == [Unknown, Unknown]
    assert {each.why for each in outcomes if isinstance(each, Unknown)} == {FailureReason.BROKER_THROTTLES}
    assert len(receiver.got) == 1


async def test_a_target_that_fails_at_everything_is_not_asked_for_each_event(receiver: Receiver) -> None:
    receiver.answer = lambda _: says(500)
    async with publishing(receiver.target(concurrency=4)) as publisher:
        outcomes = await publish(publisher, *([event(f"c{number}", 1)] for number in range(100)))
    failing = [each for each in outcomes if isinstance(each, Failing)]
    assert FAILING_ALIKE <= len(failing) < 30
    assert all(isinstance(each, Failing | Unknown) for each in outcomes)


async def test_an_event_of_which_no_request_can_be_made_is_refused_by_itself(receiver: Receiver) -> None:
    odd = replace(event("a", 1), data={"text": object()})
    async with publishing(receiver.target()) as publisher:
        [of_a, of_b] = await publish(publisher, [odd], [event("b", 1)])
    assert isinstance(of_a, Refused)
    assert of_a.shown_by_event
    assert of_b == Accepted()


class Answering(AbstractResolver):
    """DNS that is somebody else's."""

    def __init__(self, answers: Callable[[], list[str]]) -> None:
        self.answers = answers

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=each, port=port, family=socket.AF_INET, proto=0, flags=0)
            for each in self.answers()
        ]

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254"]
)  # fmt: skip
async def test_a_name_that_leads_inside_is_not_asked(receiver: Receiver, address: str) -> None:
    port = receiver.url.rpartition(":")[2]
    target = receiver.target(url=f"http://receiver.example:{port}")
    async with publishing(target, Answering(lambda: [address])) as publisher:
        [outcome] = await publish(publisher, [event("a", 1)])
    assert isinstance(outcome, Unknown)
    assert outcome.why is FailureReason.BROKER_REFUSES
    assert "may not be asked" in outcome.reason
    assert receiver.connections == 0


async def test_a_name_is_checked_at_each_connection(receiver: Receiver) -> None:
    """The name was another's yesterday: a rebound name gets no request, and the first address that is allowed one."""
    port = receiver.url.rpartition(":")[2].partition("/")[0]
    asked: list[int] = []

    def rebinding() -> list[str]:
        asked.append(len(asked))
        return ["192.168.0.9", "127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    receiver.answer = lambda _: says(200, "Connection: close")
    target = receiver.target(url=f"http://localhost:{port}/events")
    async with publishing(target, Answering(rebinding)) as publisher:
        outcomes = [(await publish(publisher, [event("a", number)]))[0] for number in (1, 2)]
    assert outcomes[0] == Accepted()
    assert isinstance(outcomes[1], Unknown)
    assert asked == [0, 1]
    assert receiver.ids() == ["a-1"]


async def test_an_events_id_is_signed_as_the_receiver_reads_it(receiver: Receiver) -> None:
    """Another text in its header would be a wrong signature: one such event would stop all that goes there."""
    odd = [[replace(event("a", 1), id=each)] for each in ODD_IDS]
    async with publishing(receiver.target()) as publisher:
        assert await publish(publisher, *odd, [event("b", 1)]) == [Accepted()] * (len(odd) + 1)
        [never, after] = await publish(publisher, [replace(event("a", 1), id="\ud800")], [event("b", 2)])
    assert isinstance(never, Refused)
    assert after == Accepted()
    for got in receiver.got:
        Verifier(SECRET).verify(got.body, got.headers)
    assert len({*receiver.ids()}) == len(odd) + 2
