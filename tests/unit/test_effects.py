"""A subscriber's effects, wired: ids outlive every event that can still come."""

from dataclasses import replace
from datetime import timedelta

import pytest

from inbox.effect import Unsure
from inbox.event import Event
from infra import settings
from infra.effects import effect_rules, wire_effects
from infra.errors import Misconfigured
from infra.settings import TTL_MAX
from infra.wire_names import WireNames
from infra.wiring import wire_outbox
from tests.support.inbox import read

DAY = 86_400
SETTINGS = settings.load(
    {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5;",
        "SERVICEBUS": "Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;",
    }
)
WITH_EFFECTS = replace(SETTINGS, cosmos_effects_container="effects")


async def no_effect(event: Event) -> None:
    pass


def test_ids_are_kept_for_longer_than_the_limits_of_all_places_where_an_event_can_wait() -> None:
    rules = effect_rules(10 * DAY, 30 * DAY, Unsure.RUN_AGAIN)
    assert rules.waits_at_most == timedelta(days=10)
    assert rules.events_come_for == timedelta(days=60), (
        "stored, set aside and waiting for 10 each, parked for 30"
    )
    assert rules.ids_are_kept_for == timedelta(days=61)


async def test_limits_that_the_store_cannot_keep_are_refused_at_start() -> None:
    outbox = wire_outbox(SETTINGS, WireNames(source="/things"))
    try:
        wired = wire_effects(WITH_EFFECTS, outbox, read, no_effect)
        assert wired.upkeep.inbox.rules.unsure is Unsure.RUN_AGAIN
        with pytest.raises(Misconfigured, match="lower EVENT_TTL_SECONDS"):
            wire_effects(replace(WITH_EFFECTS, event_ttl_seconds=TTL_MAX // 2), outbox, read, no_effect)
        with pytest.raises(Misconfigured, match="COSMOS_EFFECTS_CONTAINER is missing"):
            wire_effects(SETTINGS, outbox, read, no_effect)
    finally:
        await outbox.resources.aclose()
