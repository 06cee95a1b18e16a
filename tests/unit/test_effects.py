"""A subscriber with effects, as it is declared and wired."""

from datetime import UTC, datetime, timedelta

import pytest

from cosmos_outbox import Event, Named, Names, Service, SqliteFile, SubscriberService
from cosmos_outbox.settings.environment import TTL_MAX
from cosmos_outbox.settings.errors import Misconfigured

DAY = timedelta(days=1)
CONNECTED = {"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5", "SERVICEBUS": "Endpoint=sb://b",
             "COSMOS_LEASE_CONTAINER": "l", "COSMOS_PARKED_CONTAINER": "p", "COSMOS_CLAIM_CONTAINER": "i",
             "COSMOS_SET_ASIDE_CONTAINER": "s"}  # fmt: skip
THINGS = Service("things", aggregates=[], names=Names(database="d", container="c", topic="t"))


@THINGS.effect("thing-mails", of="thing", on=["Shipped"], begin=datetime(2026, 3, 1), repeatable=False)  # noqa: DTZ001
async def mails(event: Event) -> None:
    """Is never asked for."""


@THINGS.effect("thing-calls", of="thing", container=Named("THING_MAILS_CONTAINER", "thing-mails"))
async def calls(event: Event) -> None:
    """Is never asked for."""


async def test_items_live_for_longer_than_an_event_can_wait_in_all_places_together() -> None:
    wired = THINGS.wire(CONNECTED)
    async with wired.outbox.resources:
        effects = wired.subscriptions["thing-mails"].effects
        assert effects is not None
        rules = effects.inbox.rules
        assert (rules.events_live, rules.items_live) == (10 * DAY, 30 * DAY + 30 * DAY + 2 * DAY)
        assert (rules.kinds, rules.repeatable) == (frozenset({"Shipped"}), False)
        assert rules.begin == datetime(2026, 3, 1, tzinfo=UTC)


async def test_limits_that_the_store_cannot_keep_are_refused_at_start() -> None:
    wired = THINGS.wire(CONNECTED | {"EVENT_TTL_SECONDS": str(TTL_MAX // 2)})
    async with wired.outbox.resources:
        with pytest.raises(Misconfigured, match="lower EVENT_TTL_SECONDS"):
            wired.subscriptions["thing-mails"]


async def test_several_effects_of_one_service_are_swept_and_looked_after_each_by_itself() -> None:
    wired = THINGS.wire(CONNECTED)
    async with wired.outbox.resources:
        found = [wired.subscriptions[each.name] for each in (mails, calls)]
        assert all(each.sweep is not None and each.effects is not None for each in found)
        names = {each.effect_sweep.changes.name for each in found if each.effect_sweep}  # type: ignore[attr-defined]
        assert names == {"effects-thing-mails", "effects-thing-calls"}


async def test_without_a_source_nothing_is_swept() -> None:
    service = SubscriberService("hotel", SqliteFile(Named("no setting", ":memory:")), topic="t")

    @service.effect("letters", of="guest")
    async def letters(event: Event) -> None:
        """Is never asked for."""

    wired = service.wire({"SERVICEBUS": "Endpoint=sb://b"})
    async with wired.resources:
        assert wired.subscriptions["letters"].sweep is None


def test_an_effect_has_a_container_and_a_subscription_of_its_own_name_unless_a_setting_names_another() -> (
    None
):
    settings = THINGS.settings(CONNECTED | {"THING_MAILS_CONTAINER": "mails"})
    assert (settings.name(mails.container), settings.name(mails.subscription)) == ("mails", "thing-mails")
