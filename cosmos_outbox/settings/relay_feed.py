"""The relay reads the change feed in the same way in a Functions app and in a worker, so either can take over.

All times are in milliseconds, as in the Functions trigger.
"""

LEASE_ACQUIRE_MS = 3_000
LEASE_RENEW_MS = 4_000
LEASE_EXPIRATION_MS = 15_000
"""The events of a crashed instance wait until the instance's leases expire; the trigger's default is a minute."""
