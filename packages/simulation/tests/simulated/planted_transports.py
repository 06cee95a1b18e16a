"""Bugs at the other transports: each is hunted over its own."""

from collections.abc import Mapping

from cosmos_outbox.settings.transports import Name
from tests.torture.planted_bugs import Planted

_NO_PROFILE = "the simulation alone"
_MESSAGES, _QUEUES = "cosmos_outbox/storagequeue/receiver.py", "cosmos_outbox/storagequeue/publisher.py"
_TRIGGER = "cosmos_outbox/functions/subscription.py"
_WEBHOOK = "cosmos_outbox/webhook/publisher.py"
_UNSEEN = ("completed, and not applied", "read model")

TRANSPORTS: Mapping[Name, tuple[Planted, ...]] = {
    "storagequeue": (
        Planted(
            "message-is-deleted-before-it-is-handled",  # a crash, or the store away, in between
            _MESSAGES,
            "                        await self._receive(message, receive)\n"
            "                        health.received += 1\n"
            "                    await held.release()\n"
            "                    await _delete(self.queue, message, held.receipt)\n",
            "                        await _delete(self.queue, message, held.receipt)\n"
            "                        await self._receive(message, receive)\n"
            "                        health.received += 1\n"
            "                    await held.release()\n",
            _NO_PROFILE,
            _UNSEEN,
        ),
        Planted(
            "message-that-comes-again-was-handled",  # the count of all is read as that of this process
            _MESSAGES,
            "                    if (message.dequeue_count or 0) > self.most_deliveries:\n"
            "                        await self._give_up(message)\n",
            "                    if (message.dequeue_count or 0) > 1:\n"
            '                        _log.info("message %s was handled before", message.id)\n',
            _NO_PROFILE,
            _UNSEEN,
        ),
        Planted(
            "put-without-an-answer-counts-as-put",
            _QUEUES,
            '                return verdict(error, f"the queue {name} (STORAGEQUEUE_QUEUES)")\n',
            '                refused = verdict(error, f"the queue {name} (STORAGEQUEUE_QUEUES)")\n'
            "                return refused if isinstance(refused, Refused) else Accepted()\n",
            _NO_PROFILE,
            ("lost event", "order", "order in time"),
        ),
        Planted(
            "function-returns-before-its-message-is-handled",  # the host deletes it, and then comes a crash
            _TRIGGER,
            "with invoked(context), handled:\n        await subscriber.receiver.receive(found.delivery)\n",
            "with invoked(context), handled:\n"
            "        asyncio.ensure_future(subscriber.receiver.receive(found.delivery))\n",
            _NO_PROFILE,
            _UNSEEN,
        ),
        Planted(
            "function-keeps-quiet-of-what-it-could-not-do",  # the store is away for longer than a call waits
            _TRIGGER,
            "with invoked(context), handled:\n        await subscriber.receiver.receive(found.delivery)\n",
            "with invoked(context), handled:\n"
            "        await asyncio.gather(subscriber.receiver.receive(found.delivery), return_exceptions=True)\n",
            _NO_PROFILE,
            _UNSEEN,
        ),
        Planted(
            "poison-is-deleted-before-its-record",
            _MESSAGES,
            '                    await keep(found.delivery, "poison: it came too often")\n'
            "                    await _delete(self.queue, message, message.pop_receipt)\n",
            "                    await _delete(self.queue, message, message.pop_receipt)\n"
            '                    await keep(found.delivery, "poison: it came too often")\n',
            _NO_PROFILE,
            _UNSEEN,
        ),
    ),
    "webhook": (
        Planted(
            "next-event-overtakes-one-that-fails",  # an aggregate at which the receiver fails for a while
            _WEBHOOK,
            "            if not isinstance(outcome, Accepted):\n"
            "                return replace(outcome, accepted=accepted)\n",
            "            if not isinstance(outcome, Accepted | Failing):\n"
            "                return replace(outcome, accepted=accepted)\n",
            _NO_PROFILE,
            ("order", "lost event"),
        ),
        Planted(
            "missing-route-is-the-events-fault",  # the receiver refuses all for a while, as while it is deployed
            "cosmos_outbox/webhook/answers.py",
            "_OF_THE_EVENT = {400, 413, 422, 431}\n",
            "_OF_THE_EVENT = {400, 404, 410, 413, 422, 431}\n",
            _NO_PROFILE,
            ("parked without need",),
        ),
        Planted(
            "post-without-an-answer-counts-as-accepted",
            _WEBHOOK,
            '_SILENT = _Answer(Meaning.LATER, "the receiver does not answer in time")\n',
            '_SILENT = _Answer(Meaning.ACCEPTED, "the receiver does not answer in time")\n',
            _NO_PROFILE,
            ("order", "lost event"),
        ),
        Planted(
            "skip-marker-is-an-event-like-any-other",  # in the receiver that is copied: an operator gives an event up
            "examples/receiver/inbox.py",
            "        if event.type == SKIP_MARKER:\n",
            "        if event.type is None:\n",
            _NO_PROFILE,
            ("entry differs from the events", "read model"),
        ),
        Planted(
            "stopped-target-is-never-asked-again",
            _WEBHOOK,
            "            if monotonic() < self._asked_again_at:\n"
            "                return [self._stopped for _ in page]\n",
            "            if self._stops:\n                return [self._stopped for _ in page]\n",
            _NO_PROFILE,
            ("lost event",),
        ),
    ),
}
"""By what they are hunted over."""
