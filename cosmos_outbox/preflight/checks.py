"""Every check is made even when another fails; a thing that cannot be checked never counts as right."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.cosmos.upkeep.inspection import CosmosInspection
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.preflight import archive_rules, containers, cosmos_rules, servicebus_rules
from cosmos_outbox.preflight.report import Finding, ok, unknown, wrong
from cosmos_outbox.servicebus.inspection import ServiceBusInspection, TopicState
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.inspection import CannotCheck, Denied, UnusableConnection
from cosmos_outbox.settings.subscribing import SubscriberSettings
from cosmos_outbox.wiring.located import AnyService
from cosmos_outbox.wiring.reactions import ReactionOf
from cosmos_outbox.wiring.service import Service

T = TypeVar("T")
StateT = TypeVar("StateT")
_ROLES_TAKE_TIME = "a new role takes some minutes to work"


@dataclass(frozen=True)
class Cosmos:
    """The account to check, and what the service needs there."""

    connection: Connection
    database: str
    needed: tuple[containers.Needed, ...]


@dataclass(frozen=True)
class Plan:
    """The settings to check, and the outage that the deployment must survive."""

    settings: Settings | SubscriberSettings
    service: AnyService
    cosmos: Cosmos | None
    """None: the service has no store there."""
    other_subscriptions: tuple[str, ...]
    """Subscriptions beside those of the service, which are checked in the same way."""
    survive: timedelta
    as_app: bool
    """True: the run uses the app's own identity, and also tries what the app does."""
    emulator_port: int
    """The port of an emulator's management API; a real namespace does not use it."""

    @property
    def subscriptions(self) -> tuple[tuple[str, str], ...]:
        """Those of the service, each after its topic."""
        own, name = self.settings.servicebus_topic, self.settings.name
        return (
            tuple(
                (
                    name(each.topic) if isinstance(each, ReactionOf) and each.topic else own,
                    name(each.subscription),
                )
                for each in self.service.subscribers
            )
            + self._canary
        )

    @property
    def _canary(self) -> tuple[tuple[str, str], ...]:
        of = self.settings.canary if isinstance(self.settings, Settings) else None
        return ((self.settings.servicebus_topic, of),) if of else ()


@dataclass(frozen=True)
class _Access:
    """The words for a service that refuses a call, does not answer, or cannot be asked."""

    service: str
    place: str
    """The service's word for the target of a connection: account, namespace."""
    setting: str
    address_setting: str
    address: str
    role: str
    key: str

    def denied(self, connection: Connection, subject: str, error: Denied, scope: str) -> Finding:
        fix = (
            f"{self.key} in {self.setting}, or set {self.address_setting} instead, to use an identity"
            if connection.connection_string
            else f"give the identity that runs preflight the role {self.role} on {scope} ({_ROLES_TAKE_TIME}), or let "
            "this machine through the firewall if the text says so"
        )
        return wrong(subject, f"access is denied: {error}", fix)

    def unanswered(self, connection: Connection, error: CannotCheck) -> Finding:
        if isinstance(error, UnusableConnection):
            return self._unusable(connection)
        setting, sign_in = (
            (self.setting, "")
            if connection.connection_string
            else (self.address_setting, "; sign in (az login)")
        )
        return unknown(
            self.service,
            str(error),
            f"check that {setting} names the right {self.place}, and that this machine may reach it "
            f"(firewall, private endpoint){sign_in}",
        )

    def _unusable(self, connection: Connection) -> Finding:
        if connection.connection_string:
            return unknown(
                self.service,
                f"{self.setting} holds no connection string that can be used: a part is missing, or its key is damaged",
                f"copy the connection string of the {self.place} into {self.setting} again, or remove {self.setting} "
                f"and set {self.address_setting} to use an identity",
            )
        return unknown(
            self.service,
            f"{self.address_setting} holds no address that can be used",
            f"set {self.address_setting} to the address of the {self.place}, such as {self.address}",
        )


_COSMOS = _Access(
    service="Cosmos DB",
    place="account",
    setting="COSMOS",
    address_setting="COSMOS__accountEndpoint",
    address="https://ACCOUNT.documents.azure.com:443/",
    role="Cosmos DB Built-in Data Reader",
    key="put the account's key",
)
_SERVICEBUS = _Access(
    service="Service Bus",
    place="namespace",
    setting="SERVICEBUS",
    address_setting="SERVICEBUS__fullyQualifiedNamespace",
    address="NAMESPACE.servicebus.windows.net",
    role="Azure Service Bus Data Owner",
    key="put a key with the claim Manage",
)


async def check(plan: Plan, credential: Credential | None, clock: Clock = utc_now) -> list[Finding]:
    """All findings in the order of reading. ``credential``: for connections without a key."""
    cosmos, servicebus, archive = await asyncio.gather(
        _cosmos(plan, credential, clock),
        _servicebus(plan, credential),
        archive_rules.archive(plan.settings, credential, as_app=plan.as_app),
    )
    return [*_settings(plan), *cosmos, *servicebus, *archive]


def plan_for(service: AnyService, values: Mapping[str, str], **others: Any) -> Plan:
    """What is to be checked of a service with these settings. Raises Misconfigured."""
    if isinstance(service, Service):
        settings = service.settings(values)
        needed = containers.needed(settings, service)
        return Plan(settings, service, Cosmos(settings.cosmos, settings.cosmos_database, needed), **others)
    cosmos = None
    if isinstance(service.store, CosmosDatabase):
        names = service.store.names(values)
        needed = containers.needed_by_subscriber(names, service)
        cosmos = Cosmos(names.connection, names.database, needed)
    return Plan(service.settings(values), service, cosmos, **others)


def _settings(plan: Plan) -> Iterator[Finding]:
    yield servicebus_rules.judge_event_ttl(plan.settings, plan.survive)


async def _cosmos(plan: Plan, credential: Credential | None, clock: Clock) -> list[Finding]:
    cosmos = plan.cosmos
    if cosmos is None:
        return []
    findings: list[Finding] = []
    inspection: CosmosInspection | None = None
    try:
        inspection = CosmosInspection(cosmos.connection, credential, cosmos.database, clock)
        async with inspection:
            account = await inspection.account()
            findings += [cosmos_rules.consistency(account.consistency), cosmos_rules.write_regions(account)]
            for need in cosmos.needed:
                findings += await _container(plan, cosmos, inspection, need)
    except Denied as error:
        findings.append(_COSMOS.denied(cosmos.connection, _COSMOS.service, error, "the account"))
    except CannotCheck as error:
        findings.append(_COSMOS.unanswered(cosmos.connection, error))
    return [*findings, *cosmos_rules.clock(inspection.ahead if inspection else None)]


async def _container(
    plan: Plan, cosmos: Cosmos, inspection: CosmosInspection, need: containers.Needed
) -> list[Finding]:
    try:
        state = await inspection.container(need.name)
    except Denied as error:
        return [_COSMOS.denied(cosmos.connection, need.subject, error, need.subject)]
    findings = list(cosmos_rules.judge(need, state, cosmos.database))
    if plan.as_app and state is not None and state.partition_key == need.paths.paths:
        findings.append(
            await _try(
                lambda: inspection.try_access(need.name, need.paths),
                need.subject,
                "Cosmos DB Built-in Data Contributor",
            )
        )
    return findings


async def _servicebus(plan: Plan, credential: Credential | None) -> list[Finding]:
    settings = plan.settings
    findings: list[Finding] = []
    try:
        async with ServiceBusInspection(
            settings.servicebus, credential, emulator_port=plan.emulator_port
        ) as inspection:
            findings += await _topic(plan, inspection)
            if plan.as_app:
                findings += await _try_as_app(plan, inspection)
    except CannotCheck as error:
        findings.append(_SERVICEBUS.unanswered(settings.servicebus, error))
    return findings


async def _topic(plan: Plan, inspection: ServiceBusInspection) -> list[Finding]:
    name = plan.settings.servicebus_topic
    try:
        topic = await inspection.topic(name)
        findings = list(_judged_topic(plan, topic))
        if topic is not None:
            for of, each in (*plan.subscriptions, *((name, each) for each in plan.other_subscriptions)):
                subscription = await inspection.subscription(of, each)
                findings += servicebus_rules.judge_subscription(each, subscription, plan.survive)
    except Denied as error:
        return [_SERVICEBUS.denied(plan.settings.servicebus, _SERVICEBUS.service, error, "the namespace")]
    return findings


def _judged_topic(plan: Plan, topic: TopicState | None) -> Iterator[Finding]:
    """Another team's topic is that team's affair, as long as it is there."""
    settings = plan.settings
    if isinstance(settings, Settings):
        yield from servicebus_rules.judge_topic(settings, topic, plan.survive)
    elif topic is None:
        yield wrong(
            f"topic {settings.servicebus_topic}", "does not exist", "name the publisher's in SERVICEBUS_TOPIC"
        )


async def _try_as_app(plan: Plan, inspection: ServiceBusInspection) -> list[Finding]:
    topic = plan.settings.servicebus_topic
    sends = isinstance(plan.service, Service)
    return [
        *[
            await _try(
                lambda: inspection.try_sending(topic), f"topic {topic}", "Azure Service Bus Data Sender"
            )
            for _ in range(sends)
        ],
        *[
            await _try(
                partial(inspection.try_receiving, of, subscription),
                f"subscription {subscription}",
                "Azure Service Bus Data Receiver",
            )
            for of, subscription in plan.subscriptions
        ],
    ]


async def _try(call: Callable[[], Awaitable[None]], subject: str, role: str) -> Finding:
    """Whether the credential of this run may make the call that the app makes."""
    try:
        await call()
    except Denied as error:
        return wrong(
            subject,
            f"the app is denied access: {error}",
            f"give the app's identity the role {role} on the {subject} ({_ROLES_TAKE_TIME}), "
            "or put a key with that right in the app's settings",
        )
    except CannotCheck as error:
        return unknown(
            subject,
            f"it is not known whether the app may use the {subject}: the service {error}",
            "repair what the other lines say, then run preflight again",
        )
    return ok(subject, f"may be used as the role {role} allows")
