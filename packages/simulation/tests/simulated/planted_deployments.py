"""Bugs that show in faults of a deployment as a whole: another version, its triggers, days without a relay."""

from collections.abc import Mapping

from tests.torture.planted_bugs import Planted

_NO_PROFILE = "the simulation alone"

DEPLOYMENTS: Mapping[str, tuple[Planted, ...]] = {
    "sessions": (
        Planted(
            "session-does-not-say-its-number",  # a deployment of another number of sessions
            "cosmos_outbox/servicebus/message.py",
            '    return f"{buckets}-{bucket:0',
            '    return f"{bucket:0',
            _NO_PROFILE,
            ("several sessions",),
        ),
    ),
    "triggers": (
        Planted(
            "trigger-returns-when-the-store-is-away",  # the store is away for longer than a call waits for it
            "cosmos_outbox/functions/subscription.py",
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
            "cosmos_outbox/operations/relay_status.py",
            "SHARE = 0.5\n",
            "SHARE = 50.0\n",
            _NO_PROFILE,
            ("expires in silence",),
        ),
    ),
}
"""By what a seed has to draw, else it runs none of the code."""
