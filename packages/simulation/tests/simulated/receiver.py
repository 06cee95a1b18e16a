"""The receiver that a team copies, in memory: its own code checks, orders and reads; what it keeps is judged."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from standardwebhooks import Webhook, WebhookVerificationError

from cosmos_outbox import Origin
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.service import Wired
from examples.receiver import inbox as copied
from examples.receiver.app import event_of, is_signed, status_of
from examples.receiver.inbox import Inbox, Taken
from outbox_simulation.engine.webhook_double import SECRET, Current
from outbox_simulation.invariants.records import FinallyListed, SeenEntry
from tests.support.contacts_http import view
from tests.support.use_cases import contacts_of
from tests.torture.contacts import CREATED, DELETED, UPDATED, Contacts

_TOLERATED = timedelta(minutes=5)
_LAST = 2**62
"""Nothing comes after what was read as gone."""


async def read(wired: Wired, contact: str) -> FinallyListed | None:
    """A contact, as GET with ``Cache-Control: no-cache`` shows it."""
    try:
        found = await contacts_of(wired).read(UUID(contact), Origin("receiver"), newest=True)
    except AggregateNotFound:
        return None
    body = view(found.aggregate)
    return FinallyListed(at=0.0, aggregate=contact, sequence=body["sequence"], body=body)


class _Kept(sqlite3.Connection):
    """Its data are gone when it is closed, and the inbox closes it after each event."""

    def close(self) -> None:
        """It stays open."""


class _InboxInMemory(Inbox):
    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None, factory=_Kept)
        self.current: Callable[[str], FinallyListed | None]
        super().__init__(Path(), self._shown)

    def _shown(self, _kind: str, name: str) -> copied.Current | None:
        """In the form that the events make of it."""
        found = self.current(name)
        if found is None:
            return None
        assert found.sequence is not None, "a contact has one"
        return copied.Current(found.sequence, {"contact": found.body})

    def _open(self) -> sqlite3.Connection:
        return self.database


class _Verifier(Webhook):
    """By the clock of the world."""

    now = 0.0

    def _Webhook__verify_timestamp(self, header: str) -> datetime:  # noqa: N802 - how Python names the one that it is for
        at = datetime.fromtimestamp(float(header), UTC)
        if abs(at - datetime.fromtimestamp(self.now, UTC)) > _TOLERATED:
            raise WebhookVerificationError(f"signed at {at}")
        return at


class SimulatedReceiver:
    """See :class:`outbox_simulation.engine.webhook_double.TakesPosts`."""

    def __init__(self) -> None:
        self._inbox = _InboxInMemory()
        self._verifier = _Verifier(SECRET)
        self._applied: dict[str, tuple[str, int]] = {}
        """By aggregate: the event that was applied last, and how many were."""
        self._modified_at: dict[str, Any] = {}
        """By aggregate: when its last change was, of those that have a place among the others."""

    def reads(self, headers: Mapping[str, str], body: bytes) -> bool:
        """As its inbox says; what is no event it refuses without a read."""
        try:
            return self._inbox.reads(event_of(body, headers.get("content-type", "")))
        except (ValueError, KeyError, TypeError):
            return False

    def take(self, headers: Mapping[str, str], body: bytes, now: float, current: Current) -> int:
        """As the application's route does."""
        self._inbox.current = lambda _name: current()
        self._verifier.now = now
        if not is_signed([self._verifier], body, dict(headers)):
            return 401
        try:
            event = event_of(body, headers.get("content-type", ""))
        except (ValueError, KeyError, TypeError):
            return 400
        was_read = self._inbox.reads(event)
        taken = self._inbox.take(event)
        if taken is Taken.APPLIED:
            name = event.aggregate[1]
            self._applied[name] = (event.id, self._applied.get(name, ("", 0))[1] + 1)
            if was_read:
                found = current()
                self._modified_at[name] = found and found.body.get("modifiedAt")
            elif event.sequence is not None and event.type != CREATED:
                self._modified_at[name] = event.data.get("createdAt")
        return status_of(taken)

    def begin_anew(self, current: Mapping[str, FinallyListed | None]) -> None:
        """As its command does."""
        self._inbox.current = current.__getitem__
        for each in self._inbox.known():
            self._inbox.read_anew(*each)
        there = {name: found for name, found in current.items() if found is not None}
        self._applied = dict.fromkeys(there, ("", 0))
        self._modified_at = {name: found.body.get("modifiedAt") for name, found in there.items()}

    def entry(self, aggregate: str, at: float) -> SeenEntry | None:
        """What it shows of a contact, as the directory would."""
        row = self._inbox.database.execute(
            "SELECT sequence, state FROM entry WHERE id = ?", [aggregate]
        ).fetchone()
        return None if row is None else self._entry(aggregate, row, at)

    def entries(self, at: float) -> Sequence[SeenEntry]:
        """All."""
        rows = self._inbox.database.execute("SELECT id, sequence, state FROM entry ORDER BY id").fetchall()
        return [self._entry(name, rest, at) for name, *rest in rows]

    def _entry(self, aggregate: str, row: Sequence[Any], at: float) -> SeenEntry:
        sequence, text = row
        state = json.loads(text)
        event, applied = self._applied[aggregate]
        if state is None:
            return SeenEntry(
                at=at, aggregate=aggregate, sequence=_LAST, event=event, applied_at=str(applied), data=None
            )
        contact = {**state.get("contact", {}), **{name: state[name] for name in UPDATED if name in state}}
        contact["modifiedAt"] = self._modified_at.get(aggregate)
        alive = "contact" in state and DELETED not in state["events"]
        return SeenEntry(
            at=at, aggregate=aggregate, sequence=sequence, event=event, applied_at=str(applied),
            data=Contacts().entry(contact) if alive else None,
        )  # fmt: skip
