"""Histories written by hand, for the tests of the checker."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.torture.checker import check
from tests.torture.history import History, value_of
from tests.torture.journal import (
    Answered,
    Attempted,
    Completed,
    Delivered,
    Discarded,
    Free,
    Outcome,
    Poisoned,
    Record,
    Unsequenced,
)

CONTACT = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def details(operation: str) -> dict[str, Any]:
    return {
        "name": {"firstName": operation, "lastName": "Doe"},
        "email": f"{operation}@example.com",
        "description": value_of(operation, "description"),
        "company": {"companyName": operation},
    }


ALL = ("name", "email", "description", "company")


def _at(hour: int) -> datetime:
    return datetime(2026, 3, 1, hour, tzinfo=UTC)


@dataclass
class Story:
    """Records, told in the order in which they happened; each takes a second."""

    clock: float = 0.0
    records: list[Record] = field(default_factory=list)
    events: int = 0
    history: History = field(default_factory=History)

    def at(self) -> float:
        self.clock += 1
        return self.clock

    def asked(self, operation: str, **asked: Any) -> "Story":
        self.records.append(Attempted(at=self.at(), operation=operation, **({"number": 1} | asked)))
        return self

    def answered(self, operation: str, outcome: Outcome = "acknowledged", **answer: Any) -> "Story":
        self.records.append(
            Answered(at=self.at(), operation=operation, outcome=outcome, **({"number": 1} | answer))
        )
        return self

    def created(self, operation: str = "a", contact: str = CONTACT, **answer: Any) -> "Story":
        body = {"id": contact, **details(operation)}
        return self.asked(operation, call="create", properties=ALL).answered(
            operation, body=body, **({"status": 201} | answer)
        )

    def patched(
        self, operation: str, *names: str, outcome: Outcome = "acknowledged", contact: str = CONTACT
    ) -> "Story":
        status = {"acknowledged": 200, "refused": 409, "unknown": 503}[outcome]
        body = {"id": contact, **details(operation)} if outcome == "acknowledged" else None
        return self.asked(operation, call="patch", contact=contact, properties=names).answered(
            operation, outcome, status=status, body=body
        )

    def deleted(self, operation: str, contact: str = CONTACT) -> "Story":
        return self.asked(operation, call="delete", contact=contact).answered(operation, status=204)

    def delivered(  # everything that a message may have wrong
        self,
        operation: str,
        what: str,
        sequence: int,
        *,
        contact: str = CONTACT,
        number: int = 1,
        event: str = "",
        broker_number: int = 0,
        differing: dict[str, Any] | None = None,
    ) -> "Story":
        self.events += 1
        event, action = event or f"event-{self.events}", f"Contact{what}Event"
        body: dict[str, Any] = {
            "id": event,
            "contactId": contact,
            "action": action,
            "sequence": sequence,
            "correlationId": f"{operation}.{number}",
        }
        carried = details(operation)
        if what == "Created":
            body["contact"] = {"id": contact, **carried}
        elif what != "Deleted":
            name = what.removesuffix("Updated").lower()
            body[name] = carried[name]
        self.records.append(
            Delivered(
                at=self.at(),
                broker_number=broker_number or self.events,
                delivery_count=1,
                lock="lock",
                message_id=event,
                session=contact,
                subject=action,
                sequence=sequence,
                body=body | (differing or {}),
            )
        )
        return self

    def noticed(self, document: str, contact: str = CONTACT) -> "Story":
        self.events += 1
        self.records.append(
            Delivered(
                at=self.at(),
                broker_number=self.events,
                delivery_count=1,
                lock="lock",
                message_id=f"notice-{self.events}",
                session=contact,
                subject="EventDiscarded",
                sequence=-1,
                body={"action": "EventDiscarded", "discardedEventId": document},
            )
        )
        return self

    def completed(self, broker_number: int) -> "Story":
        self.records.append(Completed(at=self.at(), broker_number=broker_number))
        return self

    def poisoned(self, document: str, *, stored: bool | None = True, contact: str | None = None) -> "Story":
        self.records.append(
            Poisoned(
                at=self.at(), document=document, partition=contact or "nobody", stored=stored, contact=contact
            )
        )
        return self

    def parked(
        self, document: str, *, contact: str | None = None, reason: str = "broken", hour: int = 1
    ) -> "Story":
        item = {
            "eventId": document,
            "contactId": contact,
            "reason": reason,
            "parkedAt": _at(hour).isoformat(),
        }
        self.history.parked.append(item)
        return self

    def discarded(self, document: str) -> "Story":
        self.records.append(Discarded(at=self.at(), document=document))
        return self

    def free(self, contact: str = CONTACT, *, hour: int) -> "Story":
        self.records.append(Free(at=self.at(), contact=contact, time=_at(hour)))
        return self

    def unsequenced(self, document: str, *, stored: bool = True, contact: str = CONTACT) -> "Story":
        self.records.append(Unsequenced(at=self.at(), document=document, contact=contact))
        if stored:
            self.records.append(Unsequenced(at=self.at(), document=document, contact=contact, stored=True))
        return self

    def delivered_without_sequence(
        self, document: str, *, contact: str = CONTACT, says_so: bool = True
    ) -> "Story":
        self.events += 1
        self.records.append(
            Delivered(
                at=self.at(),
                broker_number=self.events,
                delivery_count=1,
                lock="lock",
                message_id=document,
                session=contact,
                subject="ContactImportedEvent",
                sequence=-1,
                unsequenced=says_so,
                body={"id": document, "contactId": contact, "action": "ContactImportedEvent"},
            )
        )
        return self

    def found(self, contact: str = CONTACT, **values: str) -> "Story":
        """A contact of the final list; each value is the name of the operation that set it."""
        body: dict[str, Any] = {"id": contact}
        for name in ALL:
            body[name] = details(values.get(name, "a"))[name]
        self.history.found.append(body)
        return self

    def rules(self) -> set[str]:
        self.history.add(self.records)
        return {violation.rule for violation in check(self.history)}


def good() -> Story:
    return (
        Story()
        .created("a")
        .patched("b", "name", "email")
        .delivered("a", "Created", 1)
        .delivered("b", "NameUpdated", 2)
        .delivered("b", "EmailUpdated", 3)
    )


def final() -> dict[str, str]:
    return {"name": "b", "email": "b"}
