"""``cosmos-outbox schemas`` writes the contract of a service's events to a folder."""

import json
from pathlib import Path

import pytest

from cosmos_outbox import Names, Service
from cosmos_outbox.cli import schemas as command
from tests.support.parcels import Parcel

PARCELS = Service("parcels", [Parcel], Names(topic="parcel-events"))
OF_PARCELS = ["--service", f"{__name__}.PARCELS"]


def test_the_contract_has_each_event_as_it_is_published(
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
    assert moved["properties"]["parcelId"]["description"] == "The parcel that the event is about."
    assert set(moved["required"]) == {"id", "action", "sequence", "createdAt", "parcelId", "goesTo", "kilos"}
    reported = json.loads((tmp_path / "asyncapi.json").read_text())
    assert reported["channels"]["events"]["address"] == "parcel-events"
    assert reported["components"]["messages"]["ParcelMoved"]["payload"] == {
        "$ref": "./schemas/ParcelMoved.v2.json"
    }
    assert command.main([str(tmp_path), *OF_PARCELS]) == 0
    assert not capsys.readouterr().out, "nothing differs"
