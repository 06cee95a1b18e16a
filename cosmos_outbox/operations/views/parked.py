"""Parked events. Only one event's view holds what may be personal."""

from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.operations.views.names import PathNames, owners
from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkedPage
from cosmos_outbox.outbox.replay import Replayed


def listed(page: ParkedPage, names: Sequence[PathNames], max_age_seconds: int) -> Mapping[str, Any]:
    """A page of parked events, without their documents, and the token of the next page."""
    return {
        "items": [_summary(parked, names) for parked in page.items],
        "continuationToken": page.continuation_token,
        "discardedAfterSeconds": max_age_seconds,
    }


def shown(parked: ParkedEvent, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """A parked event and the document as it was read from the feed."""
    return {**_summary(parked, names), "document": dict(parked.document)}


def replayed(result: Replayed) -> Mapping[str, Any]:
    """How many events were sent, and whether events remain: then replay again."""
    return {"replayed": result.replayed, "remaining": not result.done}


def _summary(parked: ParkedEvent, names: Sequence[PathNames]) -> Mapping[str, Any]:
    aggregate = parked.aggregate
    return {
        "id": parked.id,
        "eventId": parked.event_id,
        **owners(aggregate, names),
        "aggregateType": aggregate.type if aggregate else None,
        "action": parked.action,
        "sequence": parked.sequence,
        "reason": parked.reason,
        "parkedAt": parked.parked_at.isoformat(),
        "state": parked.state.value,
        "notice": parked.is_notice,
        "attempts": parked.attempts,
        "lastAttemptAt": parked.attempted_at.isoformat() if parked.attempted_at else None,
        **_discarding(parked),
    }


def _discarding(parked: ParkedEvent) -> Mapping[str, Any]:
    if parked.discarding is None:
        return {}
    return {"discardedAt": parked.discarding.at.isoformat(), "discardReason": parked.discarding.reason}
