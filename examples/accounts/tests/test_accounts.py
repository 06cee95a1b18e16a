"""An address belongs to one account, whatever dies between reservation and account."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from cosmos_outbox import Origin
from cosmos_outbox.errors import AlreadyExists
from cosmos_outbox.http import Answering
from cosmos_outbox.testing import InMemory, in_memory
from examples.accounts.accounts import Account, EmailTaken, Login, NewAccount, login_of, service, sign_up

ORIGIN = Origin("request-1")


@pytest.fixture
async def memory() -> AsyncIterator[InMemory]:
    async with in_memory(service) as made:
        yield made


def owner(memory: InMemory) -> Any:
    stored = {each["id"]: each for each in memory.documents}
    return stored[login_of("jane@example.org")]["data"].get("owner")


async def test_an_address_is_taken_by_one_account_until_that_is_closed(memory: InMemory) -> None:
    first, second = uuid4(), uuid4()
    new, same = NewAccount(email="Jane@Example.org"), NewAccount(email=" jane@example.org")
    await sign_up(new, first, ORIGIN)
    for _ in range(2):  # reserved, and confirmed
        with pytest.raises(EmailTaken):
            await sign_up(same, second, ORIGIN)
        await memory.deliver()
    memory.clock.pass_by(hours=2)
    await memory.upkeep()
    assert owner(memory) == str(first)
    at = memory.clock()
    await service().aggregates.change(Account, str(first), lambda each: each.close(at=at), ORIGIN)
    await memory.deliver()
    await sign_up(same, second, ORIGIN)
    assert owner(memory) == str(second)


async def test_who_dies_after_the_reservation_has_it_for_an_hour(memory: InMemory) -> None:
    lost, other = uuid4(), uuid4()
    at, login = memory.clock(), login_of("jane@example.org")
    await service().aggregates.create(Login.reserve(login, lost, at=at), ORIGIN)
    with pytest.raises(EmailTaken):
        await sign_up(NewAccount(email="jane@example.org"), other, ORIGIN)
    memory.clock.pass_by(hours=2)
    await memory.upkeep()
    await sign_up(NewAccount(email="jane@example.org"), other, ORIGIN)
    assert owner(memory) == str(other)


async def test_a_repetition_finds_its_own_reservation_and_its_account(memory: InMemory) -> None:
    account = uuid4()
    await sign_up(NewAccount(email="jane@example.org"), account, ORIGIN)
    with pytest.raises(AlreadyExists, match="account"):
        await sign_up(NewAccount(email="jane@example.org"), account, ORIGIN)


async def test_an_account_that_was_stored_too_late_waits_for_an_operator(memory: InMemory) -> None:
    late, other = uuid4(), uuid4()
    await sign_up(NewAccount(email="jane@example.org"), late, ORIGIN)
    memory.clock.pass_by(hours=2)  # and no message came
    await memory.upkeep()
    await sign_up(NewAccount(email="jane@example.org"), other, ORIGIN)
    refused = await memory.deliver()
    assert [str(each) for each in refused] != []
    assert owner(memory) == str(other)


def test_the_answer_names_the_field() -> None:
    answered = Answering([(EmailTaken, 409, "Email taken")]).answer(EmailTaken("taken"))
    assert answered.status == 409
    assert json.loads(answered.body)["errors"] == [
        {"field": "email", "code": "email_taken", "reason": "taken"}
    ]
