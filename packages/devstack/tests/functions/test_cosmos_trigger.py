"""What the real host does with a batch that fails, is retried, is given up, or is cut short."""

import itertools
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from devstack.settings import cosmos_connection
from devstack.testing import Service, eventually, running
from functions.containers import Containers, containers_at
from functions.support import host, make_host, recorded


@pytest.fixture
async def containers(cosmos_server: Service) -> AsyncIterator[Containers]:
    async with containers_at(cosmos_server.address) as made:
        yield made


class App:
    """The feed app, over and over, on one database."""

    def __init__(self, folder: Path, containers: Containers, cosmos_port: int) -> None:
        self._folder = folder
        self._containers = containers
        self._cosmos_port = cosmos_port
        self._runs = 0

    def make(
        self,
        *,
        retry: str,
        failures: int = 0,
        hang: bool = False,
        drain: float | None = 3.0,
        settings: Mapping[str, str] | None = None,
    ) -> Service:
        self._runs += 1
        values = {
            "COSMOS": cosmos_connection(self._cosmos_port),
            "DATABASE": self._containers.database,
            "RECORD": str(self._folder / "record"),
            "RETRY": retry,
            "FAILURES": str(failures),
            "HANG": "yes" if hang else "",
            **(settings or {}),
        }
        arguments = [] if drain is None else [f"--drain-seconds={drain}"]
        return make_host(self._folder / f"run{self._runs}", "feed", values, *arguments)

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [line for line in recorded(self._folder / "record") if "ids" in line]

    @property
    def ended(self) -> list[str]:
        """Of the calls that came to an end."""
        return [each for line in recorded(self._folder / "record") for each in line.get("ended", [])]

    @property
    def ids(self) -> list[str]:
        """Of all calls, failed ones too."""
        return [each for call in self.calls for each in call["ids"]]


@pytest.fixture
def app(tmp_path: Path, containers: Containers, cosmos_server: Service) -> App:
    return App(tmp_path, containers, cosmos_server.port)


async def checkpoint(containers: Containers) -> int:
    """The LSN of the only lease; 0 before the first checkpoint."""
    lease = (await containers.lease_documents()).get("..0", {})
    return int((lease.get("ContinuationToken") or '"0"').strip('"'))


async def test_a_function_gets_the_documents_with_their_system_properties(
    containers: Containers, app: App
) -> None:
    for sequence in range(3):
        await containers.write("a", sequence)

    with running(app.make(retry="none")):
        await eventually(lambda: len(app.ids) == 3)

    first, second = app.calls
    assert (first["ids"], second["ids"]) == (["a-0", "a-1"], ["a-2"])
    assert first["kind"] == "Document"
    assert all(lsn > 0 for lsn in first["lsns"])
    assert (first["retry"], first["max_retry"], first["exception"]) == (0, 0, "")
    prefix = (await containers.lease_documents())["..0"]["id"]
    assert prefix.startswith("app-127.0.0.1_")


@pytest.mark.long  # test_rewriting has every text
@pytest.mark.parametrize(
    ("settings", "arrives"),
    [
        ({"TZ": "Europe/Berlin"}, "2024-05-01T10:00:00+02:00"),
        ({"DEVSTACK_REWRITE_TEXTS": "false"}, "2024-05-01T10:00:00.000+02:00"),
    ],
)
async def test_a_text_that_looks_like_a_date_arrives_as_the_real_host_writes_it(
    containers: Containers, app: App, settings: dict[str, str], arrives: str
) -> None:
    await containers.write("a", 1, text="2024-05-01T10:00:00.000+02:00")
    with running(app.make(retry="none", settings=settings)):
        await eventually(lambda: app.calls)

    assert app.calls[0]["texts"] == [arrives]


async def test_a_date_dotnet_cannot_read_stops_its_partition_until_it_changes(
    containers: Containers, app: App
) -> None:
    await containers.write("a", 1, text="9999-12-31T24:00:00Z")
    service = app.make(retry="infinite")
    with running(service):
        await eventually(lambda: "the document a-1 has a text" in service.log.read_text())
        assert (app.calls, await checkpoint(containers)) == ([], 0)
        await containers.write("a", 1, text="mended")
        await eventually(lambda: app.calls)

    assert app.calls[0]["texts"] == ["mended"]
    assert "Traceback" not in service.log.read_text()


async def test_a_document_that_is_too_deep_for_dotnet_stops_its_partition(
    containers: Containers, app: App
) -> None:
    """62 levels are read, the document itself among them."""
    deep: Any = []
    for _ in range(60):
        deep = [deep]
    await containers.write("a", 1, deep=deep)
    service = app.make(retry="infinite")
    with running(service):
        await eventually(lambda: app.ids == ["a-1"])
        await containers.write("a", 2, deep=[deep])
        await eventually(lambda: "the document a-2 is nested too deeply" in service.log.read_text())
        assert app.ids == ["a-1"]
        await containers.write("a", 2, deep=[])
        await eventually(lambda: app.ids == ["a-1", "a-2"])


async def test_without_a_retry_policy_a_failed_batch_is_lost(containers: Containers, app: App) -> None:
    await containers.write("a", 1)
    service = app.make(retry="none", failures=1)
    with running(service):
        await eventually(lambda: checkpoint(containers))
        await containers.write("a", 2)
        await eventually(lambda: app.ids == ["a-1", "a-2"])
    with running(app.make(retry="none")):
        await containers.write("a", 3)
        await eventually(lambda: app.ids == ["a-1", "a-2", "a-3"])

    log = service.log.read_text()
    assert "ValueError: failure 1" in log
    assert "the batch of 1" in log
    assert "is lost" in log


@pytest.mark.long  # the two beside it have none, and an endless one
async def test_with_a_finite_retry_policy_a_batch_that_keeps_failing_is_lost(
    containers: Containers, app: App
) -> None:
    await containers.write("a", 1)
    with running(app.make(retry="finite", failures=3)):
        await eventually(lambda: checkpoint(containers))
        await containers.write("a", 2)
        await eventually(lambda: "a-2" in app.ids)

    assert [(call["ids"], call["retry"], call["exception"]) for call in app.calls] == [
        (["a-1"], 0, ""),
        (["a-1"], 1, "failure 1"),
        (["a-1"], 2, "failure 2"),
        (["a-2"], 0, ""),
    ]
    assert {call["max_retry"] for call in app.calls} == {2}


async def test_with_an_endless_retry_policy_nothing_is_lost(containers: Containers, app: App) -> None:
    for sequence in range(3):
        await containers.write("a", sequence)
    with running(app.make(retry="infinite", failures=6)):
        await eventually(lambda: "a-2" in app.ids)

    assert [(call["ids"], call["retry"]) for call in app.calls] == [
        *[(["a-0", "a-1"], retry) for retry in range(7)],
        (["a-2"], 0),
    ]
    assert {call["max_retry"] for call in app.calls} == {-1}


@pytest.mark.long
async def test_there_is_no_checkpoint_while_a_batch_is_retried(containers: Containers, app: App) -> None:
    await containers.write("a", 1)
    with running(app.make(retry="infinite", failures=10**9)):
        await eventually(lambda: len(app.calls) > 20)
        assert await checkpoint(containers) == 0
    with running(app.make(retry="infinite")):
        await eventually(lambda: checkpoint(containers))

    assert app.calls[-1]["ids"] == ["a-1"]


@pytest.mark.long
async def test_sigkill_between_the_function_and_the_checkpoint_delivers_again(
    containers: Containers, app: App
) -> None:
    await containers.write("a", 1)
    service = app.make(retry="infinite", hang=True).start()
    await eventually(lambda: app.ids == ["a-1"])
    service.kill()

    with running(app.make(retry="infinite")):
        await eventually(lambda: app.ids == ["a-1", "a-1"])


@pytest.mark.long
async def test_a_stop_cancels_what_does_not_end_and_delivers_it_again(
    containers: Containers, app: App
) -> None:
    await containers.write("a", 1)
    service = app.make(retry="infinite", hang=True, drain=0.2).start()
    await eventually(lambda: app.ids == ["a-1"])
    begun = time.monotonic()
    assert service.terminate() == 0
    assert time.monotonic() - begun < 20
    assert await checkpoint(containers) == 0
    assert (await containers.lease_documents())["..0"]["Owner"] is None

    with running(app.make(retry="infinite")):
        await eventually(lambda: app.ids == ["a-1", "a-1"])


@pytest.mark.long
async def test_a_stop_that_is_no_drain_does_not_count_what_still_ends(
    containers: Containers, app: App
) -> None:
    await containers.write("a", 1)
    service = app.make(retry="infinite", drain=None, settings={"PAUSE": "1"}).start()
    await eventually(lambda: app.ids == ["a-1"])
    assert service.terminate() == 0
    assert app.ended == ["a-1"], "it had the time to end"
    assert await checkpoint(containers) == 0

    with running(app.make(retry="infinite")):
        await eventually(lambda: app.ids == ["a-1", "a-1"])


@pytest.mark.long  # test_workers has the turns
async def test_batches_of_one_lease_and_their_retries_go_to_different_processes(
    containers: Containers, app: App
) -> None:
    for sequence in range(6):
        await containers.write("a", sequence)
    with running(app.make(retry="infinite", settings={"FUNCTIONS_WORKER_PROCESS_COUNT": "2"}, failures=1)):
        await eventually(lambda: "a-5" in app.ids)

    pids = [call["pid"] for call in app.calls]
    assert len(pids) == 5, "three batches, of which one failed in each process"
    assert pids[0] != pids[1]
    assert all(one != other for one, other in itertools.pairwise(pids))
    assert app.ids == ["a-0", "a-1"] * 3 + ["a-2", "a-3", "a-4", "a-5"]


@pytest.mark.long
async def test_the_host_waits_for_a_cosmos_that_is_not_there_yet(tmp_path: Path) -> None:
    cosmos = Service("cosmos", tmp_path / "cosmos")
    with running(cosmos):
        pass
    settings = {
        "COSMOS": cosmos_connection(cosmos.port),
        "DATABASE": "later",
        "RECORD": str(tmp_path / "record"),
        "RETRY": "none",
        "FAILURES": "0",
    }
    with host(tmp_path / "host", "feed", settings) as service:
        await eventually(lambda: "waiting for Cosmos DB (later/items)" in service.log.read_text())
        with running(cosmos):
            async with containers_at(cosmos.address, name="later") as containers:
                await containers.write("a", 1)
                await eventually(lambda: [call["ids"] for call in recorded(tmp_path / "record")] == [["a-1"]])
                cosmos.kill()
                cosmos.start()
                await containers.write("a", 2)
                # A checkpoint that the kill has cut off brings the first change again.
                await eventually(lambda: "a-2" in recorded(tmp_path / "record")[-1]["ids"])

    log = service.log.read_text()
    assert log.count("waiting for Cosmos DB") <= 3, "once for each outage, and once when the reason changed"
    assert "Traceback" not in log
