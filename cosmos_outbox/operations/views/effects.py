"""The effects that nobody is done with. Only one effect's view holds what may be personal."""

from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.inbox.effect_operator import EffectPage, OpenEffect
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.views.names import PathNames, owners


def listed(page: EffectPage, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """A page of effects, without their events, and the token of the next page."""
    items = [_summary(effect, names) for effect in page.items]
    return {"items": items, "continuationToken": page.continuation_token}


def shown(effect: OpenEffect, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """An effect and its event; null where only a message has the event."""
    event = effect.event and dict(effect.event.data)
    return {**_summary(effect, names), "event": event}


def _summary(effect: OpenEffect, names: Sequence[PathNames]) -> Mapping[str, Any]:
    mark, aggregate = effect.mark, effect.aggregate
    since = mark.failing_since or mark.at
    return {
        "id": effect.id,
        "state": mark.state.value,
        "reason": mark.reason,
        "since": since.isoformat(),
        "ageSeconds": max(0, int((utc_now() - since).total_seconds())),
        "attempts": mark.failures,
        "eventId": mark.event_id,
        **owners(aggregate, names),
        "aggregateType": aggregate.type,
        "action": effect.action,
        "sequence": mark.sequence,
    }
