"""A service in the middle of a deployment: processes of the version before are at work beside those of the new one.

The version before raises a reading in whole kilowatt hours; the new one in watt hours, as another version of the event,
and lets a meter be sealed, which is an event that the version before does not know. The new readers know both versions
of a reading by a step, which changes what it is given, as steps of users do; the readers of the version before know
theirs alone, and set the others aside.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, ClassVar, Literal
from uuid import uuid4

from cosmos_outbox import (
    After,
    Aggregate,
    AggregateState,
    DomainEvent,
    EntrySchema,
    Event,
    Names,
    Service,
    Timestamp,
    TolerantReader,
    WireModel,
)
from outbox_simulation import Commands, Release
from tests.support.reactions import Heap

NAMES = Names(database="meters", container="meters", topic="meter-events")


class MeterState(AggregateState):
    id: str
    created_at: Timestamp
    kwh: int = 0
    reads: int = 0


class SealedState(MeterState):
    sealed: int = 0


class Installed(WireModel):
    kwh: int


class ReadBefore(DomainEvent):
    """As the version before raises and publishes it."""

    action: Literal["MeterRead"] = "MeterRead"
    meter_id: str
    reading: dict[str, int]


class ReadNow(DomainEvent):
    """As the new version raises it."""

    schema_version: ClassVar[int] = 2
    action: Literal["MeterRead"] = "MeterRead"
    meter_id: str
    reading: dict[str, int]


class MeterBefore(Aggregate[MeterState]):
    aggregate_type: ClassVar[str] = "meter"
    state_type: ClassVar[type[AggregateState]] = MeterState
    created_event, created_payload = "MeterInstalled", Installed

    @property
    def aggregate_id(self) -> str:
        return self.state.id

    def read(self, kwh: int, at: datetime) -> None:
        facts, known = {"kwh": kwh}, {"meter_id": self.state.id, "created_at": at}
        self._raise(
            lambda n: ReadBefore(**known, sequence=n, reading=facts), kwh=kwh, reads=self.state.reads + 1
        )


class Meter(Aggregate[SealedState]):
    aggregate_type: ClassVar[str] = "meter"
    state_type: ClassVar[type[AggregateState]] = SealedState
    created_event, created_payload = "MeterInstalled", Installed
    changed_events: ClassVar[Mapping[str, str]] = {"sealed": "MeterSealed"}

    @property
    def aggregate_id(self) -> str:
        return self.state.id

    def read(self, kwh: int, at: datetime) -> None:
        facts, known = {"wh": kwh * 1000}, {"meter_id": self.state.id, "created_at": at}
        self._raise(
            lambda n: ReadNow(**known, sequence=n, reading=facts), kwh=kwh, reads=self.state.reads + 1
        )

    def seal(self, at: datetime) -> None:
        self._set("sealed", self.state.sealed + 1, at)


class Row(TolerantReader):
    wh: int


def in_watt_hours(data: dict[str, Any]) -> dict[str, Any]:
    data["reading"]["wh"] = data["reading"].pop("kwh") * 1000
    return data


UPCAST = {"MeterRead": {1: in_watt_hours}}
FORM = EntrySchema(Row, search={}, sorted_by=[])


def row(data: Mapping[str, Any]) -> Row:
    return Row(wh=data["kwh"] * 1000)


def project(row: Row, event: Event) -> After[Row] | None:
    return After(Row(wh=event.data["reading"]["wh"])) if event.action == "MeterRead" else After(row)


def project_before(row: Row, event: Event) -> After[Row] | None:
    return After(Row(wh=event.data["reading"]["kwh"] * 1000)) if event.action == "MeterRead" else None


def _heap(found: Heap | None, event: Event, mark: str) -> Heap | None:
    if found is None:
        made = Heap.make(f"heap-{event.aggregate.id}", mark).state
        return Heap(made.model_copy(update={"created_at": event.created_at}), is_new=True)
    found.put(mark, event.created_at)
    return None


def _declare(service: Service, meter: type[Meter | MeterBefore], unit: str, upcast: Any) -> Service:
    """What subscribes in both versions, each of which reads a reading in its unit."""

    @service.effect("bills", of=meter, upcast=upcast)
    async def bill(event: Event) -> None:
        if event.action == "MeterRead" and not isinstance(event.data["reading"][unit], int):
            raise ValueError("nobody knows what to bill")

    @service.reaction(
        "heaps",
        of=meter,
        to=Heap,
        order="each",
        target=lambda event: f"heap-{event.aggregate.id}",
        upcast=upcast,
    )
    def heap(found: Heap | None, event: Event) -> Heap | None:
        return _heap(found, event, str(event.data["reading"][unit]) if event.action == "MeterRead" else "0")

    return service


service = _declare(Service("meters", [Meter, Heap], NAMES), Meter, "wh", UPCAST)
service.read_model("usage", of=Meter, form=FORM, state_of=row, project=project, upcast=UPCAST)

before = _declare(Service("meters", [MeterBefore, Heap], NAMES), MeterBefore, "kwh", {"MeterRead": {}})
before.read_model(
    "usage", of=MeterBefore, form=FORM, state_of=row, project=project_before, upcast={"MeterRead": {}}
)


def _read(meter: Meter | MeterBefore, luck: Random, at: datetime) -> None:
    meter.read(meter.state.kwh + luck.randint(1, 9), at)


def _seal(meter: Meter, luck: Random, at: datetime) -> None:
    meter.seal(at)


def commands() -> Commands[Meter]:
    def install(luck: Random, at: datetime) -> Meter:
        return Meter(SealedState(id=str(uuid4()), created_at=at), is_new=True)

    return Commands(Meter, create=install, change=[_read, _read, _seal])


def uncounted(found: Sequence[Aggregate[Any]]) -> Iterator[str]:
    """What a meter counts and its events do not: the version before keeps what it does not know."""
    for each in found:
        if isinstance(each, Meter) and each.state.last_sequence != 1 + each.state.reads + each.state.sealed:
            yield f"{each.key}: {each.state.reads} read, sealed {each.state.sealed}, {each.state.last_sequence} events"


def release() -> Release:
    """The one before."""

    def install(luck: Random, at: datetime) -> MeterBefore:
        return MeterBefore(MeterState(id=str(uuid4()), created_at=at), is_new=True)

    return Release(before, [Commands(MeterBefore, create=install, change=[_read])])
