"""An event is published in a form of its own, made at the commit; what every event has stays as it is."""

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

import pytest

from cosmos_outbox import DomainEvent, Origin, WireModel
from cosmos_outbox.cosmos.aggregates.documents import event_item
from tests.support.parcels import (
    NOON,
    OSLO,
    Address,
    LostForAll,
    Moved,
    Parcel,
    ParcelLost,
    ParcelState,
    Tells,
)

ID = UUID("b5e2e7aa-4982-4735-9422-c39a7c4af5c2")


def parcel(**values: Any) -> Parcel:
    return Parcel.load(ParcelState(id=ID, created_at=NOON, address=OSLO, **values))


def documents(changed: Parcel) -> list[dict[str, Any]]:
    changes = changed.changes()
    assert changes is not None
    return [event_item(changed, each, Origin("request-1"), ttl=60) for each in changes.events]


def test_what_is_stored_and_so_published_is_the_form_with_the_state_that_is_stored_with_it() -> None:
    changed = parcel(last_sequence=4)
    changed.change(address=Address(street="Kaigaten 2", city="Bergen"), weight_in_grams=1500)
    moved, weighed = documents(changed)
    assert moved["data"] == {
        "id": moved["id"], "action": "ParcelMoved", "sequence": 5, "createdAt": "2026-03-01T12:00:00Z",
        "parcelId": str(ID), "goesTo": "Bergen", "kilos": 1.5, "correlationId": "request-1",
    }  # fmt: skip
    assert moved["schemaVersion"] == 2
    assert (weighed["data"]["weightInGrams"], weighed["schemaVersion"]) == (1500, 1)
    assert changed.state.address.street == "Kaigaten 2", "the state keeps its own form"


def test_an_event_that_is_raised_by_hand_has_a_form_by_its_class() -> None:
    changed = parcel()
    changed.lose(by="a van driver")
    [lost] = documents(changed)
    assert (lost["data"]["where"], lost["data"]["action"], lost["data"].get("by")) == (
        "Oslo",
        "ParcelLost",
        None,
    )


def test_the_declared_events_are_the_published_ones() -> None:
    told = {each.__name__: each for each in Parcel.declared_events()}
    assert set(told) == {"ParcelSent", "ParcelMoved", "ParcelWeighed", "ParcelLost"}
    assert told["ParcelMoved"].schema_version == 2
    assert {"goes_to", "kilos", "parcel_id", "sequence"} <= set(told["ParcelMoved"].model_fields)
    assert "address" not in told["ParcelMoved"].model_fields
    assert told["ParcelMoved"].__doc__ == "The parcel goes elsewhere."


def test_an_id_is_made_once_whatever_the_form() -> None:
    changed = parcel()
    changed.change(weight_in_grams=1, address=Address(street="", city="Bergen"))
    ids = [document["id"] for document in documents(changed)]
    assert len(set(ids)) == 2
    assert all(document["id"] == document["data"]["id"] for document in documents(changed))


@pytest.mark.parametrize(
    ("forms", "told"),
    [
        ({"ParcelBurnt": Moved}, "published_forms names ParcelBurnt, which no declaration makes"),
        ({"ParcelMoved": Tells}, r"Tells needs a classmethod of\(event, state\)"),
    ],
)
def test_a_mistake_is_found_when_the_class_is_made(forms: Mapping[Any, Any], told: str) -> None:
    with pytest.raises(TypeError, match=f"Wrong: {told}"):
        type("Wrong", (Parcel,), {"published_forms": forms})


def test_a_form_cannot_tell_what_every_event_has() -> None:
    class Sequenced(Moved):
        parcel_id: str

    with pytest.raises(TypeError, match="Sequenced cannot tell parcel_id, which every event has for itself"):
        type("Wrong", (Parcel,), {"published_forms": {"ParcelMoved": Sequenced}})


def test_a_form_that_tells_no_version_has_that_of_its_event() -> None:
    class Second(ParcelLost):
        schema_version: ClassVar[int] = 2

    class Changed(Parcel):
        published_forms: ClassVar[Mapping[Any, Any]] = {Second: LostForAll}

    [published] = [each for each in Changed.declared_events() if each.__name__ == "Second"]
    assert published.schema_version == 2


def test_a_form_that_makes_something_else_stores_nothing() -> None:
    class Broken(WireModel):
        @classmethod
        def of(cls, event: DomainEvent, state: ParcelState) -> Moved:
            return Moved(goes_to="", kilos=0)

    class Wrong(Parcel):
        published_forms: ClassVar[Mapping[Any, Any]] = {"ParcelMoved": Broken}

    changed = Wrong.load(parcel().state)
    changed.change(address=Address(street="", city="Bergen"))
    with pytest.raises(TypeError, match=r"of\(\) of Broken has made a Moved: return a Broken"):
        changed.changes()
