"""Documents that expire."""

from devstack.testing import Service, eventually
from tests.support.azure import CONTACTS
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.deployed import deployed
from tests.support.use_cases import contacts_of


async def test_event_documents_expire_contacts_stay_and_deletions_have_a_ttl(
    cosmos_server: Service, servicebus_server: Service
) -> None:
    """Nothing relays them, so that their time can be short on any machine."""
    async with deployed(cosmos_server, servicebus_server, EVENT_TTL_SECONDS="1") as there:
        contacts, container = contacts_of(there.application), there.database.get_container_client(CONTACTS)
        stays, gone = [(await contacts.create(DETAILS, ORIGIN)).aggregate.id for _ in range(2)]
        await contacts.delete(gone, ORIGIN)

        async def left() -> dict[tuple[str, str], int]:
            feed = [item async for item in container.query_items_change_feed(start_time="Beginning")]
            return {(item["type"], item["id"]): item["ttl"] for item in feed}

        async def without_events() -> bool:
            return "domainEvent" not in {kind for kind, _ in await left()}

        await eventually(without_events, what="the events expire")
        found = await left()
        assert (await contacts.read(stays, ORIGIN)).aggregate.id == stays
    assert found == {
        ("contact", str(stays)): -1,
        ("contact", str(gone)): 86_400,  # IDEMPOTENCY_TTL_SECONDS: a claim may still name its id
        ("idempotencyRecord", f"request-{gone}"): 86_400,
    }
