"""What topic and subscription must be for events to be dropped when repeated, kept in order, and never lost."""

from collections.abc import Iterator
from datetime import timedelta

from infra.preflight.report import Finding, ok, warning, written, wrong
from infra.servicebus.inspection import SubscriptionState, TopicState
from infra.settings import Settings

LONGEST_WINDOW = timedelta(days=7)
"""https://learn.microsoft.com/azure/service-bus-messaging/duplicate-detection"""


def judge_topic(settings: Settings, state: TopicState | None, survive: timedelta) -> Iterator[Finding]:
    """Whether the topic (None: it is not there) drops what the relay repeats after an outage of ``survive``."""
    subject = f"topic {settings.servicebus_topic}"
    if state is None:
        yield wrong(
            subject,
            "does not exist",
            "create it with duplicate detection and without partitioning, or name another in SERVICEBUS_TOPIC",
        )
        return
    yield from _active(subject, active=state.active)
    yield from _window(subject, state, survive, timedelta(seconds=settings.event_ttl_seconds))
    yield _partitioning(subject, state, settings)
    yield _auto_delete(subject, state.deleted_when_idle_for)


def judge_subscription(name: str, state: SubscriptionState | None) -> Iterator[Finding]:
    """Whether the subscription (None: it is not there) keeps every message, in order per contact."""
    subject = f"subscription {name}"
    if state is None:
        yield wrong(
            subject,
            "does not exist in the topic",
            "create it with sessions, or name another in SERVICEBUS_SUBSCRIPTION",
        )
        return
    yield from _active(subject, active=state.active)
    if state.has_sessions:
        yield ok(subject, "sessions: one contact's events come in order")
    else:
        yield wrong(
            subject,
            "has no sessions, so one contact's events may be handled out of order, and the trigger cannot open it",
            "this cannot be changed: create another one with sessions and name it in SERVICEBUS_SUBSCRIPTION",
        )
    yield _delivery_count(subject, state.max_delivery_count)
    if state.dead_letters_expired:
        yield ok(subject, "a message that expires is kept as a dead letter")
    else:
        yield wrong(subject, "a message that expires is lost", "turn on dead-lettering on message expiration")
    if state.forwards_to:
        yield wrong(subject, "forwards its messages, so that its subscriber gets none", "take ForwardTo out")
    yield _auto_delete(subject, state.deleted_when_idle_for)


def judge_event_ttl(settings: Settings, survive: timedelta) -> Finding:
    """Whether events are kept for longer than the outage."""
    ttl = timedelta(seconds=settings.event_ttl_seconds)
    if ttl > survive:
        return ok(
            "EVENT_TTL_SECONDS",
            f"events are kept for {written(ttl)}, an outage of {written(survive)} is shorter",
        )
    return wrong(
        "EVENT_TTL_SECONDS",
        f"events are kept for {written(ttl)}: an outage of {written(survive)} loses those that wait",
        "raise it; existing events keep the TTL that they have",
    )


def _active(subject: str, *, active: bool) -> Iterator[Finding]:
    if not active:
        yield wrong(subject, "is disabled", "set its status to Active")


def _window(subject: str, state: TopicState, survive: timedelta, event_ttl: timedelta) -> Iterator[Finding]:
    if not state.detects_duplicates:
        yield wrong(
            subject,
            "duplicate detection is off, so that what the relay repeats arrives twice",
            "this cannot be changed: create another topic with duplicate detection and name it in SERVICEBUS_TOPIC",
        )
        return
    window = written(state.duplicate_window)
    if state.duplicate_window >= event_ttl:
        yield ok(subject, f"duplicates are dropped for {window}, as long as an event can be sent again")
    elif state.duplicate_window >= survive:
        yield ok(
            subject,
            f"duplicates are dropped for {window}, an outage of {written(survive)} included; events are kept for "
            f"{written(event_ttl)}, so a later repetition is the subscriber's to drop, by its id or sequence",
        )
    else:
        wanted = min(survive, LONGEST_WINDOW)
        yield wrong(
            subject,
            f"duplicates are dropped for {window} only: what the relay repeats after an outage of "
            f"{written(survive)} arrives twice",
            f"set the duplicate detection window to {written(wanted)}"
            if state.duplicate_window < wanted
            else "no window is longer: expect a shorter outage with --survive, and let subscribers drop the rest",
        )


def _partitioning(subject: str, state: TopicState, settings: Settings) -> Finding:
    if state.partitioned and not settings.servicebus_topic_partitioned:
        return wrong(
            subject,
            "is partitioned: with duplicate detection it refuses the relay's batches",
            "create another topic that is not partitioned, or set SERVICEBUS_TOPIC_PARTITIONED=true to send one "
            "message at a time",
        )
    if not state.partitioned and settings.servicebus_topic_partitioned:
        return warning(
            subject,
            "is not partitioned, and the relay sends one message at a time for nothing",
            "set SERVICEBUS_TOPIC_PARTITIONED=false",
        )
    return ok(subject, "partitioned, as the settings say" if state.partitioned else "is not partitioned")


def _delivery_count(subject: str, count: int) -> Finding:
    if count > 1:
        return ok(subject, f"a message is a dead letter after {count} deliveries")
    return wrong(
        subject,
        "a message is a dead letter after one failed delivery, and the next of its contact overtakes it",
        "raise the max delivery count; the service's default is 10",
    )


def _auto_delete(subject: str, idle: timedelta | None) -> Finding:
    if idle is None:
        return ok(subject, "is not deleted when idle")
    return wrong(
        subject,
        f"is deleted with all that it holds when idle for {written(idle)}",
        "set AutoDeleteOnIdle to its maximum, which means never",
    )
