"""An account that takes writes in several regions is refused where the app looks at its store, and said in the log."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.telemetry.liveness import SlotHealth
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker.subscriber import SubscriberHealth
from devstack.testing import Service, eventually
from tests.support.azure import contacts_database
from tests.support.use_cases import wire

BROKER = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"


@pytest.fixture
async def application(cosmos: Service) -> AsyncIterator[Wired]:
    async with contacts_database(cosmos) as database:
        settings = {
            "COSMOS": cosmos.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": BROKER,
        }
        yield wire(settings)
        await cosmos.faults.allow_multiple_writes(allowed=False)


async def test_it_is_no_store_that_can_be_used_until_it_writes_in_one_region(
    application: Wired, cosmos: Service
) -> None:
    store = application.outbox.container("contacts")
    async with application.outbox.resources:
        await store.check()
        await cosmos.faults.allow_multiple_writes(allowed=True)
        with pytest.raises(Misconfigured, match=r"several regions.*docs/operate/regions\.md"):
            await store.check()
        await cosmos.faults.allow_multiple_writes(allowed=False)
        await store.check()


async def test_a_worker_does_not_begin_on_it(application: Wired, cosmos: Service) -> None:
    await cosmos.faults.allow_multiple_writes(allowed=True)
    with pytest.raises(Misconfigured, match="several regions"):
        await relay_worker.run(application, asyncio.Event())


async def test_a_relay_says_it_whenever_it_is_measured_and_goes_on_measuring(
    application: Wired, cosmos: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async with application.outbox.resources:
        await application.operator.observer.measure()
        assert "several regions" not in caplog.text
        await cosmos.faults.allow_multiple_writes(allowed=True)
        status = await application.operator.observer.measure()
    assert status.missing == ["0"]
    [line] = [record for record in caplog.records if "several regions" in record.getMessage()]
    assert line.levelno == logging.ERROR


async def test_a_subscriber_that_runs_on_it_is_not_ready_and_the_log_says_why(
    application: Wired, cosmos: Service, caplog: pytest.LogCaptureFixture
) -> None:
    health = SubscriberHealth(application, asyncio.Event(), [SlotHealth()])
    async with application.outbox.resources:

        async def ready() -> bool:
            return await health.trouble() is None

        await eventually(ready)
        await cosmos.faults.allow_multiple_writes(allowed=True)

        async def in_trouble() -> bool:
            return await health.trouble() is not None

        await eventually(in_trouble)
        await health.trouble()
    assert caplog.text.count("several regions") == 1, "once a minute"
