"""Registers the relay's trigger: an invocation returns only after every event of its page was accepted or parked.

Without an endless retry the host checkpoints past a failed batch, and its events are lost. So the retry is part of the
library, next to the trigger, and not left to the app.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import azure.functions as func

from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.kernel.loops import own_failures
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.service import Service
from cosmos_outbox.settings.environment import (
    LEASE_ACQUIRE_MS,
    LEASE_EXPIRATION_MS,
    LEASE_RENEW_MS,
    load_feed,
)


def relay_functions(service: Service) -> func.Blueprint:
    """Returns the trigger from the change feed to the transport, and the relay's timers. Raises Misconfigured."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor

    @app.cosmos_db_trigger(arg_name="documents", **trigger(service))
    @app.retry(
        strategy="exponential_backoff",
        max_retry_count="-1",
        minimum_interval="00:00:01",
        maximum_interval="00:01:00",
    )
    async def relay(documents: func.DocumentList, context: func.Context) -> None:
        """Change feed -> transport. Returns only after every event was accepted or parked; otherwise raises."""
        await service().relay.forwarding.forward(documents, context)

    @app.timer_trigger(arg_name="timer", schedule="0 */5 * * * *")
    async def watch_relay(timer: func.TimerRequest) -> None:
        """Every five minutes: logs an error if events wait for too long, and recreates missing leases."""
        with log_outage_briefly("how far the relay is, is not known"):
            await service().operator.observer.watch()

    @app.timer_trigger(arg_name="timer", schedule="30 * * * * *")
    async def tend_parked(timer: func.TimerRequest) -> None:
        """Every minute: resends parked events that are no longer blocked, and discards those parked for too long."""
        with log_outage_briefly("parked events wait"):
            await service().operator.parking.upkeep()

    if any(each.can_be_due() for each in service.aggregates):

        @app.timer_trigger(arg_name="timer", schedule="*/10 * * * * *")
        async def meet_deadlines(timer: func.TimerRequest) -> None:
            """Every ten seconds: runs ``on_due`` of the aggregates that are due."""
            with log_outage_briefly("deadlines wait"):
                deadlines = service().relay.deadlines
                assert deadlines is not None, "something can be due"
                await deadlines.fire_due()

    return app


def trigger(service: Service) -> dict[str, Any]:
    """Returns the arguments of the Cosmos DB trigger, from the environment or the service. Raises Misconfigured.

    They are read here, when the host lists the functions, and not by the host from ``%NAME%``: the host rejects a
    missing setting even if the service declares the name, and resolves only texts
    (https://github.com/Azure/azure-webjobs-sdk-extensions/issues/735).
    """
    feed, names = load_feed(os.environ), service.names.resolve(os.environ)
    return {
        "connection": "COSMOS",
        "database_name": names["database"],
        "container_name": names["container"],
        "lease_connection": "COSMOS",
        "lease_database_name": names["database"],
        "lease_container_name": names["leases"],
        "lease_container_prefix": feed.lease_prefix,
        "create_lease_container_if_not_exists": False,  # the deployment creates it: with an identity the host cannot
        "start_from_beginning": True,  # otherwise events stored before the first start would never be sent
        "feed_poll_delay": feed.poll_delay_ms,
        "lease_acquire_interval": LEASE_ACQUIRE_MS,
        "lease_renew_interval": LEASE_RENEW_MS,
        "lease_expiration_interval": LEASE_EXPIRATION_MS,
        "max_items_per_invocation": feed.max_items,
    }


_log = logging.getLogger(__name__)


@contextmanager
def log_outage_briefly(waits: str) -> Iterator[None]:
    """Logs an outage in one line, without a traceback. ``waits``: the work that the outage delays."""
    try:
        with own_failures():
            yield
    except (StoreUnavailable, OutboxError) as error:
        _log.error("%s: %s", waits, error)
