"""``cosmos-outbox schemas`` writes the contract of a service's events to a folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Names, Service, Timestamp, WireModel
from cosmos_outbox.cli import schemas as command


class ParcelState(AggregateState):
    id: str
    created_at: Timestamp
    goes_to: str
    kilos: float


class Sent(WireModel):
    kilos: float


class ParcelMoved(DomainEvent):
    """The parcel goes elsewhere."""

    schema_version: ClassVar[int] = 2
    action: Literal["ParcelMoved"] = "ParcelMoved"
    parcel_id: str
    goes_to: str
    kilos: float


class ParcelLost(DomainEvent):
    action: Literal["ParcelLost"] = "ParcelLost"
    parcel_id: str


class Parcel(Aggregate[ParcelState]):
    aggregate_type: ClassVar[str] = "parcel"
    state_type: ClassVar[type[AggregateState]] = ParcelState
    created_event, created_payload = "ParcelSent", Sent
    changed_events: ClassVar[Mapping[str, type[DomainEvent] | str]] = {
        "goes_to": ParcelMoved, "kilos": "ParcelWeighed"
    }  # fmt: skip

    @property
    def aggregate_id(self) -> str:
        return self.state.id


PARCELS = Service("parcels", [Parcel], Names(topic="parcel-events"), events=[ParcelLost])
OF_PARCELS = ["--service", f"{__name__}.PARCELS"]


def test_the_contract_has_each_event_in_its_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = tmp_path / "schemas/ParcelMoved.v1.json"
    older.parent.mkdir()
    older.write_text("{}")
    assert command.main([str(tmp_path), *OF_PARCELS]) == 0
    assert f"wrote {tmp_path / 'asyncapi.json'}" in capsys.readouterr().out
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.json")} == {
        "asyncapi.json",
        "schemas/EventDiscarded.v1.json",
        "schemas/ParcelLost.v1.json",
        "schemas/ParcelMoved.v1.json",  # messages of the version before may still wait
        "schemas/ParcelMoved.v2.json",
        "schemas/ParcelSent.v1.json",
        "schemas/ParcelWeighed.v1.json",
    }
    moved = json.loads((tmp_path / "schemas/ParcelMoved.v2.json").read_text())
    assert moved["description"] == "The parcel goes elsewhere."
    assert set(moved["required"]) == {"id", "action", "sequence", "createdAt", "parcelId", "goesTo", "kilos"}
    reported = json.loads((tmp_path / "asyncapi.json").read_text())
    assert reported["channels"]["events"]["address"] == "parcel-events"
    assert reported["components"]["messages"]["ParcelMoved"]["payload"] == {
        "$ref": "./schemas/ParcelMoved.v2.json"
    }
    assert command.main([str(tmp_path), *OF_PARCELS]) == 0
    assert not capsys.readouterr().out, "nothing differs"
