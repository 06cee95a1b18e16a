"""A renewal without a session token would let an old read pass for proof: it fails."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.outbox.errors import Unavailable
from tests.contract.conftest import CosmosStore
from tests.support.contacts import DETAILS, LATER, ORIGIN
from tests.support.use_cases import Contacts


class Stripped(Container):
    """Behind a proxy that takes the session token out of every answer; its replica has seen nothing yet."""

    async def _execute(self, partition_key: Key, writes: Sequence[Write]) -> tuple[list[str], str | None]:
        try:
            etags, _ = await super()._execute(partition_key, writes)
        except StoreFailed as error:
            raise StoreFailed(replace(error.failure, session_token=None)) from error
        finally:
            self._sessions._tokens.pop(self.paths.text(partition_key), None)
        return etags, None

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        return await super().read(item_id, partition_key, consistent=True) if consistent else None


async def test_where_no_answer_has_a_token_nothing_is_concluded_from_an_old_read(
    store: CosmosStore,
) -> None:
    """A contact that is there was answered 404, and a batch that was committed 412."""

    def service(store: CosmosStore) -> Contacts:
        return Contacts(Aggregates(store.open, store.claims), clock=lambda: LATER, new_id=uuid4)

    contact_id = (await service(store).create(DETAILS, ORIGIN)).aggregate.id
    stripped = CosmosStore(Stripped(store.container._client, *store.names), *store.names)
    with pytest.raises(Unavailable, match="session token"):
        await service(stripped).delete(contact_id, ORIGIN)
