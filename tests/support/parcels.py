"""Parcels whose events are published in another form than the state's: a model where the property is declared, and one
of an event that is raised by hand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import ClassVar, Literal, Self
from uuid import UUID

from cosmos_outbox import Aggregate, AggregateState, DomainEvent, Timestamp, WireModel

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Address(WireModel):
    street: str
    city: str


class ParcelState(AggregateState):
    id: UUID
    created_at: Timestamp
    address: Address
    weight_in_grams: int = 0
    lost: bool = False


class Moved(WireModel):
    """The parcel goes elsewhere."""

    schema_version: ClassVar[int] = 2
    goes_to: str
    kilos: float

    @classmethod
    def of(cls, event: DomainEvent, state: ParcelState) -> Self:
        assert isinstance(event.address, Address)  # type: ignore[attr-defined]  # declared by its name
        return cls(goes_to=event.address.city, kilos=state.weight_in_grams / 1000)  # type: ignore[attr-defined]


class ParcelLost(DomainEvent):
    action: Literal["ParcelLost"] = "ParcelLost"
    parcel_id: UUID
    by: str


class LostForAll(WireModel):
    where: str

    @classmethod
    def of(cls, event: ParcelLost, state: ParcelState) -> Self:
        return cls(where=state.address.city)


class Tells(WireModel):
    weight_in_grams: int


class Parcel(Aggregate[ParcelState]):
    aggregate_type: ClassVar[str] = "parcel"
    state_type: ClassVar[type[AggregateState]] = ParcelState
    created_event, created_payload = "ParcelSent", Tells
    changed_events: ClassVar[Mapping[str, str]] = {
        "address": "ParcelMoved",
        "weight_in_grams": "ParcelWeighed",
    }
    published_forms: ClassVar[Mapping[type[DomainEvent] | str, type[WireModel]]] = {
        "ParcelMoved": Moved,
        ParcelLost: LostForAll,
    }

    @property
    def aggregate_id(self) -> str:
        return str(self.state.id)

    def change(self, **values: object) -> None:
        for name, value in values.items():
            self._set(name, value, NOON)

    def lose(self, by: str) -> None:
        self._raise(
            lambda n: ParcelLost(parcel_id=self.state.id, by=by, sequence=n, created_at=NOON), lost=True
        )


OSLO = Address(street="Storgata 1", city="Oslo")
