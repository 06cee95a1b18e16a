"""What the list makes of the publisher's events, without the publisher and without Azure."""

from cosmos_outbox.testing import Message, in_memory, message
from examples.subscriber.service import BLIND_LIST, LIST, blind, service

ADA = {"name": "Ada Lovelace", "email": "ada@contoso.com"}


def event(action: str, sequence: int, **data: str) -> Message:
    return message(("person", "7"), action, sequence, data=data)


ADDED = event("PersonAddedEvent", 1, **ADA)
RENAMED = event("PersonRenamedEvent", 2, name="Ada King")
MOVED = event("PersonEmailChangedEvent", 3, email="king@contoso.com")


async def test_an_event_that_was_lost_is_made_up_for_by_the_publishers_api() -> None:
    async with in_memory(service) as memory:
        memory.publisher["7"] = ADA | {"sequence": 1}
        assert await memory.deliver(ADDED) == []
        memory.publisher["7"] = {"name": "Ada King", "email": "king@contoso.com", "sequence": 3}
        assert await memory.deliver(MOVED, RENAMED, MOVED) == []
        entry = await memory.entry(LIST, "7")
        assert entry is not None
        assert entry.state is not None
        assert (entry.state.name, entry.last_sequence, entry.healed) == ("Ada King", 3, 1)
        await memory.deliver(event("PersonDeletedEvent", 4))
        assert (await service().read_model(LIST).listing.page([], "email", 50, None)).items == []


async def test_a_list_that_may_ask_nobody_waits_for_what_was_lost() -> None:
    async with in_memory(blind) as memory:
        await memory.deliver(ADDED)
        [waits] = await memory.deliver(MOVED)
        assert "publish the events of that time again" in waits.reason
        assert await memory.deliver(RENAMED) == []
        await memory.upkeep()
        assert await memory.set_aside() == []
        entry = await memory.entry(BLIND_LIST, "7")
        assert entry is not None
        assert entry.state is not None
        assert (entry.state.name, entry.state.email, entry.last_sequence) == (
            "Ada King",
            "king@contoso.com",
            3,
        )
