"""How the relay reads the change feed: the same in a Functions app and in a worker, so either can take over.

All times in milliseconds, as the Functions trigger has them.
"""

LEASE_PREFIX = "relay-"
"""Another function on the same container needs another prefix, or the two share the changes between them."""

POLL_DELAY_MS = 500
"""How long a change may lie before it is seen, when nothing else was going on. The trigger's default is 5000."""

MAX_ITEMS = 100
"""Items a batch, give or take a transaction, which is never split."""

LEASE_ACQUIRE_MS = 3_000
LEASE_RENEW_MS = 4_000
LEASE_EXPIRATION_MS = 15_000
"""The events of an instance that crashed wait until its leases expire; the trigger's default is a minute."""
