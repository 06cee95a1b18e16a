"""Bugs that show in what befalls a deployment as a whole: another version, its triggers, days without a relay."""

from collections.abc import Mapping

from tests.torture.planted_bugs import Planted

_NO_PROFILE = "the simulation alone"

_OF_PARTNER = ("partner: lost event", "partner: not settled", "lost event", "not settled")

DEPLOYMENTS: Mapping[str, tuple[Planted, ...]] = {
    "partner": (
        Planted(
            "destinations-share-a-parking-lot",  # the broker of one refuses an event
            "cosmos_outbox/cosmos/relay/parked_documents.py",
            '    return f"{PARTITION}.{destination}" if destination else PARTITION\n',
            "    return PARTITION\n",
            _NO_PROFILE,
            _OF_PARTNER,
        ),
        Planted(
            "destinations-share-a-place-in-the-feed",
            "cosmos_outbox/settings/environment.py",
            'lease_prefix=f"{destination}-{self.lease_prefix}") if destination else self\n',
            "lease_prefix=self.lease_prefix) if destination else self\n",
            _NO_PROFILE,
            _OF_PARTNER,
        ),
        Planted(
            "destination-begins-with-all-that-is-stored",  # of those that begin within the run
            "cosmos_outbox/outbox/destination.py",
            "        return self.begin is None or not _is_before(event, self.begin)\n",
            "        return True\n",
            _NO_PROFILE,
            ("partner: not for it",),
        ),
    ),
    "sessions": (
        Planted(
            "session-does-not-tell-its-number",  # a deployment of another number of sessions
            "cosmos_outbox/servicebus/buckets.py",
            '    return f"{buckets}-{bucket:0',
            '    return f"{bucket:0',
            _NO_PROFILE,
            ("several sessions",),
        ),
    ),
    "triggers": (
        Planted(
            "trigger-returns-when-the-store-is-away",  # the store is away for longer than a call waits for it
            "cosmos_outbox/functions/receiving.py",
            "message.correlation_id):\n        await subscriber.receiver.receive(delivery)\n",
            "message.correlation_id):\n        try:\n"
            "            await subscriber.receiver.receive(delivery)\n"
            "        except Exception as error:\n"
            '            _log.error("a message could not be applied: %s", error)\n',
            _NO_PROFILE,
            ("completed, and not applied", "read model"),
        ),
    ),
    "then.away": (
        Planted(
            "nothing-is-ever-at-risk",  # no relay runs for more than half of an event's life
            "cosmos_outbox/outbox/ttl_guard.py",
            "SHARE = 0.5\n",
            "SHARE = 50.0\n",
            _NO_PROFILE,
            ("expires in silence",),
        ),
    ),
}
"""By what a seed has to draw, else it runs none of the code."""
