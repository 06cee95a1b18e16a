"""Every check is made even when another fails; a thing that cannot be checked never counts as right."""

import asyncio
from collections.abc import Iterator

from cosmos_outbox.cosmos.upkeep.inspection import CosmosInspection
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.preflight import containers, cosmos_rules
from cosmos_outbox.preflight.access import Access, try_as_app
from cosmos_outbox.preflight.plan import Cosmos, Plan
from cosmos_outbox.preflight.report import Finding
from cosmos_outbox.settings.credentials import Credential
from cosmos_outbox.settings.inspection import CannotCheck, Denied
from cosmos_outbox.settings.transports import ServiceBus, StorageQueue
from cosmos_outbox.settings.webhook import Webhook

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
    """All findings in the order of reading. ``credential``: for connections without a key."""
    cosmos, transport = await asyncio.gather(_cosmos(plan, credential, clock), _transport(plan, credential))
    return [*_settings(plan), *cosmos, *transport]


def _settings(plan: Plan) -> Iterator[Finding]:
    yield cosmos_rules.event_ttl(plan.settings, plan.survive)


async def _transport(plan: Plan, credential: Credential | None) -> list[Finding]:
    """Of the transport that the service uses; its packages alone are imported."""
    match plan.settings.transport:
        case ServiceBus() as of:
            from cosmos_outbox.preflight import over_servicebus  # noqa: PLC0415

            return await over_servicebus.check(plan, of, credential)
        case StorageQueue() as of:
            from cosmos_outbox.preflight import over_storagequeue  # noqa: PLC0415

            return await over_storagequeue.check(plan, of, credential)
        case Webhook() as of:
            from cosmos_outbox.preflight import over_webhook  # noqa: PLC0415

            return await over_webhook.check(of)


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
            await try_as_app(
                lambda: inspection.try_access(need.name, need.paths),
                need.subject,
                "Cosmos DB Built-in Data Contributor",
            )
        )
    return findings
