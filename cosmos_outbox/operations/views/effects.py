"""The effects that nobody is done with, without anything personal: a set-aside message has what there is to read."""

from collections.abc import Mapping, Sequence
from typing import Any

from cosmos_outbox.inbox.effect import WhyOpen
from cosmos_outbox.inbox.effect_operator import EffectPage, OpenEffect
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.views.names import PathNames, owners

_REASONS: Mapping[str, str] = {
    WhyOpen.UNSURE: "nobody knows whether it took place: ask the service that it calls",
    WhyOpen.MISSING: "its event did not come, and its document is gone",
}


def listed(page: EffectPage, names: Sequence[PathNames]) -> Mapping[str, Any]:
    """A page of effects, and the token of the next page."""
    items = [_one(effect, names) for effect in page.items]
    return {"items": items, "continuationToken": page.continuation_token}


def _one(effect: OpenEffect, names: Sequence[PathNames]) -> Mapping[str, Any]:
    of = effect.open
    return {
        "id": effect.id,
        "state": of.why.value,
        "reason": _REASONS[of.why],
        "since": of.at.isoformat(),
        "ageSeconds": max(0, int((utc_now() - of.at).total_seconds())),
        "eventId": of.event_id,
        **owners(effect.aggregate, names),
        "aggregateType": effect.aggregate.type,
        "sequence": of.sequence,
    }
