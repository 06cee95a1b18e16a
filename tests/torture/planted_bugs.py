"""Bugs that the torture test must find: each is one replacement in the deployed code, and names the rules that see it.

The code that a bug replaces occurs once in its file, which a test of the suite checks: so the list does not rot.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A bug that real implementations of this pattern have, or that ours had."""

    name: str
    file: str
    """In the repository."""
    old: str
    new: str
    profile: str
    """Which faults bring it to light."""
    rules: tuple[str, ...]
    """The checker's rules that may see it; another violation does not count."""


_GAP = ("order", "lost event", "order in time")
_NO_EFFECT = (*_GAP, "half done", "aggregate without its events", "state differs from the events")

_SEEN = ("entry went back", "entry differs from the events", "applied twice", "deleted entry came back")

PLANTED = (
    Planted(
        "undelivered-page-counts-as-done",
        "cosmos_outbox/cosmos/relay/relay.py",
        "            raise\n        telemetry.last_success.now()\n",
        "            return ForwardResult()\n        telemetry.last_success.now()\n",
        "floods",
        _GAP,
    ),
    Planted(
        "feed-moves-on-before-the-broker-has-the-events",
        "cosmos_outbox/functions/relay.py",
        "        await service().relay.forwarding.forward(documents, context)\n",
        "        import asyncio\n"
        "\n"
        "        forwarding = service().relay.forwarding\n"
        "        asyncio.get_running_loop().create_task(forwarding.forward(documents, context))\n",
        "floods",
        _GAP,
    ),
    Planted(
        "gives-up-after-some-retries",
        "cosmos_outbox/functions/relay.py",
        '        max_retry_count="-1",\n        minimum_interval="00:00:01",\n'
        '        maximum_interval="00:01:00",\n    )\n'
        "    async def relay(",
        '        max_retry_count="2",\n        minimum_interval="00:00:01",\n'
        '        maximum_interval="00:01:00",\n    )\n'
        "    async def relay(",
        "broker-away",
        _GAP,
    ),
    Planted(
        "feed-order-instead-of-sequence",
        "cosmos_outbox/outbox/feed.py",
        "    for event in sorted((event for event in events if event.sequence is not None), key=_sequence):\n",
        "    for event in (event for event in events if event.sequence is not None):\n",
        "nothing",
        ("order",),
    ),
    Planted(
        "goes-on-after-a-failed-batch",
        "cosmos_outbox/servicebus/publisher.py",
        "        if page.away is not None:\n"
        "            page.give_up(page.away, batch)\n"
        "        batch = [one for one in batch if one.aggregate.stopped is None and not one.aggregate.postponed]\n",
        "        batch = [one for one in batch if not one.aggregate.postponed]\n",
        "floods",
        ("order",),
    ),
    Planted(
        "events-in-a-second-write",
        "cosmos_outbox/cosmos/transaction.py",
        "                etags = await self.container.execute(self.key, writes)\n",
        "                events = [each for each in writes if each.item.get('type') == 'domainEvent']\n"
        "                others = [each for each in writes if each not in events]\n"
        "                etags = await self.container.execute(self.key, others)\n"
        "                if events:\n"
        "                    await self.container.execute(self.key, events)\n"
        "                etags = [''] * len(events) + etags\n",
        "failing-writes",
        (*_NO_EFFECT, "not found, but there", "done twice", "doubled aggregate"),
    ),
    Planted(
        "update-without-if-match",
        "cosmos_outbox/cosmos/aggregates/unit_of_work.py",
        "        return Write.replace(item, changed.etag)\n",
        '        return Write("replace", item)\n',
        "nothing",
        ("order", "state differs from the events"),
    ),
    Planted(
        "message-id-is-new-at-each-send",
        "cosmos_outbox/servicebus/message.py",
        "        message_id=event.message_id or event.id,\n",
        '        message_id=str(__import__("uuid").uuid4()),\n',
        "nothing",
        ("message and body differ", "done twice"),
    ),
    Planted(
        "blocks-read-without-a-consistent-read",
        "cosmos_outbox/cosmos/relay/parking_lot.py",
        "        await self._renew_token()\n        items = ",
        "        items = ",
        "moving-leases",
        ("order", "still parked", "two skip markers", "lost event"),
    ),
    Planted(
        "discarded-id-is-forgotten",
        "cosmos_outbox/outbox/aggregate_block.py",
        "        return replace(self, stands=False, refusal=refusal, discarded={**self.discarded, event_id: now})\n",
        "        return replace(self, stands=False, refusal=refusal)\n",
        "parked-contacts",
        ("parked again", "parked twice", "two skip markers"),
    ),
    Planted(
        "lost-answer-then-429-is-taken-for-not-written",
        "cosmos_outbox/cosmos/transaction.py",
        "                answer_lost = answer_lost or failure.answer_lost\n",
        "                answer_lost = failure.answer_lost and failure.kind is not Kind.THROTTLED\n",
        "lost-answers",
        ("refused, and done",),
    ),
    Planted(
        "unserved-token-is-dropped-and-the-read-repeated",
        "cosmos_outbox/cosmos/store/container.py",
        "            if error.failure.kind is Kind.MISSING:\n                self._saw(",
        "            if error.failure.kind is Kind.BEHIND:\n"
        "                self._sessions = SessionTokens()\n"
        "                return await self.read_with_age(item_id, partition_key)\n"
        "            if error.failure.kind is Kind.MISSING:\n                self._saw(",
        "unserved-tokens",
        ("not found, but there", "refused as changed, but unchanged"),
    ),
    Planted(
        "page-read-ahead-outlives-a-failure",
        "cosmos_changefeed/partition_worker.py",
        "                await self._drop_ahead()\n                self.heartbeat.beat(failed=True)\n",
        "                self.heartbeat.beat(failed=True)\n",
        "floods-in-small-pages",
        _GAP,
    ),
    Planted(
        "missing-lease-begins-at-now",
        "cosmos_changefeed/lease_repair.py",
        "            if await self._store.create(lease):\n",
        "            assert lease.feed_range is not None\n"
        '            now = await self._reader.read(lease.feed_range, continuation=None, start="Now")\n'
        "            if await self._store.create(lease.at(now.continuation)):\n",
        "lost-leases",
        _GAP,
    ),
    Planted(
        "missing-lease-is-never-made-again",
        "cosmos_changefeed/lease_repair.py",
        "            await self._fill(still)\n            self.missing = []\n",
        "            self.missing = []\n",
        "lost-leases",
        _GAP,
    ),
    Planted(
        "children-of-a-split-begin-at-now",
        "cosmos_changefeed/processor.py",
        "                await self._store.create(child)\n            await self._store.delete(lease)\n",
        "                assert child.feed_range is not None\n"
        '                now = await self._reader.read(child.feed_range, continuation=None, start="Now")\n'
        "                await self._store.create(child.at(now.continuation))\n"
        "            await self._store.delete(lease)\n",
        "unattended-splits",
        _GAP,
    ),
    Planted(
        "repetition-is-refused-for-ever",
        "cosmos_outbox/cosmos/aggregates/idempotency.py",
        "                return first_answer(record, wanted, found)\n            if answered",
        '                raise ConcurrentChange("the same request is being answered at this moment")\n'
        "            if answered",
        "nothing",
        ("repetition refused",),
    ),
    Planted(
        "repetition-makes-a-second-contact",
        "cosmos_outbox/cosmos/aggregates/aggregates.py",
        "        new = make(claim.aggregate_id)\n",
        "        new = make(new_id())\n",
        "nothing",
        ("doubled aggregate", "acknowledged twice", "done twice"),
    ),
    Planted(
        "parked-record-is-removed-before-the-broker-has-the-event",
        "cosmos_outbox/cosmos/relay/parking.py",
        "        parked = [event for _, event in waiting]\n",
        "        await self.lot.settle(block, [event for event, _ in waiting], lambda newest: newest)\n"
        "        parked = [event for _, event in waiting]\n",
        "interrupted-replays",
        (*_GAP, "no skip marker"),
    ),
    Planted(
        "message-without-a-sequence-says-nothing",
        "cosmos_outbox/servicebus/message.py",
        '        properties["unsequenced"] = True\n',
        "        pass\n",
        "parked-contacts",
        ("message and body differ",),
    ),
    Planted(
        "event-without-a-digest-is-parked",
        "cosmos_outbox/cosmos/relay/originals.py",
        "        if DIGEST in item and not is_as_committed(item, self._paths):\n",
        "        if not is_as_committed(item, self._paths):\n",
        "parked-contacts",
        ("parked without need",),
    ),
    Planted(
        "unknown-field-cannot-be-read",
        "cosmos_outbox/outbox/event.py",
        '        extra="allow",\n',
        '        extra="forbid",\n',
        "parked-contacts",
        ("unexpected answer",),
    ),
    Planted(
        "refuses-by-an-old-read",
        "cosmos_outbox/cosmos/aggregates/aggregates.py",
        "    found = await work.get(kind, aggregate_id, partition_key=partition_key, newest=True)\n",
        "    found = await work.get(kind, aggregate_id, partition_key=partition_key)\n",
        "old-reads",
        ("not found, but there", "refused as changed, but unchanged"),
    ),
    Planted(
        "inbox-applies-before-it-checks",
        "cosmos_outbox/inbox/read_model.py",
        "    if sequence <= entry.last_sequence:  # applied-before\n"
        "        return Complete(SkipReason.CONFLICT if _conflict(entry, event) else SkipReason.APPLIED_BEFORE)\n",
        "",
        "stolen-messages",
        _SEEN,
    ),
    Planted(
        "inbox-checks-and-writes-apart",
        "cosmos_outbox/cosmos/inbox/entries.py",
        "self._write(key.id, Write.put(item, over))\n",
        'self._write(key.id, Write("replace", item) if over else Write.create(item))\n',
        "stolen-messages",
        _SEEN,
    ),
    Planted(
        "inbox-ignores-a-gap",
        "cosmos_outbox/inbox/read_model.py",
        "    if sequence > entry.last_sequence + 1:\n        return Heal(HealReason.GAP, sequence)  # next-only\n",
        "",
        "stolen-messages",
        _SEEN,
    ),
    Planted(
        "inbox-applies-again-what-was-set-aside",
        "cosmos_outbox/inbox/retrier.py",
        "                await handle(event)\n",
        "                from dataclasses import replace\n"
        "\n"
        "                called = [each.cell_contents for each in handle.__closure__ or ()]\n"
        "                inbox = next(each.__self__ for each in called if hasattr(each, '__self__'))\n"
        "                read = await inbox.entries.newest(event.aggregate)\n"
        "                if read and read.entry.state and (after := inbox.project(read.entry.state, event)):\n"
        "                    from cosmos_outbox.inbox.entry import Stamp\n"
        "\n"
        "                    newer = max(read.entry.last_sequence, event.sequence or 0)\n"
        "                    entry = replace(read.entry, last_sequence=newer, state=after.state)\n"
        "                    stamp = Stamp(self.now(), None)\n"
        "                    await inbox.entries.put(event.aggregate, entry, stamp, over=read.version)\n",
        "stolen-messages",
        _SEEN,
    ),
    Planted(
        "inbox-brings-a-deleted-contact-back",
        "cosmos_outbox/inbox/read_model.py",
        "    if entry.deleted:\n        return Complete(SkipReason.DELETED)  # deleted-is-final\n"
        "    if event.sequence is None:\n",
        "    if entry.deleted:\n"
        '        if event.action == "ContactCreatedEvent":\n'
        "            from typing import Any\n"
        "\n"
        "            from application.directory import entry_of\n"
        "\n"
        '            state: Any = entry_of(event.data["contact"])\n'
        "            return Put(Entry(event.sequence or 1, event.id, state))\n"
        "        return Complete(SkipReason.DELETED)  # deleted-is-final\n    if event.sequence is None:\n",
        "stolen-messages",
        ("deleted entry came back", "entry went back"),
    ),
    Planted(
        "publishes-what-the-host-delivers",
        "cosmos_outbox/cosmos/relay/originals.py",
        "            if not (isinstance(event, OutboxEvent) and is_as_committed(event.document, self._paths))\n",
        "            if not isinstance(event, OutboxEvent)\n",
        "nothing",
        ("wrong content",),
    ),
    Planted(
        "checkpoint-at-the-page-read-ahead",
        "cosmos_changefeed/partition_worker.py",
        "            await self._checkpoint(page.continuation)\n",
        "            ahead = self._ahead\n"
        "            read = ahead is not None and ahead.done() and ahead.exception() is None\n"
        "            reached = ahead.result().page if ahead is not None and read else page\n"
        "            await self._checkpoint(reached.continuation)\n",
        "deaths-between-pages",
        _GAP,
    ),
    Planted(
        "what-was-set-aside-is-never-tried",
        "cosmos_outbox/operations/subscriber.py",
        "            self.collect(), self.retrier.run(seconds=RETRY_SECONDS), return_exceptions=True\n",
        "            self.collect(), return_exceptions=True\n",
        "stolen-messages",
        ("read model",),
    ),
)
