"""What is kept of a walk's progress is written alike in whatever store, as plain JSON.

Nothing here has a version: the store gives one to each write.
"""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from cosmos_outbox.inbox.progress import Counts, Side, WalkProgress
from cosmos_outbox.kernel.aggregate_key import AggregateKey


def time_or_none(text: str | None) -> datetime | None:
    """A stored time."""
    return None if text is None else datetime.fromisoformat(text)


def text_or_none(time: datetime | None) -> str | None:
    """A time to be stored."""
    return None if time is None else time.isoformat()


def progress_document(progress: WalkProgress) -> dict[str, Any]:
    """A walk's progress."""
    return {
        "form": progress.form,
        "beganAt": progress.began_at.isoformat(),
        "side": progress.side.value if progress.side else None,
        "position": progress.position,
        "counts": asdict(progress.counts),
        "lastCounts": asdict(progress.last_counts) if progress.last_counts else None,
        "lastEndedAt": text_or_none(progress.last_ended_at),
        "movedAt": text_or_none(progress.moved_at),
        "claimedUntil": text_or_none(progress.claimed_until),
        "since": text_or_none(progress.since),
        "until": text_or_none(progress.until),
        "left": [[key.type, key.id] for key in progress.left],
        "standsAt": text_or_none(progress.stands_at),
    }


def progress_of(document: Mapping[str, Any], version: str, as_of: datetime) -> WalkProgress:
    """The progress in a document, and when this read was made, by the store's clock."""
    side, last = document["side"], document["lastCounts"]
    return WalkProgress(
        began_at=datetime.fromisoformat(document["beganAt"]),
        side=Side(side) if side else None,
        position=document["position"],
        counts=Counts(**document["counts"]),
        last_counts=Counts(**last) if last else None,
        last_ended_at=time_or_none(document["lastEndedAt"]),
        version=version,
        form=document["form"],
        moved_at=time_or_none(document["movedAt"]),
        claimed_until=time_or_none(document["claimedUntil"]),
        since=time_or_none(document["since"]),
        until=time_or_none(document["until"]),
        left=tuple(AggregateKey(*key) for key in document["left"]),
        stands_at=time_or_none(document["standsAt"]),
        as_of=as_of,
    )
