"""A webhook that would be unsafe or unsigned is refused at the start, in words that say what to set."""

import asyncio
import base64
from datetime import UTC, datetime

import pytest

from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.transports import Webhook, load_webhook
from cosmos_outbox.webhook.answers import Meaning, meaning, retry_after
from cosmos_outbox.webhook.session import AddressRefused, check_literal, is_allowed, reach
from devstack.testing import eventually

SECRET = "whsec_" + base64.b64encode(b"x" * 32).decode()


def environment(**changed: str) -> dict[str, str]:
    return {"WEBHOOK_URL": "https://receiver.example/events?key=hidden", "WEBHOOK_SECRETS": SECRET} | {
        f"WEBHOOK_{name}": value for name, value in changed.items()
    }


def test_no_secret_is_shown() -> None:
    target = load_webhook(environment())
    reported = f"{target.shown()}"
    assert SECRET not in repr(target)
    assert "receiver.example" in reported
    assert "hidden" not in reported
    assert SECRET not in reported


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
        ({"CONCURRENCY": "0"}, "WEBHOOK_CONCURRENCY"),
        ({"SECONDS": "31"}, "WEBHOOK_SECONDS"),
        ({"PRIVATE": "yes"}, "WEBHOOK_PRIVATE"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, str], words: str) -> None:
    with pytest.raises(Misconfigured, match=words) as reported:
        load_webhook(environment(**changed))
    assert SECRET not in str(reported.value)


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
def test_a_retry_after_is_in_seconds_or_a_date_and_an_hour_at_most(
    said: str | None, seconds: float | None
) -> None:
    assert retry_after(said, datetime(2026, 11, 24, 12, tzinfo=UTC)) == seconds


PUBLIC = Webhook("https://receiver.example/events", ["a secret"])
PRIVATE = Webhook("https://receiver.example/events", ["a secret"], private=True)


def forms(address: str) -> list[str]:
    """As it is; mapped; by NAT64; by 6to4; by Teredo: each is a way to the same machine."""
    first, second, third, fourth = map(int, address.split("."))
    high, low = first << 8 | second, third << 8 | fourth
    teredo = f"2001:0:4136:e378:8000:63bf:{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}"
    return [address, f"::ffff:{address}", f"64:ff9b::{address}", f"2002:{high:x}:{low:x}::1", teredo]


@pytest.mark.parametrize("address", ["8.8.8.8", "20.50.2.1"])
def test_a_public_address_is_asked_in_each_form(address: str) -> None:
    assert [is_allowed(each, PUBLIC) for each in forms(address)] == [True] * 5


def test_an_address_of_ipv6_that_is_global_is_asked() -> None:
    assert is_allowed("2606:4700::1111", PUBLIC)


@pytest.mark.parametrize("address", ["10.0.0.4", "172.16.0.1", "172.31.255.255", "192.168.1.1"])
def test_a_private_one_is_asked_only_where_that_is_allowed(address: str) -> None:
    assert [is_allowed(each, PUBLIC) for each in forms(address)] == [False] * 5
    assert [is_allowed(each, PRIVATE) for each in forms(address)] == [True] * 5


def test_so_is_one_of_ipv6() -> None:
    for address in ("fc00::1", "fd12:3456::1"):
        assert (is_allowed(address, PUBLIC), is_allowed(address, PRIVATE)) == (False, True)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "169.254.169.254", "168.63.129.16", "192.0.0.192", "100.64.0.1",
     "100.100.100.200", "198.18.0.1", "192.0.2.1", "224.0.0.1", "224.0.1.1", "240.0.0.1", "255.255.255.255"],
)  # fmt: skip
@pytest.mark.parametrize("target", [PUBLIC, PRIVATE], ids=["public", "private"])
def test_what_is_no_machine_of_anybodys_is_never_asked(address: str, target: Webhook) -> None:
    assert [each for each in forms(address) if is_allowed(each, target)] == []


@pytest.mark.parametrize(
    "address",
    ["::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "fd00:ec2::254",
     "::10.0.0.1", "::127.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b:1::10.0.0.1", "64:ff9b:1:a9fe:a9:fe00::", "100::1",
     "2001:db8::1", "2001:20::1", "4000::1", "5f00::1"],
)  # fmt: skip
@pytest.mark.parametrize("target", [PUBLIC, PRIVATE], ids=["public", "private"])
def test_what_ipv6_keeps_for_its_own_ends_is_never_asked(address: str, target: Webhook) -> None:
    """``::10.0.0.1`` is an IPv4 address in an old form, ``64:ff9b:1::`` what a network translates at will."""
    assert not is_allowed(address, target)


@pytest.mark.parametrize("host", ["10.0.0.1", "[::ffff:169.254.169.254]", "[fe80::1]", "[64:ff9b:1::a00:1]"])
def test_an_address_in_the_url_is_checked_by_itself(host: str) -> None:
    with pytest.raises(AddressRefused):
        check_literal(Webhook(f"https://{host}/events", ["a secret"]))


@pytest.mark.parametrize(
    ("url", "address", "allowed"),
    [
        ("http://localhost/", "127.0.0.1", True),
        ("http://localhost/", "::1", True),
        ("http://localhost/", "8.8.8.8", False),
        ("http://127.0.0.1/", "10.0.0.1", False),
    ],
)
def test_a_url_of_this_machine_leads_to_no_other(url: str, address: str, *, allowed: bool) -> None:
    assert is_allowed(address, Webhook(url, ["a secret"])) is allowed


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "https://[fd00::1]/", "https://169.254.169.254/"])
async def test_a_look_at_a_receiver_that_may_not_be_asked_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="WEBHOOK_PRIVATE=true"):
        await reach(Webhook(url, ["a secret"]), seconds=5)


async def test_a_check_of_a_receiver_sends_nothing_and_reports_one_that_is_away() -> None:
    got: list[bytes] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert 0 <= await reach(Webhook(f"http://127.0.0.1:{port}/events", ["a secret"]), seconds=5) < 5
    await eventually(lambda: got)
    assert got == [b""]
    server.close()
    await server.wait_closed()
    with pytest.raises(Unavailable, match="ConnectionRefusedError") as reported:
        await reach(Webhook(f"http://127.0.0.1:{port}/secret", ["a secret"]), seconds=5)
    assert "secret" not in str(reported.value)
