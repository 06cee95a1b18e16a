"""Whatever is posted, in whatever order and how often: each event is applied once, in order, or not at all."""

import base64
import itertools
import json
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from examples.receiver.app import STRUCTURED, application, reading
from examples.receiver.inbox import Current

OLD, NEW, STRANGE = (f"whsec_{base64.b64encode(letter * 32).decode()}" for letter in (b"o", b"n", b"s"))


class Source:
    """What the service shows of the one aggregate that is read again. ``current``: an error is raised."""

    def __init__(self) -> None:
        self.current: Current | Exception | None = AssertionError("nothing is read again")

    def __call__(self, kind: str, name: str) -> Current | None:
        assert (kind, name) == ("contact", "a")
        if isinstance(self.current, Exception):
            raise self.current
        return self.current


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def api(tmp_path: Path, source: Source) -> AsyncIterator[httpx.AsyncClient]:
    app = application(tmp_path / "receiver.db", f"{NEW} {OLD}", source)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as client:
        yield client


def event(sequence: int | None, name: str = "a", **data: Any) -> dict[str, Any]:
    said = {
        "specversion": "1.0", "id": f"{name}-{sequence}", "type": f"E{sequence}", "aggregatetype": "contact",
        "subject": name, "sequence": sequence, "data": data,
    }  # fmt: skip
    return {key: value for key, value in said.items() if value is not None}


def skip_marker(sequence: int | None) -> dict[str, Any]:
    return event(sequence, discardedEventId="x") | {"id": f"notice-{sequence}", "type": "EventDiscarded"}


async def post(
    api: httpx.AsyncClient, said: object, *secrets: str, age: timedelta = timedelta(), tampered: bytes = b""
) -> int:
    body, at = json.dumps(said), datetime.now(UTC) - age
    headers = {
        "content-type": STRUCTURED,
        "webhook-id": "m",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(each).sign("m", at, body) for each in secrets or (NEW,)),
    }
    return (await api.post("/events", content=body.encode() + tampered, headers=headers)).status_code


async def applied(api: httpx.AsyncClient, name: str = "a") -> list[str]:
    state = (await api.get(f"/entries/contact/{name}")).json()
    return state["events"] if state else []


async def test_events_are_applied_in_order_and_the_newest_value_wins(api: httpx.AsyncClient) -> None:
    for sequence in (1, 2, 3):
        assert await post(api, event(sequence, text=f"t{sequence}")) == 204
    assert (await api.get("/entries/contact/a")).json() == {"text": "t3", "events": ["E1", "E2", "E3"]}


async def test_a_copy_is_accepted_and_not_applied_also_when_it_comes_late(api: httpx.AsyncClient) -> None:
    for sequence in (1, 1, 2, 1, 2):
        assert await post(api, event(sequence)) == 204
    assert await applied(api) == ["E1", "E2"]
    assert [await post(api, event(None, "b")) for _ in range(2)] == [204, 204]
    assert await applied(api, "b") == ["ENone"]


async def test_what_comes_too_early_is_asked_for_again(api: httpx.AsyncClient) -> None:
    assert [await post(api, event(each)) for each in (1, 3, 2, 3)] == [204, 409, 204, 204]
    assert await applied(api) == ["E1", "E2", "E3"]


async def test_in_any_order_all_is_applied_in_order_by_a_sender_that_tries_again(
    api: httpx.AsyncClient,
) -> None:
    luck = random.Random(26)
    await post(api, event(1))
    waiting = [event(sequence) for sequence in (2, 2, 3, 4, 4, 5)]
    for _ in itertools.count():
        luck.shuffle(waiting)
        waiting = [each for each in waiting if await post(api, each) != 204]
        if not waiting:
            break
    assert await applied(api) == ["E1", "E2", "E3", "E4", "E5"]


@pytest.mark.parametrize("secrets", [(NEW,), (OLD,), (STRANGE, OLD), (NEW, OLD)])
async def test_any_of_the_secrets_will_do_while_they_are_changed(
    api: httpx.AsyncClient, secrets: tuple[str, ...]
) -> None:
    assert await post(api, event(1), *secrets) == 204


async def test_what_is_not_signed_or_too_old_or_changed_is_refused(api: httpx.AsyncClient) -> None:
    assert await post(api, event(1), STRANGE) == 401
    assert await post(api, event(1), age=timedelta(minutes=6)) == 401
    assert await post(api, event(1), age=-timedelta(minutes=6)) == 401
    assert await post(api, event(1), tampered=b" ") == 401
    garbage = {"webhook-id": "m", "webhook-timestamp": "x", "webhook-signature": "v1 x,,"}
    assert (await api.post("/events", content=b"\xff", headers=garbage)).status_code == 401
    now = {**garbage, "webhook-timestamp": str(int(datetime.now(UTC).timestamp()))}
    assert (await api.post("/events", content=b"\xff", headers=now)).status_code == 401
    assert (await api.post("/events", content=b"{}")).status_code == 401
    assert await applied(api) == []


@pytest.mark.parametrize(
    "said", [[], "x", {}, {"id": "1"}, event(1) | {"sequence": "1"}, event(1) | {"data": 3}]
)
async def test_what_is_no_event_parks_it_at_the_sender(api: httpx.AsyncClient, said: object) -> None:
    assert await post(api, said) == 400


async def test_a_body_that_is_too_long_is_not_read(api: httpx.AsyncClient) -> None:
    assert await post(api, event(1, text="x" * 2_000_000)) == 413


async def test_a_body_of_unknown_length_is_read_as_far_as_the_limit(api: httpx.AsyncClient) -> None:
    """As a proxy passes it on: refused for that, each event would be parked."""
    for said, answer in ((event(1), 204), (event(2, text="x" * 2_000_000), 413)):
        body, at = json.dumps(said), datetime.now(UTC)

        async def in_parts(body: str = body) -> AsyncIterator[bytes]:
            for place in range(0, len(body), 100_000):
                yield body[place : place + 100_000].encode()

        headers = {
            "content-type": STRUCTURED,
            "webhook-id": "m",
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": Webhook(NEW).sign("m", at, body),
        }
        assert (await api.post("/events", content=in_parts(), headers=headers)).status_code == answer
    assert await applied(api) == ["E1"]


async def test_on_a_skip_marker_the_source_is_read_and_older_events_are_skipped(
    api: httpx.AsyncClient, source: Source
) -> None:
    await post(api, event(1, text="t1", lost=True))
    source.current = Current(4, {"text": "t4"})
    assert [await post(api, each) for each in (skip_marker(2), event(3), event(4), skip_marker(2))] == [
        204
    ] * 4
    assert (await api.get("/entries/contact/a")).json() == {"text": "t4", "events": ["E1", "EventDiscarded"]}
    assert await post(api, event(5, text="t5")) == 204
    assert (await api.get("/entries/contact/a")).json()["text"] == "t5"


async def test_a_skip_marker_in_the_first_place_and_one_without_a_place(
    api: httpx.AsyncClient, source: Source
) -> None:
    source.current = Current(1, {"text": "t1"})
    assert await post(api, skip_marker(1)) == 204
    source.current = Current(1, {"text": "by others"})
    assert await post(api, skip_marker(None)) == 204
    assert (await api.get("/entries/contact/a")).json()["text"] == "by others"
    assert await post(api, event(2, text="t2")) == 204


async def test_a_skip_marker_is_not_taken_while_the_source_is_away_or_behind(
    api: httpx.AsyncClient, source: Source
) -> None:
    await post(api, event(1, text="t1"))
    source.current = TimeoutError("no answer")
    assert await post(api, skip_marker(2)) == 500
    source.current = Current(1, {"text": "old"})
    assert await post(api, skip_marker(2)) == 503
    assert (await api.get("/entries/contact/a")).json() == {"text": "t1", "events": ["E1"]}
    source.current = Current(2, {"text": "t2"})
    assert await post(api, skip_marker(2)) == 204
    assert (await api.get("/entries/contact/a")).json()["text"] == "t2"


async def test_late_events_do_not_bring_back_what_is_gone_at_the_source(
    api: httpx.AsyncClient, source: Source
) -> None:
    await post(api, event(1))
    source.current = None
    assert await post(api, skip_marker(2)) == 204
    for each in (event(3, text="t3"), event(None, text="of others"), skip_marker(4)):
        assert await post(api, each) == 204
        assert (await api.get("/entries/contact/a")).json() is None


async def test_who_begins_later_reads_the_aggregate_before_it_applies_more(
    api: httpx.AsyncClient, source: Source
) -> None:
    """Else it had what the later events say, and nothing of what the first ones did."""
    source.current = TimeoutError("no answer")
    assert await post(api, event(7, text="t7")) == 500
    source.current = Current(8, {"text": "t8", "name": "of the first event"})
    assert [await post(api, event(each, text=f"t{each}")) for each in (7, 8)] == [204, 204]
    source.current = AssertionError("nothing is read again")
    assert await post(api, event(9, text="t9")) == 204
    assert (await api.get("/entries/contact/a")).json() == {
        "text": "t9", "name": "of the first event", "events": ["E7", "E9"]
    }  # fmt: skip


async def test_an_event_without_a_sequence_first_does_not_block_the_next_one(
    api: httpx.AsyncClient, source: Source
) -> None:
    assert await post(api, event(None, text="of others")) == 204
    source.current = Current(8, {"text": "t8"})
    assert [await post(api, event(each)) for each in (8, 9)] == [204, 204]
    assert await applied(api) == ["ENone", "E8", "E9"]


async def test_an_operators_skip_marker_ends_the_wait_for_missing_events(
    api: httpx.AsyncClient, source: Source
) -> None:
    """As where they expired unsent: else the aggregate would be refused as too early for ever."""
    await post(api, event(1))
    assert await post(api, event(4)) == 409
    source.current = Current(4, {"text": "t4"})
    assert await post(api, skip_marker(4)) == 204
    assert (await api.get("/entries/contact/a")).json()["text"] == "t4"
    assert await post(api, event(5)) == 204


def test_the_source_is_asked_for_no_older_state_and_404_means_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []
    answers = [
        httpx.Response(200, json={"sequence": 3, "text": "t"}),
        httpx.Response(404),
        httpx.Response(502),
    ]

    def get(url: str, headers: dict[str, str]) -> httpx.Response:
        request = httpx.Request("GET", url, headers=headers)
        asked.append(request)
        answers[0].request = request
        return answers.pop(0)

    monkeypatch.setattr(httpx, "get", get)
    read_again = reading("http://service/api/{type}s/{id}")
    assert read_again("contact", "a/b") == Current(3, {"sequence": 3, "text": "t"})
    assert str(asked[0].url) == "http://service/api/contacts/a%2Fb"
    assert asked[0].headers["Cache-Control"] == "no-cache"
    assert read_again("contact", "a") is None
    with pytest.raises(httpx.HTTPStatusError):
        read_again("contact", "a")
    with pytest.raises(ValueError, match="SOURCE"):
        reading("")


async def test_what_was_answered_is_there_after_a_restart(
    tmp_path: Path, api: httpx.AsyncClient, source: Source
) -> None:
    await post(api, event(1))
    again = httpx.ASGITransport(app=application(tmp_path / "receiver.db", NEW, source))
    async with httpx.AsyncClient(transport=again, base_url="http://receiver") as restarted:
        assert await applied(restarted) == ["E1"]
        assert await post(restarted, event(1)) == 204
        assert await applied(restarted) == ["E1"]


def test_no_secret_no_receiver(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="WEBHOOK_SECRETS"):
        application(tmp_path / "receiver.db", " ", Source())
