"""Publishes the stored events of a span of time again, for a subscriber that has lost its data.

cosmos-outbox publish-again --since TIME [--to TIME] [--aggregate TYPE/ID] [--run ID] [--dry-run]

Nothing is sent before the relay has forwarded it: an event's first message must not come after its second one. So each
window is read, then all session tokens are renewed, and it waits until the relay has forwarded all that they cover.
The numbers of the transactions decide, not the times: a clock may be turned back.
"""

import argparse
import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID

from cosmos_outbox.cli import command
from cosmos_outbox.cosmos.maintenance.event_list import Span, Window
from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, monotonic, new_id, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.operations.republish import (
    PATIENCE_SECONDS,
    DryRun,
    Republishing,
    RepublishingProgress,
)
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.errors import Misconfigured, NotForwardedYet

ALL, NOT_ALL, CUT_OFF = 0, 1, 2

CLOCKS_DIFFER_SECONDS = 5
"""The margin after a span's end until it is over by the store's clock too."""

_SAY_EVERY_SECONDS = 5.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class RepublishingPlan:
    """The events to publish again, and the run that they are sent under."""

    span: Span
    run: UUID
    dry_run: bool = False


async def republish(
    wired: Wired, plan: RepublishingPlan, progress: RepublishingProgress, *, clock: Clock = utc_now
) -> None:
    """Publish again, printing how far it is. ``progress`` has what was done, whatever ends it.

    Raises NotForwardedYet, NotDelivered, Throttled, Unavailable, Misconfigured.
    """
    relay = wired.relay.relay
    _check_over(plan.span, clock())
    history = wired.operator.history(await _renew_tokens(wired))

    async def read_forwarded(span: Span) -> Window:
        window = await history.window(span)
        if window.events:
            await _wait_until_forwarded(wired)
        return window

    work = Republishing(
        read_forwarded,
        relay.parking,
        relay.originals,
        DryRun() if plan.dry_run else relay.publisher,
        plan.run,
        relay.reading_seconds,
        PATIENCE_SECONDS,
    )
    said_at = monotonic()
    async for reached in work.publish(plan.span, progress):
        if monotonic() - said_at >= _SAY_EVERY_SECONDS:
            said_at = monotonic()
            _say(f"{_count(progress, plan)}, all that was stored before {_text(reached)}")


def _check_over(span: Span, now: datetime) -> None:
    """Raise NotForwardedYet unless the span is over: the read would miss an event stored in it later."""
    if span.to > now.timestamp() - CLOCKS_DIFFER_SECONDS:
        raise NotForwardedYet(
            f"the time until {_text(span.to)} is not over, or has been for less than {CLOCKS_DIFFER_SECONDS} s, by "
            "which the store's clock may differ. Wait a few seconds, or choose an earlier --to"
        )


def _renew_tokens(wired: Wired) -> Awaitable[str]:
    return renew_tokens(wired.outbox.stored, wired.outbox.feed)


async def _wait_until_forwarded(wired: Wired) -> None:
    """Return when the relay has forwarded or parked all that is stored now. Raises NotForwardedYet."""
    token, give_up_at = await _renew_tokens(wired), monotonic() + PATIENCE_SECONDS
    while not (passed := await wired.operator.observer.has_forwarded(token)):
        if monotonic() >= give_up_at:
            raise NotForwardedYet(
                "the relay has no lease for a part of the store, so how far it is there is not known. Wait until "
                "GET /api/relay shows no missingLeases"
                if passed is None
                else "the relay has not forwarded all that is stored, and an event's second message must not come "
                "before its first. See GET /api/relay, and wait until the relay has caught up"
            )
        await asyncio.sleep(_LOOK_SECONDS)
        if passed is None:  # a partition was split in between
            token = await _renew_tokens(wired)


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Publish again, and return the exit code."""
    parser = command.parser(
        "publish-again",
        "Publish the events of a time again. A time is ISO 8601 with an offset: 2026-03-01T12:00:00Z.",
        "all published",
        "all but what is listed",
        "cut off; start it again with --run",
    )
    parser.add_argument("--since", type=_time, required=True, metavar="TIME", help="stored then or later")
    parser.add_argument("--to", type=_time, metavar="TIME", help="stored before (default: now)")
    parser.add_argument(
        "--aggregate", type=_aggregate, metavar="TYPE/ID", help="of one aggregate only (default: of all)"
    )
    parser.add_argument(
        "--run", type=_run, metavar="ID", help="go on with a run that was cut off, with the same times"
    )
    parser.add_argument("--dry-run", action="store_true", help="count the events and publish none")
    return command.run(parser, _publish, argv, environment, publishes=True, log_level=logging.WARNING)


async def _publish(wired: Wired, arguments: argparse.Namespace) -> int:
    to = arguments.to or math.floor(utc_now().timestamp()) - CLOCKS_DIFFER_SECONDS
    if arguments.since >= to:
        raise Misconfigured("--since must be before --to")
    span = Span(math.floor(arguments.since), math.ceil(to), arguments.aggregate)
    plan = RepublishingPlan(span, arguments.run or new_id(), arguments.dry_run)
    progress = RepublishingProgress()
    _say(f"run {plan.run}: events that were stored from {_text(span.since)} until before {_text(span.to)}")
    try:
        await republish(wired, plan, progress)
    except (NotForwardedYet, OutboxError) as error:
        return _cut_off(str(error), plan, progress)
    except asyncio.CancelledError:
        return _cut_off("interrupted", plan, progress)
    for aggregate, reason in progress.skipped.items():
        _say(f"skipped {aggregate}: {reason}")
    _say(_summary(plan, progress))
    return ALL if progress.whole else NOT_ALL


def _time(text: str) -> float:
    with suppress(ValueError):
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.timestamp()
    raise argparse.ArgumentTypeError(f"{text!r} is no time with an offset: write 2026-03-01T12:00:00Z")


def _aggregate(text: str) -> AggregateKey:
    kind, _, name = text.partition("/")
    if not kind or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no aggregate: write its type, / and its id")
    return AggregateKey(kind, name)


def _run(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        reason = f"{text!r} is no run: copy the id that the run has printed"
        raise argparse.ArgumentTypeError(reason) from None


def _count(progress: RepublishingProgress, plan: RepublishingPlan) -> str:
    return f"{progress.published} event(s) {'would be ' if plan.dry_run else ''}published"


def _summary(plan: RepublishingPlan, progress: RepublishingProgress) -> str:
    left_out = {
        "aggregate(s) skipped": len(progress.skipped),
        "discarded event(s), of which only the skip markers": progress.discarded,
        "document(s) left out that belong to no aggregate": progress.ownerless,
    }
    return ", ".join(
        [_count(progress, plan), *(f"{count} {what}" for what, count in left_out.items() if count)]
    )


def _cut_off(reason: str, plan: RepublishingPlan, progress: RepublishingProgress) -> int:
    command.say_error(
        f"publish-again: cut off after {_summary(plan, progress)}: {reason}. To go on, run the same command with "
        f"--to {_text(plan.span.to)} --run {plan.run}: what the topic still knows of this run is not delivered twice"
    )
    return CUT_OFF


def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _say(line: str) -> None:
    command.say(f"publish-again: {line}")
