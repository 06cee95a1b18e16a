"""Reads an event from a message, or raises Unreadable with a reason that holds no personal data.

A subscriber reads another service's JSON with models of its own, which have only the fields that the subscriber uses:
fields that a later version of that service adds do no harm.

A skip marker takes the place of an event that an operator of the publisher has discarded. It has the sequence of that
event, so that subscribers see no gap, and holds nothing of what changed.

Events of older schema versions are converted to the one that a subscriber's functions are written for
(:class:`Upcasting`). A subscriber declares, for each event that has changed, a step from a version to the next: a pure
function of the event's data. The steps run one by one, so a gap is an error of the declaration, and a cycle cannot be
declared. An event newer than the last step's result is not converted: its message waits, set aside, for a version of
the subscriber that knows it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from cosmos_outbox.inbox.errors import EffectRejected, NotApplied, Unreadable, reason_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass

SKIP_MARKER = "EventDiscarded"
"""The action of every skip marker."""


@dataclass(frozen=True)
class Event:
    """An event as a subscriber receives it. ``data`` holds personal data, and is not shown in logs."""

    id: str
    """The same in every delivery, and if the event is published again: the key of an effect."""
    aggregate: AggregateKey
    """Its ``type`` and ``id``."""
    action: str
    """The event's name, or that of a skip marker."""
    sequence: int | None
    """1, 2, 3 … without a gap for each aggregate; None: the publisher gave the event no number."""
    created_at: datetime
    """The time of the change; one without a zone, as other publishers may store it, is UTC."""
    data: Mapping[str, Any] = field(repr=False, hash=False)
    schema_version: int | None = None
    """The version of the event's schema, by which a subscriber reads ``data``; None: the message has none."""
    source: str = ""
    """The service that raised the event: with ``id`` it is globally unique. Empty: the message names none."""
    republished: bool = False
    """Whether an operator published it again."""

    def age(self, now: datetime) -> timedelta:
        """Returns the event's age; a time without a zone is UTC."""
        return now - utc(self.created_at)

    @property
    def is_skip(self) -> bool:
        """Whether the message replaces a discarded event."""
        return self.action == SKIP_MARKER


def utc(time: datetime) -> datetime:
    """Returns the time with its zone; one without a zone is UTC."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Delivery:
    """A message as the broker delivered it."""

    subscription: str
    message_id: str
    enqueued_number: int
    """The broker's number of the message: another message with the same id has another number."""
    body: bytes = field(repr=False)
    properties: Mapping[str, Any] = field(repr=False)

    @property
    def record_id(self) -> str:
        """The id of the message's record, the same for each delivery of the message (``created-once``)."""
        name = json.dumps([self.subscription, self.message_id, self.enqueued_number])
        return hashlib.sha256(name.encode()).hexdigest()[:32]


class TolerantReader(BaseModel):
    """The part of another service's JSON that a subscriber uses: immutable, camelCase; other fields are ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


_Text = Annotated[str, Field(min_length=1, max_length=128)]


class _Envelope(TolerantReader, defer_build=True):
    """The fields that the body of every event has."""

    id: _Text
    action: _Text
    sequence: Annotated[int | None, Field(strict=True, ge=1, lt=2**63)] = None
    created_at: datetime


class _Owner(TolerantReader, defer_build=True):
    """The aggregate that an event belongs to."""

    aggregate_id: Annotated[str, Field(pattern=r"^[^/\\?#]{1,128}$")]
    """A valid id of an item in the store; the aggregate itself may not exist."""


@dataclass(frozen=True)
class MessageReader:
    """Reads the events of aggregates of one type; a subscriber ignores all others of its topic."""

    aggregate_type: str
    untyped: bool = False
    """Whether a message without an aggregate type is of this one: older publishers sent such messages."""

    def read(self, delivery: Delivery) -> Event | None:
        """Returns the event in a message; None: its aggregate is of another type. Raises Unreadable."""
        return self.event(delivery.body, delivery.properties)

    def event(self, body: bytes, properties: Mapping[str, Any]) -> Event | None:
        """As :meth:`read`, from a message's body and application properties.

        The aggregate's id is not read from the session, which some versions of the Python worker do not pass on.
        """
        if isinstance(why := properties.get("unreadable"), str):
            raise self._unreadable(why)
        if (
            properties.get("aggregateType", self.aggregate_type if self.untyped else None)
            != self.aggregate_type
        ):
            return None
        try:
            data = from_json(body)
            envelope = _Envelope.model_validate(data)
            owner = _Owner(aggregate_id=self._owner(data, properties)).aggregate_id
        except ValidationError as problems:
            fields = ", ".join(
                sorted({str(each["loc"][0]) if each["loc"] else "body" for each in problems.errors()})
            )
            raise self._unreadable(f"{fields} missing or wrong") from None
        except ValueError:
            raise self._unreadable("it is no JSON") from None
        key = AggregateKey(self.aggregate_type, owner)
        version, source = properties.get("schemaVersion"), properties.get("cloudEvents_source")
        return Event(
            envelope.id, key, envelope.action, envelope.sequence, envelope.created_at, data,
            schema_version=version if type(version) is int else None,
            source=source if isinstance(source, str) else "",
            republished="originalMessageId" in properties,
        )  # fmt: skip

    def _owner(self, data: Mapping[str, Any], properties: Mapping[str, Any]) -> Any:
        """Returns the aggregate's id: an event has it under its type's name, a skip marker not, the message always."""
        return (
            data.get(f"{self.aggregate_type}Id")
            or data.get("aggregateId")
            or properties.get("cloudEvents_subject")
        )

    def _unreadable(self, why: str) -> Unreadable:
        return Unreadable(f"the message is no event of aggregate type {self.aggregate_type}: {why}")


Upcasts = Mapping[str, Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]]
"""Maps an event's name and a version to the step that converts ``data`` from it to the next version.

Without a step, ``{}``, only version 1 is known. An event that is not named is accepted in any version."""

C = TypeVar("C", bound=Callable[..., Any])


@dataclass(frozen=True)
class Upcasting:
    """The steps of one subscriber."""

    steps: Upcasts = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that no step is missing. Raises ValueError, which names the missing one."""
        for action, steps in self.steps.items():
            if not steps:
                continue
            first, last = min(steps), max(steps)
            if first < 1:
                raise ValueError(f"upcast of {action} has a step from version {first}: versions begin at 1")
            if missing := sorted({*range(first, last)} - {*steps}):
                raise ValueError(
                    f"upcast of {action} has no step from version {missing[0]}: events of version {first} would end "
                    "there. Each step leads to the next version; add this one"
                )

    def __call__(self, event: Event) -> Event:
        """Returns the event in the version that the subscriber knows. Raises NotApplied: it cannot be converted."""
        steps = self.steps.get(event.action)
        if steps is None:
            return event
        first, known, version = min(steps, default=1), max(steps, default=0) + 1, event.schema_version or 1
        if version > known:
            raise NotApplied(
                f"{event.action} {event.id} has version {version}, and this subscriber knows {known}: deploy one that "
                "knows it; the event is tried again"
            )
        if version < first:
            raise NotApplied(
                f"{event.action} {event.id} has version {version}, and upcast begins at {first}: declare the "
                "steps before that; the event is tried again"
            )
        if version == known:
            return event
        data = deepcopy(dict(event.data))  # a step may mutate its argument, and an event may be retried
        for each in range(version, known):
            try:
                data = steps[each](data)
            except Exception as error:
                raise NotApplied(
                    f"the step from version {each} of {event.action} failed for {event.id}: {reason_of(error)}"
                ) from error
        return replace(event, data=data, schema_version=known)

    def before(self, call: C) -> C:
        """Wraps a function of the subscriber, whose last argument is an event, to receive the known version."""
        if not self.steps:
            return call

        def upcasted(*given: Any) -> Any:
            return call(*given[:-1], self(given[-1]))

        return upcasted  # type: ignore[return-value]  # it has the function's signature

    def before_effect(self, run: C) -> C:
        """As :meth:`before`. An effect whose event cannot be converted surely did not take place."""

        async def run_upcast(event: Event) -> None:
            try:
                known = self(event)
            except NotApplied as error:
                raise EffectRejected(str(error)) from error
            await run(known)

        return run_upcast  # type: ignore[return-value]  # it has the effect's signature
