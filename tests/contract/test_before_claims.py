"""What a version without claims has answered, this version answers alike. Goes with ``outbox/before_claims.py``."""

import hashlib
from typing import Any

import pytest

from application.contacts import Contacts
from infra.cosmos.container import Container
from infra.cosmos.documents import Item
from infra.cosmos.writes import Write
from outbox.aggregates import Aggregates
from outbox.before_claims import id_before_claims
from outbox.errors import IdempotencyKeyReused
from outbox.idempotency import KeyedRequest
from tests.contract.conftest import CosmosStore
from tests.support.contacts import DETAILS, LATER, ORIGIN

KEY = "order-1"
TEXT = (
    '{"name":{"firstName":"John","lastName":"Doe"},"email":"johndoe@contoso.com","description":null,'
    '"company":{"companyName":"Contoso","street":null,"houseNumber":null,"postalCode":null,"city":"Palo Alto",'
    '"country":null}}'
)
"""What the older version digested of ``DETAILS``."""


def stored_before(generation: int) -> tuple[str, list[Item]]:
    """The id of a contact, and its documents as the older version stored them."""
    contact_id = str(id_before_claims(KEY, generation))
    state: dict[str, Any] = {
        "id": contact_id,
        "name": {"firstName": "John", "lastName": "Doe"},
        "email": "johndoe@contoso.com",
        "company": {"companyName": "Contoso", "city": "Palo Alto"},
        "createdAt": "2026-03-01T12:00:00Z",
        "lastSequence": 1,
    }
    key_digest = hashlib.sha256(KEY.encode()).hexdigest()
    record = {
        "keyDigest": key_digest,
        "fingerprint": hashlib.sha256(TEXT.encode()).hexdigest(),
        "contact": state,
    }
    beside = {"partitionKey": contact_id}
    return contact_id, [
        {"id": contact_id, **beside, "type": "contact", "data": state, "ttl": -1},
        {"id": f"request-{key_digest}", **beside, "type": "idempotencyRecord", "data": record, "ttl": 600},
    ]


async def store_before(store: CosmosStore, generation: int = 0) -> str:
    contact_id, items = stored_before(generation)
    await store.container.execute(contact_id, [Write.create(item) for item in items])
    return contact_id


def service(store: CosmosStore) -> Contacts:
    return Contacts(Aggregates(store.open, store.claims, answers_before_claims=True), clock=lambda: LATER)


REQUEST = KeyedRequest("caller", KEY, "what was sent")


def test_the_ids_are_those_of_the_older_version() -> None:
    assert str(id_before_claims("order-1", 0)) == "a9dd9bce-eb27-513b-b4aa-f9fcf4f208cf"


@pytest.mark.parametrize("generation", [0, 1, 7])
async def test_a_request_that_was_answered_before_gets_that_answer(
    cosmos_store: CosmosStore, generation: int
) -> None:
    contact_id = await store_before(cosmos_store, generation)
    receipt, replayed = await service(cosmos_store).create_once(DETAILS, ORIGIN, REQUEST)
    assert (str(receipt.aggregate.id), replayed) == (contact_id, True)
    assert receipt.etag is not None
    claims, _ = await cosmos_store.claim_container.page("SELECT * FROM c", {}, 10, None)
    assert claims == []


async def test_another_body_under_a_key_of_before_is_refused(cosmos_store: CosmosStore) -> None:
    await store_before(cosmos_store)
    other = DETAILS.model_copy(update={"email": "other@contoso.com"})
    with pytest.raises(IdempotencyKeyReused):
        await service(cosmos_store).create_once(other, ORIGIN, REQUEST)


class Lagging(Container):
    """Another instance, whose replica has seen nothing yet."""

    async def read(self, item_id: str, partition_key: str) -> Item | None:
        if self._sessions.get(partition_key) is None:
            return None
        return await super().read(item_id, partition_key)


async def test_an_old_read_does_not_hide_an_answer_of_before(cosmos_store: CosmosStore) -> None:
    contact_id = await store_before(cosmos_store)
    lagging = CosmosStore(Lagging(cosmos_store.container._client, *cosmos_store.names), *cosmos_store.names)
    receipt, replayed = await service(lagging).create_once(DETAILS, ORIGIN, REQUEST)
    assert (str(receipt.aggregate.id), replayed) == (contact_id, True)


async def test_an_expired_record_of_before_does_not_keep_the_key(cosmos_store: CosmosStore) -> None:
    contact_id, [contact, _] = stored_before(0)
    await cosmos_store.container.execute(contact_id, [Write.create(contact)])
    receipt, replayed = await service(cosmos_store).create_once(DETAILS, ORIGIN, REQUEST)
    assert str(receipt.aggregate.id) != contact_id
    assert not replayed
