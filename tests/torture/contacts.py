"""What the events and answers of the contact service say, as docs/use/messages.md has it: read without its code."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from outbox_simulation.invariants.language import State

UPDATED = {
    "name": "ContactNameUpdatedEvent",
    "email": "ContactEmailUpdatedEvent",
    "description": "ContactDescriptionUpdatedEvent",
    "company": "ContactCompanyUpdatedEvent",
}
"""The event of each property that a patch may set, by the names that docs/use/messages.md gives."""

CREATED = "ContactCreatedEvent"
DELETED = "ContactDeletedEvent"


class Contacts:
    """The judges' language for contacts."""

    created = CREATED
    deleted = DELETED
    aggregate_id = "contactId"

    def after(self, state: State, action: str, body: State) -> State:
        """A creation carries the whole contact, every other event its property."""
        if action == CREATED:
            return dict(body.get("contact") or {})
        changed = {name: body[name] for name in UPDATED if name in body}
        return {**state, **changed, "modifiedAt": body.get("createdAt")}

    def values(self, state: State) -> dict[str, str | None]:
        """What the clients set in a contact, or in a part of one."""
        name, company = state.get("name") or {}, state.get("company") or {}
        found = {
            "name": name.get("firstName"),
            "email": state.get("email"),
            "description": state.get("description"),
            "company": company.get("companyName"),
        }
        return {key: value for key, value in found.items() if key in state}

    def entry(self, state: State) -> dict[str, Any]:
        """What the directory shows of a contact."""
        name, company = state.get("name") or {}, state.get("company") or {}
        return {
            "firstName": name.get("firstName"),
            "lastName": name.get("lastName"),
            "email": state.get("email"),
            "company": company.get("companyName"),
            "city": company.get("city"),
            "country": company.get("country"),
            "createdAt": _timestamp(state.get("createdAt")),
            "modifiedAt": _timestamp(state.get("modifiedAt")),
        }


def _timestamp(time: str | None) -> str | None:
    """In the form of docs/use/messages.md: UTC, without zeros at the end of the fraction."""
    if time is None:
        return None
    text = datetime.fromisoformat(time).astimezone(UTC).isoformat().removesuffix("+00:00")
    return (text.rstrip("0") if "." in text else text) + "Z"


def expected(call: str, operation: str, properties: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """The events that an operation must cause, each with the values that it carries."""
    values = {name: value_of(operation, name) for name in properties}
    if call == "create":
        return {CREATED: values}
    if call == "delete":
        return {DELETED: {}}
    return {UPDATED[name]: {name: value} for name, value in values.items()}


def value_of(operation: str, property_name: str) -> str:
    """What an operation sets a property to: nobody else ever does."""
    if property_name == "description":
        return like_a_date(operation)
    return f"{operation}@example.com" if property_name == "email" else operation


def like_a_date(name: str) -> str:
    """A text of this name's own that the Functions host writes anew before the relay sees it, offset and fraction."""
    number = int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)
    at = datetime(2001, 1, 1) + timedelta(seconds=number % 10**9)  # noqa: DTZ001 - only its digits count
    return f"{at.isoformat()}.{number // 10**9:06}0+02:00"


def sequence_of(body: Mapping[str, Any] | None) -> int | None:
    """Up to which event a contact goes, as the API shows it."""
    sequence = (body or {}).get("sequence")
    return sequence if isinstance(sequence, int) else None
