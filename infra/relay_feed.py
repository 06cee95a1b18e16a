"""The relay reads the change feed in the same way in a Functions app and in a worker, so either can take over.

All times are in milliseconds, as in the Functions trigger.
"""

import os
from typing import Any

from infra.settings import load_feed

LEASE_ACQUIRE_MS = 3_000
LEASE_RENEW_MS = 4_000
LEASE_EXPIRATION_MS = 15_000
"""The events of a crashed instance wait until the instance's leases expire; the trigger's default is a minute."""


def trigger() -> dict[str, Any]:
    """The arguments of the Cosmos DB trigger of a relay function. The settings in ``%`` are read by the host.

    The host resolves ``%`` in texts alone (https://github.com/Azure/azure-webjobs-sdk-extensions/issues/735), and a
    setting that is not there stops it. So the settings that have a default are read here, when the host lists the
    functions. Raises Misconfigured.
    """
    feed = load_feed(os.environ)
    return {
        "connection": "COSMOS",
        "database_name": "%COSMOS_DATABASE%",
        "container_name": "%COSMOS_CONTAINER%",
        "lease_connection": "COSMOS",
        "lease_database_name": "%COSMOS_DATABASE%",
        "lease_container_name": "%COSMOS_LEASE_CONTAINER%",
        "lease_container_prefix": feed.lease_prefix,
        "create_lease_container_if_not_exists": False,  # the deployment does: with an identity the host cannot
        "start_from_beginning": True,  # otherwise events from before the first start would never be sent
        "feed_poll_delay": feed.poll_delay_ms,
        "lease_acquire_interval": LEASE_ACQUIRE_MS,
        "lease_renew_interval": LEASE_RENEW_MS,
        "lease_expiration_interval": LEASE_EXPIRATION_MS,
        "max_items_per_invocation": feed.max_items,
    }
