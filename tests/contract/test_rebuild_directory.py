"""The command that rebuilds the directory, against a deployment as ``devstack.toml`` declares it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from azure.cosmos.aio import CosmosClient

from application.directory import DirectoryEntry, entry_of
from cosmos_outbox.cli.rebuild import in_a_line, main
from cosmos_outbox.composition.declarations import ReadModelDeclaration
from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.inbox.entry import EntrySchema
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.healing import Counts, Side, WalkProgress
from cosmos_outbox.kernel.clock import utc_now
from devstack import provision
from devstack.settings import read_settings
from devstack.testing import Service
from examples.orders.board import Board
from examples.orders.events import Line
from examples.orders.order import NewOrder, Order
from examples.orders.service import BOARD
from examples.orders.service import service as order_service
from infra.bootstrap import DIRECTORY
from infra.bootstrap import service as contact_service
from infra.directory import FORM
from tests.contract.test_directory import Process, started
from tests.support.azure import contacts_database
from tests.support.contacts import ORIGIN
from tests.support.inbox import NOON
from tests.support.paths import ROOT

pytestmark = pytest.mark.needs_a_socket("the command, which runs a loop of its own")

ORDERS = ROOT / "examples" / "orders"


@pytest.fixture
async def environment(cosmos_server: Service) -> AsyncIterator[dict[str, str]]:
    async with contacts_database(cosmos_server) as database:
        yield {
            "COSMOS": cosmos_server.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true;",
        }


@pytest.fixture
async def process(environment: dict[str, str]) -> AsyncIterator[Process]:
    async with CosmosClient.from_connection_string(environment["COSMOS"]) as client:
        yield started(client, environment["COSMOS_DATABASE"])


async def test_a_rebuild_fills_the_directory_and_prints_its_progress(
    environment: dict[str, str], process: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    contacts = [await process.create() for _ in range(3)]
    assert await asyncio.to_thread(main, [], environment) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "3 sources and 3 entries compared, 3 written, 0 failed"
    assert [entry and entry.last_sequence for entry in [await process.entry(each) for each in contacts]] == [
        1,
        1,
        1,
    ]
    assert await asyncio.to_thread(main, [], environment) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("3 entries compared, 0 written, 0 failed")


@pytest.mark.parametrize("source_wins", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_after_a_new_form_of_the_entries_all_are_written_again(
    environment: dict[str, str],
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source_wins: bool,
) -> None:
    """A form that cannot read the old entries, and in which a rebuild was cut off before the deployment."""
    for _ in range(2):
        await process.create()
    arguments = ["--source-wins"] if source_wins else []
    assert await asyncio.to_thread(main, arguments, environment) == 0
    saved = await process.entries.progress()
    assert saved is not None
    cut_off = replace(WalkProgress.of(*saved), began_at=datetime.now(UTC), side=Side.ENTRIES, on_demand=True)
    await process.entries.save_progress(cut_off.document(), over=cut_off.version)

    class NewEntry(DirectoryEntry):
        badge: str

    def entry_with_badge(contact: Mapping[str, Any]) -> NewEntry:
        return NewEntry(**dict(entry_of(contact)), badge=f"badge of {contact['email']}")

    texts: dict[str, Callable[[NewEntry], str]] = {**FORM.search, "lastName": lambda entry: entry.badge}
    form = EntrySchema(version=FORM.version + 1, model=NewEntry, search=texts, sorted_by=FORM.sorted_by)
    declared = replace(cast("ReadModelDeclaration[Any]", DIRECTORY), form=form, state_of=entry_with_badge)
    monkeypatch.setitem(vars(contact_service), "subscribers", [declared])
    capsys.readouterr()
    assert await asyncio.to_thread(main, arguments, environment) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .endswith("2 sources and 2 entries compared, 2 written, 0 failed")
    )
    query = "SELECT VALUE c.search.lastName FROM c WHERE c.deleted = false"
    async with CosmosClient.from_connection_string(environment["COSMOS"]) as client:
        directory = client.get_database_client(environment["COSMOS_DATABASE"]).get_container_client(
            "directory"
        )
        found: list[Any] = [each async for each in directory.query_items(query)]
    assert found == ["badge of johndoe@contoso.com"] * 2
    assert await asyncio.to_thread(main, arguments, environment) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("0 written, 0 failed")


async def test_a_rebuild_that_somebody_else_has_overtaken_is_not_called_done(
    environment: dict[str, str],
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its first page was not saved, and a rebuild before it had ended well: nothing of this one is known to be done."""
    await process.create()
    assert await asyncio.to_thread(main, [], environment) == 0

    async def overtaken(*_: object, **__: object) -> str:
        raise EntryChanged("another rebuild was faster, or the answer was lost")

    monkeypatch.setattr(CosmosEntries, "save_progress", overtaken)
    assert await asyncio.to_thread(main, [], environment) == 1
    assert "Run the same command again" in capsys.readouterr().err


async def test_the_read_model_of_another_service_is_filled_too(
    cosmos_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {
        **json.loads((ORDERS / "local.settings.sample.json").read_text())["Values"],
        "COSMOS": cosmos_server.connection_string,
    }
    await provision.cosmos(environment["COSMOS"], read_settings(environment, ORDERS).app.cosmos)
    wired = order_service.wire(environment)
    async with wired.outbox.resources:
        new = NewOrder(customer="Contoso", lines=(Line(sku="A-1", quantity=2),))
        placed = await wired.aggregates.create(Order.place(new, at=utc_now()), ORIGIN)
        arguments = ["--service", "examples.orders.service"]
        assert await asyncio.to_thread(main, arguments, environment) == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith("1 written, 0 failed")
        [entry] = (await Board(wired.read_model(BOARD).listing).page(None, 10, None)).items
        assert (entry.id, entry.sequence, entry.state.total) == (placed.aggregate.aggregate_id, 1, 2)


def test_a_setting_that_is_missing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {}) == 2
    assert capsys.readouterr().err.startswith("rebuild: ")


def test_the_line_shows_the_walk_under_way_and_then_the_one_that_has_ended() -> None:
    under_way = WalkProgress(
        NOON, 1, Side.SOURCES, counts=Counts(sources=2, healed=1), last_counts=Counts(sources=9)
    )
    assert in_a_line(under_way).startswith("2 sources and 0 entries compared, 1 written")
    assert in_a_line(replace(under_way, side=None)).startswith("9 sources")
