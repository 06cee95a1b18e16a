"""A new service is written by one command, and runs and passes its own tests at once, whatever it is called."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import pytest

from cosmos_outbox.cli import init
from cosmos_outbox.cli.init import Unusable, Words, files, singular
from cosmos_outbox.preflight.plan import needed
from cosmos_outbox.settings.transports import servicebus_of
from devstack.app_file import read_app
from devstack.settings import cosmos_connection, servicebus_connection
from devstack.testing import Process, eventually
from devstack.testing.command import running_command
from devstack.testing.ended import run_module
from devstack.testing.processes import alive_with
from tests.support.paths import ROOT, python_path

RUNNING_WITHIN_MINUTES = 2.0
"""From an empty folder to a stored change: most of it is this machine's, which runs other tests too."""


def run(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip


def call(method: str, url: str, **body: Any) -> Any:
    request = Request(
        url, json.dumps(body).encode() or None, {"Content-Type": "application/json"}, method=method
    )
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.long
async def test_a_service_runs_at_once_and_operators_reach_it(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    written = run(tmp_path, "-m", "cosmos_outbox", "init", "bookings")
    assert (written.returncode, written.stderr) == (0, "")
    folder = tmp_path / "bookings"
    with running_command(folder, tmp_path / "stack", PYTHONPATH=str(ROOT)) as stack:
        api = stack.address("Functions").rstrip("/") + "/api"
        booking = call("POST", f"{api}/bookings", title="A table")
        minutes = (time.monotonic() - began) / 60
        record_property("minutes from an empty folder to a stored change", minutes)
        print(f"from an empty folder to a stored change: {minutes:.2f} minutes")
        assert minutes < RUNNING_WITHIN_MINUTES

        async def forwarded() -> bool:
            events = call_get(f"{api}/events/booking/{booking['id']}")["items"]
            return [event["state"] for event in events] == ["sent"]

        await eventually(forwarded)
        ports = [
            int(stack.address(each).rstrip("/").rpartition(":")[2]) for each in ("Cosmos DB", "Service Bus")
        ]
        settings = {"COSMOS": cosmos_connection(ports[0]), "SERVICEBUS": servicebus_connection(ports[1])}
        file = "local.settings.sample.json"
        listed = run(
            folder, "-m", "cosmos_outbox", "events", "booking", booking["id"], "--settings", file, **settings
        )
        assert (listed.returncode, listed.stderr) == (0, "")
        assert "1: BookingCreated at " in listed.stdout
        # -P: as the installed command, which does not look for modules where it stands
        status = run(folder, "-P", "-m", "cosmos_outbox", "status", **settings)
        assert (status.returncode, status.stdout.splitlines()[0]) == (0, "bookings: all is well"), (
            status.stdout
        )


@pytest.mark.long  # its own tests run it in memory at every run
async def test_a_fastapi_program_runs_at_once(tmp_path: Path) -> None:
    """``python run.py`` is all: the local Azure, the program, and relay and subscribers in it."""
    assert init.main(["bookings", "--kind", "fastapi", "--into", str(tmp_path / "it")]) == 0
    ports = dict.fromkeys(("PORT", "COSMOS_PORT", "SERVICEBUS_PORT", "SERVICEBUS_ADMIN_PORT"), "0")
    program = Process(
        "program", tmp_path / "log", [sys.executable, "run.py"],
        {**ports, "PYTHONPATH": str(ROOT), "DEVSTACK_DATA": str(tmp_path / "data")}, tmp_path / "it",
    ).start()  # fmt: skip
    try:
        [address] = await eventually(
            lambda: re.findall(r"Uvicorn running on (http://\S+)", (tmp_path / "log").read_text())
        )
        booking = call("POST", f"{address}/bookings", title="A table")
        assert call_get(f"{address}/bookings/{booking['id']}") == booking
        settings = dict(
            re.findall(r"^  (COSMOS|SERVICEBUS)=(.*)$", (tmp_path / "log").read_text(), re.MULTILINE)
        )

        def published() -> bool:
            listed = run(
                tmp_path / "it", "-m", "cosmos_outbox", "events", "booking", booking["id"], **settings
            )
            return "1: BookingCreated" in listed.stdout and ": sent" in listed.stdout

        await eventually(published)
    finally:
        program.kill()
    await eventually(lambda: not alive_with(str(tmp_path)))


def call_get(url: str) -> Any:
    with urlopen(url, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("kind", ["functions", pytest.param("fastapi", marks=pytest.mark.long)])
def test_a_service_passes_those_of_its_tests_that_need_no_process(tmp_path: Path, kind: str) -> None:
    assert init.main(["bookings", "--kind", kind, "--into", str(tmp_path / "it")]) == 0
    ended = run_module(
        "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin",
        "-p", "outbox_simulation.plugin", "--simulate-seeds=1",
        "-k", "not published_in_order", "-W", "error",
        "-W", "ignore::pytest.PytestAssertRewriteWarning",  # it is forked from one that has imported much
        environment={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        folder=tmp_path / "it",
    )  # fmt: skip
    assert ended.code == 0, ended.out + ended.err
    assert f"{5 if kind == 'functions' else 4} passed, 1 deselected" in ended.out


@pytest.fixture(scope="module")
def checked_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy found in the library is the same for each kind."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.long
@pytest.mark.parametrize("kind", init.KINDS)
def test_a_service_is_typed_and_formatted(tmp_path: Path, kind: str, checked_before: Path) -> None:
    assert init.main(["bookings", "--kind", kind, "--into", str(tmp_path / "it")]) == 0
    checked = run(
        tmp_path / "it", "-m", "mypy", "--strict", "--explicit-package-bases", f"--cache-dir={checked_before}", ".",
        MYPYPATH=python_path(),
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    for ruff in (["check", "--select", "E,F,I,W,B,UP"], ["format", "--check"]):
        ended = run(tmp_path / "it", "-m", "ruff", *ruff, "--isolated", "--line-length", "110", ".")
        assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("kind", init.KINDS)
def test_nothing_of_a_template_is_left_over(kind: str) -> None:
    written = dict(files(kind, Words("room-bookings", "RoomBooking")))
    assert {Path("service.py"), Path("room_booking.py"), Path("README.md")} <= written.keys()
    python = {place: text.count("\n") for place, text in written.items() if place.suffix == ".py"}
    lines = sum(count for place, count in python.items() if place.parts[0] != "tests")
    print(f"{kind}: {len(written)} files, {lines} lines of Python, {sum(python.values())} with the tests")
    assert lines < 250, "what a reader of a new service has to read"
    for place, text in written.items():
        assert "{{" not in f"{place}{text}", place
        assert not re.search(r"[oO]rders|[cC]ontact", text), f"{place} names a service of ours"


def test_the_local_azure_makes_what_the_service_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And under the names that operators use."""
    assert init.main(["room-bookings", "--into", str(tmp_path)]) == 0
    settings = json.loads((tmp_path / "local.settings.sample.json").read_text())["Values"]
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("service", "room_booking"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    declared = read_app(tmp_path, settings)
    service = importlib.import_module("service").service

    wired = service.settings(settings)
    assert {(each.database, each.name) for each in declared.cosmos.containers} == {
        (wired.cosmos_database, need.name) for need in needed(wired, service)
    }
    [topic] = declared.servicebus.topics
    assert topic.name == servicebus_of(wired.transport).topic
    assert [each.name for each in topic.subscriptions] == ["watch"]
    assert [kind.aggregate_type for kind in service.aggregates] == ["roomBooking"]
    for module in ("service", "room_booking"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("bookings", "Booking"), ("room-bookings", "RoomBooking"), ("deliveries", "Delivery"), ("boxes", "Box"),
        ("stock", "Stock"), ("glass", "Glass"), ("glasses", "Glass"), ("branches", "Branch"),
    ],
)  # fmt: skip
def test_the_aggregate_is_called_after_the_service(name: str, one: str) -> None:
    assert singular(name) == one


@pytest.mark.parametrize(
    ("name", "aggregate", "refusal"),
    [
        ("Bookings", "Booking", "cannot name a service"),
        ("room_bookings", "Booking", "cannot name a service"),
        ("b" * 41, "Booking", "at most 40"),
        ("bookings", "booking", "one word with a capital"),
        ("services", "Service", "service.py would hide another module"),
        ("calendars", "Calendar", "calendar.py would hide another module"),
        ("classes", "Class", "would hide another module"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(name: str, aggregate: str, refusal: str) -> None:
    with pytest.raises(Unusable, match=re.escape(refusal)):
        Words(name, aggregate)


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("mine")
    assert init.main(["bookings", "--into", str(tmp_path)]) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["notes"]
    [line] = capsys.readouterr().err.splitlines()
    assert "--into" in line
    assert init.main(["Bookings"]) == 2


def test_requirements_name_where_this_library_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder or a wheel by its address; what came from an index, or from git, stays as it is."""
    written = {
        "cosmos-outbox": '{"url": "file:///c", "dir_info": {"editable": true}}',
        "cosmos-changefeed": '{"url": "file:///w/c.whl", "archive_info": {}}',
        "devstack": '{"url": "https://x.test/r.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
    }
    monkeypatch.setattr(
        importlib.metadata,
        "distribution",
        lambda name: SimpleNamespace(read_text=lambda _: written.get(name)),
    )
    assert init.as_installed("# Ours.\ncosmos-outbox[relay]>=1.0.0rc1,<2\ndevstack>=1\npytest>=8.3\n") == (
        "# Ours.\ncosmos-outbox[relay] @ file:///c\ncosmos-changefeed @ file:///w/c.whl\n"
        "devstack>=1\npytest>=8.3\n"
    )
