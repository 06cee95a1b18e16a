"""A service borrows no name from another one, and a command works for the service that it is given."""

import sys
from pathlib import Path

import pytest

from cosmos_outbox.cli import command
from cosmos_outbox.cli.command import load_service
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.service import Service
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named, Names
from domain.contact import Contact
from examples.orders.service import service as orders
from infra.bootstrap import service as contacts

CONNECTED = {"COSMOS": "AccountEndpoint=http://x/;AccountKey=eA==;", "SERVICEBUS": "Endpoint=sb://x/;A=b"}


async def nothing(event: Event) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (Names(), "COSMOS_CONTAINER"),
        (Names(container="bookings", topic="booking-events"), "COSMOS_DATABASE"),
        (Names(database="bookings", container="bookings"), "SERVICEBUS_TOPIC"),
    ],
)
def test_a_name_that_nobody_gives_is_an_error_that_says_which(names: Names, missing: str) -> None:
    with pytest.raises(Misconfigured, match=f"{missing} is not set, and the service declares no name"):
        Service("bookings", aggregates=[], names=names).settings(CONNECTED)


def test_a_subscribers_names_follow_from_its_own_unless_they_are_given() -> None:
    service = Service("bookings", aggregates=[], names=Names("d", "c", "t"))
    by_name = service.effect("booking-mails", of="booking")(nothing)
    named = service.effect("calls", of="booking", subscription=Named("CALLS", "s"), container="held")(nothing)
    settings = service.settings(CONNECTED | {"BOOKING_MAILS_CONTAINER": "mails"})
    assert [settings.name(each) for each in (by_name.subscription, by_name.container)] == [
        "booking-mails",
        "mails",
    ]
    assert [settings.name(each) for each in (named.subscription, named.container)] == ["s", "held"]


def test_two_of_one_kind_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two aggregates of bookings have one type"):
        Service("bookings", aggregates=[Contact, Contact])
    service = Service("bookings", aggregates=[])
    service.effect("mails", of="booking")(nothing)
    with pytest.raises(ValueError, match="bookings has two subscribers named mails"):
        service.effect("mails", of="booking")(nothing)


@pytest.mark.parametrize("name", ["infra.bootstrap", "infra.bootstrap.service"])
def test_a_service_is_found_by_its_module_or_by_its_own_name(name: str) -> None:
    assert load_service(name) is contacts


@pytest.mark.parametrize("name", ["missing", "infra.missing", "infra.bootstrap.wire", "json", "infra"])
def test_where_there_is_no_service_the_command_says_what_to_name(name: str) -> None:
    with pytest.raises(Misconfigured, match=f"--service {name}: there is no Service there"):
        load_service(name)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("import booking_that_is_missing", "No module named 'booking_that_is_missing'. Is this the folder"),
        (
            "from cosmos_outbox import Service\nService('A b')",
            r"ValueError in <module> \(.*/broken.py:2\): Service",
        ),
    ],
)
def test_a_service_that_cannot_be_imported_is_one_line(
    written: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(written)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(Misconfigured, match=f"--service broken: broken cannot be imported: .*{said}"):
        load_service("broken")


def chosen(*arguments: str, **environment: str) -> Service:
    parser = command.parser("any", "", "done", "not done")
    return command.named(parser.parse_args(arguments), environment)[0]


def test_the_call_wins_over_the_environment_and_that_over_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = {"OUTBOX_SERVICE": "examples.orders.service"}
    assert chosen("--service", "infra.bootstrap", **setting) is contacts
    assert chosen(**setting) is orders
    assert chosen() is contacts, "this project's pyproject.toml names it"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.cosmos-outbox]\nservice = "examples.orders.service"\n')
    assert chosen() is orders


@pytest.mark.parametrize("content", [None, "", "[tool.cosmos-outbox]\nservice = 7\n"])
def test_where_nobody_names_a_service_the_command_says_how_to(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(Misconfigured, match="no service is named: add --service MODULE, set OUTBOX_SERVICE"):
        chosen()


def test_a_key_that_nobody_knows_in_the_project_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.cosmos-outbox]\nservise = "bookings.service"\n')
    with pytest.raises(Misconfigured, match=r"pyproject\.toml has servise: it knows only service"):
        chosen()


def test_a_project_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[")
    with pytest.raises(Misconfigured, match=r"cannot read pyproject\.toml"):
        chosen()
