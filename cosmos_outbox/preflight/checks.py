"""Runs every check, even if another fails; anything that cannot be checked never counts as right."""

import asyncio
from collections.abc import Iterator

from cosmos_outbox.cosmos.maintenance.inspection import CosmosInspection
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.operations.health import LOOK_SECONDS
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.preflight import cosmos as rules
from cosmos_outbox.preflight.plan import Cosmos, Needed, Plan
from cosmos_outbox.preflight.report import Access, Finding, ok, try_as_app, unknown, wrong
from cosmos_outbox.settings.connections import Credential
from cosmos_outbox.settings.errors import CannotCheck, Denied, IgnoresConditions, Misconfigured
from cosmos_outbox.settings.transports import ServiceBus, StorageQueue, Webhook

_COSMOS = Access(
    service="Cosmos DB",
    place="account",
    setting="COSMOS",
    address_setting="COSMOS__accountEndpoint",
    address="https://ACCOUNT.documents.azure.com:443/",
    role="Cosmos DB Built-in Data Reader",
    key="put the account's key",
)


async def check(plan: Plan, credential: Credential | None, clock: Clock = utc_now) -> list[Finding]:
    """Returns all findings in reading order. ``credential``: for connections without a key."""
    cosmos, transport = await asyncio.gather(_cosmos(plan, credential, clock), _transport(plan, credential))
    return [*_settings(plan), *cosmos, *transport]


def _settings(plan: Plan) -> Iterator[Finding]:
    yield rules.event_ttl(plan.settings, plan.survive)


async def _transport(plan: Plan, credential: Credential | None) -> list[Finding]:
    """Check the service's transport; only the packages of that one are imported."""
    match plan.settings.transport:
        case ServiceBus() as of:
            from cosmos_outbox.preflight import servicebus  # noqa: PLC0415

            return await servicebus.check(plan, of, credential)
        case StorageQueue() as of:
            from cosmos_outbox.preflight import storagequeue  # noqa: PLC0415

            return await storagequeue.check(plan, of, credential)
        case Webhook() as of:
            return [await _receiver(of)]


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
            findings += [rules.consistency(account.consistency), rules.write_regions(account)]
            for need in cosmos.needed:
                findings += await _container(plan, cosmos, inspection, need)
    except Denied as error:
        findings.append(_COSMOS.denied(cosmos.connection, _COSMOS.service, error, "the account"))
    except CannotCheck as error:
        findings.append(_COSMOS.unanswered(cosmos.connection, error))
    return [*findings, *rules.clock(inspection.ahead if inspection else None)]


async def _container(plan: Plan, cosmos: Cosmos, inspection: CosmosInspection, need: Needed) -> list[Finding]:
    try:
        state = await inspection.container(need.name)
    except Denied as error:
        return [_COSMOS.denied(cosmos.connection, need.subject, error, need.subject)]
    findings = list(rules.judge(need, state, cosmos.database))
    if plan.as_app and state is not None and state.partition_key == need.paths.paths:
        role = "Cosmos DB Built-in Data Contributor"
        try:
            access = await try_as_app(
                lambda: inspection.try_access(need.name, need.paths), need.subject, role
            )
        except IgnoresConditions:
            access = wrong(
                need.subject,
                "the store ignores If-Match in a batch: a change overwrites another one unseen",
                "use an Azure account, or devstack",
            )
        findings.append(access)
    return findings


async def _receiver(of: Webhook) -> Finding:
    """Check that the receiver can be reached, at an address that may be called; nothing is posted to it."""
    from cosmos_outbox.webhook.session import reach  # noqa: PLC0415

    subject = f"receiver {of.destination}"
    try:
        await reach(of, seconds=LOOK_SECONDS)
    except Misconfigured as error:
        return wrong(subject, "its name leads to an address that may not be asked", str(error))
    except Unavailable as error:
        return unknown(subject, str(error), "start the receiver, or correct WEBHOOK_URL")
    return ok(subject, "can be reached; whether it takes the signature shows with the first event")
