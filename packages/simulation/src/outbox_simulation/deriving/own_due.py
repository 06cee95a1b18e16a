"""What happened by itself to a team's own documents was due, by what was stored before; and nothing stays due."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from cosmos_outbox.cosmos.own.due import DueTimes
from cosmos_outbox.outbox.deadlines import CAUSE
from outbox_simulation.deriving.found import Document, OwnChange, StoredEvent
from outbox_simulation.engine.http import SentRequest
from outbox_simulation.judging.violation import Violation


def own_change(request: SentRequest, events: Sequence[StoredEvent]) -> OwnChange:
    """What a transaction did to documents."""
    documents: dict[tuple[str, str], Document | None] = {}
    partition = request.headers.get("x-ms-documentdb-partitionkey", "")
    for operation in json.loads(request.body or b"[]"):
        whole = operation.get("operationType") in ("Create", "Upsert", "Replace")
        document = operation.get("resourceBody") if whole else None
        documents[partition, str((document or operation).get("id"))] = document
    return OwnChange(documents, events)


def own_not_due(changes: Iterable[OwnChange], times: DueTimes) -> Iterator[Violation]:
    """What happened by itself was due, by a document that it wrote."""
    before: dict[tuple[str, str], Document | None] = {}
    for change in changes:
        was = [before.get(each, {}) for each in change.documents]
        told = next((event for event in change.events if event.cause.startswith(CAUSE)), None)
        if told is not None and all(each is not None for each in was):  # else nobody can tell how one was
            at = datetime.fromisoformat(told.data["createdAt"])
            if not any(due <= at for each in was for due in _times(each, times)):
                about = f"{told.action} {told.sequence} of {told.aggregate}, at {at}"
                yield Violation("happened, and was not due", about)
        before |= change.documents


def own_still_due(stored: Iterable[Document], times: DueTimes, now: datetime) -> Iterator[Violation]:
    """Nothing stays due."""
    for each in stored:
        if since := [due for due in _times(each, times) if due <= now]:
            yield Violation("still due", f"document {each['id']}, since {min(since)}", may_pass=True)


def _times(document: Document | None, times: DueTimes) -> list[datetime]:
    found = (times.of(dict(document or {}), path) for path in times.paths)
    return [each for each in found if each is not None]
