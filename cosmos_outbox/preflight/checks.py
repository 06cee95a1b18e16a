"""Runs every check, even if another fails; anything that cannot be checked never counts as right.

Of the transports only the packages of the service's own are imported.
"""

import asyncio

from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.operations.health import LOOK_SECONDS
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.preflight import cosmos
from cosmos_outbox.preflight.plan import Plan
from cosmos_outbox.preflight.report import Access, Finding, Subject
from cosmos_outbox.settings.connections import Credential
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.errors import CannotCheck, Denied, Misconfigured
from cosmos_outbox.settings.transports import OwnPublisher, ServiceBus, StorageQueue, Webhook

_STORAGE = Access(
    service="Storage queues",
    place="storage account",
    setting="STORAGEQUEUE",
    address_setting="STORAGEQUEUE__queueServiceUri",
    address="https://ACCOUNT.queue.core.windows.net",
    role="Storage Queue Data Contributor",
    key="put the account's key",
)


async def check(plan: Plan, credential: Credential | None, clock: Clock = utc_now) -> list[Finding]:
    """Returns all findings in reading order. ``credential``: for connections without a key."""
    of_cosmos, of_transport = await asyncio.gather(
        cosmos.check(plan, credential, clock), _check_transport(plan, credential)
    )
    return [cosmos.event_ttl(plan.settings, plan.survive), *of_cosmos, *of_transport]


async def _check_transport(plan: Plan, credential: Credential | None) -> list[Finding]:
    match plan.settings.transport:
        case ServiceBus() as of:
            from cosmos_outbox.preflight import servicebus  # noqa: PLC0415

            return await servicebus.check(plan, of, credential)
        case StorageQueue() as of:
            return await check_queues(plan, of, credential)
        case Webhook() as of:
            return [await _check_receiver(of)]
        case OwnPublisher():
            return []


async def check_queues(plan: Plan, of: StorageQueue, credential: Credential | None) -> list[Finding]:
    """Check that the queues that events are sent to and received from exist, and may be used."""
    from cosmos_outbox.storagequeue.client import DEADLINE_SECONDS, messages_in  # noqa: PLC0415
    from cosmos_outbox.storagequeue.receiver import POISON  # noqa: PLC0415

    sent_to = of.queues if isinstance(plan.settings, Settings) else ()
    received = [name for _, name in plan.subscriptions] + list(plan.other_subscriptions)
    findings: list[Finding] = []
    for name in dict.fromkeys([*sent_to, *received, *(f"{each}{POISON}" for each in received)]):
        queue = Subject(f"queue {name}")
        try:
            messages = await messages_in(of.connection, credential, name, seconds=DEADLINE_SECONDS)
        except Denied as error:
            findings.append(_STORAGE.denied(of.connection, error, "the account", queue))
        except CannotCheck as error:
            return [*findings, _STORAGE.unanswered(of.connection, error)]
        else:
            other = ", or name another in STORAGEQUEUE_QUEUES or the subscription's setting"
            create = "create it" if name.endswith(POISON) else f"create it{other}"
            findings.append(
                queue.wrong("does not exist", create)
                if messages is None
                else queue.ok(f"has about {messages} message(s)")
            )
    return findings


async def _check_receiver(of: Webhook) -> Finding:
    """Check that the receiver can be reached, at an address that may be called; nothing is posted to it."""
    from cosmos_outbox.webhook.session import reach  # noqa: PLC0415

    receiver = Subject(f"receiver {of.destination}")
    try:
        await reach(of, seconds=LOOK_SECONDS)
    except Misconfigured as error:
        return receiver.wrong("its name leads to an address that may not be asked", str(error))
    except Unavailable as error:
        return receiver.unknown(str(error), "start the receiver, or correct WEBHOOK_URL")
    return receiver.ok("can be reached; whether it takes the signature shows with the first event")
