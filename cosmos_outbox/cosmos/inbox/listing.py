"""A list over all partitions goes on from the last key that was seen, never from a token of the store.

The Python SDK cannot continue an ordered query over several physical partitions
(https://github.com/Azure/azure-sdk-for-python/issues/41434). So each page is a query of its own, for what comes after
the last entry of the page before. Two entries with one key are told apart by their ids, and ``ORDER BY`` over both
needs a composite index. An entry whose key changes between two pages may be listed twice or not at all.

An entry of another form is shown as far as it can be read, until it is written again; what cannot be read is left out,
and the log says how many.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.entries import time_or_none
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.token_key import TokenKey
from cosmos_outbox.inbox.entry import Listed, ListedPage
from cosmos_outbox.inbox.form import Condition, EntryForm
from cosmos_outbox.outbox.once_a_minute import OnceAMinute

S = TypeVar("S", bound=BaseModel)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EntryListing(Generic[S]):
    """Lists the living entries of one container; ``scope`` names the container in tokens.

    What a list is sorted by, a name say, is a part of its position: so the tokens are closed.
    """

    container: Container
    form: EntryForm[S]
    scope: str
    key: TokenKey
    _unreadable: OnceAMinute = field(default_factory=OnceAMinute, repr=False)

    async def page(
        self, conditions: Sequence[Sequence[Condition]], sort: str, size: int, token: str | None
    ) -> ListedPage[S]:
        """At most ``size`` entries, by ``sort`` and id. Of each group one condition must hold.

        Field names come from the code, never from a caller. Raises UnknownContinuation, Throttled, Unavailable.
        """
        scope = f"{self.scope}/{sort}/{conditions}"
        try:
            after = json.loads(await self.key.open(scope, token)) if token else None
            query, parameters = _query(conditions, sort, size + 1, after)
            found = await self.container.first(query, parameters, size + 1)
            items = found[:size]
            listed = [each for item in items if (each := self._listed(item)) is not None]
            self._tell(len(items) - len(listed), len(items))
            if len(found) == len(items):
                return ListedPage(listed, None)
            last = [items[-1]["search"][sort], items[-1]["id"]]
            return ListedPage(listed, await self.key.close(scope, json.dumps(last)))
        except StoreFailed as error:
            raise error.failure.error() from error

    def _tell(self, left_out: int, of: int) -> None:
        if left_out and self._unreadable.due():
            _log.error(
                "%d of %d entries are left out of a list: they were made in another form and cannot be read. The sweep "
                "writes them again; to do so at once, run python -m cosmos_outbox.cli.rebuild",
                left_out,
                of,
            )

    def _listed(self, item: Item) -> Listed[S] | None:
        state = self.form.read(item)
        if state is None:
            return None
        return Listed(
            id=item["id"],
            state=state,
            sequence=item["lastSequence"],
            applied_at=datetime.fromisoformat(item["appliedAt"]),
            late_seconds=item["lateSeconds"],
            blocked_since=time_or_none(item["blockedSince"]),
        )


def _query(
    conditions: Sequence[Sequence[Condition]], sort: str, size: int, after: Sequence[str] | None
) -> tuple[str, Mapping[str, str]]:
    parameters: dict[str, str] = {}
    where = ["c.deleted = false"]
    for group in conditions:
        choices = []
        for each in group:
            name = f"@p{len(parameters)}"
            parameters[name] = each.text
            path = f"c.search.{each.field}"
            choices.append(f"STARTSWITH({path}, {name})" if each.beginning else f"{path} = {name}")
        where.append(f"({' OR '.join(choices)})")
    if after is not None:
        parameters |= {"@key": after[0], "@id": after[1]}
        where.append(f"(c.search.{sort} > @key OR (c.search.{sort} = @key AND c.id > @id))")
    query = f"SELECT TOP {size} * FROM c WHERE {' AND '.join(where)} ORDER BY c.search.{sort}, c.id"  # noqa: S608
    return query, parameters
