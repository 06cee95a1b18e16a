"""``cosmos-outbox schemas`` moves the contract in a folder on, and stops at what breaks a reader of the last."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self
from uuid import UUID

import pytest

from cosmos_outbox import DomainEvent, Names, Service, WireModel
from cosmos_outbox.cli import schemas as command
from cosmos_outbox.contracts.release import compare, contract, write
from tests.support.parcels import Moved, Parcel, ParcelLost, ParcelState
from tests.support.paths import ROOT

NAMES = Names(topic="parcel-events")
PARCELS = Service("parcels", [Parcel], NAMES)


class GoesElsewhere(Moved):
    kilos: float | None  # type: ignore[assignment]  # what breaks a reader


class Told(GoesElsewhere):
    schema_version: ClassVar[int] = 3


class Jumped(GoesElsewhere):
    schema_version: ClassVar[int] = 4


class Back(Moved):
    schema_version: ClassVar[int] = 1


class Richer(Moved):
    note: str | None = None

    @classmethod
    def of(cls, event: DomainEvent, state: ParcelState) -> Self:
        return cls(**dict(Moved.of(event, state)))


class ParcelBurnt(DomainEvent):
    action: Literal["ParcelBurnt"] = "ParcelBurnt"
    parcel_id: UUID


def parcels(form: type[WireModel], **more: Any) -> Service:
    class Changed(Parcel):
        published_forms: ClassVar[Mapping[Any, Any]] = {**Parcel.published_forms, "ParcelMoved": form}

    return Service("parcels", [Changed], NAMES, **more)


@pytest.fixture
def last(tmp_path: Path) -> Path:
    """The contract of the last release."""
    write(tmp_path, contract(PARCELS))
    return tmp_path


def test_the_contract_has_each_event_as_it_is_published(last: Path) -> None:
    assert {str(file.relative_to(last)) for file in last.rglob("*.json")} == {
        "asyncapi.json",
        "schemas/EventDiscarded.v1.json",
        "schemas/ParcelLost.v1.json",
        "schemas/ParcelMoved.v2.json",
        "schemas/ParcelSent.v1.json",
        "schemas/ParcelWeighed.v1.json",
    }
    moved = json.loads((last / "schemas/ParcelMoved.v2.json").read_text())
    assert moved["description"] == "The parcel goes elsewhere."
    assert moved["properties"]["parcelId"]["description"] == "The parcel that the event is about."
    assert set(moved["required"]) == {"id", "action", "sequence", "createdAt", "parcelId", "goesTo", "kilos"}
    told = json.loads((last / "asyncapi.json").read_text())
    assert told["channels"]["events"]["address"] == "parcel-events"
    assert told["components"]["messages"]["ParcelMoved"]["payload"] == {
        "$ref": "./schemas/ParcelMoved.v2.json"
    }


def test_nothing_new_breaks_nobody(last: Path) -> None:
    found = compare(last, contract(PARCELS))
    assert (found.breaks, found.raised) == ([], [])


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (GoesElsewhere, ["ParcelMoved v2: kilos may be null now (other-type)"]),
        (Jumped, ["ParcelMoved: its version is 4, and was 2: the next is 3 (version)"]),
        (Back, ["ParcelMoved: its version is 1, and was 2: the next is 3 (version)"]),
        (Told, []),
        (Richer, []),
    ],
)
def test_a_change_that_breaks_a_reader_needs_the_next_version(
    last: Path, form: type[WireModel], told: list[str]
) -> None:
    found = compare(last, contract(parcels(form)))
    assert found.breaks == told
    raised = ["ParcelMoved: version 3 is new; readers need a step from 2 before it"]
    assert found.raised == (raised if form is Told else [])


def test_an_event_that_is_gone_breaks_its_readers_and_a_new_one_nobody(last: Path) -> None:
    class Weightless(Parcel):
        changed_events: ClassVar[Mapping[str, str]] = {"address": "ParcelMoved"}

    found = compare(last, contract(Service("parcels", [Weightless], NAMES, events=[ParcelBurnt])))
    assert found.breaks == ["ParcelWeighed is gone (event)"]
    assert compare(last, contract(Service("parcels", [Parcel], NAMES, events=[ParcelBurnt]))).breaks == []


def test_a_schema_of_a_version_before_stays_for_the_messages_that_wait(last: Path) -> None:
    write(last, contract(parcels(Told)))
    assert (last / "schemas/ParcelMoved.v2.json").exists()
    assert compare(last, contract(parcels(Told))).breaks == []
    assert compare(last, contract(PARCELS)).breaks == [
        "ParcelMoved: its version is 2, and was 3: the next is 4 (version)"
    ]


def test_two_events_of_one_name_have_no_contract() -> None:
    with pytest.raises(ValueError, match="two events of parcels are named ParcelLost"):
        contract(Service("parcels", [Parcel], events=[ParcelLost]))


# --- the command, for the contact service --------------------------------------------------------------------------

FOLDER = ROOT / "docs" / "use" / "events"
OF_CONTACTS = ["--service", "infra.bootstrap"]


def copied(to: Path) -> Path:
    write(to, {str(file.relative_to(FOLDER)): file.read_text() for file in FOLDER.rglob("*.json")})
    return to


def test_the_contract_of_the_contact_service_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--check", str(FOLDER), *OF_CONTACTS]) == 0
    assert capsys.readouterr().err == ""


def test_the_command_writes_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path), *OF_CONTACTS]) == 0
    assert f"wrote {tmp_path / 'asyncapi.json'}" in capsys.readouterr().out
    assert command.main(["--check", str(tmp_path), *OF_CONTACTS]) == 0


def test_what_breaks_a_reader_ends_both_commands_with_1_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = copied(tmp_path) / "schemas" / "ContactNameUpdatedEvent.v1.json"
    told = json.loads(file.read_text())
    told["properties"]["nickname"] = {"type": "string"}
    file.write_text(json.dumps(told))
    (tmp_path / "schemas" / "ContactGone.v1.json").write_text("{}")
    (tmp_path / "asyncapi.json").unlink()
    for arguments in (["--check"], []):
        assert command.main([*arguments, str(tmp_path), *OF_CONTACTS]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert lines[:2] == [
            "ContactNameUpdatedEvent v1: nickname is gone (removed)",
            "ContactGone is gone (event)",
        ]
        assert "raise schema_version" in lines[2]
    assert not (tmp_path / "asyncapi.json").exists()


def test_what_cannot_be_compared_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--check", str(tmp_path), *OF_CONTACTS]) == 2
    assert "has no contract to compare with" in capsys.readouterr().err
    copied(tmp_path)
    (tmp_path / "schemas" / "ContactGone.v1.json").write_text("no JSON")
    assert command.main([str(tmp_path), *OF_CONTACTS]) == 2
    assert "schemas/ContactGone.v1.json is no JSON" in capsys.readouterr().err
