"""Reads an event from a message, or raises Unreadable with a reason that holds no personal data.

A subscriber reads another service's JSON with models of its own, which have only the fields that the subscriber uses:
fields that a later version of that service adds do no harm.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from cosmos_outbox.inbox.errors import Unreadable
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey


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


class _Envelope(TolerantReader):
    """The fields that the body of every event has."""

    id: _Text
    action: _Text
    sequence: Annotated[int | None, Field(strict=True, ge=1, lt=2**63)] = None
    created_at: datetime


class _Owner(TolerantReader):
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
        """Returns the aggregate's id: an event has it under its type's name, a notice not, the message always."""
        return (
            data.get(f"{self.aggregate_type}Id")
            or data.get("aggregateId")
            or properties.get("cloudEvents_subject")
        )

    def _unreadable(self, why: str) -> Unreadable:
        return Unreadable(f"the message is no event of aggregate type {self.aggregate_type}: {why}")
