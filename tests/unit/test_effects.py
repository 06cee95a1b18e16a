"""A subscriber with effects, as it is declared and wired."""

from datetime import UTC, datetime, timedelta

import pytest

from cosmos_outbox import Event, Named, Names, Retries, Service
from cosmos_outbox.inbox.effect import EffectInbox
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


@THINGS.effect(
    "thing-calls",
    of="thing",
    container=Named("THING_MAILS_CONTAINER", "thing-mails"),
    retries=Retries(give_up_after=2 * DAY),
)
async def calls(event: Event) -> None:
    """Is never asked for."""


async def test_records_live_for_longer_than_a_message_can_wait() -> None:
    wired = THINGS.wire(CONNECTED)
    async with wired.outbox.resources:
        inbox = wired.subscriptions["thing-mails"].subscriber.retrier.asked
        assert isinstance(inbox, EffectInbox)
        rules = inbox.rules
        assert rules.lives == 30 * DAY + 20 * DAY + DAY
        assert (rules.kinds, rules.repeatable) == (frozenset({"Shipped"}), False)
        assert rules.begin == datetime(2026, 3, 1, tzinfo=UTC)


async def test_limits_that_the_store_cannot_keep_are_refused_at_start() -> None:
    wired = THINGS.wire(CONNECTED | {"EVENT_TTL_SECONDS": str(TTL_MAX // 2)})
    async with wired.outbox.resources:
        with pytest.raises(Misconfigured, match="lower EVENT_TTL_SECONDS"):
            wired.subscriptions["thing-mails"]


async def test_effects_of_one_container_have_records_of_their_own() -> None:
    wired = THINGS.wire(CONNECTED)
    async with wired.outbox.resources:
        found = [wired.subscriptions[each.name] for each in (mails, calls)]
        assert all(each.subscriber.receiver.in_order for each in found)
        inboxes = [each.subscriber.retrier.asked for each in found]
        names = {each.records.subscriber for each in inboxes if isinstance(each, EffectInbox)}  # type: ignore[attr-defined]
        assert names == {"thing-mails", "thing-calls"}


def test_an_effects_container_and_subscription_have_its_name_or_a_settings() -> None:
    settings = THINGS.settings(CONNECTED | {"THING_MAILS_CONTAINER": "mails"})
    assert (settings.name(mails.container), settings.name(mails.subscription)) == ("mails", "thing-mails")
