"""A service in the middle of a deployment: each call is served by the version before or by the new one, by luck.

The version before told a reading in whole kilowatt hours; the new one publishes watt hours, in a form of its own. The
readers know both by a step, which changes what it is given, as steps of users do.
"""

from collections.abc import Mapping
from datetime import datetime
from random import Random
from typing import Any, ClassVar, Literal, Self
from uuid import uuid4

from cosmos_outbox import (
    After,
    Aggregate,
    AggregateState,
    DomainEvent,
    EntryForm,
    Event,
    Names,
    Service,
    Timestamp,
    TolerantReader,
    WireModel,
)
from cosmos_outbox.testing import Commands
from tests.support.reactions import Heap


class MeterState(AggregateState):
    id: str
    created_at: Timestamp
    kwh: int = 0


class Installed(WireModel):
    kwh: int


class ReadBefore(DomainEvent):
    """As the version before raises and publishes it."""

    action: Literal["MeterRead"] = "MeterRead"
    meter_id: str
    reading: dict[str, int]


class ReadNow(DomainEvent):
    """As the new version raises it."""

    action: Literal["MeterRead"] = "MeterRead"
    meter_id: str


class Reading(WireModel):
    """As the new version publishes it."""

    schema_version: ClassVar[int] = 2
    reading: dict[str, int]

    @classmethod
    def of(cls, event: DomainEvent, state: MeterState) -> Self:
        return cls(reading={"wh": state.kwh * 1000})


class Meter(Aggregate[MeterState]):
    aggregate_type: ClassVar[str] = "meter"
    state_type: ClassVar[type[AggregateState]] = MeterState
    created_event, created_tells = "MeterInstalled", Installed
    published_forms: ClassVar[Mapping[type[DomainEvent] | str, type[WireModel]]] = {ReadNow: Reading}

    @property
    def aggregate_id(self) -> str:
        return self.state.id

    def read(self, kwh: int, at: datetime, *, by_the_new: bool) -> None:
        known = {"meter_id": self.state.id, "created_at": at}
        if by_the_new:
            self._raise(lambda n: ReadNow(**known, sequence=n), kwh=kwh)
        else:
            self._raise(lambda n: ReadBefore(**known, sequence=n, reading={"kwh": kwh}), kwh=kwh)


class Row(TolerantReader):
    wh: int


def in_watt_hours(data: dict[str, Any]) -> dict[str, Any]:
    data["reading"]["wh"] = data["reading"].pop("kwh") * 1000
    return data


UPCAST = {"MeterRead": {1: in_watt_hours}}

service = Service("meters", [Meter, Heap], Names(database="meters", container="meters", topic="meter-events"))


def project(row: Row, event: Event) -> After[Row] | None:
    return After(Row(wh=event.data["reading"]["wh"]))


service.read_model(
    "usage",
    of=Meter,
    form=EntryForm(Row, search={}, sorted_by=[]),
    state_of=lambda data: Row(wh=data["kwh"] * 1000),
    project=project,
    upcast=UPCAST,
)


@service.effect("bills", of=Meter, upcast=UPCAST)
async def bill(event: Event) -> None:
    if event.action != "MeterInstalled" and not isinstance(event.data["reading"]["wh"], int):
        raise ValueError("nobody knows what to bill")


@service.reaction(
    "heaps", of=Meter, to=Heap, order="each", target=lambda event: f"heap-{event.aggregate.id}", upcast=UPCAST
)
def heap(found: Heap | None, event: Event) -> Heap | None:
    mark = "0" if event.action == "MeterInstalled" else str(event.data["reading"]["wh"])
    if found is None:
        made = Heap.make(f"heap-{event.aggregate.id}", mark).state
        return Heap(made.model_copy(update={"created_at": event.created_at}), is_new=True)
    found.put(mark, event.created_at)
    return None


def commands() -> Commands[Meter]:
    def install(luck: Random, at: datetime) -> Meter:
        return Meter(MeterState(id=str(uuid4()), created_at=at), is_new=True)

    def read(meter: Meter, luck: Random, at: datetime) -> None:
        meter.read(meter.state.kwh + luck.randint(1, 9), at, by_the_new=luck.random() < 1 / 2)

    return Commands(Meter, create=install, change=[read])
