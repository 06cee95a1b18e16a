"""Derives the judges' records of the store from the requests it carried out, so that none is missed or doubled."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.engine.bus_queue import Taken
from outbox_simulation.invariants.entries import NOT_APPLIED
from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.records import HandedOut, SeenEntry, Stored
from outbox_simulation.invariants.violation import Violation


class Watcher:
    """Records events as they are committed, and entries as they are written."""

    def __init__(self, history: History, *, feed: str, entries: frozenset[str]) -> None:
        self._history = history
        self._feed, self._entries = f"/colls/{feed}/docs", tuple(f"/colls/{each}/docs" for each in entries)
        self.newest = 0.0
        """The time of the last write."""
        self._taken = 0
        self._reached: dict[str, float] = {}
        """By aggregate, the last event in its entry; a deleted one has every event."""
        self._aside: set[str] = set()
        """The messages that were set aside."""
        self.wrong: list[Violation] = []
        """Completed messages whose events are in no entry; and other immediate violations."""

    def saw(self, at: float, request: SentRequest, response: StoreResponse) -> None:
        """Records a request that was carried out."""
        if request.method not in ("POST", "PUT") or response.status >= 300 or response.status == 207:
            return
        if b'"setAside"' in request.body:
            self._aside |= {str(each.get("messageId")) for each in written(request)}
        of_feed, of_entries = self._feed in request.path, any(each in request.path for each in self._entries)
        if not (of_feed or of_entries) or "x-ms-documentdb-isquery" in request.headers:
            return
        for document in written(request):
            if of_feed and _is_event(document):
                self.newest = at
                self._history.add([_stored(at, document)])
            elif of_entries and document.get("type") == "entry":
                self.newest = at
                entry = _shown(at, document)
                self._history.add([entry])
                reached = float("inf") if entry.data is None else entry.sequence
                self._reached[entry.aggregate] = max(reached, self._reached.get(entry.aggregate, 0.0))

    def completed(self, aggregate: str, event: str, deleted: str | None) -> None:
        """Checks the one subscription's completed message of this event. ``deleted``: the action of a last event."""
        stored = self._history.stored
        if event not in stored or event in self._aside:
            return
        sequence, reached = stored[event].sequence, self._reached.get(aggregate, 0.0)
        gone = any(each.action == deleted for each in stored.values() if each.aggregate == aggregate)
        if reached < sequence and not gone:
            self.wrong.append(Violation(NOT_APPLIED, f"{aggregate}: {sequence}, the entry is at {reached:g}"))

    def passed(self, taken: list[Taken], reached: Mapping[str, float] | None = None) -> None:
        """Excludes what the topic has taken till now from the judges. ``reached``: how far the entries are, then."""
        self._taken = len(taken)
        if reached is not None:
            self._reached = dict(reached)

    def reached(self) -> Mapping[str, float]:
        """By aggregate, the last event in its entry."""
        return dict(self._reached)

    def received(self, taken: list[Taken]) -> None:
        """Records what the topic has taken since the last call, as a subscriber that misses nothing gets it."""
        for each in taken[self._taken :]:
            self.newest = max(self.newest, each.at)
            self._history.add([handed_out(each)])
        self._taken = len(taken)


def written(request: SentRequest) -> Iterator[Mapping[str, Any]]:
    """Yields the documents that a request writes whole."""
    body = json.loads(request.body or b"{}")
    if request.kind != "batch":
        yield body
        return
    for operation in body:
        if operation.get("operationType") in ("Create", "Upsert", "Replace"):
            yield operation.get("resourceBody") or {}


def _is_event(document: Mapping[str, Any]) -> bool:
    """Whether the service can have written this event: others write anything."""
    data = document.get("data")
    return (
        document.get("type") == "domainEvent"
        and isinstance(data, dict)
        and {"action", "sequence"} <= data.keys()
    )


def _stored(at: float, document: Mapping[str, Any]) -> Stored:
    data = document["data"]
    sequence = data.get("sequence")
    return Stored(
        at=at,
        event=data["id"],
        aggregate=document["partitionKey"],
        action=data["action"],
        sequence=sequence if isinstance(sequence, int) else -1,
        body=dict(data),
    )


def _shown(at: float, item: Mapping[str, Any]) -> SeenEntry:
    return SeenEntry(
        at=at,
        aggregate=item["id"],
        sequence=item["lastSequence"],
        event=item["lastEventId"],
        applied_at=item["appliedAt"],
        data=item["data"],
    )


def handed_out(taken: Taken) -> HandedOut:
    """Returns the message as a subscriber that misses nothing gets it."""
    message, subject = taken.sent.message, taken.sent.subject
    body = json.loads(message.body)
    sequence = (body if subject is None else message.properties).get("sequence")
    unsequenced = not isinstance(sequence, int) if subject is None else "unsequenced" in message.properties
    return HandedOut(
        at=taken.at,
        broker_number=taken.number,
        delivery_count=0,
        lock="",
        message_id=message.id,
        aggregate=taken.sent.aggregate,
        session=taken.sent.session,
        subject=str(body.get("action")) if subject is None else subject,
        sequence=sequence if isinstance(sequence, int) else -1,
        unsequenced=unsequenced,
        body=body,
    )
