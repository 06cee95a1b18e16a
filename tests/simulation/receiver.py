"""The receiver that a team copies, in memory: its own code checks and orders; what it keeps is judged."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

from cosmos_outbox.testing.judging.records import SeenEntry
from cosmos_outbox.testing.simulation.posts import SECRET
from examples.receiver.app import event_of, is_signed
from examples.receiver.inbox import Inbox, Taken
from tests.torture.contacts import CREATED, DELETED, UPDATED, Contacts

_TOLERATED = timedelta(minutes=5)


class _Kept(sqlite3.Connection):
    """Its data are gone when it is closed, and the inbox closes it after each event."""

    def close(self) -> None:
        """It stays open."""


class _InboxInMemory(Inbox):
    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None, factory=_Kept)
        super().__init__(Path())

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
    """See :class:`cosmos_outbox.testing.simulation.posts.TakesPosts`."""

    def __init__(self) -> None:
        self._inbox = _InboxInMemory()
        self._verifier = _Verifier(SECRET)
        self._applied: dict[str, tuple[str, int]] = {}
        """By aggregate: the event that was applied last, and how many were."""
        self._modified_at: dict[str, Any] = {}
        """By aggregate: when its last change was, of those that have a place among the others."""

    def take(self, headers: Mapping[str, str], body: bytes, now: float) -> int:
        """As the application's route does."""
        self._verifier.now = now
        if not is_signed([self._verifier], body, dict(headers)):
            return 401
        try:
            event = event_of(body, headers.get("content-type", ""))
        except (ValueError, KeyError, TypeError):
            return 400
        taken = self._inbox.take(event)
        if taken is Taken.APPLIED:
            name = event.aggregate[1]
            self._applied[name] = (event.id, self._applied.get(name, ("", 0))[1] + 1)
            if event.sequence is not None and event.type != CREATED:
                self._modified_at[name] = event.data.get("createdAt")
        return 409 if taken is Taken.TOO_EARLY else 204

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
        contact = {**state.get("contact", {}), **{name: state[name] for name in UPDATED if name in state}}
        contact["modifiedAt"] = self._modified_at.get(aggregate)
        alive = CREATED in state["events"] and DELETED not in state["events"]
        event, applied = self._applied[aggregate]
        return SeenEntry(
            at=at, aggregate=aggregate, sequence=sequence, event=event, applied_at=str(applied),
            data=Contacts().entry(contact) if alive else None,
        )  # fmt: skip
