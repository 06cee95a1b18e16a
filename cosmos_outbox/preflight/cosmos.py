"""Judges the account and its containers: events must be stored, forwarded and applied once in order."""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

from cosmos_outbox.cosmos.maintenance.inspection import ContainerState, CosmosInspection, IndexingPolicy
from cosmos_outbox.cosmos.store.client import Account
from cosmos_outbox.cosmos.store.container import IGNORES_CONDITIONS
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS
from cosmos_outbox.kernel.clock import Clock
from cosmos_outbox.preflight.plan import Cosmos, Needed, Plan
from cosmos_outbox.preflight.report import Access, Finding, Subject, try_as_app, written
from cosmos_outbox.settings.connections import Credential
from cosmos_outbox.settings.environment import Settings, SubscriberSettings
from cosmos_outbox.settings.errors import CannotCheck, Denied, IgnoresConditions

CLOCK_TOLERANCE = timedelta(minutes=5)
"""Cosmos DB refuses a signature that is 15 minutes old; validators of tokens usually allow 5 minutes."""

_STRONG_ENOUGH = {"Session", "BoundedStaleness", "Strong"}
"""With the two stronger levels a read in the write region is never old
(https://learn.microsoft.com/azure/cosmos-db/consistency-levels)."""


_ACCESS = Access(
    service="Cosmos DB",
    place="account",
    setting="COSMOS",
    address_setting="COSMOS__accountEndpoint",
    address="https://ACCOUNT.documents.azure.com:443/",
    role="Cosmos DB Built-in Data Reader",
    key="put the account's key",
)


_ACCOUNT, _CLOCK, _EVENT_TTL = Subject("account"), Subject("clock"), Subject("EVENT_TTL_SECONDS")


async def check(plan: Plan, credential: Credential | None, utc: Clock) -> list[Finding]:
    """Returns all findings about the account and its containers, in reading order."""
    cosmos = plan.cosmos
    if cosmos is None:
        return []
    findings: list[Finding] = []
    inspection: CosmosInspection | None = None
    try:
        inspection = CosmosInspection(cosmos.connection, credential, cosmos.database, utc)
        async with inspection:
            account = await inspection.account()
            findings += [consistency(account.consistency), write_regions(account)]
            for need in cosmos.needed:
                findings += await _container(plan, cosmos, inspection, need)
    except Denied as error:
        findings.append(_ACCESS.denied(cosmos.connection, error, "the account"))
    except CannotCheck as error:
        findings.append(_ACCESS.unanswered(cosmos.connection, error))
    return [*findings, *clock(inspection.ahead if inspection else None)]


async def _container(plan: Plan, cosmos: Cosmos, inspection: CosmosInspection, need: Needed) -> list[Finding]:
    try:
        state = await inspection.container(need.name)
    except Denied as error:
        return [_ACCESS.denied(cosmos.connection, error, need.subject.name, need.subject)]
    findings = list(judge(need, state, cosmos.database))
    if plan.as_app and state is not None and state.partition_key == need.paths.paths:
        role = "Cosmos DB Built-in Data Contributor"
        try:
            access = await try_as_app(inspection.try_access(need.name, need.paths), need.subject, role)
        except IgnoresConditions:
            access = need.subject.wrong(IGNORES_CONDITIONS, "use an Azure account, or devstack")
        findings.append(access)
    return findings


def consistency(level: str | None) -> Finding:
    """Check that session tokens work: every decision from a consistent read needs them."""
    if level is None:
        return _ACCOUNT.unknown(
            "its default consistency is not known: its answer lacks it",
            "look in the portal that it is Session",
        )
    if level in _STRONG_ENOUGH:
        return _ACCOUNT.ok(f"default consistency {level}")
    return _ACCOUNT.wrong(
        f"its default consistency is {level}, for which the SDK sends no session tokens: an old read shows that "
        "nothing is parked, and a later event overtakes the parked one",
        "set the account's default consistency to Session",
    )


def write_regions(account: Account) -> Finding:
    """Check that a single region takes writes: ETags, sequences and leases need it."""
    if not account.writes_in_several_regions:
        return _ACCOUNT.ok("takes writes in one region")
    return _ACCOUNT.wrong(
        "it takes writes in several regions, and the last writer wins: changes overwrite one another in silence, "
        "sequences are given twice, and a lease has two owners",
        "turn multi-region writes off; read regions and a failover between them are no problem "
        "(docs/operate/regions.md)",
    )


def judge(need: Needed, state: ContainerState | None, database: str) -> Iterator[Finding]:
    """Check that a container (None: it does not exist) has the properties that the app needs."""
    if state is None:
        yield need.subject.wrong(
            f'does not exist in the database "{database}"',
            f"create it with the partition key {_written_paths(need.paths.paths)}"
            f"{' and the default TTL -1' if need.ttl_needed else ''}, or name another in {need.setting}; "
            "the app has no right to create a container",
        )
        return
    yield _partition_key(need, state)
    yield _ttl(need, state)
    yield _index(need, state)
    yield from _unique_keys(need, state)


def _partition_key(need: Needed, state: ContainerState) -> Finding:
    wanted = _written_paths(need.paths.paths)
    if state.partition_key == need.paths.paths:
        return need.subject.ok(f"partition key {wanted}")
    problem = f"the partition key is {_written_paths(state.partition_key) or 'missing'}, not {wanted}"
    fix = f"a partition key cannot be changed: create another container with {wanted} and name it in {need.setting}"
    if need.own is not None:
        fix = "name the container's paths in the service's ExistingContainer, in their order"
    return need.subject.wrong(problem, fix)


def _written_paths(paths: tuple[str, ...]) -> str:
    return ", ".join(paths)


def _ttl(need: Needed, state: ContainerState) -> Finding:
    ttl = state.default_ttl
    if ttl is None and need.ttl_needed:
        return need.subject.wrong(
            "TTL is off, so the TTL of its items is ignored and the items are kept for ever",
            "set the container's default TTL to -1",
        )
    if ttl is None:
        # Source: azure-cosmos-dotnet-v3, DocumentServiceLeaseStore.AcquireInitializationLockAsync
        return need.subject.warning(
            "TTL is off, so the lock of an instance that crashes while it makes the first leases stays for ever",
            "set the container's default TTL to -1",
        )
    if need.own is not None:
        return _own_ttl(need.subject, ttl, need.own.default_ttl)
    if ttl == -1:
        return need.subject.ok("an item expires only by a TTL of its own")
    text = (
        f"an item without a TTL of its own is removed {written(timedelta(seconds=ttl))} after it was written"
    )
    if need.items_say_their_ttl:
        return need.subject.warning(text, "set the default TTL to -1: the app gives each of its items a TTL")
    return need.subject.wrong(f"{text}, and the app writes such items here", "set the default TTL to -1")


def _own_ttl(subject: Subject, ttl: int, declared: int) -> Finding:
    """Check the TTL of a team's own container: the app gives each event a TTL; the team decides on its documents."""
    if ttl != declared:
        return subject.wrong(
            f"the default TTL is {ttl}, and the service's ExistingContainer says {declared}",
            f"name default_ttl={ttl} in the ExistingContainer, or change the container",
        )
    return subject.ok(f"TTL is on, and events expire by their own; the default is {ttl}")


def _index(need: Needed, state: ContainerState) -> Finding:
    if not state.indexing.enabled:
        return need.subject.wrong(
            "nothing is indexed, so queries are refused",
            "set the indexing mode to consistent",
        )
    missing = [f"{path}/?" for path in need.queried if not covers(state.indexing, path)]
    if missing:
        return need.subject.wrong(
            f"{', '.join(missing)} is queried and not indexed, so each query reads the whole container",
            f"include {', '.join(missing)} in the indexing policy",
        )
    paths = ", ".join(f"{path}/?" for path in need.queried) or "nothing but the id"
    lacking = [", ".join(paths) for paths in need.composite if paths not in state.indexing.composite]
    if lacking:
        return need.subject.wrong(
            f"no composite index over {'; '.join(lacking)}, so lists sorted by these are refused",
            "add the composite indexes, ascending, to the indexing policy",
        )
    if covers_everything(state.indexing) and need.own is None:
        return need.subject.warning(
            f"everything is indexed, and queried is {paths}: each write pays for the rest",
            f'exclude "/*" and include {paths}' if need.queried else 'exclude "/*"',
        )
    return need.subject.ok(f"indexed: {paths}")


def _unique_keys(need: Needed, state: ContainerState) -> Iterator[Finding]:
    """Refuse unique keys: missing values are equal nulls (https://learn.microsoft.com/azure/cosmos-db/unique-keys)."""
    for paths in state.unique_keys:
        yield need.subject.wrong(
            f"{_written_paths(paths)} is a unique key. Events have no such value, which counts as one and the same: a "
            "partition takes one of them, and refuses every change after it",
            "a unique key cannot be removed: create another container without it, and make what must be unique "
            "the id of a document",
        )


def clock(ahead: timedelta | None) -> Iterator[Finding]:
    """Check that this machine's clock and the account's agree."""
    if ahead is None:
        return
    direction = "behind" if ahead > timedelta() else "ahead of"
    if abs(ahead) <= CLOCK_TOLERANCE:
        yield _CLOCK.ok(f"this machine's clock is within {written(CLOCK_TOLERANCE)} of the account's")
    else:
        off = written(timedelta(minutes=round(abs(ahead) / timedelta(minutes=1))))
        yield _CLOCK.wrong(
            f"this machine's clock is {off} {direction} the account's: signatures and tokens will be refused",
            "set this machine's clock; for a container, the clock of its host",
        )


def event_ttl(settings: Settings | SubscriberSettings, survive: timedelta) -> Finding:
    """Check that events are kept longer than the outage."""
    ttl, call = timedelta(seconds=settings.event_ttl_seconds), timedelta(seconds=LONGEST_CALL_SECONDS)
    if ttl < 2 * call:
        return _EVENT_TTL.wrong(
            f"tombstones are kept for {written(ttl)}: a subscriber's call of {written(call)} may bring a deleted "
            "aggregate back",
            f"set EVENT_TTL_SECONDS to {int(2 * call.total_seconds())} or more",
        )
    if ttl > survive:
        return _EVENT_TTL.ok(
            f"events are kept for {written(ttl)}, an outage of {written(survive)} is shorter",
        )
    return _EVENT_TTL.wrong(
        f"events are kept for {written(ttl)}: an outage of {written(survive)} loses the events that wait",
        "raise EVENT_TTL_SECONDS; existing events keep the TTL that they have",
    )


_SEGMENT = re.compile(r'"[^"]*"|[^/]+')


def covers(policy: IndexingPolicy, path: str) -> bool:
    """Whether the scalar property at ``path``, such as ``/data/deleted``, is indexed."""
    return policy.enabled and _precision(policy.included, path) > _precision(policy.excluded, path)


def covers_everything(policy: IndexingPolicy) -> bool:
    """Whether properties that neither list names are indexed too."""
    return policy.enabled and "/*" in policy.included and "/*" not in policy.excluded


def _precision(paths: Sequence[str], path: str) -> int:
    """Returns the precision of the most precise path that matches; -1 if no path matches."""
    target = _segments(path)
    return max((_match(_segments(candidate), target) for candidate in paths), default=-1)


def _match(candidate: list[str], target: list[str]) -> int:
    *named, last = candidate or ["*"]
    if last == "?" and named == target:
        return 2 * len(named) + 1
    if last == "*" and named == target[: len(named)]:
        return 2 * len(named)
    return -1


def _segments(path: str) -> list[str]:
    return [segment.strip('"') for segment in _SEGMENT.findall(path)]
