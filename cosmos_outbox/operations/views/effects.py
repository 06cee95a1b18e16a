"""The effects that nobody is done with. Only one effect's view holds what may be personal."""

from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.inbox.effect import WhyOpen
from cosmos_outbox.inbox.effect_operator import EffectPage, OpenEffect
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.views.names import PathNames, owners

_REASONS: Mapping[str, str] = {
    WhyOpen.UNSURE: "nobody knows whether it took place: ask the service that it calls",
    WhyOpen.MISSING: "its event did not come, and its document is gone",
    WhyOpen.STARTED: "its process has died: its message, or the sweep, goes on with it",
}


def listed(page: EffectPage, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """A page of effects, without their events, and the token of the next page."""
    items = [_summary(effect, names) for effect in page.items]
    return {"items": items, "continuationToken": page.continuation_token}


def shown(effect: OpenEffect, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """An effect and its event; null where the source does not have the event any more."""
    return {**_summary(effect, names), "event": effect.event and dict(effect.event.data)}


def _summary(effect: OpenEffect, names: Sequence[PathNames]) -> Mapping[str, Any]:
    aggregate, of = effect.aggregate, effect.open
    return {
        "id": effect.id,
        "state": of.why.value,
        "reason": _REASONS[of.why],
        "since": of.at.isoformat(),
        "ageSeconds": max(0, int((utc_now() - of.at).total_seconds())),
        "eventId": of.event_id,
        **owners(aggregate, names),
        "aggregateType": aggregate.type,
        "action": effect.event and effect.event.action,
        "sequence": of.sequence,
    }
