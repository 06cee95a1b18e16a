"""The open effects of one subscriber are listed from the last one seen, never from a token of the store.

The Python SDK cannot continue an ordered query over several physical partitions
(https://github.com/Azure/azure-sdk-for-python/issues/41434). So each page is a query of its own. Effects that have the
time of the last one seen are asked for again, and those that were given before are left out: no composite index is
needed. An effect whose state changes between two pages may be listed twice or not at all.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.inbox.effect import MarkState
from cosmos_outbox.inbox.effect_operator import EffectPage, OpenEffect
from cosmos_outbox.inbox.errors import NotSetAside
from cosmos_outbox.inbox.stored import mark_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists import continuation

_OPEN = (MarkState.WAITING, MarkState.UNCERTAIN)
_LISTED = (
    "effectId", "eventId", "aggregateType", "aggregateId", "state", "sequence", "at", "by", "failures",
    "failingSince", "reason", "holds", "_etag",
)  # fmt: skip
"""All but the event itself, which holds personal data; of the event only its action."""
_FIELDS = ", ".join(f"{name}: c.{name}" for name in _LISTED)
_WHERE = (
    "c.subscriber = @subscriber AND c.at >= @at"
    " AND (ARRAY_CONTAINS(@open, c.state) OR (c.state = @started AND c.at < @died))"
)
_POSITION = TypeAdapter(tuple[str, list[str]])
_ONE = "SELECT * FROM c WHERE c.effectId = @id AND c.subscriber = @subscriber"


@dataclass(frozen=True)
class CosmosEffectList:
    """See :class:`cosmos_outbox.inbox.effect_operator.EffectList`."""

    container: Container
    subscriber: str
    scope: str
    """Names the list in tokens."""

    async def page(self, size: int, continuation_token: str | None, died_before: datetime) -> EffectPage:
        """A page of open effects. Raises UnknownContinuation, StoreAway."""
        at, given = _position(self.scope, continuation_token) if continuation_token else ("", [])
        most = size + 1 + len(given)
        query = f"SELECT TOP {most} VALUE {{{_FIELDS}, action: c.event.action}} FROM c WHERE {_WHERE} ORDER BY c.at"  # noqa: S608
        parameters = {
            "@subscriber": self.subscriber,
            "@at": at,
            "@open": [state.value for state in _OPEN],
            "@started": MarkState.STARTED.value,
            "@died": died_before.isoformat(),
        }
        found = [each for each in await self._query(query, parameters, most) if each["effectId"] not in given]
        items = found[:size]
        if len(found) == len(items):
            return EffectPage([_effect(item) for item in items], None)
        last = items[-1]["at"]
        seen = [item["effectId"] for item in items if item["at"] == last] + (given if last == at else [])
        token = continuation.seal(self.scope, json.dumps([last, seen]))
        return EffectPage([_effect(item) for item in items], token)

    async def get(self, effect_id: str) -> OpenEffect:
        """One effect with its event. Raises NotSetAside, StoreAway."""
        found = await self._query(_ONE, {"@id": effect_id, "@subscriber": self.subscriber}, 1)
        states = (*_OPEN, MarkState.STARTED)
        if not found or MarkState(found[0]["state"]) not in states:
            raise NotSetAside("no open effect has this id: take an id from the list of effects")
        return _effect(found[0])

    async def _query(self, query: str, parameters: Mapping[str, Any], size: int) -> list[Item]:
        try:
            return await self.container.first(query, parameters, size)
        except StoreFailed as error:
            raise store_away(error.failure) from error


def _position(scope: str, token: str) -> tuple[str, list[str]]:
    try:
        return _POSITION.validate_json(continuation.unseal(scope, token))
    except ValueError:
        raise continuation.unusable() from None


def _effect(item: Item) -> OpenEffect:
    key = AggregateKey(item["aggregateType"], item["aggregateId"])
    held = item.get("event")
    mark = mark_of(key, item, str(item["_etag"]))
    action = held["action"] if held else item.get("action")
    return OpenEffect(item["effectId"], key, action, mark, mark.waits or mark.kept)
