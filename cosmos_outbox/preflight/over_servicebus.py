"""The topic and the subscriptions of a service are as its promises need them."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from cosmos_outbox.preflight import servicebus_rules
from cosmos_outbox.preflight.access import Access, try_as_app
from cosmos_outbox.preflight.plan import Plan
from cosmos_outbox.preflight.report import Finding, wrong
from cosmos_outbox.servicebus.inspection import ServiceBusInspection, TopicState
from cosmos_outbox.settings.credentials import Credential
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.inspection import CannotCheck, Denied
from cosmos_outbox.settings.transports import ServiceBus
from cosmos_outbox.wiring.service import Service

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
    """All findings about the namespace, in the order of reading."""
    findings: list[Finding] = []
    try:
        async with ServiceBusInspection(
            of.connection, credential, emulator_port=plan.emulator_port
        ) as inspection:
            findings += await _topic(plan, of, inspection)
            if plan.as_app:
                findings += await _try_as_app(plan, of, inspection)
    except CannotCheck as error:
        findings.append(ACCESS.unanswered(of.connection, error))
    return findings


async def _topic(plan: Plan, own: ServiceBus, inspection: ServiceBusInspection) -> list[Finding]:
    name = own.topic
    try:
        if own.is_queue:
            return await _queue_findings(plan, own, inspection)
        topic = await inspection.topic(name)
        findings = list(_judged_topic(plan, own, topic))
        if topic is not None:
            for of, each in (*plan.subscriptions, *((name, each) for each in plan.other_subscriptions)):
                subscription = await inspection.subscription(of, each)
                findings += servicebus_rules.judge_subscription(each, subscription, plan.survive)
    except Denied as error:
        return [ACCESS.denied(own.connection, ACCESS.service, error, "the namespace")]
    return findings


async def _queue_findings(plan: Plan, own: ServiceBus, inspection: ServiceBusInspection) -> list[Finding]:
    """A queue is held to the rules of a topic and of a subscription."""
    topic, subscription = await inspection.queue(own.topic) or (None, None)
    findings = list(_judged_topic(plan, own, topic))
    if subscription is not None:
        findings += servicebus_rules.judge_subscription(own.topic, subscription, plan.survive)
    for of, each in plan.subscriptions:
        if of != own.topic:  # another team's topic, of a reaction
            findings += servicebus_rules.judge_subscription(
                each, await inspection.subscription(of, each), plan.survive
            )
    return findings


def _judged_topic(plan: Plan, of: ServiceBus, topic: TopicState | None) -> Iterator[Finding]:
    """Another team's topic is that team's affair, as long as it is there."""
    if isinstance(plan.settings, Settings):
        event_ttl = timedelta(seconds=plan.settings.event_ttl_seconds)
        yield from servicebus_rules.judge_topic(of, event_ttl, topic, plan.survive)
    elif topic is None:
        yield wrong(f"{of.kind} {of.topic}", "does not exist", f"name the publisher's in {of.setting}")


async def _try_as_app(plan: Plan, own: ServiceBus, inspection: ServiceBusInspection) -> list[Finding]:
    topic = own.topic
    sends = isinstance(plan.service, Service)
    return [
        *[
            await try_as_app(
                lambda: inspection.try_sending(topic, is_queue=own.is_queue),
                f"{own.kind} {topic}",
                "Azure Service Bus Data Sender",
            )
            for _ in range(sends)
        ],
        *[
            await try_as_app(
                partial(inspection.try_receiving, of, subscription, is_queue=own.is_queue and of == topic),
                f"subscription {subscription}",
                "Azure Service Bus Data Receiver",
            )
            for of, subscription in plan.subscriptions
        ],
    ]
