"""A subscriber's effects, wired: ids outlive every event that can still come."""

from datetime import timedelta

import pytest

from cosmos_outbox.inbox.effect import Unsure
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.settings.environment import TTL_MAX
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Names
from cosmos_outbox.wiring.effects import effect_rules
from cosmos_outbox.wiring.service import Service

DAY = 86_400
CONNECTED = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;",
}
THINGS = Service("things", aggregates=[], names=Names(database="d", container="c", topic="t"))


@THINGS.effect("thing-mails", of="thing")
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
    wired = THINGS.wire(CONNECTED)
    async with wired.outbox.resources:
        upkeep = wired.subscriptions["thing-mails"].upkeep
        assert upkeep is not None
        assert upkeep.inbox.rules.unsure is Unsure.RUN_AGAIN
    too_long = THINGS.wire(CONNECTED | {"EVENT_TTL_SECONDS": str(TTL_MAX // 2)})
    async with too_long.outbox.resources:
        with pytest.raises(Misconfigured, match="lower EVENT_TTL_SECONDS"):
            too_long.subscriptions["thing-mails"]


async def test_an_effect_has_a_container_and_a_subscription_of_its_own_name_unless_a_setting_names_another() -> (
    None
):
    settings = THINGS.settings(CONNECTED | {"THING_MAILS_CONTAINER": "mails"})
    assert (settings.name(no_effect.container), settings.name(no_effect.subscription)) == (
        "mails",
        "thing-mails",
    )
