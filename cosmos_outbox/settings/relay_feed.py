"""Sets how the relay reads the change feed, alike in a Functions app and in a worker, so either can take over.

All times are in milliseconds, as in the Functions trigger.
"""

LEASE_ACQUIRE_MS = 3_000
LEASE_RENEW_MS = 4_000
LEASE_EXPIRATION_MS = 15_000
"""The lifetime of leases: a crashed instance's events wait until its leases expire; the trigger's default is 60 s."""
