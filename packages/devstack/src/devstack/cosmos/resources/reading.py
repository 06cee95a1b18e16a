"""One read sees each physical partition as one replica has it, and never older than the client's session token says.

A token is the least that the client must see of its partition, not what it gets; a partition without one may be as old
as its replica. Each page of each read may come from other replicas. Writes never come here: they see the newest.
https://learn.microsoft.com/azure/cosmos-db/consistency-levels
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from devstack.cosmos.protocol.errors import session_not_available
from devstack.cosmos.resources.service import Service
from devstack.cosmos.storage import session
from devstack.cosmos.storage.history import History, Replica
from devstack.cosmos.storage.model import Container, Range
from devstack.cosmos.wire.messages import Lag, Request


@dataclass(frozen=True)
class Reading:
    """``container`` has the items that the read sees, ``lsns`` the last transaction seen in each partition."""

    container: Container
    lsns: Mapping[int, int]


def reading(service: Service, request: Request, container: Container, parts: Iterable[Range]) -> Reading:
    """Raises 404/1002 when the client has seen more than there is."""
    run, history, lag = service.store.connection, service.history, request.lag
    tokens = session.parse(request.headers.get("x-ms-session-token", ""))
    newest = {part: session.current_lsn(run, container, part) for part in parts}
    if any(session.seen_by(part, tokens) > lsn for part, lsn in newest.items()):
        raise session_not_available(container.link)
    if history is None or lag is None:
        return Reading(container, {part.id: lsn for part, lsn in newest.items()})
    replicas = [
        _replica(history, container, part, lag, session.seen_by(part, tokens))
        if service.store.chance.random() < lag.share
        else history.newest(container, part)
        for part in newest
    ]
    seen = replace(container, rows=history.rows(container, replicas))
    return Reading(seen, {replica.part.id: replica.lsn for replica in replicas})


def _replica(history: History, container: Container, part: Range, lag: Lag, at_least: int) -> Replica:
    if lag.versions is not None:
        return history.behind_by_versions(container, part, lag.versions, at_least)
    return history.behind_by_seconds(container, part, lag.seconds, at_least)
