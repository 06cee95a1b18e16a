"""The app, preflight, devstack and its Functions host read a connection setting alike."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cosmos_outbox.cli.preflight import main
from cosmos_outbox.preflight.plan import Plan
from cosmos_outbox.preflight.report import Finding
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.transports import servicebus_of
from devstack.functions import connections as host
from devstack.service import CannotStart
from devstack.settings import read_settings
from infra.bootstrap import service as contact_service
from tests.support.connection_cases import SERVICES, Case, Found, Refused, Unset, all_cases
from tests.support.paths import ROOT

EVERY_CASE = pytest.mark.parametrize("case", list(all_cases()), ids=str)


def refusal(case: Case) -> Refused | None:
    """What must be said about a case, if the app cannot go on with it."""
    if isinstance(case.expected, Unset):
        return Refused((case.service.name, f"{case.service.name}__{case.service.address}"))
    return case.expected if isinstance(case.expected, Refused) else None


def with_the_other_service(case: Case) -> dict[str, str]:
    """The case's settings, and some that connect the service which the case is not about."""
    return {other.name: other.text for other in SERVICES if other is not case.service} | dict(
        case.environment
    )


def check_refusal(said: str, expected: Refused) -> None:
    assert "\n" not in said.rstrip("\n")
    assert [words for words in expected.named if words not in said] == [], said


def check_connection(settings: Settings, case: Case) -> None:
    assert isinstance(case.expected, Found)
    found = settings.cosmos if case.service.name == "COSMOS" else servicebus_of(settings.transport).connection
    assert found == Connection(
        case.expected.connection_string,
        case.expected.address,
        case.expected.managed_identity,
        case.expected.client_id,
    )


def raised(error: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(error) as refused:
        call()
    return str(refused.value)


@EVERY_CASE
def test_the_app(case: Case) -> None:
    environment = with_the_other_service(case)
    if refused := refusal(case):
        check_refusal(raised(Misconfigured, lambda: contact_service.settings(environment)), refused)
    else:
        check_connection(contact_service.settings(environment), case)


@EVERY_CASE
def test_preflight(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plans = []

    async def look_at(plan: Plan, _credential: object) -> list[Finding]:
        plans.append(plan)
        return []

    monkeypatch.setattr("cosmos_outbox.cli.preflight.check", look_at)
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"Values": with_the_other_service(case)}))
    code = main(["--settings", str(file)], {})
    if refused := refusal(case):
        assert (code, plans) == (2, [])
        check_refusal(capsys.readouterr().err, refused)
    else:
        [plan] = plans
        assert isinstance(plan.settings, Settings)
        check_connection(plan.settings, case)


@EVERY_CASE
def test_devstack(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"Values": dict(case.environment)}))
    if isinstance(case.expected, Refused):
        check_refusal(raised(CannotStart, lambda: read_settings({}, ROOT, file)), case.expected)
        return
    settings = read_settings({}, ROOT, file)
    setting = settings.cosmos_setting if case.service.name == "COSMOS" else settings.servicebus_setting
    assert setting == (case.service.name if isinstance(case.expected, Unset) else case.expected.setting)


@EVERY_CASE
def test_the_functions_host_of_devstack(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if case.service.name.lower() in name.lower()]:
        monkeypatch.delenv(name)
    for name, value in case.environment.items():
        monkeypatch.setenv(name, value)
    read = host.cosmos_connection if case.service.name == "COSMOS" else host.servicebus_connection
    if refused := refusal(case):
        check_refusal(raised(CannotStart, lambda: read(case.service.name, where="here")), refused)
        return
    found = read(case.service.name, where="here")
    assert case.expected == Found(
        found.setting,
        found.connection_string,
        found.address or "",
        found.managed_identity,
        found.client_id,
    )
