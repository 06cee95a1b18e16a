"""Checks that the queues that events are sent to and received from exist, and may be used."""

from cosmos_outbox.preflight.plan import Plan
from cosmos_outbox.preflight.report import Access, Finding, ok, wrong
from cosmos_outbox.settings.connections import Credential
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.errors import CannotCheck, Denied
from cosmos_outbox.settings.transports import StorageQueue
from cosmos_outbox.storagequeue.client import DEADLINE_SECONDS, messages_in
from cosmos_outbox.storagequeue.messages import POISON

ACCESS = Access(
    service="Storage queues",
    place="storage account",
    setting="STORAGEQUEUE",
    address_setting="STORAGEQUEUE__queueServiceUri",
    address="https://ACCOUNT.queue.core.windows.net",
    role="Storage Queue Data Contributor",
    key="put the account's key",
)


async def check(plan: Plan, of: StorageQueue, credential: Credential | None) -> list[Finding]:
    """Returns all findings about the queues, in reading order."""
    sent_to = of.queues if isinstance(plan.settings, Settings) else ()
    received = [name for _, name in plan.subscriptions] + list(plan.other_subscriptions)
    findings: list[Finding] = []
    try:
        for name in dict.fromkeys([*sent_to, *received, *(f"{each}{POISON}" for each in received)]):
            findings += [await _judge_queue(of, credential, name)]
    except CannotCheck as error:
        findings.append(ACCESS.unanswered(of.connection, error))
    return findings


async def _judge_queue(of: StorageQueue, credential: Credential | None, name: str) -> Finding:
    subject = f"queue {name}"
    try:
        messages = await messages_in(of.connection, credential, name, seconds=DEADLINE_SECONDS)
    except Denied as error:
        return ACCESS.denied(of.connection, subject, error, "the account")
    if messages is None:
        where = (
            ""
            if name.endswith(POISON)
            else ", or name another in STORAGEQUEUE_QUEUES or the subscription's setting"
        )
        return wrong(subject, "does not exist", f"create it{where}")
    return ok(subject, f"has about {messages} message(s)")
