"""A webhook that would be unsafe or unsigned is refused at the start, in words that say what to set."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.webhook import Mode, load_webhook
from cosmos_outbox.webhook.answers import Meaning, meaning, piece, retry_after

SECRET = "whsec_" + base64.b64encode(b"x" * 32).decode()


def environment(**changed: str) -> dict[str, str]:
    return {"WEBHOOK_URL": "https://receiver.example/events?key=hidden", "WEBHOOK_SECRETS": SECRET} | {
        f"WEBHOOK_{name}": value for name, value in changed.items()
    }


def test_what_is_not_said_has_its_default() -> None:
    target = load_webhook(environment())
    assert (target.mode, target.concurrency, target.rate, target.request_seconds, target.private) == (
        Mode.STRUCTURED, 8, 0, 10, False
    )  # fmt: skip


def test_no_secret_is_shown() -> None:
    target = load_webhook(environment())
    told = f"{target.shown()}"
    assert SECRET not in repr(target)
    assert "receiver.example" in told
    assert "hidden" not in told
    assert SECRET not in told


def test_several_secrets_are_separated_by_spaces() -> None:
    assert list(load_webhook(environment(SECRETS=f"{SECRET}  {SECRET}")).secrets) == [SECRET, SECRET]


@pytest.mark.parametrize("url", ["http://localhost:8000/x", "http://127.0.0.1/", "http://[::1]:1/"])
def test_this_machine_may_be_asked_by_http(url: str) -> None:
    assert load_webhook(environment(URL=url)).is_loopback


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"URL": ""}, "WEBHOOK_URL is missing"),
        ({"URL": "http://receiver.example/"}, "not https"),
        ({"URL": "ftp://receiver.example/"}, "no URL"),
        ({"URL": "https://"}, "no URL"),
        ({"URL": "https://receiver.example:99999999/"}, "no URL"),
        ({"URL": "https://user:word@receiver.example/"}, "password"),
        ({"URL": "https://2130706433/"}, "uncommon"),
        ({"URL": "https://0x7f000001/"}, "uncommon"),
        ({"URL": "https://127.1/"}, "uncommon"),
        ({"URL": "https://127.0.0.\uff11/"}, "uncommon"),
        ({"URL": "https://\u2460\u2461\u2466.0.0.1/"}, "uncommon"),
        ({"URL": "https://%31%32%37.0.0.1/"}, "uncommon"),
        ({"URL": "https://b\u00fccher.example/"}, "uncommon"),
        ({"URL": "http://127.0.0.1.receiver.example/"}, "not https"),
        ({"SECRETS": ""}, "WEBHOOK_SECRETS is missing"),
        ({"SECRETS": "whsec_c2hvcnQ="}, "secret 1"),
        ({"SECRETS": f"{SECRET} {SECRET.removeprefix('whsec_')}"}, "secret 2"),
        ({"SECRETS": "whsec_???"}, "secret 1"),
        ({"MODE": "batch"}, "WEBHOOK_MODE"),
        ({"CONCURRENCY": "0"}, "WEBHOOK_CONCURRENCY"),
        ({"SECONDS": "31"}, "WEBHOOK_SECONDS"),
        ({"RATE": "-1"}, "WEBHOOK_RATE"),
        ({"PRIVATE": "yes"}, "WEBHOOK_PRIVATE"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, str], words: str) -> None:
    with pytest.raises(Misconfigured, match=words) as told:
        load_webhook(environment(**changed))
    assert SECRET not in str(told.value)


def test_each_status_has_one_meaning() -> None:
    found: dict[Meaning, list[int]] = {}
    for status in range(100, 700):
        found.setdefault(meaning(status), []).append(status)
    assert found[Meaning.ACCEPTED] == list(range(200, 300))
    assert found[Meaning.EVENT] == [400, 413, 422, 431]
    assert found[Meaning.BUSY] == [429]
    assert [each for each in found[Meaning.LATER] if 200 <= each < 500] == [408, 409, 423, 424, 425]
    assert set(range(500, 700)) | set(range(100, 200)) <= set(found[Meaning.LATER])
    assert {300, 301, 308, 401, 403, 404, 410, 405, 415} <= set(found[Meaning.TARGET])


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("3601", 3600.0),
        ("9" * 5_000, 3600.0),
        ("Tue, 24 Nov 2026 12:00:30 GMT", 30.0),
        ("Tue, 24 Nov 2026 13:01:00 +0100", 60.0),
        ("Tue, 24 Nov 2026 12:00:30", 30.0),
        ("Tuesday, 24-Nov-26 12:00:30 GMT", 30.0),
        ("Mon, 01 Jan 1990 00:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        (None, None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("1e3", None),
        ("\u0661\u0662", None),
        ("soon", None),
        ("Fri, 31 Dec 9999 23:59:59 -9999", None),
        ("Fri, 99 Dec 2026 99:99:99 GMT", None),
        ("24 Nov 99999999999999999999 00:00:00 GMT", None),
    ],
)
def test_a_pause_is_asked_for_in_seconds_or_as_a_date_and_is_an_hour_at_most(
    said: str | None, seconds: float | None
) -> None:
    assert retry_after(said, datetime(2026, 11, 24, 12, tzinfo=UTC)) == seconds


@pytest.mark.parametrize(
    ("body", "data", "shown"),
    [
        (b"the field name is too long", {"x": "Doe"}, "the field name is too long"),
        (b"no such person: Jane Doe", {"name": {"first": "Jane", "last": "Doe"}}, "no such person: … …"),
        (b"JANE's mail jane@doe.example", {"name": "Jane"}, "… mail …"),
        (b'{"d": "Ren\\u00e9e"}', {"list": ["Ren\u00e9e"]}, '{"d": "…\\…"}'),
        (b"no user Doesmith, no Do", {"name": "Doe"}, "no user …, no Do"),
        (b"call +49 171 5551234", {}, "call +… … …"),
        (b"\xff\x00 bad", {}, "\ufffd  bad"),
        (b"word " * 300, {}, ("word " * 300)[:200]),
        (b"sorry" + b" " * 1_016 + b"Jan", {"name": "Jane"}, "sorry"),
        (b"sorry" + b" " * 1_015 + b"Jan", {"name": "Jane"}, "sorry …"),
    ],
)
def test_an_answers_piece_is_short_and_not_of_a_person(body: bytes, data: dict[str, Any], shown: str) -> None:
    assert piece(body, data) == shown
