"""Checks topic and subscription: duplicates are dropped, the order is kept and no event is lost."""

from collections.abc import Iterator
from datetime import timedelta

from cosmos_outbox.inbox.receiver import WAIT_SECONDS
from cosmos_outbox.preflight.plan import Plan
from cosmos_outbox.preflight.report import Access, Finding, Subject, try_as_app, written
from cosmos_outbox.servicebus.inspection import ServiceBusInspection, SubscriptionState, TopicState
from cosmos_outbox.settings.connections import Credential
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.errors import CannotCheck, Denied
from cosmos_outbox.settings.transports import ServiceBus

MOST_DELIVERIES = 2000
"""The largest max delivery count that Service Bus accepts."""

LONGEST_WINDOW = timedelta(days=7)
"""https://learn.microsoft.com/azure/service-bus-messaging/duplicate-detection"""


def judge_topic(
    of: ServiceBus, event_ttl: timedelta, state: TopicState | None, survive: timedelta
) -> Iterator[Finding]:
    """Check that the topic (None: it does not exist) drops events that are sent again after an outage (``survive``)."""
    subject = Subject(f"{of.kind} {of.topic}")
    if state is None:
        yield subject.wrong(
            "does not exist",
            f"create it with duplicate detection and without partitioning, or name another in {of.setting}",
        )
        return
    yield from _active(subject, active=state.active)
    yield from _window(subject, state, survive, event_ttl)
    yield _partitioning(subject, state, of)
    yield _auto_delete(subject, state.deleted_when_idle_for)


def judge_subscription(name: str, state: SubscriptionState | None, survive: timedelta) -> Iterator[Finding]:
    """Check that the subscription (None: it does not exist) keeps every message and each aggregate's order."""
    subject = Subject(f"subscription {name}")
    if state is None:
        yield subject.wrong(
            "does not exist in the topic",
            "create it with sessions, or name another in SERVICEBUS_SUBSCRIPTION or with --subscription",
        )
        return
    yield from _active(subject, active=state.active)
    if state.has_sessions:
        yield subject.ok("sessions: the events of one aggregate come in order")
    else:
        yield subject.wrong(
            "has no sessions, so the events of one aggregate may overtake each other, and the trigger does not start",
            "sessions cannot be turned on later: create another subscription with sessions and let the subscriber "
            "receive from that one (its name is in SERVICEBUS_SUBSCRIPTION, or in the code of a second subscriber)",
        )
    yield _delivery_count(subject, state.max_delivery_count, survive)
    if state.dead_letters_expired:
        yield subject.ok("a message that expires is kept as a dead letter")
    else:
        yield subject.wrong("a message that expires is lost", "turn on dead-lettering on message expiration")
    if state.forwards_to:
        yield subject.wrong("forwards its messages, so the trigger gets no message", "remove ForwardTo")
    if not state.takes_all:
        yield subject.warning(
            "has a filter. A read model reads what it leaves out from its source, at the next gap. Without one, or "
            'in a reaction with order="each", later events of the aggregate wait for it',
            "let all messages in, and name the events of an effect with on=",
        )
    yield _auto_delete(subject, state.deleted_when_idle_for)


def _active(subject: Subject, *, active: bool) -> Iterator[Finding]:
    if not active:
        yield subject.wrong("is disabled", "set its status to Active")


def _window(
    subject: Subject, state: TopicState, survive: timedelta, event_ttl: timedelta
) -> Iterator[Finding]:
    if not state.detects_duplicates:
        yield subject.wrong(
            "duplicate detection is off, so an event that the relay sends again arrives twice",
            "duplicate detection cannot be turned on later: create another topic with it and name that in "
            "SERVICEBUS_TOPIC",
        )
        return
    window = written(state.duplicate_window)
    if state.duplicate_window >= event_ttl:
        yield subject.ok(f"duplicates are dropped for {window}, as long as an event can be sent again")
    elif state.duplicate_window >= survive:
        yield subject.ok(
            f"duplicates are dropped for {window}, an outage of {written(survive)} included; events are kept for "
            f"{written(event_ttl)}, so a subscriber must drop later repetitions, by the event's id or sequence",
        )
    else:
        wanted = min(survive, LONGEST_WINDOW)
        yield subject.wrong(
            f"duplicates are dropped for {window} only: an event that the relay sends again after an outage of "
            f"{written(survive)} arrives twice",
            f"set the duplicate detection window to {written(wanted)}"
            if state.duplicate_window < wanted
            else "Service Bus has no longer window: expect a shorter outage with --survive, and let subscribers drop "
            "later repetitions",
        )


def _partitioning(subject: Subject, state: TopicState, of: ServiceBus) -> Finding:
    if state.partitioned and not of.partitioned:
        return subject.wrong(
            "is partitioned: with duplicate detection it refuses the relay's batches",
            "create another topic that is not partitioned, or set SERVICEBUS_TOPIC_PARTITIONED=true to send one "
            "message at a time",
        )
    if not state.partitioned and of.partitioned:
        return subject.warning(
            "is not partitioned, so the relay sends one message at a time without need",
            "set SERVICEBUS_TOPIC_PARTITIONED=false",
        )
    return subject.ok("partitioned, as the settings say" if state.partitioned else "is not partitioned")


def _delivery_count(subject: Subject, count: int, survive: timedelta) -> Finding:
    lasts = timedelta(seconds=count * WAIT_SECONDS)
    if count == 1:
        return subject.wrong(
            "a message becomes a dead letter after one failed delivery, and the next event of its aggregate overtakes "
            "it",
            f"set the max delivery count to {MOST_DELIVERIES}, its maximum",
        )
    text = f"{count} deliveries of a message outlast a store that is away for {written(lasts)}"
    if lasts > survive or count >= MOST_DELIVERIES:
        return subject.ok(text)
    return subject.warning(
        f"{text} only; then it becomes a dead letter, which the timer collects",
        f"set the max delivery count to {MOST_DELIVERIES}, its maximum",
    )


def _auto_delete(subject: Subject, idle: timedelta | None) -> Finding:
    if idle is None:
        return subject.ok("is not deleted when it is not used")
    return subject.wrong(
        f"is deleted with its messages after {written(idle)} without use",
        "set AutoDeleteOnIdle to its maximum, which means never",
    )


ACCESS = Access(
    service="Service Bus",
    place="namespace",
    setting="SERVICEBUS",
    address_setting="SERVICEBUS__fullyQualifiedNamespace",
    address="NAMESPACE.servicebus.windows.net",
    role="Azure Service Bus Data Owner",
    key="put a key with the claim Manage",
)


async def check(plan: Plan, of: ServiceBus, credential: Credential | None) -> list[Finding]:
    """Returns all findings about the namespace, in reading order."""
    findings: list[Finding] = []
    try:
        async with ServiceBusInspection(
            of.connection, credential, emulator_port=plan.emulator_port
        ) as inspection:
            try:
                findings += await _judge(plan, of, inspection)
            except Denied as error:
                findings.append(ACCESS.denied(of.connection, error, "the namespace"))
            if plan.as_app:
                findings += await _try_as_app(plan, of, inspection)
    except CannotCheck as error:
        findings.append(ACCESS.unanswered(of.connection, error))
    return findings


async def _judge(plan: Plan, own: ServiceBus, inspection: ServiceBusInspection) -> list[Finding]:
    """Check the topic with its subscriptions, or a queue by the rules of both."""
    if own.is_queue:
        topic, queue = await inspection.queue(own.topic) or (None, None)
        findings = list(_judged_topic(plan, own, topic))
        if queue is not None:
            findings += judge_subscription(own.topic, queue, plan.survive)
        wanted = [
            each for each in plan.subscriptions if each[0] != own.topic
        ]  # another team's, of a reaction
    else:
        topic = await inspection.topic(own.topic)
        findings = list(_judged_topic(plan, own, topic))
        wanted = (
            [*plan.subscriptions, *((own.topic, each) for each in plan.other_subscriptions)]
            if topic is not None
            else []
        )
    for of, each in wanted:
        findings += judge_subscription(each, await inspection.subscription(of, each), plan.survive)
    return findings


def _judged_topic(plan: Plan, of: ServiceBus, topic: TopicState | None) -> Iterator[Finding]:
    """Check the service's own topic by the rules; another team's only has to exist."""
    if isinstance(plan.settings, Settings):
        event_ttl = timedelta(seconds=plan.settings.event_ttl_seconds)
        yield from judge_topic(of, event_ttl, topic, plan.survive)
    elif topic is None:
        subject = Subject(f"{of.kind} {of.topic}")
        yield subject.wrong("does not exist", f"name the publisher's in {of.setting}")


async def _try_as_app(plan: Plan, own: ServiceBus, inspection: ServiceBusInspection) -> list[Finding]:
    findings = []
    if plan.service.publishes:
        subject, sending = (
            Subject(f"{own.kind} {own.topic}"),
            inspection.try_sending(own.topic, is_queue=own.is_queue),
        )
        findings.append(await try_as_app(sending, subject, "Azure Service Bus Data Sender"))
    for of, name in plan.subscriptions:
        receiving = inspection.try_receiving(of, name, is_queue=own.is_queue and of == own.topic)
        subject = Subject(f"subscription {name}")
        findings.append(await try_as_app(receiving, subject, "Azure Service Bus Data Receiver"))
    return findings
