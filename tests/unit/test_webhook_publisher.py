"""When each event is posted, and what becomes of it, by the answers of its target: in virtual time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

import aiohttp
import pytest

from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.publisher import Accepted, Failing, Guarantees, Outcome, Refused, Unknown
from cosmos_outbox.settings.webhook import Webhook
from cosmos_outbox.testing.simulation.http import MemorySession, SentRequest, StoreResponse, no_connection
from cosmos_outbox.webhook import tries
from cosmos_outbox.webhook.publisher import WebhookPublisher
from cosmos_outbox.webhook.tries import ATTEMPTS, Tries
from tests.support.publishing import event, publish
from tests.support.receiver import SECRET
from tests.support.telemetry import recording
from tests.support.virtual_time import in_virtual_time

SILENT = 1e9
"""The answer comes never."""

LOOK_SECONDS = 0.05
"""The page comes again after so long."""


def says(status: int, **headers: str) -> StoreResponse:
    return StoreResponse(status, {name.replace("_", "-"): text for name, text in headers.items()}, b"")


OK = says(204)


@dataclass
class Target:
    """What it answers to each event, or what aiohttp raises, and after how long; ``posts``: when each event came."""

    answer: Callable[[str], StoreResponse | Exception] = lambda _: OK
    seconds: Callable[[str], float] = lambda _: 0.0
    posts: list[tuple[float, str]] = field(default_factory=list)
    closed: bool = False

    async def send(self, request: SentRequest) -> StoreResponse:
        name = request.headers["webhook-id"]
        self.posts.append((asyncio.get_running_loop().time(), name))
        answer = self.answer(name)
        await asyncio.sleep(self.seconds(name))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ids(self) -> list[str]:
        return [name for _, name in self.posts]

    def publisher(self, concurrency: int = 8, request_seconds: int = 10) -> WebhookPublisher:
        session, target = MemorySession(self.send), self

        async def close() -> None:
            target.closed = True

        session.close = close  # type: ignore[method-assign]  # told, beside
        return WebhookPublisher(
            Webhook(
                "https://receiver.invalid/",
                [SECRET],
                concurrency=concurrency,
                request_seconds=request_seconds,
            ),
            service=CloudEvents("/test"),
            session=cast(aiohttp.ClientSession, session),
        )


def is_about(seconds: float, usual: float) -> bool:
    """As a pause that is drawn, whose end is seen at the next look."""
    return 0.75 * usual <= seconds <= 1.25 * usual + LOOK_SECONDS


def each_of(names: str) -> list[list[OutboxEvent]]:
    return [[event(name, 1)] for name in names]


def passes() -> float:
    return asyncio.get_running_loop().time()


# -- a failure that may pass


def test_an_event_that_fails_is_tried_three_times_with_pauses_that_grow() -> None:
    async def story() -> None:
        target = Target(lambda name: says(500) if name == "a-2" else OK)
        [outcome] = await publish(target.publisher(), [event("a", 1), event("a", 2), event("a", 3)])
        assert outcome == Failing(1, "the receiver answers 500")
        assert target.ids() == ["a-1", "a-2", "a-2", "a-2"]
        _, first, second, third = [at for at, _ in target.posts]
        assert is_about(second - first, 0.5)
        assert is_about(third - second, 1.0)
        assert passes() == third

    in_virtual_time(story())


def test_a_pause_that_a_failure_asks_for_is_kept_and_one_beyond_the_page_is_not_waited_for() -> None:
    async def story() -> None:
        target = Target(lambda _: says(503, Retry_After="7"))
        await publish(target.publisher(), [event("a", 1)])
        assert [round(at) for at, _ in target.posts] == [0, 7, 14]
        [outcome] = await publish(target.publisher(), [event("a", 1)], within=6.0)
        assert outcome == Unknown(0, "the receiver answers 503")
        assert outcome.why is Hindrance.TOO_SLOW
        assert passes() == 14.0

    in_virtual_time(story())


def test_an_event_that_was_taken_or_refused_or_told_as_failing_is_counted_anew() -> None:
    """It comes again: to the receiver as a copy, or by an operator who has corrected the receiver."""

    async def story() -> None:
        answers = [500, 500, 204, 500, 500, 400, *[500] * 6, 204]
        target = Target(lambda _: says(answers[len(target.posts) - 1]))
        publisher = target.publisher()
        told_after_posts = [
            ((await publish(publisher, [event("a", 1)]))[0], len(target.posts)) for _ in range(5)
        ]
        assert told_after_posts == [
            (Accepted(), 3),
            (Refused(0, "the receiver answers 400"), 6),
            (Failing(0, "the receiver answers 500"), 9),
            (Failing(0, "the receiver answers 500"), 12),
            (Accepted(), 13),
        ]

    in_virtual_time(story())


@pytest.mark.parametrize("others", [True, False])
def test_whether_others_were_taken_between_the_tries_of_a_failing_event_is_told(*, others: bool) -> None:
    """Also when that was before its first answer: it may be slow to fail."""

    async def story() -> None:
        target = Target(
            lambda name: says(500) if name == "a-1" or not others else OK,
            lambda name: 5.0 if name == "a-1" else 1.0,
        )
        [of_a, _] = await publish(target.publisher(), *each_of("ab"))
        assert isinstance(of_a, Failing)
        assert of_a.others_taken is others

    in_virtual_time(story())


def test_when_ten_events_fail_and_none_is_taken_the_rest_of_the_page_is_not_tried() -> None:
    async def story() -> None:
        target = Target(lambda _: says(500))
        outcomes = await publish(target.publisher(concurrency=1), *each_of("abcdefghijkl"))
        assert outcomes.count(Failing(0, "the receiver answers 500")) == 10
        assert outcomes.count(Unknown(0, "the receiver answers 500")) == 2

    in_virtual_time(story())


def test_when_one_is_taken_all_of_the_page_are_tried_however_many_fail() -> None:
    async def story() -> None:
        target = Target(lambda name: OK if name == "a-1" else says(500))
        outcomes = await publish(target.publisher(concurrency=1), *each_of("abcdefghijkl"))
        assert outcomes == [Accepted(), *[Failing(0, "the receiver answers 500")] * 11]

    in_virtual_time(story())


def test_what_failed_before_comes_last_by_how_often_it_did() -> None:
    async def story() -> None:
        target = Target(lambda _: says(503, Retry_After="3600"))
        publisher = target.publisher(concurrency=1)
        groups = [[replace(event("a", 1), message_id="ä gain")], *each_of("bc")]
        for count in (1, 2, 3):
            target.posts.clear()
            await publish(publisher, *groups[:count])
        assert target.ids() == ["c-1", "b-1", "%C3%A4%20gain"]

    in_virtual_time(story())


def test_a_target_that_cannot_be_reached_is_asked_once() -> None:
    async def story() -> None:
        target = Target(lambda _: no_connection("receiver.invalid"))
        outcomes = await publish(target.publisher(concurrency=1), *each_of("abc"))
        assert outcomes == [Unknown(0, "the receiver cannot be reached")] * 3
        assert target.posts == [(0.0, "a-1")], "and nobody waits for its second try"
        assert passes() == 0.0

    in_virtual_time(story())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "the receiver does not answer in time"),
        (aiohttp.ServerTimeoutError(), "the receiver does not answer in time"),
        (aiohttp.ServerDisconnectedError(), "the receiver ends the connection, or answers no HTTP"),
        (ConnectionResetError(), "the receiver ends the connection, or answers no HTTP"),
    ],
)
def test_an_event_that_gets_no_answer_fails(error: Exception, reason: str) -> None:
    async def story() -> None:
        assert await publish(Target(lambda _: error).publisher(), *each_of("a")) == [Failing(0, reason)]

    in_virtual_time(story())


def test_a_receiver_with_a_certificate_that_is_not_trusted_is_refused_as_a_target_of_wrong_settings() -> None:
    async def story() -> None:
        error = aiohttp.ClientConnectorCertificateError(
            no_connection("receiver.invalid")._conn_key, Exception("self-signed")
        )
        [outcome] = await publish(Target(lambda _: error).publisher(), *each_of("a"))
        assert isinstance(outcome, Unknown)
        assert outcome.reason.startswith("the receiver's certificate is not trusted, so nothing is sent")
        assert outcome.why is Hindrance.BROKER_REFUSES

    in_virtual_time(story())


# -- what the end of a page cuts off


def test_a_request_that_is_cut_off_after_half_of_the_page_or_its_own_time_has_failed() -> None:
    async def story() -> None:
        target = Target(seconds=lambda name: SILENT if name == "a-1" else 0.0)
        publisher = target.publisher(request_seconds=30)
        outcomes = [(await publish(publisher, [event("a", 1)], within=5.0))[0] for _ in range(ATTEMPTS)]
        assert outcomes[-1] == Failing(0, "the receiver does not answer in time")
        assert len(target.posts) == ATTEMPTS

    in_virtual_time(story())


def test_one_that_waited_for_its_turn_and_is_cut_off_early_has_not() -> None:
    """Nobody knows how long it takes: ever told as failing, it would be set aside for what others did."""

    async def story() -> None:
        target = Target(seconds=lambda name: 4.5 if name == "a-1" else SILENT)
        publisher = target.publisher(concurrency=1, request_seconds=30)
        for _ in range(2 * ATTEMPTS):
            target.posts.clear()
            of_a, of_b, of_c = await publish(publisher, *each_of("abc"), within=5.0)
            assert target.ids() == ["a-1", "b-1"], "c had no turn at all"
            assert of_a == Accepted()
            late = Unknown(0, "the receiver did not take the events in time")
            assert [of_b, of_c] == [late, late]
            assert passes() % 5 == 0

    in_virtual_time(story())


# -- what speaks of the target


async def _until(target: Target, publisher: WebhookPublisher, posts: int, names: str) -> Sequence[Outcome]:
    """As the relay does: the page comes again and again, until the target has got so many posts."""
    while True:
        outcomes = await publish(publisher, *each_of(names))
        if len(target.posts) >= posts:
            return outcomes
        assert all(isinstance(each, Unknown) and each.accepted == 0 for each in outcomes)
        await asyncio.sleep(LOOK_SECONDS)


def test_a_target_that_refuses_all_is_asked_ever_more_rarely_by_one_event_at_a_time() -> None:
    async def story() -> None:
        target = Target(lambda _: says(401))
        publisher = target.publisher(concurrency=1)
        outcomes = await _until(target, publisher, 5, "abcdef")
        assert {type(each) for each in outcomes} == {Unknown}
        times = [at for at, _ in target.posts]
        for before, after, usual in zip(times, times[1:], (0.5, 1.0, 2.0, 4.0), strict=False):
            assert is_about(after - before, usual)
        assert sorted(target.ids()) == [f"{name}-1" for name in "abcde"], (
            "each by another event: what is wrong with one says nothing of it"
        )

    in_virtual_time(story())


def test_what_makes_no_request_does_not_ask_whether_a_target_that_refuses_all_is_mended() -> None:
    async def story() -> None:
        target = Target(lambda _: says(401), lambda _: 0.1)
        publisher = target.publisher()
        await _until(target, publisher, 2, "a")
        await asyncio.sleep(60)
        asked, unsendable = len(target.posts), replace(event("x", 1), id="\ud800")
        of_x, *others = await publish(publisher, [unsendable], *each_of("abcd"))
        assert isinstance(of_x, Refused)
        assert {type(each) for each in others} == {Unknown}
        assert len(target.posts) == asked + 1, "one asks, not all at once"

    in_virtual_time(story())


def test_when_it_takes_one_all_go_side_by_side_again_and_the_pauses_begin_anew() -> None:
    async def story() -> None:
        target = Target(lambda _: says(401), lambda _: 0.1)
        publisher = target.publisher()
        await _until(target, publisher, 6, "abcd")
        target.answer = lambda _: OK
        asked = len(target.posts)
        await _until(target, publisher, asked + 4, "abcd")
        first, *others = [at for at, _ in target.posts[asked:]]
        assert others == pytest.approx([first + 0.1] * 3), "one alone asks whether it is mended"

        asked = len(target.posts)
        assert await publish(publisher, *each_of("abcd")) == [Accepted()] * 4
        assert len({at for at, _ in target.posts[asked:]}) == 1

        target.answer = lambda _: says(401)
        asked = len(target.posts)
        await _until(target, publisher, asked + 2, "a")
        assert is_about(target.posts[-1][0] - target.posts[-2][0] - 0.1, 0.5)

    in_virtual_time(story())


def test_pages_that_wait_for_a_place_are_not_posted_after_another_pages_refusal() -> None:
    async def story() -> None:
        target = Target(lambda _: says(401), lambda _: 0.1)
        publisher = target.publisher(concurrency=1)
        [of_a], [of_b] = await asyncio.gather(
            publish(publisher, [event("a", 1)]), publish(publisher, [event("b", 1)])
        )
        assert of_a == of_b
        assert "401, so nothing is sent to receiver.invalid" in cast(Unknown, of_b).reason
        assert target.ids() == ["a-1"]

    in_virtual_time(story())


def test_the_pauses_of_a_target_that_is_too_busy_begin_anew_when_it_has_taken_one() -> None:
    async def story() -> None:
        answers = [429, 429, 429, 429, 204, 429, 204]
        target = Target(lambda _: says(answers[len(target.posts) - 1]))
        assert await publish(target.publisher(), [event("a", 1), event("a", 2)]) == [Accepted()]
        times = [at for at, _ in target.posts]
        pauses = [after - before for before, after in pairwise(times)]
        for pause, usual in zip(pauses, (0.5, 1.0, 2.0, 4.0, 0.0, 0.5), strict=True):
            assert is_about(pause, usual)

    in_virtual_time(story())


def test_what_is_refused_while_others_are_taken_holds_up_no_other_for_ever() -> None:
    """A tenant's own limit is used up, or a firewall does not like its words: ten minutes, or three times."""

    async def story() -> None:
        target = Target(lambda name: says(429, Retry_After="60") if name == "a-1" else OK)
        publisher, outcomes = target.publisher(), list[Outcome]()
        while not outcomes or isinstance(outcomes[-1], Unknown):
            outcomes += await publish(publisher, [event("a", 1)])
            await publish(publisher, [event("b", 1)], within=120.0)
        assert outcomes[-1] == Failing(0, "the receiver answers 429")
        assert outcomes[-1].others_taken
        assert 600 <= target.posts[-2][0] <= 700

    in_virtual_time(story())


# -- what is told, and the end


def test_an_order_and_single_copies_are_left_to_the_receiver() -> None:
    async def story() -> None:
        assert Target().publisher(request_seconds=7).guarantees == Guarantees(
            ordered=False, deduplicates=False, mixes_aggregates=False, largest_message_bytes=None, answer_seconds=7
        )  # fmt: skip

    in_virtual_time(story())


def test_each_request_is_measured_as_accepted_or_by_its_answer() -> None:
    async def story() -> None:
        target = Target(lambda name: says(400) if name == "b-1" else OK)
        await publish(target.publisher(), *each_of("abc"))

    with recording() as recorded:
        in_virtual_time(story())
    points = recorded.points("messaging.client.sent.messages")
    assert sorted((told.get("error.type", ""), count) for told, count in points) == [("", 2), ("400", 1)]


def test_the_connections_are_closed_with_the_publisher() -> None:
    async def story() -> None:
        target = Target()
        publisher = target.publisher()
        await publish(publisher, *each_of("a"))
        assert not target.closed
        await publisher.close()
        assert target.closed

    in_virtual_time(story())


def test_beyond_a_number_of_failed_events_counting_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "_MOST_REMEMBERED", 2)
    failed = Tries().failed
    assert [failed("a"), failed("b"), failed("a"), failed("c"), failed("a")] == [1, 1, 2, 1, 1]
