"""Microsoft's emulators under the tests: where they are, what needs its own servers, what is known not to hold there.

``TEST_COSMOS`` and ``TEST_SERVICEBUS`` name servers that run already, in the form of a READY line:
``http://127.0.0.1:8081/`` and ``amqp://127.0.0.1:5672 http://127.0.0.1:5300``. Without them every test starts its own.
A known gap is expected to fail, and may pass: the emulators are mended without notice.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from devstack.testing import Service
from tests.support.paths import ROOT

_COSMOS = "https://github.com/Azure/azure-cosmos-db-emulator-docker/issues/"

BATCH_NOT_ATOMIC = _COSMOS + "303"
BATCH_LIMITS = _COSMOS + "292"
BATCH_IGNORES_ETAG = _COSMOS + "319"
SESSION_TOKEN_IGNORED = _COSMOS + "322"
NO_304 = _COSMOS + "349"
CHANGE_FEED = _COSMOS + "257"
"""The change feed is rudimentary: the Functions trigger does not run on it, and our processor may not either."""

CONNECTIONS = "https://github.com/Azure/azure-service-bus-emulator-installer/issues/58"
"""At most 10 connections; the SDK for Python opens one for each sender and each session."""
SESSIONS_AT_ONCE = 2

OWN_STACK = (
    "tests/e2e/test_failures.py",
    "tests/e2e/test_lost_answers.py",
    "tests/e2e/test_outage.py",
    "tests/e2e/test_relay_worker.py",
    "tests/e2e/test_shutdown.py",
)
"""They kill or pause servers, or have them fail: not with servers that somebody else started."""

GAPS = {
    "tests/contract/test_cosmos_unit_of_work.py::test_a_batch_whose_second_document": BATCH_NOT_ATOMIC,
    "tests/contract/test_cosmos_unit_of_work.py::test_a_replace_holds_only_at_its_version": BATCH_IGNORES_ETAG,
    "tests/contract/test_cosmos_unit_of_work.py::test_more_than_a_batch_holds": BATCH_LIMITS,
    "tests/contract/test_cosmos_unit_of_work.py::test_a_lost_answer_overtaken_by_a_rival": BATCH_IGNORES_ETAG,
    "tests/contract/test_cosmos_unit_of_work.py::test_a_lost_request_overtaken_by_a_rival": BATCH_IGNORES_ETAG,
    "tests/contract/test_cosmos_unit_of_work.py::test_a_session_token_that_no": SESSION_TOKEN_IGNORED,
    "tests/contract/test_unit_of_work.py::test_two_writers_of_one_version": BATCH_IGNORES_ETAG,
    "tests/contract/test_idempotency.py::test_of_many_at_once_one_creates": BATCH_NOT_ATOMIC,
    "tests/contract/test_parking.py::test_who_parks_must_have_seen": BATCH_IGNORES_ETAG,
    "tests/contract/test_parking.py::test_two_operators_replay_at_once": BATCH_IGNORES_ETAG,
    "tests/contract/test_parking.py::test_documents_too_large": BATCH_LIMITS,
    "tests/contract/test_parking.py::test_a_document_that_leaves_no_room": BATCH_LIMITS,
    "tests/contract/test_relay_status.py::test_events_that_wait_too_long": CHANGE_FEED,
    "tests/e2e/test_api.py::test_a_contact_from_its_creation_to_its_end": NO_304,
    "tests/e2e/test_api.py::test_a_repeated_creation": CHANGE_FEED,
    "tests/e2e/test_api.py::test_a_bad_patch_is_refused": CHANGE_FEED,
    "tests/e2e/test_latency.py::test_the_subscriber_logs_soon": CHANGE_FEED,
    "tests/e2e/test_parking.py::test_poison": CHANGE_FEED,
    "tests/e2e/test_parking.py::test_the_relays_status": CHANGE_FEED,
    "tests/e2e/test_path.py::test_a_patch_of_three_properties": CHANGE_FEED,
    "tests/e2e/test_path.py::test_the_trace_of_a_request": CHANGE_FEED,
    "tests/e2e/test_path.py::test_every_contact_sees_its_events": CHANGE_FEED,
    "tests/e2e/test_path.py::test_no_log_line_names_a_person": CHANGE_FEED,
    "tests/e2e/test_readme.py::test_the_readmes_curl_lines": BATCH_IGNORES_ETAG,
}
"""The beginning of a test's id, and the report of what is not as in the service. The fakes beside them hold."""


class Elsewhere(Service):
    """A server that runs already. It can be asked, and neither stopped nor started."""

    def __init__(self, name: str, addresses: list[str]) -> None:
        super().__init__(name, Path(name))
        self.addresses = addresses

    def start(self) -> "Elsewhere":
        return self

    def kill(self) -> None:
        raise AssertionError(f"{self.name} was not started by the tests: mark the test in OWN_STACK")

    pause = resume = kill

    def terminate(self) -> int:
        return 0


def elsewhere(name: str) -> Elsewhere | None:
    """The server of that name which the environment points at, if it does."""
    text = os.environ.get(f"TEST_{name.upper()}", "")
    return Elsewhere(name, text.split()) if text else None


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark what needs servers of its own, and, with servers that run elsewhere, what is known not to hold there."""
    emulated = elsewhere("cosmos") is not None
    for item in items:
        if item.nodeid.startswith(OWN_STACK):
            item.add_marker("own_stack")
        report = next((GAPS[beginning] for beginning in GAPS if item.nodeid.startswith(beginning)), None)
        if emulated and report and "[fake" not in item.nodeid:
            item.add_marker(pytest.mark.xfail(reason=report, strict=False))


def modest_app(app: Path, folder: Path) -> Path:
    """The same app with fewer sessions at once: see CONNECTIONS."""
    folder.mkdir(parents=True)
    for file in app.glob("*.py"):
        (folder / file.name).symlink_to(file)
    host = json.loads((ROOT / "host.json").read_text())
    host["extensions"]["serviceBus"]["maxConcurrentSessions"] = SESSIONS_AT_ONCE
    (folder / "host.json").write_text(json.dumps(host))
    return folder
