"""Bugs that only show where failures meet, beside those that the torture test has to find: all are in reach."""

from collections.abc import Mapping, Set

from cosmos_outbox.settings.transports import Name
from simulated.planted_deployments import DEPLOYMENTS
from simulated.planted_reading import LISTS
from simulated.planted_together import TOGETHER
from simulated.planted_transports import TRANSPORTS
from tests.torture.planted_bugs import Planted

BEHIND_THE_PORT = frozenset(
    {
        "goes-on-after-a-failed-batch",
        "message-id-is-new-at-each-send",
        "message-without-a-sequence-says-nothing",
    }
)
"""The torture test has to find them: the simulation has a double at the port of the publisher."""

ONLY_WITH: Mapping[str, str] = {
    "block-of-a-free-aggregate-stays": "then.days",
    "function-returns-before-its-message-is-handled": "triggers",
    "publishes-again-under-the-first-id": "then.publish again",
    "rebuild-after-a-restore-only-heals": "then.restore",
    "replay-leaves-the-event-in-the-way": "plot.two hands",
    "proxys-404-is-believed": "proxy",
    "group-of-a-handler-is-no-failure": "handlers",
    **{bug.name: "lists" for bug in LISTS},
    **{bug.name: kind for kind, bugs in DEPLOYMENTS.items() for bug in bugs},
}
"""The seeds that do not draw this are left out: they run none of the code."""

ALONE: Mapping[str, Set[str]] = {
    "function-keeps-quiet-of-what-it-could-not-do": {"triggers", "store away"},
    "inbox-checks-and-writes-apart": {"bus.lock_lost", "store.timed_out", "floods"},
    "inbox-takes-an-old-read-for-an-absence": {"meet.theft", "store.lag", "crash"},
    "refused-while-the-store-is-throttled-counts-as-parked": {
        "meet.parking",
        "bus.refuse_one",
        "store.throttled",
    },
    "trigger-returns-when-the-store-is-away": {"triggers", "store away"},
}
"""In every seed these kinds happen, and no others: what it takes comes together ten times as often."""

OVER: Mapping[str, Name] = {bug.name: over for over, bugs in TRANSPORTS.items() for bug in bugs}
"""They are hunted over this transport; the others over Service Bus."""

ALSO_SEEN_BY: Mapping[str, tuple[str, ...]] = {
    "discarded-id-is-forgotten": ("sent after it was discarded",),
    "event-without-a-digest-is-parked": ("not settled",),
    "inbox-takes-an-old-read-for-an-absence": ("completed, and not applied",),
    "unserved-token-is-dropped-and-the-read-repeated": ("refused, and done", "read went back"),
    "what-is-refused-again-in-a-replay-is-dropped": ("no skip marker",),
    "what-was-set-aside-is-never-tried": ("not settled",),
}
"""Rules that the torture test has not, or has at another time."""

_LOST = ("lost event", "order", "order in time")
_PARKED = (*_LOST, "still parked", "not settled", "parked again", "parked twice")
_ENTRY = (
    *("entry went back", "entry differs from the events", "applied twice", "deleted entry came back"),
    *("read model", "completed, and not applied"),
)
_NO_PROFILE = "the simulation alone"
_CHANGE_ONCE = "cosmos_outbox/cosmos/aggregates/idempotency.py"

MEETING: tuple[Planted, ...] = (
    *LISTS,
    *TOGETHER,
    *(bug for bugs in DEPLOYMENTS.values() for bug in bugs),
    *(bug for bugs in TRANSPORTS.values() for bug in bugs),
    Planted(
        "claim-that-fails-is-one-of-its-own",  # a creation beside another with its key, and the store fails
        "cosmos_outbox/cosmos/aggregates/idempotency.py",
        "                return None\n            raise\n",
        "                return None\n",
        _NO_PROFILE,
        ("doubled aggregate", "done twice", "acknowledged twice", "reused key"),
    ),
    Planted(
        "bucket-is-another-in-each-process",  # as by Python's own hash; a lease that moves, or a replay
        "cosmos_outbox/servicebus/message.py",
        "    digest = hashlib.blake2b(json.dumps(aggregate).encode(), digest_size=8).digest()\n",
        "    from cosmos_outbox.kernel import clock\n"
        "    text = f'{aggregate}{clock.machine()}'\n"
        "    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()\n",
        _NO_PROFILE,
        ("several sessions",),
    ),
    Planted(
        "change-has-no-record",  # rule one_batch: an answer that is lost for good
        _CHANGE_ONCE,
        "        work.add_record(wanted.answer(changes.state.last_sequence))\n",
        "",
        _NO_PROFILE,
        ("done twice", "made, and refused", "acknowledged twice"),
    ),
    Planted(
        "refused-before-the-record-is-looked-up",  # rule record_before_no: the same
        _CHANGE_ONCE,
        "            if consistent and (record := await _find_record(work, wanted)):",
        "            if attempt == attempts and (record := await _find_record(work, wanted)):",
        _NO_PROFILE,
        ("made, and refused",),
    ),
    Planted(
        "change-is-refused-by-an-old-read",  # rule newest_for_a_no: a replica that lags
        _CHANGE_ONCE,
        "        if consistent and await _is_final(",
        "        if await _is_final(",
        _NO_PROFILE,
        ("made, and refused", "not found, but there", "refused as changed, but unchanged"),
    ),
    Planted(
        "stale-version-uses-the-key",  # rule unused_by_412: two writers, and one reads again
        _CHANGE_ONCE,
        "    status = None if isinstance(no, OutboxError) else wanted.request.status_of(no)\n",
        "    status = 412 if isinstance(no, PreconditionFailed) else None\n",
        _NO_PROFILE,
        ("refused as changed, but unchanged",),
    ),
    Planted(
        "repetition-shows-the-newest-state",  # rule etag_if_same: another writer before the repetition
        "cosmos_outbox/cosmos/aggregates/idempotency.py",
        "    if found is not None and sequence_of(found) == record.sequence:  # etag_if_same\n",
        "    if found is not None:\n",
        _NO_PROFILE,
        ("repetition differs", "wrong answer", "one ETag, two versions"),
    ),
    Planted(
        "own-commit-is-taken-for-anothers",  # an answer lost, then a refusal of the repetition
        "cosmos_outbox/cosmos/transaction.py",
        '        if stored is None or stored.get("data") != event["data"]:\n',
        '        if stored is None or stored.get("data") is not event["data"]:\n',
        _NO_PROFILE,
        ("refused, and done", "done twice", "refused as changed, but unchanged"),
    ),
    Planted(
        "repetition-by-the-sdk-is-not-seen",  # the SDK's first attempt is stored, its second one is refused
        "cosmos_outbox/cosmos/store/container.py",
        "                raise StoreFailed(attempts.outcome(error.failure)) from error\n"
        "            except UNREADABLE as error:\n",
        "                raise\n            except UNREADABLE as error:\n",
        _NO_PROFILE,
        ("refused, and done", "done twice"),
    ),
    Planted(
        "parked-documents-before-their-block",  # a refusal, and a crash or a throttle between two writes
        "cosmos_outbox/cosmos/relay/parking_lot.py",
        "                return await self._put(_counted(block, len(new)), *map(Write.create, new)), new\n",
        "                for each in new:\n"
        "                    await self._write(Write.create(each))\n"
        "                return await self._put(_counted(block, len(new))), new\n",
        _NO_PROFILE,
        _PARKED,
    ),
    Planted(
        "free-is-remembered",  # a refusal, and a lease that moves to a relay that has read the blocks before
        "cosmos_outbox/cosmos/relay/relay.py",
        "            blocks = await self.parking.read_blocks(page.open.keys())\n",
        '            free = self.__dict__.setdefault("_free", set())\n'
        "            asked = [key for key in page.open if key not in free]\n"
        "            blocks = await self.parking.read_blocks(asked)\n"
        "            free |= {key for key in asked if key not in blocks}\n"
        '            free -= self.__dict__.setdefault("_mine", set())\n',
        _NO_PROFILE,
        _PARKED,
    ),
    Planted(
        "blocks-that-cannot-be-read-are-free",  # a parked aggregate, and a throttle
        "cosmos_outbox/cosmos/relay/relay.py",
        '            raise NotDelivered(f"the parked events cannot be read: {error}", hindrance(error)) from error\n',
        '            blocks = {}\n            _log.warning("the parked events cannot be read: %s", error)\n',
        _NO_PROFILE,
        _PARKED,
    ),
    Planted(
        "refused-while-the-store-is-throttled-counts-as-parked",
        "cosmos_outbox/cosmos/relay/relay.py",
        '            page.wait(key, f"an event that cannot be sent could not be parked: {error}", hindrance(error))\n'
        "            return\n"
        "        del page.open[key]\n",
        '            _log.warning("could not be parked: %s", error)\n'
        "            new = ()\n"
        "        del page.open[key]\n",
        _NO_PROFILE,
        _PARKED,
    ),
    Planted(
        "remembers-more-than-was-accepted",  # an aggregate of which a part is sent, and a page that comes again
        "cosmos_outbox/cosmos/relay/relay.py",
        "            self.accepted.add(rest[: delivery.sent])\n",
        "            self.accepted.add(rest)\n",
        _NO_PROFILE,
        _PARKED,
    ),
    Planted(
        "parks-the-refused-event-alone",
        "cosmos_outbox/cosmos/relay/relay.py",
        "            new = await self.parking.park(block, behind)\n",
        "            new = await self.parking.park(block, behind[:1])\n",
        _NO_PROFILE,
        _PARKED,
    ),
    Planted(
        "what-is-refused-again-in-a-replay-is-dropped",
        "cosmos_outbox/cosmos/relay/parking.py",
        "        if refused.is_skip:\n",
        "        if refused.is_skip or block.refusal is not None:\n",
        _NO_PROFILE,
        _PARKED,
    ),
    Planted(
        "replay-leaves-the-event-in-the-way",  # a replay and a discarding at once
        "cosmos_outbox/outbox/aggregate_block.py",
        "        return replace(self, stands=False, replay=replay, replay_until=until)\n",
        "        return replace(self, replay=replay, replay_until=until)\n",
        _NO_PROFILE,
        (*_PARKED, "sent after it was discarded", "two skip markers", "invented skip marker"),
    ),
    Planted(
        "discard-makes-no-skip-marker",
        "cosmos_outbox/cosmos/relay/parking_lot.py",
        "lambda write: self._put(block, write, Write.create(placed)))\n",
        "lambda write: self._put(_unblocked_at_zero(_counted(block, -1)), write))\n",
        _NO_PROFILE,
        (*_PARKED, "no skip marker"),
    ),
    Planted(
        "lost-answer-to-a-send-counts-as-sent",
        "cosmos_outbox/outbox/publisher.py",
        "            return Delivered(accepted, waits_for=reason, why=why)\n",
        '            return Delivered(len(events)) if "answer" in reason else Delivered(accepted, waits_for=reason)\n',
        _NO_PROFILE,
        _LOST,
    ),
    Planted(
        "page-that-is-broken-off-is-checkpointed",  # a lease is lost, or a worker deployed, while a page waits
        "cosmos_changefeed/partition_worker.py",
        "            await work(context)\n            await self._checkpoint(page.continuation)\n",
        "            try:\n"
        "                await work(context)\n"
        "            except asyncio.CancelledError:\n"
        "                await self._checkpoint(page.continuation)\n"
        "                raise\n"
        "            await self._checkpoint(page.continuation)\n",
        _NO_PROFILE,
        _LOST,
    ),
    Planted(
        "inbox-takes-an-old-read-for-an-absence",  # a message is gone or late, and a replica lags
        "cosmos_outbox/inbox/read_model.py",
        "        found = await self.source.newest(key)  # newest-source\n",
        "        found = await self.source.read(key)\n",
        _NO_PROFILE,
        _ENTRY,
    ),
    Planted(
        "proxys-404-is-believed",  # a proxy answers in the API's place while a walk runs, or an event is healed
        "cosmos_outbox/sources/http.py",
        "(status == 404 and self._is_not_found(body))",
        "status == 404",
        _NO_PROFILE,
        _ENTRY,
    ),
    Planted(
        "group-of-a-handler-is-no-failure",  # a task of a handler ends as no call may, beside another that fails
        "cosmos_outbox/kernel/loops.py",
        "    except (asyncio.CancelledError, SystemExit, KeyboardInterrupt, BaseExceptionGroup) as raised:\n",
        "    except (asyncio.CancelledError, SystemExit, KeyboardInterrupt) as raised:\n",
        _NO_PROFILE,
        ("worker ended", *_ENTRY),
    ),
    Planted(
        "inbox-puts-an-old-decision-over-a-new-entry",  # a lock is lost, and another worker has the session
        "cosmos_outbox/inbox/read_model.py",
        "        except EntryChanged:\n            return False\n        return True\n",
        "        except EntryChanged:\n"
        "            newest = await self.entries.newest(key)\n"
        "            if newest is None:\n"
        "                return False\n"
        "            await self._write(key, put, None, newest)\n"
        "        return True\n",
        _NO_PROFILE,
        _ENTRY,
    ),
    Planted(
        "claim-lives-for-two-minutes",  # the key is asked for again when all is long done
        "cosmos_outbox/cosmos/aggregates/idempotency.py",
        "aggregate_id, ttl=self.lifetime_seconds)\n",
        "aggregate_id, ttl=62)\n",
        _NO_PROFILE,
        ("first answer", "doubled aggregate", "acknowledged twice", "done twice"),
    ),
    Planted(
        "read-of-the-newest-is-any-read",  # a replica that lags, and another instance
        "cosmos_outbox/cosmos/aggregates/unit_of_work.py",
        "partition_key or aggregate_id, consistent=newest)\n",
        "partition_key or aggregate_id)\n",
        _NO_PROFILE,
        ("read went back", "refused as changed, but unchanged", "not found, but there"),
    ),
    Planted(
        "publishes-again-under-the-first-id",  # within the topic's window
        "cosmos_outbox/operations/republish.py",
        "replace(event, message_id=self.message_id(event.id)) if isinstance(event, OutboxEvent) else event\n",
        "event\n",
        _NO_PROFILE,
        ("published again",),
    ),
    Planted(
        "block-of-a-free-aggregate-stays",  # a refusal, a replay, and much time
        "cosmos_outbox/cosmos/relay/parked_documents.py",
        '    return item if block.blocked else item | {"ttl": ttl}\n',
        "    return item\n",
        _NO_PROFILE,
        ("grows for ever",),
    ),
    Planted(
        "rebuild-after-a-restore-only-heals",  # the store goes back, its subscriber does not
        "cosmos_outbox/inbox/healing.py",
        "run = _Run(math.inf, source_wins=source_wins, report=report)\n",
        "run = _Run(math.inf, report=report)\n",
        _NO_PROFILE,
        ("read model", *_ENTRY),
    ),
)
"""Most are right as long as one thing fails at a time."""
