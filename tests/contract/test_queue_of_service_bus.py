"""A Service Bus queue in the place of the topic: sent to, received from, collected and checked in the same way."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.preflight import servicebus
from cosmos_outbox.preflight.plan import plan_for
from cosmos_outbox.preflight.report import Status
from cosmos_outbox.service import Service
from cosmos_outbox.settings.names import Names
from cosmos_outbox.settings.transports import servicebus_of
from cosmos_outbox.worker.running import running
from devstack.administration import administration_client
from devstack.testing import Service as Server
from devstack.testing import eventually
from examples.fastapi.directory import FORM, entry_of, project
from examples.fastapi.person import Details, Person
from tests.support.azure import database_of
from tests.support.emulators import Gap

pytestmark = [pytest.mark.needs_a_socket]  # preflight asks the management API as an emulator's port has it

ORIGIN = Origin("test")
PEOPLE = Service("people", [Person], Names("people", "people", "people-events"))
DIRECTORY = PEOPLE.read_model("directory", of=Person, form=FORM, state_of=entry_of, project=project)


@pytest.fixture
async def settings(cosmos_server: Server, servicebus_server: Server) -> AsyncIterator[dict[str, str]]:
    name = f"queue-{uuid4().hex[:12]}"
    async with administration_client(servicebus_server.admin_connection_string) as admin:
        await admin.create_queue(
            name, requires_session=True, requires_duplicate_detection=True, max_delivery_count=2000,
            duplicate_detection_history_time_window=timedelta(hours=2), dead_lettering_on_message_expiration=True,
        )  # fmt: skip
        async with database_of(cosmos_server, PEOPLE) as database:
            yield {
                "COSMOS": cosmos_server.connection_string,
                "COSMOS_DATABASE": database.id,
                "SERVICEBUS": servicebus_server.connection_string,
                "SERVICEBUS_QUEUE": name,
                "RELAY_POLL_DELAY_MS": "50",
            }
        await admin.delete_queue(name)


@pytest.mark.long
@pytest.mark.known_gap(Gap.DELIVERY_COUNT)
async def test_changes_are_in_the_read_model_and_no_dead_letter_is_left(settings: dict[str, str]) -> None:
    async with running(PEOPLE, environment=settings, slots=2) as at_work:
        person = Person.add(Details(name="Ada", email="ada@contoso.com"), at=utc_now())
        added = (await at_work.wired.aggregates.create(person, ORIGIN)).aggregate.aggregate_id

        def rename(each: Person) -> None:
            each.change(Details(name="Grace", email="ada@contoso.com"), at=utc_now())

        await at_work.wired.aggregates.change(Person, added, rename, ORIGIN)

        async def renamed() -> bool:
            entries = at_work.wired.read_model(DIRECTORY).inbox.entries
            found = await entries.newest(AggregateKey("person", added))
            return found is not None and found.entry.last_sequence == 2

        await eventually(renamed, within=40)
        dead: list[Delivery] = []

        async def keep(delivery: Delivery, _: str) -> None:
            dead.append(delivery)

        queues = at_work.wired.subscriptions["directory"].subscriber.queues()
        found = await queues.dead_letters.collect(keep, seconds=10)
        assert (found.emptied, dead) == (True, [])
        [_, broker] = at_work.wired.operator.dependencies
        assert (await broker.health()).ok


@pytest.mark.known_gap(Gap.DELIVERY_COUNT)
async def test_preflight_checks_a_queue_as_both_topic_and_subscription(
    settings: dict[str, str], servicebus_server: Server
) -> None:
    port = int(servicebus_server.admin_connection_string.partition("localhost:")[2].partition(";")[0] or 0)
    port = port or int(servicebus_server.addresses[1].rpartition(":")[2])
    plan = plan_for(
        PEOPLE, settings, other_subscriptions=(), survive=timedelta(hours=1), as_app=True, emulator_port=port
    )
    findings = await servicebus.check(plan, servicebus_of(plan.settings.transport), None)
    assert [each for each in findings if each.status is not Status.OK] == []
    name = settings["SERVICEBUS_QUEUE"]
    assert {f"queue {name}", f"subscription {name}"} <= {each.subject for each in findings}
    missing = plan_for(
        PEOPLE, settings | {"SERVICEBUS_QUEUE": "no-such"}, other_subscriptions=(), survive=timedelta(hours=1),
        as_app=False, emulator_port=port,
    )  # fmt: skip
    [finding] = await servicebus.check(missing, servicebus_of(missing.settings.transport), None)
    assert (finding.subject, finding.status) == ("queue no-such", Status.WRONG)
