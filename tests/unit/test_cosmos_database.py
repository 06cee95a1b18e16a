"""A subscriber's database in Cosmos DB: what names its lists, what holds what, and what is closed in the end."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from cosmos_outbox.cosmos.inbox import store
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.settings.errors import Misconfigured
from tests.contract.test_entries import FORM, Thing

ACCOUNT = {"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5"}


def scope(address: str = "https://one/", database: str = "d", container: str = "things") -> str:
    return CosmosDatabase(database, "s").names({"COSMOS__accountEndpoint": address}).scope(container)


def test_a_token_is_of_one_container_of_one_database_of_one_account() -> None:
    others = {scope("https://other/"), scope(database="other"), scope(container="other")}
    assert len({scope(), *others}) == 4
    assert scope() == scope()


async def test_what_signs_in_is_closed_with_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class SignsIn:
        async def get_token(self, *_: str, **__: Any) -> None: ...

        async def close(self) -> None:
            closed.append("sign-in")

    class Client:
        async def close(self) -> None:
            closed.append("client")

    monkeypatch.setattr(store, "credential_for", lambda _: SignsIn())
    monkeypatch.setattr(store, "cosmos_client", lambda *_: Client())
    async with AsyncExitStack() as resources:
        CosmosDatabase("d", "s").open({"COSMOS__accountEndpoint": "https://one/"}, resources)
        assert closed == []
    assert closed == ["client", "sign-in"]


async def test_a_container_holds_one_read_model_or_the_effects_of_any_number_of_subscribers() -> None:
    environment = {**ACCOUNT, "ROOMS_CONTAINER": "things", "CALLS_CONTAINER": "mails", "KEPT_CONTAINER": "s"}
    form: EntryForm[Thing] = FORM
    async with AsyncExitStack() as resources:
        made = CosmosDatabase("d", "s").open(environment, resources)
        for _ in range(2):
            made.entries("things", form, 600)
        made.effects("mails", "mails", 600)
        made.effects("calls", "calls", 600)
        for name in ("rooms", "mails", "kept"):
            with pytest.raises(Misconfigured, match=f"{name.upper()}_CONTAINER"):
                made.entries(name, form, 600)
        for name in ("things", "kept"):
            with pytest.raises(Misconfigured, match=f"{name.upper()}_CONTAINER"):
                made.effects(name, name, 600)


@pytest.mark.parametrize("missing", ["COSMOS", "COSMOS_DATABASE", "COSMOS_SET_ASIDE_CONTAINER"])
def test_a_name_that_nobody_gives_is_told(missing: str) -> None:
    environment = {**ACCOUNT, "COSMOS_DATABASE": "d", "COSMOS_SET_ASIDE_CONTAINER": "s"}
    del environment[missing]
    with pytest.raises(Misconfigured, match=missing):
        CosmosDatabase().names(environment)
