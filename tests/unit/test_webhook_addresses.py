"""An address leads outside, into a private network, or to what nobody may ask, in whatever form it is written."""

import pytest

from cosmos_outbox.settings.webhook import Webhook
from cosmos_outbox.webhook.addresses import AddressRefused, check_literal, is_allowed

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
